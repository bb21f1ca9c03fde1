"""The sandboxes ("walls") around the shells of one run, by who approved a command.

    nobody            read-only walls: the workspace and the system, no network, no secrets
    a mode            everything but what rules deny or ask about, protected files, and secrets
    an allow rule     everything but what rules deny or ask about, and protected files
    a person          everything but what rules deny

Files that rules are about are looked up before each command, so that those made since are found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.permission import Clearance

if TYPE_CHECKING:
    from retinue.core.tool import Confinement
    from retinue.guard.permissions.file_rules import FileMasks
    from retinue.guard.permissions.policy import PermissionPolicy as Permissions
    from retinue.guard.sandbox.policy import SandboxPolicy


_GIT_BLIND = r"fatal: (?:bad object|not a git repository|unable to read|your current branch appears)"

_ENDED = "The run has ended and its walls are gone: resume the run to start programs in it."

ObjectsToHide = Callable[[tuple[str, ...]], tuple[Path, ...]]
"""Where a repository keeps its copies of hidden files, if it has any: they would show them."""


class MaskedBox:
    """A box whose masks follow the rules of a run."""

    def __init__(self, policy: SandboxPolicy, masks: FileMasks, run_id: str, objects: ObjectsToHide | None) -> None:
        self._policy = policy
        self._masks = masks
        self._objects = objects
        self._blind = False
        from retinue.guard.sandbox.box import Box

        self._box = Box(policy, run_id)

    @property
    def readonly(self) -> bool:
        return self._box.readonly

    def explain(self, shown: str, code: int | None) -> str:
        """Return what the sandbox kept a program from, judged by what it printed; "" if nothing."""
        if code and self._blind and re.search(_GIT_BLIND, shown):
            why = "the repository holds files that a rule denies, so its objects are hidden"
            return f"stopped by the walls around this shell: {why}"
        return self._box.explain(shown, code)

    @property
    def scratch(self) -> Path:
        return self._box.scratch

    def wrap(self, argv: Sequence[str], cwd: Path) -> list[str]:
        """Look up what rules hide now, then start inside. May take a while in a large workspace."""
        found = self._masks.now()
        policy = self._policy
        if found.hidden or found.kept:
            objects = self._objects(found.hidden) if self._objects is not None and found.hidden else ()
            self._blind = bool(objects)
            hidden = (*policy.hidden, *map(Path, found.hidden), *objects)
            policy = replace(policy, hidden=hidden, readonly=(*policy.readonly, *map(Path, found.kept)))
        self._box.update(policy)
        return self._box.wrap(argv, cwd)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        return self._box.environment(environment)

    def close(self) -> None:
        self._box.close()


class RunWalls:
    """The boxes of one run, each made when the first command needs it."""

    def __init__(
        self,
        run_id: str,
        permissions: Callable[[], Permissions],
        make_policy: Callable[[Clearance], SandboxPolicy | None],
        objects: ObjectsToHide,
    ) -> None:
        """`make_policy` says what a command with that clearance may do; None for no walls. A person
        who has read a command of git may let it see everything in the repository."""
        self._run_id = run_id
        self._permissions = permissions
        self._make_policy = make_policy
        self._objects = objects
        self._boxes: dict[Clearance, Confinement | None] = {}
        self._earlier: list[Confinement | None] = []

    def __call__(self, clearance: Clearance) -> Confinement | None:
        if clearance not in self._boxes:
            self._boxes[clearance] = self._made(clearance)
        return self._boxes[clearance]

    @property
    def in_use(self) -> bool:
        return bool(self._boxes)

    def _made(self, clearance: Clearance) -> Confinement | None:
        policy = self._make_policy(clearance)
        if policy is None:
            return None
        from retinue.guard.permissions.file_rules import FileMasks

        by_person = clearance == "person"
        masks = FileMasks(self._permissions(), asking=not by_person)
        return MaskedBox(policy, masks, self._run_id, None if by_person else self._objects)

    def renew(self) -> None:
        """Make new boxes from here on: the rights of the run have changed. The old ones stay until
        the end, for what still runs in them."""
        self._earlier += self._boxes.values()
        self._boxes.clear()

    def close(self) -> None:
        """Remove the scratch folders, when no program of the run lives any more."""
        for box in (*self._earlier, *self._boxes.values()):
            if box is not None:
                box.close()
        self._earlier.clear()
        self._boxes.clear()
        # These three know the run's context, which holds these walls: the circle would keep both.
        self._permissions = _no_permissions
        self._make_policy = _no_policy
        self._objects = _no_objects


def _no_permissions() -> Permissions:
    raise RuntimeError(_ENDED)


def _no_policy(clearance: Clearance) -> SandboxPolicy | None:
    raise RuntimeError(_ENDED)


def _no_objects(hidden: tuple[str, ...]) -> tuple[Path, ...]:
    raise RuntimeError(_ENDED)
