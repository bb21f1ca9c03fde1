"""The answers of hook handlers as one result: exit codes, JSON of two dialects, plain text.

Of several handlers of one event, no counts before ask, and ask before yes. A guarding handler whose
answer is not exactly one of the forms that are allowed counts as a no: a text where none is expected, an
unknown key, a value of the wrong type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.hooks.sources import BLOCKABLE, ENDS, GUARDS, SPEAKS, STRICT, Handler
from retinue.core.permission import NO_OPINION, HookEvent, HookResult, Verdict

MAX_TEXT_CHARACTERS = 10_000

_WEIGHT: dict[Verdict | None, int] = {None: 0, "allow": 1, "ask": 2, "deny": 3}

Spill = Callable[[str], str | None]
"""Store a text that is too long, and return its path; None if it cannot be stored."""


def merge(opinions: Sequence[HookResult], spill: Spill) -> HookResult:
    """Return one result of `opinions`, which are in the order of their handlers' priority. The
    strongest verdict counts, with the reasons of all handlers that share it. Of several changed inputs
    or outputs the first counts, and a message says so."""
    if all(each is NO_OPINION for each in opinions):
        return NO_OPINION
    verdict = max((each.verdict for each in opinions), key=_WEIGHT.__getitem__)
    messages = [message for each in opinions for message in each.messages]
    inputs = [each.updated_input for each in opinions if each.updated_input is not None]
    outputs = [each.updated_output for each in opinions if each.updated_output is not None]
    for what, changes in (("input", inputs), ("output", outputs)):
        if any(change != changes[0] for change in changes[1:]):
            messages.append(f"Several hooks changed the {what} of one call: the change of the first one counts.")
    reasons = [each.reason for each in opinions if each.verdict == verdict]
    last_outputs = filter(None, (each.output for each in reversed(opinions)))
    return HookResult(
        verdict=verdict,
        reason=_shorten(_join(reasons, "\n"), spill),
        updated_input=next(iter(inputs), None),
        updated_output=next(iter(outputs), None),
        context=_shorten(_join([each.context for each in opinions], "\n\n"), spill),
        stop=next(filter(None, (each.stop for each in opinions)), None),
        messages=tuple(_shorten(message, spill) for message in dict.fromkeys(messages)),
        output=_shorten(next(last_outputs, ""), spill),
        failures=tuple(failure for each in opinions for failure in each.failures),
        handlers=tuple(dict.fromkeys(label for each in opinions for label in each.handlers)),
    )


def _join(texts: Iterable[str], between: str) -> str:
    return between.join(filter(None, dict.fromkeys(texts)))


def _shorten(text: str, spill: Spill) -> str:
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    path = spill(text)
    where = f" in {path}" if path else ""
    note = f"\n[… {len(text) - MAX_TEXT_CHARACTERS} more characters{where}]"
    return text[: MAX_TEXT_CHARACTERS - len(note)] + note


BLOCK = 2
CONTINUE = "(continue)"

_VERDICTS: Mapping[str, Verdict] = {
    "allow": "allow",
    "approve": "allow",
    "ask": "ask",
    "defer": "ask",
    "deny": "deny",
    "block": "deny",
}


class HandlerResult(Struct, frozen=True):
    """How a handler ended. `failure` says why it has no answer at all; `data` is set for a
    callable, which needs no text."""

    code: int = 0
    out: str = ""
    err: str = ""
    failure: str = ""
    data: Any = None


class _GarbageError(Exception):
    """The handler said something that means nothing."""


def opinion(handler: Handler, said: HandlerResult) -> HookResult:
    """Return the opinion of one handler. Never raises. A failure is in `failures`, and where the
    event guards something the verdict is deny already."""
    if said.failure:
        return broken(handler, said.failure)
    if handler.observes:
        return NO_OPINION if said.code == 0 else broken(handler, _ended(said))
    try:
        data = said.data
        if data is None:
            data = _json(handler, said)
        if said.code == BLOCK:
            return _blocked(handler, said, data)
        if data is None:
            return _plain(handler, said)
        result = _structured(handler, data)
    except _GarbageError as error:
        return broken(handler, str(error))
    if result == NO_OPINION:
        return result
    return replace(result, handlers=(handler.label,))


def broken(handler: Handler, why: str) -> HookResult:
    """Return the result of a handler without an answer: a no where the handler guards something."""
    failure = f"{handler.label} {why}"
    blocks = handler.event in STRICT or (handler.on_failure == "block" and handler.event in BLOCKABLE)
    if handler.observes or handler.on_failure == "continue" or not blocks:
        return HookResult(failures=(failure,))
    reason = f"{failure}. It guards this, so the answer is no."
    return HookResult(verdict="deny", reason=reason, failures=(failure,), handlers=(handler.label,))


def _json(handler: Handler, said: HandlerResult) -> Mapping[str, Any] | None:
    """Return the object on standard output; None for plain text. Only `{` begins an object."""
    text = said.out.strip()
    if not text.startswith("{"):
        if handler.point and text and said.code == 0:
            raise _GarbageError(f"must answer with a JSON object, but said: {_start(text)}")
        return None
    try:
        data: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # With another code the handler has failed, and the code says more than half an answer.
        if said.code not in (0, BLOCK):
            return None
        raise _GarbageError(f"answered with broken JSON ({error})") from None
    return data


def _blocked(handler: Handler, said: HandlerResult, data: Any) -> HookResult:
    """Return the result of exit code 2: a no with the reason on standard error, whatever is on standard output."""
    reason = said.err.strip() or _reason_in(data) or "no reason was given"
    label = (handler.label,)
    if handler.event == "PostToolUseFailure":
        # The call has failed already: there is nothing to forbid, only something to tell.
        return HookResult(context=reason, handlers=label)
    if handler.event not in BLOCKABLE:
        return HookResult(messages=(f"{handler.label}: {reason}",))
    return HookResult(verdict="deny", reason=reason, context=reason if handler.event in ENDS else "", handlers=label)


def _plain(handler: Handler, said: HandlerResult) -> HookResult:
    text = said.out.strip()
    if said.code != 0:
        return broken(handler, _ended(said))
    if not text:
        return NO_OPINION
    if handler.event in GUARDS - SPEAKS:
        raise _GarbageError(f"must answer with a JSON object or nothing, but said: {_start(text)}")
    if handler.event in SPEAKS:
        return HookResult(context=text, output=text, handlers=(handler.label,))
    return HookResult(output=text)


def _structured(handler: Handler, data: Any) -> HookResult:
    if isinstance(data, HookResult):
        return data
    if not isinstance(data, Mapping):
        raise _GarbageError(f"must give back an object, not {type(data).__name__}")
    event = handler.event
    specific = data.get("hookSpecificOutput")
    if specific is not None and not isinstance(specific, Mapping):
        raise _GarbageError("has a 'hookSpecificOutput' that is no object")
    specific = specific or {}
    if event in STRICT:
        _check_form(data, specific)
    named = specific.get("hookEventName")
    # Scripts written for Stop also serve SubagentStop, and name the event they were written for.
    if named is not None and named != event and not {named, event} <= ENDS:
        raise _GarbageError(f"answered for the event '{named}'")
    result = _verdict(event, data, specific)
    context = _text(specific, "additionalContext") or _text(data, "additionalContext")
    if context and event in ENDS and result.verdict is None:
        result = replace(result, verdict="deny", reason=context, context=context)
    elif context:
        result = replace(result, context="\n".join(filter(None, (result.context, context))))
    stop = result.stop
    if data.get("continue") is False:
        stop = _text(data, "stopReason") or f"Stopped by the {handler.label}."
    return replace(
        result,
        stop=stop,
        messages=tuple(filter(None, (_text(data, "systemMessage"),))),
        updated_input=_object(specific, data, "updatedInput", "modifiedInput", default=result.updated_input),
        updated_output=_output(specific, data),
    )


_TEXTS = frozenset(
    {
        *("additionalContext", "reason", "stopReason", "systemMessage", "injection", "permissionDecision"),
        *("permissionDecisionReason", "hookEventName", "decision", "worktreePath"),
    }
)
_SWITCHES = frozenset({"continue", "suppressOutput", "suppressOriginalPrompt"})
_OBJECTS = frozenset({"updatedInput", "modifiedInput", "updatedPermissions"})
_FREE = frozenset({"hookSpecificOutput", "updatedToolOutput", "updatedMCPToolOutput", "modifiedOutput"})
_INSIDE = frozenset({"permissionDecision", "permissionDecisionReason", "hookEventName"})
"""Keys that count in `hookSpecificOutput` only."""


def _check_form(data: Mapping[str, Any], specific: Mapping[str, Any]) -> None:
    """Raise for a guard's answer that is not exactly an allowed form: its author meant something that is lost."""
    for table, outside in ((data, True), (specific, False)):
        for key, value in table.items():
            if outside and key in _INSIDE:
                raise _GarbageError(f"has '{key}' outside of 'hookSpecificOutput'")
            if key == "decision" and isinstance(value, Mapping):
                continue
            if value is not None and not _is_allowed(key, value):
                raise _GarbageError(f"has {key!r}: {_start(repr(value))}, which is no answer")


def _is_allowed(key: str, value: Any) -> bool:
    if key in _TEXTS:
        return isinstance(value, str)
    if key in _SWITCHES:
        return isinstance(value, bool)
    if key in _OBJECTS:
        return isinstance(value, Mapping | list)
    return key in _FREE


def _verdict(event: HookEvent, data: Mapping[str, Any], specific: Mapping[str, Any]) -> HookResult:
    """Return the decision, from whichever of its fields holds it."""
    if event == "PermissionRequest" and isinstance(specific.get("decision"), Mapping):
        return _permission_request(specific["decision"])
    said = specific.get("permissionDecision")
    reason = _text(specific, "permissionDecisionReason")
    other = data.get("decision", specific.get("decision"))
    if said is not None and other is not None and _VERDICTS.get(str(said)) != _VERDICTS.get(str(other)):
        raise _GarbageError(f"decided {said!r} and {other!r} at once")
    if said is None:
        said = other
        reason = reason or _text(data, "reason") or _text(specific, "reason")
    if said is None:
        return HookResult()
    if event in ENDS:
        return _decide_end(said, reason, data)
    if said == "continue":
        return HookResult(context=_text(data, "injection"))
    if not isinstance(said, str) or said not in _VERDICTS:
        raise _GarbageError(f"decided {said!r}, which is none of {', '.join(_VERDICTS)}")
    return HookResult(verdict=_VERDICTS[said], reason=reason, context=_text(data, "injection"))


def _decide_end(said: Any, reason: str, data: Mapping[str, Any]) -> HookResult:
    """Return the decision about a run that would end: `block` and CodingCode's `continue` keep it going."""
    if said in ("block", "continue", "deny"):
        text = _text(data, "injection") or reason or CONTINUE
        return HookResult(verdict="deny", reason=reason or text, context=text)
    if said in ("allow", "approve"):
        return HookResult(verdict="allow", reason=reason)
    if isinstance(said, str) and said in _VERDICTS:
        # Nobody can be asked about an end.
        return HookResult(reason=reason)
    raise _GarbageError(f"decided {said!r}, which is neither block nor allow")


def _permission_request(decision: Mapping[str, Any]) -> HookResult:
    behavior = decision.get("behavior")
    if behavior not in ("allow", "deny"):
        raise _GarbageError(f"has the behavior {behavior!r}, which is neither allow nor deny")
    message = _text(decision, "message")
    stop = None
    if behavior == "deny" and decision.get("interrupt") is True:
        stop = message or "A hook refused this and stopped the run."
    changed = _object(decision, {}, "updatedInput", default=None)
    return HookResult(verdict=_VERDICTS[behavior], reason=message, updated_input=changed, stop=stop)


def _object(
    first: Mapping[str, Any], second: Mapping[str, Any], *keys: str, default: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    for table in (first, second):
        for key in keys:
            value = table.get(key)
            if value is not None and not isinstance(value, Mapping):
                raise _GarbageError(f"has a '{key}' that is no object")
            if value is not None:
                return value
    return default


def _output(specific: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    for table in (specific, data):
        for key in ("updatedToolOutput", "updatedMCPToolOutput", "modifiedOutput"):
            value = table.get(key)
            if isinstance(value, str):
                return value
            if value is not None:
                return json.dumps(value, ensure_ascii=False, default=str)
    return None


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value.strip() if isinstance(value, str) else ""


def _reason_in(data: Any) -> str:
    if not isinstance(data, Mapping):
        return ""
    specific = data.get("hookSpecificOutput")
    if isinstance(specific, Mapping) and _text(specific, "permissionDecisionReason"):
        return _text(specific, "permissionDecisionReason")
    return _text(data, "reason")


def _ended(said: HandlerResult) -> str:
    detail = _start(said.err.strip() or said.out.strip())
    return f"failed with exit code {said.code}" + (f": {detail}" if detail else "")


def _start(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:299]}…"
