"""Why a run ends, and what it touched.

An `Ending` is created where the reason is known; `Tally.outcome` turns it into the outcome. Evidence is collected from
the effects of tool calls, bounded, in order of first appearance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson
from msgspec import Struct

from retinue.core.messages import AssistantMessage, ToolCall
from retinue.core.outcome import Ended, Evidence, Failure
from retinue.core.permission import ToolEffect
from retinue.core.usage import LimitName
from retinue.loop.shrink import describe


class Ending(Struct, frozen=True):
    """How and why a run ends. `text` replaces the answer in the conversation, as for structured output."""

    ended: Ended
    failure: Failure | None = None
    limit: LimitName | None = None
    value: Any = None
    text: str | None = None


def stopped(reason: str) -> Ending:
    return Ending("stopped", Failure("stopped", reason))


def out_of_time(seconds: float) -> Ending:
    message = f"The run exceeded maximum runtime after {seconds * 1000:.0f}ms."
    return Ending("timeout", Failure("limit", message, "Raise the time limit, or give it a smaller task."), "time")


def gone_quiet(seconds: float) -> Ending:
    message = f"The run timed out after {seconds * 1000:.0f}ms without activity."
    remedy = "The model sent nothing for that long: check the provider, or raise the idle limit."
    return Ending("timeout", Failure("limit", message, remedy), "idle")


_MAX_ERROR_CHARACTERS = 300
_ERROR_LINE = re.compile(r"\s*(?:API Error|Error code)\s*:?\s*[45]\d\d\b", re.IGNORECASE)
_ERROR_TYPES = frozenset(
    "api_error authentication_error internal_server_error invalid_request_error overloaded_error permission_error"
    " rate_limit_error server_error timeout_error".split()
)


def error_in_disguise(message: AssistantMessage) -> Failure | None:
    """Return the failure if a gateway sent an error as the text of the answer.

    Only the exact forms that gateways use match, and only as the entire text: an answer may be about rate limits.
    """
    text = message.text
    # No gateway sends an error of this length, and parsing it would cost time.
    if len(text) > 4_000:
        return None
    if _ERROR_LINE.match(text) or _is_error_envelope(text):
        return Failure(
            "server", f"The provider sent an error in place of an answer: {text.strip()[:_MAX_ERROR_CHARACTERS]}"
        )
    return None


def _is_error_envelope(text: str) -> bool:
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}") and '"error"' in stripped):
        return False
    try:
        data = orjson.loads(stripped)
    except ValueError:
        return False
    error = data.get("error")
    return (
        isinstance(error, dict)
        and {"error", *data} <= {"type", "error", "request_id"}
        and error.get("type") in _ERROR_TYPES
    )


_MAX_ENTRIES = 200
_MAX_ENTRY_CHARACTERS = 500
_MAX_LISTED_FILES = 40


class EvidenceCollector:
    """Collects evidence cheaply during a run; `evidence` cuts the lists and names how many entries it left out."""

    def __init__(self) -> None:
        # Dictionaries, because they keep the order of first appearance.
        self._entries: dict[str, dict[str, None]] = {}

    def add(self, call: ToolCall, effect: ToolEffect) -> None:
        self._put("files_read", effect.reads)
        self._put("files_written", (touched.path for touched in effect.writes))
        self._put("hosts", effect.hosts)
        if effect.command is not None:
            self._put("commands", (effect.command,))
        if effect.denied is not None:
            self._put("denials", (f"{describe(call)}: {effect.denied}",))
        if effect.status in ("unknown", "started"):
            self._put("unknown_effects", (describe(call),))

    def _put(self, name: str, entries: Iterable[str]) -> None:
        new = dict.fromkeys(entries)
        if new:
            self._entries.setdefault(name, {}).update(new)

    def files(self) -> str:
        """Return the changed and read files, as a reminder after a compaction."""
        changed = list(self._entries.get("files_written", ()))
        only_read = [path for path in self._entries.get("files_read", ()) if path not in changed]
        lines = []
        if changed:
            lines.append(f"Files you changed: {_listed(changed)}")
        if only_read:
            lines.append(f"Files you read: {_listed(only_read)}")
        return "\n".join(lines)

    def evidence(self) -> Evidence:
        return Evidence(**{name: _bounded(entries) for name, entries in self._entries.items()})


def _listed(paths: list[str]) -> str:
    """Return the newest of `paths` on one line."""
    text = ", ".join(paths[-_MAX_LISTED_FILES:])
    if len(paths) > _MAX_LISTED_FILES:
        text += f" and {len(paths) - _MAX_LISTED_FILES} earlier ones"
    return text


def _bounded(entries: Iterable[str]) -> tuple[str, ...]:
    shown: list[str] = []
    for entry in entries:
        if len(entry) > _MAX_ENTRY_CHARACTERS:
            entry = entry[: _MAX_ENTRY_CHARACTERS - 1] + "…"
        shown.append(entry)
    if len(shown) > _MAX_ENTRIES:
        shown = [*shown[:_MAX_ENTRIES], f"… and {len(shown) - _MAX_ENTRIES} more"]
    return tuple(shown)
