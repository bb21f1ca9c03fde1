"""git as a program: without a shell, without hooks, prompts or signatures, and never for ever.

Nothing of the caller's GIT_* variables reaches it: inside someone's git hook they would point
every command at another repository or index.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from retinue.domain.lean import dataclass

SECONDS = 120.0
"""The longest one command may take, checking out a large tree included."""
_TAIL = 600
Done = subprocess.CompletedProcess[bytes]

_OPTIONS = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.pager=cat",
    "core.alternateRefsCommand=true",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "protocol.file.allow=always",
    "core.quotePath=false",
    "core.safecrlf=false",
)
_HALF_MADE = re.compile(rb"failed to read [^\n]*worktrees/[^\n]+/commondir")
_WAITS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_KEPT = ("GIT_EXEC_PATH", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")


class GitError(Exception):
    """A command of git failed, or took too long. The text is git's own, shortened."""

    def __init__(self, arguments: Sequence[str], why: str, code: int | None = None) -> None:
        self.command = "git " + " ".join(arguments[:3])
        self.why = why.strip()[-_TAIL:] or "it said nothing"
        self.code = code
        super().__init__(f"{self.command}: {self.why}")


@dataclass(frozen=True, slots=True)
class Git:
    """git in one folder. With `git_dir` it works on that repository with `folder` as the checkout,
    whatever files in it claim; `variables` are added to its environment."""

    folder: Path
    environment: Mapping[str, str]
    git_dir: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def having(self, **variables: str) -> Git:
        """The same with further variables in its environment."""
        return replace(self, variables={**self.variables, **variables})

    def __call__(self, *arguments: str, given: bytes | None = None, seconds: float = SECONDS) -> bytes:
        """What it printed. Raises GitError."""
        done = self._run(arguments, given, seconds)
        if done.returncode != 0:
            raise GitError(arguments, done.stderr.decode("utf-8", "replace"), done.returncode)
        return done.stdout

    def text(self, *arguments: str) -> str:
        """Its first answer as text, without the line's end."""
        return os.fsdecode(self(*arguments)).rstrip("\n")

    def ask(self, *arguments: str) -> str | None:
        """The same, or None when git says no."""
        done = self._run(arguments, None, SECONDS)
        return os.fsdecode(done.stdout).rstrip("\n") if done.returncode == 0 else None

    def holds(self, *arguments: str) -> bool:
        """Whether a command that only answers yes or no says yes. Raises GitError on neither."""
        done = self._run(arguments, None, SECONDS)
        if done.returncode not in (0, 1):
            raise GitError(arguments, done.stderr.decode("utf-8", "replace"), done.returncode)
        return done.returncode == 0

    def _run(self, arguments: Sequence[str], given: bytes | None, seconds: float) -> Done:
        """Tried again where it met a worktree that another git was making in that very moment."""
        for wait in _WAITS:
            done = self._once(arguments, given, seconds)
            if done.returncode == 0 or not _HALF_MADE.search(done.stderr):
                return done
            time.sleep(wait)
        return self._once(arguments, given, seconds)

    def _once(
        self, arguments: Sequence[str], given: bytes | None, seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        options = [part for option in _OPTIONS for part in ("-c", option)]
        environment = {**clean(self.environment), **self.variables}
        if self.git_dir is not None:
            where = {"GIT_DIR": self.git_dir, "GIT_COMMON_DIR": self.git_dir, "GIT_WORK_TREE": self.folder}
            environment |= {name: str(value) for name, value in where.items()}
        try:
            return subprocess.run(  # noqa: S603 - a fixed program, and no shell
                ["git", *options, *arguments],  # noqa: S607 - the git of the user's path
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL if given is None else None,
                input=given,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError as error:
            missing = "git is not installed, or not in PATH" if self.folder.is_dir() else f"{self.folder} is gone"
            raise GitError(arguments, missing) from error
        except subprocess.TimeoutExpired as error:
            raise GitError(arguments, f"it took longer than {seconds:g} s") from error
        except OSError as error:
            raise GitError(arguments, str(error)) from error


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without what would lead git elsewhere or make it wait for a person."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") or name in _KEPT}
    kept.setdefault("PATH", os.environ.get("PATH", os.defpath))
    return kept | {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_EDITOR": "true",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def paths(listed: bytes) -> list[str]:
    """File names as git lists them with -z."""
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]
