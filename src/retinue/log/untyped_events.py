"""Events of older logs whose facts were sentences, rewritten once with typed facts.

Older versions kept a changed permission mode and the move to the background as warnings, the children that a
notification tells of in the text of the message, and the call that carried a child's result nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from retinue.core.delegation import Status
from retinue.core.spec import PermissionMode

FIND_FACTS = """SELECT id, run_id, type, body FROM events
    WHERE type = 'run.warned' OR type = 'child.read'
        OR (type = 'message.added' AND (instr(body, '<task-notification>') > 0 OR instr(body, '<agent-question>') > 0))
        OR (type = 'tool.ended' AND run_id IN (SELECT run_id FROM events WHERE type = 'child.read'))
    ORDER BY run_id, seq"""
FIND_CALLS = "SELECT run_id, json_extract(body, '$.options.call_id') FROM events WHERE type = 'run.created'"

_FRAME = re.compile(r"^<(task-notification|agent-question)>\n(.*?)^</\1>$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^<([a-z-]+)>(.*?)</\1>$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"<([a-z_]+)>(\d+)</\1>")
_STATUS: dict[str, Status] = {
    "Done": "completed",
    "Wrapped up (turn limit)": "steered",
    "Aborted (max turns exceeded)": "aborted",
    "Stopped": "stopped",
    "Stopped by the user": "stopped",
    "Timed out": "timeout",
    "Stopped (budget spent)": "over-budget",
    "Refused (no language model)": "refused",
    "Interrupted": "interrupted",
}
_CUT = re.compile(r" \([^()]*output limit[^()]*\)$")


class TypedEvent(NamedTuple):
    """What replaces the event `number`."""

    number: int
    type: str
    body: str


def type_events(rows: Iterable[tuple[int, str, str, str]], calls: Mapping[str, str | None]) -> Iterator[TypedEvent]:
    """Yield the events of `FIND_FACTS` that must change. `calls` has the call that started each run, if one did."""
    unread: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
    for number, run_id, kind, text in rows:
        body = json.loads(text)
        if kind == "child.read":
            unread[run_id, body["child_id"]] = (number, body)
        elif kind == "tool.ended":
            result = json.dumps(body.get("result"))
            carried = [
                key
                for key in unread
                if key[0] == run_id and (key[1] in result or calls.get(key[1]) == body.get("call_id"))
            ]
            for key in carried:
                read, fact = unread.pop(key)
                yield _typed(read, "child.read", {**fact, "call_id": body.get("call_id")})
        elif kind == "run.warned":
            yield from _from_warning(number, body)
        elif body["message"].get("notice") is None:
            yield from _from_message(number, body)


def _from_warning(number: int, body: Mapping[str, Any]) -> Iterator[TypedEvent]:
    code, text = body.get("code"), str(body.get("text"))
    if code == "moved_to_background":
        yield _typed(number, "run.moved", {"call_id": None})
    elif code in ("plan_approved", "permission_mode"):
        mode = next((mode for mode in get_args(PermissionMode) if f" {mode} now." in text), None)
        if mode is not None:
            cause = "plan" if code == "plan_approved" else "person"
            yield _typed(number, "run.mode_changed", {"mode": mode, "cause": cause})


def _from_message(number: int, body: dict[str, Any]) -> Iterator[TypedEvent]:
    message = body["message"]
    text = "\n".join(part["text"] for part in message["content"] if part.get("type") == "text")
    frames = _FRAME.findall(text)
    if message.get("origin") != "notification" or not frames:
        return
    if frames[0][0] == "agent-question":
        message["notice"] = _question(frames[0][1])
    else:
        endings = [_ending(frame) for name, frame in frames if name == "task-notification"]
        head = text[: text.index("<task-notification>")]
        message["notice"] = {
            "type": "children_ended",
            "endings": endings,
            "group": len(endings) > 1,
            "partial": "(partial" in head,
        }
    yield _typed(number, "message.added", body)


def _question(frame: str) -> dict[str, Any]:
    fields, options, _ = _fields(frame)
    return {
        "type": "child_asked",
        "run_id": fields.get("agent-id", ""),
        "agent": fields.get("agent", ""),
        "question": fields.get("question", ""),
        "options": options,
    }


def _ending(frame: str) -> dict[str, Any]:
    fields, _, notes = _fields(frame)
    label = fields.get("status", "")
    about = fields.get("summary", "").removeprefix('Agent "')
    numbers = {name: int(value) for name, value in _NUMBER.findall(fields.get("usage", ""))}
    return {
        "id": fields.get("task-id", ""),
        "status": _STATUS.get(_CUT.sub("", label), "error"),
        "label": label,
        "description": about[: about.rfind(f'" {label}')] or "agent",
        "result": fields.get("result", ""),
        "truncated": _CUT.search(label) is not None,
        "stopped_by_person": label == "Stopped by the user",
        "transcript": fields.get("output-file", ""),
        "branch": fields.get("branch", ""),
        "notes": notes,
        "tool_uses": numbers.get("tool_uses", 0),
        "tokens": numbers.get("total_tokens"),
        "duration_ms": numbers.get("duration_ms", 0),
    }


def _fields(frame: str) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the fields of a frame, and those that it may have several times: options and notes."""
    fields: dict[str, str] = {}
    options, notes = [], []
    for name, escaped in _FIELD.findall(frame):
        text = escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        if name == "option":
            options.append(text)
        elif name == "note":
            notes.append(text)
        else:
            fields.setdefault(name, text)
    return fields, options, notes


def _typed(number: int, kind: str, fields: Mapping[str, Any]) -> TypedEvent:
    return TypedEvent(number, kind, json.dumps({**fields, "type": kind}, ensure_ascii=False, separators=(",", ":")))
