"""The environment block of a prompt: where the run works, in which repository, on what platform.

Git is asked by reading its files: no process is started for it, and a broken repository is
reported as no repository rather than as an error.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from shutil import which

from retinue.core.lean import dataclass
from retinue.settings.places import repository_root


@dataclass(frozen=True, slots=True)
class Environment:
    folder: str
    repository: bool
    branch: str
    platform: str
    shell: str = ""
    date: str = ""

    def block(self) -> str:
        lines = ["# Environment", f"Working directory: {self.folder}"]
        if self.repository:
            lines.append("Git repository: yes")
            if self.branch:
                lines.append(f"Branch: {self.branch}")
        else:
            lines.append("Not a git repository")
        shell = f", shell {self.shell}" if self.shell else ""
        lines.append(f"Platform: {self.platform}{shell}")
        if self.date:
            lines.append(f"Date: {self.date}")
        return "\n".join(lines)


def detect(folder: Path) -> Environment:
    root = repository_root(folder)
    branch = _branch(root / ".git") if root else None
    shell = "bash" if which("bash") else "sh"
    return Environment(str(folder), branch is not None, branch or "", sys.platform, shell, _today())


def _today() -> str:
    """The date here: a person's "yesterday" is meant in their own time zone."""
    return f"{datetime.now().astimezone():%Y-%m-%d}"


def _branch(git: Path) -> str | None:
    """The current branch, "" when HEAD is detached, None when this is no usable repository."""
    try:
        if git.is_file():  # a worktree or submodule: the file names the real folder
            pointer = git.read_text("utf-8").strip()
            if not pointer.startswith("gitdir:"):
                return None
            git = (git.parent / pointer.removeprefix("gitdir:").strip()).resolve()
        head = (git / "HEAD").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""
