"""What of a command line needs no question: step by step, file by file."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.domain.lean import dataclass
from retinue.guard.permissions.call import Call
from retinue.guard.permissions.folders import followed, leads_out
from retinue.guard.permissions.marks import YES, shown
from retinue.guard.permissions.matching import allows_step
from retinue.guard.permissions.place import match_path
from retinue.guard.permissions.protected import protected
from retinue.guard.permissions.rule import READING, WRITING, Rule
from retinue.guard.permissions.shell.commands import SPEAKING, edited, is_reader, operands
from retinue.guard.permissions.shell.step import Opened, Step
from retinue.guard.permissions.shell.variables import is_harmless

_CARRIERS = frozenset({"find", "gfind", "fd", "fdfind", "xargs", "parallel", "watch", "git"})
"""What they start is no part of what their name promises: it must be allowed by itself."""
_NO_PATHS = frozenset(
    {"test", "[", "expr", "which", "type", "whereis", "date", "cal", "basename", "dirname", "whoami", "id", "uname"}
    | {"tr", "let", "unset", "shift", "read", "command", "export", "declare", "local", "readonly", "typeset", "set"}
    | {"printenv", "locale", "getconf", "ps", "wait", "jobs", "nproc", "groups"}
)
_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/urandom"})


@dataclass(frozen=True, slots=True)
class Coverage:
    """`open` are the parts that somebody must be asked about; `rules` allowed something."""

    open_steps: tuple[Step, ...] = ()
    open_files: tuple[Opened, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.open_steps and not self.open_files


class Covering:
    """`edits` lets the mode change files in working directories, `reads` lets it look around."""

    def __init__(
        self, call: Call, allow: Sequence[Rule], *, wary: bool, reads: bool = True, edits: bool = False
    ) -> None:
        self._call, self._allow, self._wary = call, allow, wary
        self._reads, self._edits = reads, edits
        self._used: dict[Rule, None] = {}

    def coverage(self) -> Coverage:
        steps = [step for step in self._call.script.steps if not self._step(step)]
        files = [file for file in self._call.script.opened if not self._file(file)]
        return Coverage(tuple(steps), tuple(files), tuple(self._used))

    def covers_steps(self) -> bool:
        return bool(self._call.script.steps) and all(map(self._step, self._call.script.steps))

    def _step(self, step: Step) -> bool:
        if self._by_mode(step):
            return True
        rule = next((rule for rule in self._allow if allows_step(rule, step, wary=self._wary)), None)
        if rule is not None and (step.name not in _CARRIERS or all(map(self._step, step.inner))):
            self._used[rule] = None
            return True
        return step.transparent and bool(step.inner) and all(map(self._step, step.inner))

    def _by_mode(self, step: Step) -> bool:
        splits = step.plain_name == "read"  # IFS= read -r line
        if step.inner or not all(is_harmless(name) or (splits and name == "IFS") for name, _ in step.assigned):
            return False
        if self._reads and is_reader(step) and (step.name != "git" or self._call.git_programs is None):
            free = step.name in SPEAKING or step.name in _NO_PATHS
            return free or (all(map(self._readable, operands(step))) and not any(map(self._leaves, followed(step))))
        if not self._edits:
            return False
        paths = edited(step)
        return paths is not None and bool(paths) and all(map(self._writable, paths))

    def _leaves(self, folder: str) -> bool:
        place = self._call.place
        return any(leads_out(place.forms(folder, base)[-1], place) for base in self._call.bases)

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
        if file.writes:
            return (self._edits and self._writable(file.path)) or self._ruled(file.path, WRITING)
        return (self._reads and self._inside(file.path)) or self._ruled(file.path, READING)

    def _ruled(self, path: str, tools: frozenset[str]) -> bool:
        place, bases = self._call.place, self._call.bases
        for rule in self._allow:
            if not tools & rule.tools or rule.glob is not None:
                continue
            if rule.specifier is None or all(match_path(rule, place, path, base) == YES for base in bases):
                self._used[rule] = None
                return True
        return False


def protected_write(call: Call) -> str | None:
    """A protected file that the command line would change, for people."""
    for path, writes in call.touched:
        if not writes or path in _DEVICES or path.startswith("-"):
            continue
        for base in call.bases:
            name = protected(path, call.place, base)
            if name is not None:
                return f"{shown(path)} ({name})"
    return None
