"""A clock that moves only when told, and a real git repository in a temporary folder.

Hours of limits are tested in milliseconds. The repository does not depend on the settings of the user who runs the
tests.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from retinue.core.programs import prepare, run

# A task that runs may wake another, which runs only in the next pass of the event loop.
_PASSES = 50


@dataclass(order=True, slots=True)
class _Due:
    at: float
    # Orders timers that are due at the same moment: callbacks cannot be compared.
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """Time stands still between `advance` and `jump`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._start = now
        self._passed = 0.0
        self._numbers = 0
        self._timers: list[_Due] = []

    def now(self) -> float:
        return self._start + self._passed

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _Due:
        self._numbers += 1
        timer = _Due(self._passed + max(seconds, 0.0), self._numbers, callback)
        heapq.heappush(self._timers, timer)
        return timer

    @property
    def pending(self) -> int:
        """The number of timers that would still fire."""
        return sum(not timer.cancelled for timer in self._timers)

    async def advance(self, seconds: float) -> None:
        """Let time pass. Each timer fires at its own moment, in order, and the tasks it wakes run before the next."""
        end = self._passed + seconds
        # Tasks that were just started must set their timers before time passes.
        await settle()
        while self._timers and self._timers[0].at <= end:
            timer = heapq.heappop(self._timers)
            # A cancelled timer stays in the heap until it is due.
            if not timer.cancelled:
                self._passed = max(self._passed, timer.at)
                timer.callback()
                await settle()
        self._passed = end
        await settle()

    async def jump(self, seconds: float) -> None:
        """Let time pass as while the process sleeps: every timer on the way fires late."""
        self._passed += seconds
        await self.advance(0.0)


async def settle() -> None:
    """Let every task run that can."""
    for _ in range(_PASSES):
        await asyncio.sleep(0)


_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.invalid",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.invalid",
    "GIT_TERMINAL_PROMPT": "0",
}


class Repository(Struct, frozen=True):
    path: Path

    def git(self, *arguments: str) -> str:
        """Return what git printed, without the last newline. Raise RuntimeError with git's own words."""
        # Inside a git hook these variables would lead every command to the user's own repository.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        program = prepare(
            ("git", *arguments), clearance="person", environment={**environment, **_ENVIRONMENT}, cwd=self.path
        )
        done = run(program)
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(arguments)} failed: {done.stderr.decode('utf-8', 'replace').strip()}")
        return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")

    def commit(self, message: str = "change", files: Mapping[str, str] | None = None) -> str:
        """Write `files`, commit everything there is, and return the id of the commit."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--no-verify", "--message", message)
        return self.git("rev-parse", "HEAD")


@contextmanager
def temporary_repository(files: Mapping[str, str] | None = None, *, path: Path | None = None) -> Iterator[Repository]:
    """Yield a repository on branch `main` with one commit of `files`. It is removed afterwards, unless `path` names
    a folder of the caller."""
    if path is not None:
        yield _make(path, files)
        return
    with tempfile.TemporaryDirectory(prefix="retinue-repository-", ignore_cleanup_errors=True) as folder:
        yield _make(Path(folder).resolve(), files)


def _make(path: Path, files: Mapping[str, str] | None) -> Repository:
    path.mkdir(parents=True, exist_ok=True)
    repository = Repository(path)
    repository.git("init", "--quiet", "--initial-branch", "main")
    repository.commit("first", files if files is not None else {"README.md": "A repository for tests.\n"})
    return repository
