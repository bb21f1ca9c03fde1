"""One call before a person and one denial before a model: who asks, the inbox item, the denial's text.

An item shows the exact call, with a diff where it changes a file. A denial says what was denied, by
whom, why, and what to do instead, on lines with fixed names, so that a model, a parent or a program
finds each fact in the same line. Nothing in it suggests trying the same in another way.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from retinue.core.events import Body
from retinue.core.permission import APPROVALS, Decision, InboxAnswer, InboxItem, Judge, ToolEffect, ToolUse
from retinue.core.tool import Preview, ToolContext, ToolOutput, failed

if TYPE_CHECKING:
    from retinue.core.run_state import RunPlace
    from retinue.loop.controls import Controls


class Asker(Struct, eq=False):
    """`record` writes an event of the run down; `leftovers` says that an earlier attempt of it asked
    things of which nothing came yet."""

    place: RunPlace
    agent: str
    controls: Controls
    record: Callable[[Body], object]
    leftovers: bool = False
    description: str = ""
    """What the run works on, in a few words."""
    resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Entered while the run waits for a person, so that other runs may use its slot."""


NOBODY = "Nobody is there to ask, and the policy for that is to deny (setting permissions.headless)."


def explain_nobody(rule: str | None, tool: str) -> str:
    """Return why a call is denied where nobody can be asked, and what would have allowed it."""
    if rule is None:
        return f"{NOBODY} No rule can allow it beforehand; with that setting on `wait` it waits for a person's answer."
    ways = f"--allowedTools {shlex.quote(rule)}"
    if tool in ("edit", "write", "apply_patch"):
        ways += ", --permission-mode acceptEdits"
    return f"{NOBODY} The user can allow it before the run: {ways}, or the rule in permissions.allow."


Approver = Callable[[InboxItem], Awaitable[InboxAnswer | None]]
"""Puts an item before someone. None leaves it to others; being cancelled means that someone else
has answered."""


def new_item_id() -> str:
    # Short enough to be typed: `retinue inbox answer 3f9a…`.
    return os.urandom(5).hex()


class InboxPolicy(Struct, frozen=True):
    """What happens while no person can answer, and how long an item waits for one."""

    headless: Literal["deny", "wait"] = "deny"
    expiry_seconds: float = 3600.0


class Asked(Struct, eq=False):
    """An item that waits in this process. `users` are the calls that wait for it."""

    item: InboxItem
    mark: str
    asker: Asker
    call_id: str | None
    done: asyncio.Future[InboxItem]
    covered: Callable[[], bool] | None = None
    granted: Callable[[InboxAnswer], Awaitable[None]] | None = None
    task: asyncio.Task[InboxAnswer] | None = None
    users: int = 0
    adopted: bool = False
    errands: list[asyncio.Task[None]] = field(default_factory=list)


def subject(item: InboxItem) -> object:
    """Return what makes two items the same: the call or question, without the id of the call."""
    return {name: value for name, value in item.payload.items() if name != "call_id"}


async def cancel_errands(errands: list[asyncio.Task[None]]) -> None:
    """Cancel them all and wait: a terminal takes its question back, and says so."""
    for errand in errands:
        errand.cancel()
    # asyncio.wait refuses an empty set.
    if errands:
        await asyncio.wait(errands)


_ONCE = ("allow", "deny")
_TITLE = 200
_TELLING = ("command", "path", "file_path", "url", "query", "pattern", "description", "prompt", "name")
"""Arguments that say what a call is about, the most telling first."""


async def approval(
    use: ToolUse, decision: Decision, asker: Asker, rule: str | None, context: ToolContext, preview: Preview | None
) -> InboxItem:
    """`rule` is what could be granted beyond this call; None where nothing may be granted."""
    return InboxItem(
        id=new_item_id(),
        kind="approval",
        run_id=asker.place.run_id,
        root_id=asker.place.root_id,
        agent=asker.agent,
        description=asker.description,
        title=call_title(use.tool, use.arguments),
        detail=await _detail(preview, use, context),
        payload={"tool": use.tool, "arguments": dict(use.arguments), "call_id": use.call_id},
        risk=decision.risk,
        reason=decision.reason,
        rule=rule,
        options=APPROVALS if rule is not None else _ONCE,
    )


def call_title(tool: str, arguments: Mapping[str, Any]) -> str:
    """`edit src/a.py`, `bash: make test`: one line."""
    text = ""
    for name in _TELLING:
        if isinstance(arguments.get(name), str):
            text = " ".join(arguments[name].split())
            break
    if len(text) > _TITLE:
        text = text[: _TITLE - 1] + "…"
    if not text:
        return tool
    if tool == "write" and arguments.get("delete"):
        return f"delete {text}"
    if tool == "bash":
        return f"{tool}: {text}"
    return f"{tool} {text}"


async def _detail(preview: Preview | None, use: ToolUse, context: ToolContext) -> str:
    """Return what the tool says a call would change, if it can. A failure here never prevents the question."""
    if preview is None:
        return ""
    try:
        return await preview(use.arguments, context)
    except Exception as error:  # noqa: BLE001 - the question is put without it
        return f"(What it would change cannot be shown: {type(error).__name__}: {error})"


GUARD = "guard"
"""`Denied.who` where the guard itself is at fault."""
_LONGEST = 2_000


class Denied(Struct, frozen=True):
    """`by` is who denied; `who` names them where there is a name; `message` is a person's."""

    by: Judge
    reason: str
    who: str = ""
    message: str = ""


def denial(decision: Decision) -> Denied:
    return Denied(decision.by, decision.reason, decision.source)


def denied_output(tool: str, denied: Denied) -> ToolOutput:
    """The result of a call that was not run. Its effect carries the denial into the evidence."""
    who = _name(denied)
    lines = [
        f"Denied: {tool} was not run; nothing of this call took effect.",
        f"Denied by: {who}",
        f"Reason: {_line(denied.reason)}",
    ]
    if denied.message:
        lines.append(f"Message to you: {_line(denied.message)}")
    lines.append(f"What to do: {_advice(denied)}")
    short = f"denied by {who}: {_line(denied.message or denied.reason)}"
    return failed("\n".join(lines), ToolEffect(status="failed", denied=short))


_NAMES: Mapping[Judge, str] = {
    "person": "a person",
    "policy": "policy",
    "hook": "a hook",
    "rule": "a rule",
    "mode": "the permission mode",
    "protected": "the protection of this path",
    "critical": "the protection from critical deletions",
    "walls": "the walls around its shell",
    "unparsed": "the guard, which could not make out what the call would do",
    "classifier": "the automatic check",
    "taint": "the guard, because of what this run has read",
}


def _name(denied: Denied) -> str:
    if denied.who and denied.by in ("person", "hook", "rule"):
        return f"{_NAMES[denied.by]} ({denied.who})"
    return _NAMES[denied.by]


def _advice(denied: Denied) -> str:
    if denied.by == "person":
        if denied.message:
            return "Follow the message. Do not do the same in another way."
        return "Do not do the same in another way. Go on without it, or end and say what is left to do."
    if denied.by == "policy" and denied.who != GUARD:
        return (
            "Nobody can approve it now, so do not ask again or do the same in another way. "
            "Go on with what you may do, and say in your answer what could not be done and why."
        )
    if denied.by == "unparsed":
        return "Say it in a simpler form, such as one plain command, or go on without it."
    return (
        "Do not do the same in another way. Go on with what is allowed, and say in your answer what could not be done."
    )


def _line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    return line[: _LONGEST - 1] + "…"
