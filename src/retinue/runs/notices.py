"""Three words to the person while a main run works, each said once: which branch it works on, that
it has begun to change files, and that it ended without having checked what it changed.

They are devkit-pi's guards, and on in its vocabulary; elsewhere the setting `guards.notices`
switches them on. They stop nothing and no model hears them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retinue.core.events import ToolEnded, Warned
from retinue.runs.prompt_environment import detect

if TYPE_CHECKING:
    from retinue.core.permission import ToolEffect
    from retinue.runs.member import Member
    from retinue.runs.world import World
    from retinue.settings.table import Settings

_CHECKS = (
    r"\b(?:pytest|unittest|tox|nox|mypy|pyright|ruff|flake8|pylint|jest|vitest|mocha|eslint|biome|tsc|rspec|phpunit|ctest)\b"
    r"|\b(?:cargo|go|dotnet|swift|gradle|gradlew|mvn|mix|bazel|make|just|task|npm|pnpm|yarn|bun)\b[^|;&\n]*"
    r"\b(?:tests?|check|lint|verify|build|vet|clippy|typecheck|ci)\b"
)
"""Commands that test, lint, check types or build. Compiled when a command ran."""


def notices_wanted(settings: Settings) -> bool:
    if settings.origin("guard_notices").layer != "default":
        return settings.guard_notices
    return settings.delegation_vocabulary == "devkit"


class ChangeNotices:
    """Of one main run. What an earlier leg of it has said is not said again."""

    def __init__(self, member: Member, world: World, *, resumed: bool) -> None:
        self._member = member
        self._world = world
        self._wrote = self._checked = False
        self._said: set[str] = set()
        if resumed:
            earlier = world.log.reader.ordered(member.id, ("run.warned",))
            self._said = {event.body.code for _, event in earlier if isinstance(event.body, Warned)}

    def observe(self, body: ToolEnded) -> None:
        self._tell_branch()
        self._checked = self._checked or _checks(body.effect)
        changed = [write.path for write in body.effect.writes if write.before != write.after]
        if changed:
            from retinue.capabilities.audit.undo import relative

            self._wrote = True
            undo = f"retinue runs undo {self._member.id}"
            first = relative(changed[0], str(self._member.handle.launch.request.cwd))
            self._say("first_write", f"It begins to change files: {first}. To put them back: {undo}")

    def finish(self) -> None:
        """The run is over, and its end is not in the log yet."""
        if self._wrote and not self._checked:
            self._say("not_verified", "It changed files, and no test, lint, type check or build command ran.")

    def _tell_branch(self) -> None:
        if "git_context" in self._said:
            return
        environment = detect(self._member.handle.launch.request.cwd)
        if environment.branch:
            self._say("git_context", f"It works on branch {environment.branch}.")

    def _say(self, code: str, text: str) -> None:
        if code not in self._said:
            self._said.add(code)
            self._world.log.append(self._member.handle.place, Warned(code, text))


def _checks(effect: ToolEffect) -> bool:
    return effect.command is not None and re.search(_CHECKS, effect.command) is not None
