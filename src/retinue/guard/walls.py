"""The sandboxes ("walls") around the shells of one run, by the source of a command's approval.

    nobody            read-only walls: the workspace and the system, no network, no secrets
    a mode            everything but what rules deny or ask about, protected files, and secrets
    an allow rule     everything but what rules deny or ask about, protected files, and sockets of
                      services that no allow rule names (`sandbox/sockets.py`); the same for a mode
    a person          everything but what rules deny

A rule names files by patterns, but a mount needs paths. The paths are looked up before each command,
below the working directories, so that files made since are found. A path that does not exist yet
cannot be hidden or kept read-only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.programs import Clearance
from retinue.guard.permissions.locations import RunFolders, anchor_pattern, compile_pattern
from retinue.guard.permissions.rule import Rule, is_about_files
from retinue.settings.places import repository_root

if TYPE_CHECKING:
    from retinue.core.programs import Confinement
    from retinue.guard.permissions.policy import PermissionPolicy as Permissions
    from retinue.guard.sandbox.policy import SandboxPolicy
    from retinue.guard.sandbox.sockets import RuntimeSockets


_GIT_BLIND = r"fatal: (?:bad object|not a git repository|unable to read|your current branch appears)"
_GIT_OUTSIDE = r"fatal: (?:not a git repository|gitfile does not point to a valid repository)"
_NO_SERVICE = (
    r"(?:docker|podman|containerd)(?: daemon|\.sock)|error (?:connecting to|creating) \S*tmux"
    r"|no server running on \S*tmux|authentication agent|Permission denied \(publickey"
    r"|gpg: (?:can't connect to|no) (?:the )?gpg-agent|connect to bus"
)

ObjectsToHide = Callable[[tuple[str, ...]], tuple[Path, ...]]
"""Where a repository keeps its copies of hidden files, if it has any: they would show them."""

SocketsToHide = Callable[[], "RuntimeSockets"]
"""The ways to programs outside that would act for a command."""


MAX_WORKSPACE_ENTRIES = 400_000
_TICK_NS = 100_000_000
_GLOB_SIGNS = re.compile(r"[*?\[\]\\]")


class TooManyFilesError(OSError):
    """The working directories hold more files than can be looked through before a command."""


class Masks(Struct, frozen=True):
    """`hidden` paths look empty inside the walls; `readonly` ones cannot be changed."""

    hidden: tuple[str, ...] = ()
    readonly: tuple[str, ...] = ()


class _RulePattern(Struct, frozen=True):
    """The files of one rule: paths below `base` that fit `pattern`."""

    base: str
    pattern: re.Pattern[str]
    hides: bool


class _Folder(Struct):
    """The entries of one folder at the time of its last change."""

    changed: int
    folders: tuple[str, ...]
    hidden: tuple[str, ...]
    readonly: tuple[str, ...]
    count: int


class FileMasks(Struct):
    """The masks of one run. `asking` includes rules that ask: for commands nobody was asked about."""

    policy: Permissions
    asking: bool
    _seen: dict[str, _Folder] = field(default_factory=dict)

    def now(self) -> Masks:
        """Return the paths that rules are about at this moment. Raise `TooManyFilesError`."""
        kinds = ("deny", "ask") if self.asking else ("deny",)
        rules = [rule for rule in self.policy.own_rules if rule.kind in kinds and is_about_files(rule)]
        if not rules:
            return Masks()
        folders = self.policy.folders.now()
        hidden: list[str] = []
        readonly: list[str] = []
        targets: list[_RulePattern] = []
        for rule in rules:
            target = hidden if rule.effect == "read" else readonly
            if rule.specifier is None:
                target += folders.real_roots
                continue
            for base, pattern in _starts(rule, folders):
                fixed = _fixed_path(base, pattern)
                if fixed is not None:
                    target.append(os.path.realpath(fixed))
                else:
                    targets.append(_RulePattern(base, compile_pattern(pattern), target is hidden))
        if targets:
            roots = list(folders.real_roots)
            # Programs in a worktree can also read the checkout that it is a copy of.
            if folders.copied is not None:
                roots.append(folders.copied[1])
            for folder in self._search(roots, targets):
                hidden += folder.hidden
                readonly += folder.readonly
        hidden = list(_without_roots(hidden, folders.real_roots))
        return Masks(tuple(dict.fromkeys(hidden)), tuple(dict.fromkeys(readonly)))

    def _search(self, roots: Iterable[str], targets: list[_RulePattern]) -> Iterator[_Folder]:
        """Yield every folder below `roots`. A folder that has not changed is not read again."""
        waiting, count = list(roots), 0
        while waiting:
            path = waiting.pop()
            try:
                changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - thousands of these
                listing = self._seen.get(path)
                if listing is None or listing.changed != changed:
                    # A file made within the clock's next tick would not change the time again.
                    settled = time.time_ns() - changed > _TICK_NS
                    listing = self._seen[path] = _look(path, changed if settled else -1, targets)
            except OSError:
                continue
            count += listing.count
            # Failing closed: a file that was not looked at could be one that a rule hides.
            if count > MAX_WORKSPACE_ENTRIES:
                raise TooManyFilesError(
                    f"The workspace holds more than {MAX_WORKSPACE_ENTRIES:,} files, "
                    "too many to look for those that rules deny."
                )
            yield listing
            waiting += listing.folders


def _without_roots(hidden: Iterable[str], roots: Sequence[str]) -> Iterator[str]:
    """Yield paths to hide. A working directory is where programs start, so what is in it is hidden instead of it."""
    for path in hidden:
        if path not in roots:
            yield path
        for root in roots:
            if root == path or root.startswith(f"{path.rstrip('/')}/"):
                with os.scandir(root) as entries:
                    yield from (os.path.realpath(entry.path) for entry in entries)


def _starts(rule: Rule, folders: RunFolders) -> Iterator[tuple[str, str]]:
    """Yield the folder that a rule's pattern starts from, links followed; for a worktree and the checkout that it is
    a copy of, the same folder of the other as well."""
    base, pattern = anchor_pattern(rule, folders)
    for form in dict.fromkeys((base, os.path.realpath(base))):
        yield form, pattern
        if folders.copied is None:
            continue
        worktree, checkout = folders.copied
        for one, other in ((checkout, worktree), (worktree, checkout)):
            if form == one or form.startswith(f"{one}/"):
                yield other + form[len(one) :], pattern


def _fixed_path(base: str, pattern: str) -> str | None:
    """Return the one path that a pattern means; None where it can mean several."""
    text = pattern.removesuffix("/**").removesuffix("/")
    if text in ("", "."):
        return base
    if _GLOB_SIGNS.search(text) or "/" not in text:
        return None
    return os.path.join(base, text.lstrip("/"))  # noqa: PTH118 - by text


def _look(path: str, changed: int, targets: list[_RulePattern]) -> _Folder:
    folders: list[str] = []
    matches: dict[bool, list[str]] = {True: [], False: []}
    count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            count += 1
            is_folder = entry.is_dir(follow_symlinks=False)
            match = _match(entry.path, is_folder, targets)
            if match is not None:
                matches[match].append(os.path.realpath(entry.path))
            elif is_folder:
                folders.append(entry.path)
    return _Folder(changed, tuple(folders), tuple(matches[True]), tuple(matches[False]), count)


def _match(path: str, is_folder: bool, targets: list[_RulePattern]) -> bool | None:
    """Return True for a path to hide, False for one to keep, None for any other."""
    answer: bool | None = None
    for target in targets:
        start = target.base if target.base.endswith("/") else f"{target.base}/"
        if not path.startswith(start):
            continue
        relative = path[len(start) :]
        if target.pattern.match(relative) or (is_folder and target.pattern.match(f"{relative}/")):
            if target.hides:
                return True
            answer = False
    return answer


class MaskedBox:
    """A box whose masks follow the rules of a run."""

    def __init__(
        self,
        policy: SandboxPolicy,
        masks: FileMasks,
        run_id: str,
        objects: ObjectsToHide | None,
        sockets: SocketsToHide | None = None,
    ) -> None:
        self._policy = policy
        self._masks = masks
        self._objects = objects
        # A program with `change="listed"` can open none.
        self._sockets = sockets if policy.change == "all" else None
        self._blind = False
        self._cwd = Path("/")
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
        if code and self._sockets is not None and re.search(_NO_SERVICE, shown):
            why = "services outside cannot be reached by commands that no rule names"
            return f"stopped by the walls around this shell: {why} (allow, for example, Bash(docker:*) or Bash(tmux:*))"
        if code and self._policy.reach == "system" and re.search(_GIT_OUTSIDE, shown):
            # Outside of the walls it can be seen.
            top = repository_root(self._cwd)
            if top is not None:
                why = f"the repository {top} begins outside of the working directories, so git cannot see it"
                return f"stopped by the walls around this shell: {why} (sandbox.shown can show it)"
        return self._box.explain(shown, code)

    @property
    def scratch(self) -> Path:
        return self._box.scratch

    def wrap(self, argv: Sequence[str], cwd: Path) -> list[str]:
        """Look up what rules hide now, then start inside. May take a while in a large workspace."""
        self._cwd = cwd
        masks = self._masks.now()
        policy = self._policy_without_services()
        if masks.hidden or masks.readonly:
            objects: tuple[Path, ...] = ()
            if self._objects is not None and masks.hidden:
                objects = self._objects(masks.hidden)
            self._blind = bool(objects)
            hidden = (*map(Path, masks.hidden), *objects)
            policy = replace(
                policy,
                hidden=(*policy.hidden, *hidden),
                readonly=(*policy.readonly, *map(Path, masks.readonly)),
                # A shown path would not be hidden: a worktree is shown the objects that it borrows.
                shown=tuple(path for path in policy.shown if path not in hidden),
            )
        self._box.update(policy)
        return self._box.wrap(argv, cwd)

    def _policy_without_services(self) -> SandboxPolicy:
        """Return the policy with the sockets of this moment."""
        policy = self._policy
        if self._sockets is None:
            return policy
        sockets = self._sockets()
        hidden, shown = (*policy.hidden, *sockets.hidden), (*policy.shown, *sockets.shown)
        return replace(policy, hidden=hidden, shown=shown, abstract_sockets=False)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        gone = self._sockets().variables if self._sockets is not None else frozenset()
        return self._box.environment({name: value for name, value in environment.items() if name not in gone})

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
        sockets: SocketsToHide | None = None,
        is_readonly: Callable[[], bool] = lambda: False,
        *,
        foreign: bool = False,
    ) -> None:
        """`make_policy` says what a command with that clearance may do; None for no walls. A person
        who has read a command may let it see everything in the repository, and use every service.
        `is_readonly`: whether the policy is read-only for every clearance at this moment. `foreign`: whoever
        approves is at another machine."""
        self._run_id = run_id
        self._permissions = permissions
        self._make_policy = make_policy
        self._objects = objects
        self._sockets = sockets
        self._is_readonly = is_readonly
        self._foreign = foreign
        self._boxes: dict[Clearance, Confinement | None] = {}
        self._earlier: list[Confinement | None] = []
        self._masks: FileMasks | None = None

    def __call__(self, clearance: Clearance) -> Confinement | None:
        if clearance not in self._boxes:
            self._boxes[clearance] = self._make_box(clearance)
        return self._boxes[clearance]

    @property
    def readonly(self) -> bool:
        confinement = self("inside") if self._is_readonly() else None
        return confinement is not None and confinement.readonly

    def widens(self, clearance: Clearance) -> bool:
        # On a worker whoever approves is at another machine: every approval gives the same sandbox.
        return clearance == "inside" or (clearance != "person" and not self._foreign)

    @property
    def in_use(self) -> bool:
        return bool(self._boxes)

    def hidden(self) -> tuple[str, ...]:
        """Return what rules hide now from programs that nobody was asked about. Raise `TooManyFilesError`."""
        if self._masks is None:
            self._masks = FileMasks(self._permissions(), asking=True)
        return self._masks.now().hidden

    def _make_box(self, clearance: Clearance) -> Confinement | None:
        policy = self._make_policy(clearance)
        if policy is None:
            return None
        by_person = clearance == "person"
        masks = FileMasks(self._permissions(), asking=not by_person)
        if by_person:
            return MaskedBox(policy, masks, self._run_id, None)
        return MaskedBox(policy, masks, self._run_id, self._objects, self._sockets)

    def renew(self) -> None:
        """Make new boxes from here on: the rights of the run have changed. The old ones stay until
        the end, for what still runs in them."""
        # A command in the background may still run in one of them.
        self._earlier += self._boxes.values()
        self._boxes.clear()
        self._masks = None

    def close(self) -> None:
        """Remove the scratch folders, when no program of the run lives any more."""
        for box in (*self._earlier, *self._boxes.values()):
            if box is not None:
                box.close()
        self._earlier.clear()
        self._boxes.clear()
        # These know the run's context, which holds these walls: the circle would keep both.
        self._permissions = self._make_policy = self._objects = self._sockets = self._is_readonly = _refuse_ended


def _refuse_ended(*_: object) -> NoReturn:
    raise RuntimeError("The run has ended and its walls are gone: resume the run to start programs in it.")
