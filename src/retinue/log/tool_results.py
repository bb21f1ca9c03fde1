"""The output of a tool is in the log once: in the end of its call. `tools.ended` refers to it.

A turn's `tools.ended` holds the results of all its calls in call order, nearly always those that the `tool.ended`
of each call holds already. It is written as

    {"type":"tools.ended","ended":[7,null],"message":{"type":"tool","results":[…]}}

where a number is that of the `tool.ended` in the same run which has the result, and null stands for the next one of
`results`: a call that never ran, or one whose result was changed afterwards. Readers get the whole event, as they do
from logs of before, in which every result is in `message`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from retinue.core.events import Event, ToolEnded, ToolsEnded
from retinue.core.messages import Text, ToolMessage, ToolResult

_HEAD = '{"type":"tools.ended",'
_REFERS = _HEAD + '"ended":['
_MESSAGE = '{"type":"tools.ended","message":{"type":"tool","results":[%s]}}'

_SHORT = 200
"""Characters of an output below which a second copy costs less than looking for the first."""

Places = tuple[int | None, ...]


class WrittenResult(Struct):
    """The result of a call whose end is in the file: as the tool said it, and as the file has it, without secrets."""

    seq: int
    said: ToolResult
    written: ToolResult


Sources = tuple[WrittenResult | None, ...]
"""For each result of a `tools.ended`, where the file has it already."""


class WrittenResults:
    """The results of the turns that are going on, for the one who writes them."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, list[WrittenResult]]] = {}

    def take(self, event: Event) -> WrittenResult | None:
        """Keep the result of an end until the turn or the run is over, and return it; None for one too short to refer
        to."""
        body = event.body
        if isinstance(body, ToolEnded):
            if _is_short(body.result):
                return None
            found = WrittenResult(event.seq, body.result, body.result)
            self._runs.setdefault(event.run_id, {}).setdefault(body.call_id, []).append(found)
            return found
        self._runs.pop(event.run_id, None)
        return None

    def find(self, run_id: str, body: ToolsEnded) -> Sources:
        """Return which results of a turn that is over are in the file already."""
        known = self._runs.pop(run_id, None)
        if known is None:
            return ()
        return tuple(_same(known.get(result.call_id, ()), result) for result in body.message.results)


def _is_short(result: ToolResult) -> bool:
    content = result.content
    return len(content) == 1 and isinstance(content[0], Text) and len(content[0].text) < _SHORT


def _same(known: Sequence[WrittenResult], result: ToolResult) -> WrittenResult | None:
    for each in known:
        if each.said is result or each.said == result:
            return each
    return None


def remainder(body: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return a `tools.ended` with those results only that are nowhere else."""
    pairs = zip(body.message.results, sources, strict=True)
    return ToolsEnded(ToolMessage(tuple(result for result, source in pairs if source is None)))


def completed(said: ToolsEnded, rest: ToolsEnded, sources: Sources) -> ToolsEnded:
    """Return the `tools.ended` that readers of the file get: the same object, unless a secret was taken out."""
    left = iter(rest.message.results)
    results = tuple(next(left) if source is None else source.written for source in sources)
    same = all(new is old for new, old in zip(results, said.message.results, strict=True))
    return said if same else ToolsEnded(ToolMessage(results))


def with_places(data: str, sources: Sources) -> str:
    """Return the JSON of a remainder with the places of the other results."""
    numbers = ",".join("null" if source is None else str(source.seq) for source in sources)
    return f"{_REFERS}{numbers}],{data[len(_HEAD) :]}"


# For readers


def refers(body: str) -> bool:
    """Return whether a stored body refers to results of other events."""
    return body.startswith(_REFERS)


class _Stored(Struct):
    ended: Places
    message: ToolMessage


class _RawMessage(Struct):
    results: list[msgspec.Raw]


class _StoredJson(Struct):
    ended: Places
    message: _RawMessage


class _EndJson(Struct):
    result: msgspec.Raw


def read_whole(body: str, result_of: Callable[[int], ToolResult]) -> ToolsEnded:
    """Return the event that a stored body means; `result_of` knows the result of an earlier end of the run."""
    stored = msgspec.json.decode(body, type=_Stored)
    left = iter(stored.message.results)
    results = [next(left) if place is None else result_of(place) for place in stored.ended]
    return ToolsEnded(ToolMessage(tuple(results)))


def whole_json(body: str, end_of: Callable[[int], str]) -> str:
    """Return the JSON of the event that a stored body means; `end_of` knows the JSON of an earlier end of the run."""
    stored = msgspec.json.decode(body, type=_StoredJson)
    left = iter(stored.message.results)
    results = []
    for place in stored.ended:
        if place is None:
            result = next(left)
        else:
            result = msgspec.json.decode(end_of(place), type=_EndJson).result
        results.append(bytes(result).decode())
    return _MESSAGE % ",".join(results)
