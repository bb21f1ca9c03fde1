"""A real git repository in a temporary folder, independent of the settings of the user who runs the tests."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.invalid",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.invalid",
    "GIT_TERMINAL_PROMPT": "0",
}


@dataclass(frozen=True, slots=True)
class Repository:
    path: Path

    def git(self, *arguments: str) -> str:
        """Return what git printed, without the last newline. Raise with git's own words if it fails."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        done = subprocess.run(  # noqa: S603 - the caller's own arguments, and no shell
            ("git", *arguments),  # noqa: S607 - the git of the path
            cwd=self.path,
            env={**environment, **_ENVIRONMENT},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")

    def commit(self, message: str = "change", files: Mapping[str, str] | None = None) -> str:
        """Commit everything there is, after writing `files`; return the commit's id."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--no-verify", "--message", message)
        return self.git("rev-parse", "HEAD")


@contextmanager
def temporary_repository(files: Mapping[str, str] | None = None, *, path: Path | None = None) -> Iterator[Repository]:
    """A repository on branch `main` with one commit of `files`; gone afterwards unless `path`
    names a folder of the caller's."""
    if path is not None:
        yield _made(path, files)
        return
    with tempfile.TemporaryDirectory(prefix="retinue-repository-", ignore_cleanup_errors=True) as folder:
        yield _made(Path(folder).resolve(), files)


def _made(path: Path, files: Mapping[str, str] | None) -> Repository:
    path.mkdir(parents=True, exist_ok=True)
    repository = Repository(path)
    repository.git("init", "--quiet", "--initial-branch", "main")
    repository.commit("first", files if files is not None else {"README.md": "A repository for tests.\n"})
    return repository
