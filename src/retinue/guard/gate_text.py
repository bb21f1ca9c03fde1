"""What a model is told when its call was denied: what, by whom, why, and what to do instead.

The lines have fixed names, so that a model, a parent or a program finds the same facts in the
same places. Nothing in them invites to try the same by another way.
"""

from __future__ import annotations

from typing import assert_never

from retinue.core.effects import ToolEffect
from retinue.core.lean import dataclass
from retinue.core.permission import Decision, Judge
from retinue.core.tool import ToolOutput, failed

GUARD = "guard"
"""`Denied.who` where the guard itself is at fault."""
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Denied:
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


def _name(denied: Denied) -> str:
    match denied.by:
        case "person":
            return f"a person ({denied.who})" if denied.who else "a person"
        case "policy":
            return "policy"
        case "hook":
            return f"a hook ({denied.who})" if denied.who else "a hook"
        case "rule":
            return f"a rule ({denied.who})" if denied.who else "a rule"
        case "mode":
            return "the permission mode"
        case "protected":
            return "the protection of this path"
        case "critical":
            return "the protection from critical deletions"
        case "walls":
            return "the walls around its shell"
        case "unparsed":
            return "the guard, which could not make out what the call would do"
        case "classifier":
            return "the automatic check"
        case "taint":
            return "the guard, because of what this run has read"
        case _:
            assert_never(denied.by)


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
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
