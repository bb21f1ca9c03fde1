"""Which parts of a command line need no question: step by step, file by file."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.core.lean import dataclass
from retinue.guard.permissions.call import JudgedCall
from retinue.guard.permissions.critical import protected
from retinue.guard.permissions.locations import match_path
from retinue.guard.permissions.matching import allows_step, starts_others
from retinue.guard.permissions.rule import READING, WRITING, YES, Rule, shown
from retinue.guard.permissions.shell.commands import edited_paths, needs_outside, operands, read_paths
from retinue.guard.permissions.shell.step import Opened, Step

_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/urandom"})


@dataclass(frozen=True, slots=True)
class Coverage:
    """What somebody must be asked about, and what allowed the rest: `rules`, or the mode because
    it accepts edits. `yes` is False where everything only reads."""

    open_steps: tuple[Step, ...] = ()
    open_files: tuple[Opened, ...] = ()
    rules: tuple[Rule, ...] = ()
    yes: bool = False

    @property
    def complete(self) -> bool:
        return not self.open_steps and not self.open_files


class Covering:
    """`edits` lets the mode change files in working directories, `reads` lets it look around."""

    def __init__(
        self, call: JudgedCall, allow: Sequence[Rule], *, wary: bool, reads: bool = True, edits: bool = False
    ) -> None:
        self._call, self._allow, self._wary = call, allow, wary
        self._reads, self._edits = reads, edits
        self._used: dict[Rule, None] = {}
        self._edited = False

    def coverage(self) -> Coverage:
        script = self._call.script
        steps = [step for step in script.steps if not self._step(step)]
        files = [file for file in script.opened if not self._file(file)]
        return Coverage(tuple(steps), tuple(files), tuple(self._used), bool(self._used) or self._edited)

    def covers_steps(self) -> bool:
        return bool(self._call.script.steps) and all(map(self._step, self._call.script.steps))

    def _step(self, step: Step) -> bool:
        if self._by_mode(step):
            return True
        rule = next((rule for rule in self._allow if allows_step(rule, step, wary=self._wary)), None)
        if rule is not None and (not starts_others(step) or rule.specifier is None):
            self._used[rule] = None
            return True
        return step.transparent and bool(step.inner) and all(map(self._step, step.inner))

    def _by_mode(self, step: Step) -> bool:
        paths = read_paths(step) if self._reads else None
        if paths is not None and (step.name != "git" or self._harmless_repository()):
            return all(map(self._readable, paths))
        changed = edited_paths(step) if self._edits else None
        if not changed or not all(map(self._writable, changed)):
            return False
        self._edited = True
        return True

    def _harmless_repository(self) -> bool:
        """Return whether git starts no program here. After `cd` nobody knows which repository it finds."""
        return not self._call.script.moves and self._call.git_programs is None

    def _readable(self, path: str) -> bool:
        return path == "-" or path in _DEVICES or self._inside(path) or self._ruled(path, READING)

    def _writable(self, path: str) -> bool:
        place = self._call.place
        return self._inside(path) and not any(protected(path, place, base) for base in self._call.bases)

    def _inside(self, path: str) -> bool:
        return all(self._call.place.inside(path, base) for base in self._call.bases)

    def _file(self, file: Opened) -> bool:
        if file.path in _DEVICES or (file.path.startswith("/dev/fd/") and file.path[8:].isdigit()):
            return True
        if not file.writes:
            return (self._reads and self._inside(file.path)) or self._ruled(file.path, READING)
        if self._edits and self._writable(file.path):
            self._edited = True
            return True
        return self._ruled(file.path, WRITING)

    def _ruled(self, path: str, tools: frozenset[str]) -> bool:
        place, bases = self._call.place, self._call.bases
        for rule in self._allow:
            if not tools & rule.tools or rule.glob is not None:
                continue
            if rule.specifier is None or all(match_path(rule, place, path, base) == YES for base in bases):
                self._used[rule] = None
                return True
        return False


def stopped_by_walls(call: JudgedCall, coverage: Coverage) -> bool:
    """Return whether the sandbox would certainly stop a command line, so that it is asked about now."""
    if call.script.doubts:
        return False
    if any(file.writes for file in coverage.open_files):
        return True
    steps = [step for each in coverage.open_steps for step in (each, *each.inner)]
    return any(map(needs_outside, steps)) or any(_looks_outside(call, step) for step in steps if not step.inner)


def _looks_outside(call: JudgedCall, step: Step) -> bool:
    """Return whether it is handed a path that exists outside of what the sandbox shows."""
    return any(all(call.place.leaves(path, base) for base in call.bases) for path in operands(step))


def protected_write(call: JudgedCall) -> str | None:
    """Return a protected file that the command line would change, for people."""
    for path, writes in call.touched:
        if not writes or path in _DEVICES or path.startswith("-"):
            continue
        for base in call.bases:
            name = protected(path, call.place, base)
            if name is not None:
                return f"{shown(path)} ({name})"
    return None
