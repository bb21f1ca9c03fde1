"""Notices for the person while a main run works, each once: the branch it works on, that it has begun to change files,
and that it ended without a check of its changes.

They are devkit-pi's guards, given in its vocabulary only; they stop nothing, and no model sees them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retinue.core.events import ToolEnded, Warned
from retinue.core.format import relative
from retinue.runs.prompt import detect

if TYPE_CHECKING:
    from retinue.core.permission import ToolEffect
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings

_CHECKS = (
    r"\b(?:pytest|unittest|tox|nox|mypy|pyright|ruff|flake8|pylint|jest|vitest|mocha|eslint|biome|tsc|rspec|phpunit|ctest)\b"
    r"|\b(?:cargo|go|dotnet|swift|gradle|gradlew|mvn|mix|bazel|make|just|task|npm|pnpm|yarn|bun)\b[^|;&\n]*"
    r"\b(?:tests?|check|lint|verify|build|vet|clippy|typecheck|ci)\b"
)
"""Commands that test, lint, check types or build. Compiled when a command ran."""


def notices_wanted(settings: Settings) -> bool:
    return settings.delegation_vocabulary == "devkit"


class ChangeNotices:
    """Of one main run. What an earlier attempt of it has said is not said again."""

    def __init__(self, node: Run, project: Project, *, resumed: bool) -> None:
        self._node = node
        self._project = project
        self._wrote = self._checked = False
        self._said: set[str] = set()
        if resumed:
            earlier = project.log.reader.ordered(node.id, ("run.warned",))
            self._said = {event.body.code for _, event in earlier if isinstance(event.body, Warned)}

    def observe(self, body: ToolEnded) -> None:
        self._tell_branch()
        self._checked = self._checked or is_check(body.effect)
        changed = [write.path for write in body.effect.writes if write.before != write.after]
        if changed:
            self._wrote = True
            undo = f"retinue runs undo {self._node.id}"
            first = relative(changed[0], str(self._node.launch.request.cwd))
            self._say("first_write", f"It begins to change files: {first}. To put them back: {undo}")

    def finish(self) -> None:
        """The run is over, and its end is not in the log yet."""
        if self._wrote and not self._checked:
            self._say("not_verified", "It changed files, and no test, lint, type check or build command ran.")

    def _tell_branch(self) -> None:
        if "git_context" in self._said:
            return
        environment = detect(self._node.launch.request.cwd)
        if environment.branch:
            self._say("git_context", f"It works on branch {environment.branch}.")

    def _say(self, code: str, text: str) -> None:
        if code not in self._said:
            self._said.add(code)
            self._project.log.append(self._node.place, Warned(code, text))


def is_check(effect: ToolEffect) -> bool:
    """Tell whether the call ran a command that tests, lints, checks types or builds."""
    return effect.command is not None and re.search(_CHECKS, effect.command) is not None
