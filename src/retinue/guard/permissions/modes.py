"""Which mode a run has, of those its caller, its file, its parent and the settings name.

A file's mode holds where its parent's leaves room: a parent that acts freely passes that on, one
that may only plan or must not ask keeps its children there.
"""

from __future__ import annotations

from retinue.core.spec import AgentSpec, PermissionMode

OVERRIDING: frozenset[PermissionMode] = frozenset({"bypassPermissions", "acceptEdits", "auto"})
FREEDOM: dict[PermissionMode, int] = {
    "plan": 0,
    "dontAsk": 1,
    "default": 2,
    "acceptEdits": 3,
    "auto": 4,
    "bypassPermissions": 5,
}


def effective_mode(
    above: PermissionMode,
    spec: AgentSpec,
    *,
    trusted: bool,
    bypass_disabled: bool,
    notes: list[str],
) -> PermissionMode:
    """`above` is the parent's mode; for a run that has no parent, that of the session. `trusted`:
    someone has consented to what the file brings."""
    if above == "bypassPermissions" and bypass_disabled:
        notes.append("bypassPermissions is disabled by permissions.disableBypass: the mode is default")
        above = "default"
    wanted = spec.permission_mode
    if wanted is None or wanted == above:
        return above
    if above in OVERRIDING:
        notes.append(f"permission mode {above} of the parent replaces {wanted} of the file")
        return above
    if FREEDOM[wanted] > FREEDOM[above]:
        refusal = _may_not_rise(above, wanted, spec, trusted, bypass_disabled)
        if refusal is not None:
            notes.append(f"permission mode {wanted} of the file is ignored, the mode is {above}: {refusal}")
            return above
    return wanted


def _may_not_rise(
    above: PermissionMode,
    wanted: PermissionMode,
    spec: AgentSpec,
    trusted: bool,
    bypass_disabled: bool,
) -> str | None:
    if above != "default":
        return "an agent has no more freedom than the one that started it"
    if wanted == "bypassPermissions" and bypass_disabled:
        return "permissions.disableBypass is set"
    if spec.source == "plugin":
        return "plugins cannot bring one"
    return None if trusted else "the project's file is not trusted"
