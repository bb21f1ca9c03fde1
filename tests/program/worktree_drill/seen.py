"""What was there: commits and files that agents reported while they worked, and what lay on the
disk after a kill. None of it comes from Retinue's own records; whose a worktree is, is only asked
to leave alone those of supervisors that live."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socketserver
import subprocess
import threading
from pathlib import Path
from typing import Literal

_WORD = re.compile(r"(commit|blob) ([0-9a-f]{40}) (.+)\n")
_PLAIN = {"PATH": os.environ["PATH"], "LC_ALL": "C", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0"}


class Seen:
    """Use with `with`: it listens on `port` for what the agents' commands report."""

    def __init__(self) -> None:
        self.commits: dict[str, str] = {}
        self.blobs: dict[str, str] = {}
        """What there was, and from whom that is known."""
        self.gone: dict[str, set[str]] = {}
        """Files that a job removed, by job."""
        self.missed: set[str] = set()
        """Jobs that had a call whose result is not known."""
        self.denied: set[str] = set()
        """Calls that were not run."""
        self._lock = threading.Lock()
        seen = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for kind, name, said in _WORD.findall(self.rfile.read().decode()):
                    seen.add(kind, {name: said})

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self) -> Seen:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, kind: Literal["commit", "blob"], names: dict[str, str]) -> None:
        with self._lock:
            known = self.commits if kind == "commit" else self.blobs
            known.update({name: f"{known[name]}; {said}" if name in known else said for name, said in names.items()})

    def look(self, worktrees: Path, pid: int, *, at_files: bool) -> None:
        """Notes every commit in worktrees of the dead process `pid`, and with `at_files`, when no
        program of theirs can be alive any more, every file that is neither committed nor ignored."""
        for git in worktrees.glob("*.git"):
            if _owner(git.with_suffix(".json")) not in (pid, None):
                continue
            self.add("commit", commits_in(git))
            checkout = git.with_suffix("")
            if at_files:
                with contextlib.suppress(FileNotFoundError):  # someone cleans up meanwhile
                    self.add("blob", _uncommitted(git, checkout))


def blob_of(content: str) -> str:
    data = content.encode()
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data)).hexdigest()


def commits_in(git: Path) -> dict[str, str]:
    """Every commit whose object is there, borrowed ones included."""
    options = ("cat-file", "--batch-check=%(objecttype) %(objectname)", "--batch-all-objects")
    lines = [line.split() for line in run_git(git, None, *options).splitlines()]
    return {name: f"in {git.name}" for kind, name in lines if kind == "commit"}


def run_git(git: Path, checkout: Path | None, *arguments: str) -> str:
    """Plain git. Nothing when it fails: another process may be removing what it looks at."""
    where = ["--git-dir", str(git), *(["--work-tree", str(checkout)] if checkout else [])]
    done = subprocess.run(["git", *where, *arguments], env=_PLAIN, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def _uncommitted(git: Path, checkout: Path) -> dict[str, str]:
    listed = run_git(git, checkout, "status", "--porcelain", "-z", "-uall", "--no-renames").split("\0")
    files = [checkout / line[3:] for line in listed if line and not line.endswith("/")]
    # An empty one is git's own: a checkout, or a commit, that was cut off.
    plain = [file for file in files if file.is_file() and not file.is_symlink() and file.stat().st_size]
    return {blob_of(file.read_text()): f"in {checkout.name}/{file.name}" for file in plain}


def _owner(record: Path) -> int | None:
    try:
        owner = json.loads(record.read_text())["owner"]
        return owner["pid"] if owner else None
    except (OSError, ValueError, LookupError):
        return None
