"""Until the permissions and hooks are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retinue.domain.hook import NO_OPINION, HookResult
from retinue.domain.permission import Decision, ToolUse
from retinue.domain.spec import PermissionMode

if TYPE_CHECKING:
    from retinue.supervisor.member import Member
    from retinue.supervisor.world import World


class Modes:
    def __init__(self, mode: PermissionMode, rules: set[str]) -> None:
        self.mode = mode
        self.rules = rules

    def decide(self, use: ToolUse) -> Decision:
        said = next((v for n in ("command", "path") if isinstance(v := use.arguments.get(n), str)), "")
        rule = f"{use.tool}({said})"
        if self.mode == "bypassPermissions" or use.effects <= {"read", "network", "ask", "spawn"}:
            return Decision("allow", f"the mode {self.mode} allows it", "mode")
        if rule in self.rules:
            return Decision("allow", f"{rule} is allowed", "rule")
        return Decision("ask", f"the mode {self.mode} asks before {use.tool}", "mode", risk="medium", rule=rule)

    def grant(self, rule: str) -> None:
        self.rules.add(rule)


class NoHooks:
    def listens(self, event: Any) -> bool:
        return False

    async def fire(self, event: Any, subject: str = "", payload: Any = None) -> HookResult:
        return NO_OPINION


def permissions_for(member: Member, world: World, parent: Any = None) -> Modes:
    mode = member.handle.launch.request.permission_mode or world.settings.settings.permissions_default_mode
    return Modes(mode or "default", set(parent.rules) if parent is not None else set())


def hooks_for(member: Member, world: World) -> NoHooks:
    return NoHooks()
