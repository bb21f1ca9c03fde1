"""clear_subagents: forget agents that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from retinue.core.delegation import ChildView
from retinue.core.messages import Text
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, Properties
from retinue.tools.delegation.base import DelegationTool, flag_property
from retinue.tools.delegation.frame import one_line

MINUTES = 5.0
SHORTEST = 4
"""Characters of an id that must be given at least."""


class ClearSubagentsTool(DelegationTool):
    name = "clear_subagents"
    required = ()
    properties: ClassVar[Properties] = {
        "agent_ids": {"type": "array", "items": {"type": "string"}, "description": "Just these, of any age"},
        "older_than_minutes": {"type": "number", "description": f"Minutes since their end (default {MINUTES:g})"},
        "include_errors": flag_property("Failed ones, too"),
    }
    aliases: ClassVar[Aliases] = {"agent_ids": ("agent_id", "ids")}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        wanted = _ids(given)
        if wanted is None:
            minutes = given.number("older_than_minutes")
            if minutes is not None and minutes < 0:
                raise given.wrong("older_than_minutes", "0 or more", minutes)
            return self._old(MINUTES if minutes is None else minutes, given.flag("include_errors"))
        found, problems = resolve(wanted, self.delegation.children())
        # An id given on purpose counts whatever the age and the end of its run.
        cleared = self.delegation.clear(tuple(found), 0.0, True) if found else ()
        problems += [f"{each}: could not be cleared" for each in found if each not in cleared]
        text = "\n".join([_cleared(cleared), *problems])
        return ToolOutput((Text(text),), is_error=bool(problems))

    def _old(self, minutes: float, include_errors: bool) -> ToolOutput:
        cleared = self.delegation.clear((), minutes, include_errors)
        if cleared:
            return ok(_cleared(cleared))
        kept = "" if include_errors else " Failed ones are kept unless include_errors is set."
        return ok(f"No agent ended more than {minutes:g} minutes ago.{kept}")


def resolve(wanted: Sequence[str], children: Sequence[ChildView]) -> tuple[list[str], list[str]]:
    """The ids of ended runs meant by `wanted` (an id, a unique beginning of one, or a name), and
    a line for each that means none, several, or a run at work."""
    found: dict[str, None] = {}
    problems: list[str] = []
    for each in wanted:
        alike = _meant(each.strip().removeprefix("@"), children)
        shown = one_line(each, 80) or '""'
        if not alike:
            problems.append(f"{shown}: there is no such agent")
        elif len(alike) > 1:
            ids = ", ".join(view.id for view in alike[:5])
            problems.append(f"{shown}: could be any of {ids}")
        elif alike[0].live:
            problems.append(f"{shown}: is {alike[0].status}, and only agents that have ended can be cleared")
        else:
            found[alike[0].id] = None
    return list(found), problems


def _meant(word: str, children: Sequence[ChildView]) -> list[ChildView]:
    exact = [view for view in children if word in (view.id, view.handle)]
    if exact or len(word) < SHORTEST:
        return exact[:1]
    return [view for view in children if view.id.startswith(word)]


def _ids(given: Arguments) -> list[str] | None:
    """None when no ids were given; one id as a string counts as a list of one."""
    value: Any = given.find("agent_ids")
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = [value] if value.strip() else None
    elif isinstance(value, str):
        value = given.items("agent_ids")
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise given.wrong("agent_ids", "a list of ids", value)
    return value


def _cleared(ids: Sequence[str]) -> str:
    return f"Cleared {len(ids)}: {', '.join(ids)}" if ids else "Cleared none."
