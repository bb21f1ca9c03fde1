"""Whether one spec allows more than another: what an automatic repair must never do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.spec import AgentSpec, PermissionMode, ToolPolicy

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec


_LICENCE: dict[PermissionMode | None, int] = {
    "plan": 0,
    "dontAsk": 1,
    "default": 1,
    None: 2,
    "acceptEdits": 3,
    "auto": 4,
    "bypassPermissions": 5,
}
"""How freely a mode lets a run act. Not said inherits, so naming a stricter mode is a loss of
rights and naming a freer one a gain."""

Choice = bool | tuple[str, ...] | None


def adds_rights(old: AgentSpec, new: AgentSpec) -> bool:
    """True when `new` may do anything that `old` may not. In doubt the answer is True."""
    return (
        _more_tools(old.tools, new.tools)
        or _LICENCE[new.permission_mode] > _LICENCE[old.permission_mode]
        or (bool(old.readonly) and not new.readonly)
        or (old.isolated is True and new.isolated is not True)
        or (old.isolation == "worktree" and new.isolation != "worktree")
        or (new.inherit_context is True and old.inherit_context is not True)
        or (new.memory is not None and new.memory != old.memory)
        or _more_servers(old, new)
        or any(hook not in old.hooks for hook in new.hooks)
        or any(hook not in new.hooks for hook in old.hooks)
        or _wider(old.subagents, new.subagents, unsaid=None)
        or _wider(old.skills, new.skills)
        or not _limit_holds(old.max_turns, new.max_turns)
        or not _limit_holds(old.timeout_seconds, new.timeout_seconds)
        or (old.budget is not None and (new.budget is None or old.budget.within(new.budget) != new.budget))
        or (new.enabled and not old.enabled)
        or (old.refusal is not None and new.refusal is None)
        or old.tools.rules != new.tools.rules
        or (old.output_schema is not None and old.output_schema != new.output_schema)
    )


def _more_tools(old: ToolPolicy, new: ToolPolicy) -> bool:
    if old.allow is not None and (new.allow is None or not set(new.allow) <= set(old.allow)):
        return True
    if old.selectors and (not new.selectors or not set(new.selectors) <= set(old.selectors)):
        return True
    if old.allow is not None and not old.selectors and new.selectors:
        return True
    return (
        not set(old.deny) <= set(new.deny)
        or not set(old.exclude_extensions) <= set(new.exclude_extensions)
        or _wider(old.extensions, new.extensions)
    )


def _wider(old: Choice, new: Choice, unsaid: Choice = True) -> bool:
    """`unsaid` is what None means: everything, or (None itself) something we cannot know here,
    so that any step away from it or back to it counts."""
    if new == old or new is False or new == ():
        return False
    had, gets = (unsaid if value is None else value for value in (old, new))
    if had is True:
        return gets is None
    if isinstance(had, tuple) and isinstance(gets, tuple):
        return not set(gets) <= set(had)
    return True


def _more_servers(old: AgentSpec, new: AgentSpec) -> bool:
    return any(server not in (old.servers or ()) for server in new.servers or ())


def _limit_holds(old: float | None, new: float | None) -> bool:
    """0 is "explicitly unlimited"; None inherits a limit, so it may become a number."""
    if new == old:
        return True
    if new is None or new == 0:
        return False
    return not old or new <= old
