"""The shadow repository: snapshots of the files of a workspace, in a separate git repository.

It is in the state folder of the project and uses the workspace only as a work tree. The user's own `.git`, index,
stash, hooks, filters and configuration are never touched or run. The content of a workspace is a tree object. Because
git's index caches file contents, a snapshot takes one `stat` per file. Exact permission bits and folders, which git
does not store, are part of `RootSnapshot`.

All functions block: call them in a thread.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from retinue.core.programs import PIPE, TimeoutExpired, open_program, prepare, run
from retinue.guard.git import clean, command_line, make_repository
from retinue.settings.places import private_folder

SHADOW_AUTHOR = "Retinue <retinue@localhost>"
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -diff -merge\n"
"""With these attributes git stores content unchanged and runs no filter program."""
_CONFIG = (
    *("core.bare=false", "core.fileMode=true", "core.symlinks=true", "core.autocrlf=false"),
    *("core.looseCompression=1", "core.fsync=none", "core.preloadIndex=true", "index.threads=true"),
    *("core.ignoreCase=false", "core.precomposeUnicode=false", f"core.attributesFile={os.devnull}"),
)
MAX_CHECKPOINT_FILE_BYTES = 10 * 2**20
MAX_CHECKPOINT_FILES = 200_000
SCAN_SECONDS = 60.0
_GITLINK = "160000"
"""Git's mode for another repository inside this one."""


class CheckpointError(Exception):
    """A snapshot of the workspace failed. The message is the reason, for people."""


class PathState(Struct, frozen=True):
    """The entry at a path: a file or link with the id of its content, or a folder. `mode` is the complete `st_mode`."""

    oid: str
    mode: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


Blobs = Callable[[str], bytes]
"""Returns the content of an id. Raises CheckpointError if it was removed."""
Difference = tuple[PathState | None, PathState | None]
"""The state of a path before and after."""


class RootSnapshot(Struct, frozen=True, array_like=True):
    """The state of one root at one time. `modes` has the permission bits of files that differ from `usual` (of plain
    files, of programs); `left_out` are the files that were too large."""

    root: str
    tree: str
    usual: tuple[int, int] = (0o644, 0o755)
    modes: Mapping[str, int] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

    def mode_of(self, path: str, git_mode: str) -> int:
        if git_mode == "120000":
            return stat.S_IFLNK | 0o777
        return stat.S_IFREG | self.modes.get(path, self.usual[git_mode == "100755"])

    def state_of(self, path: str, oid: str, git_mode: str) -> PathState | None:
        # Git's mode for a missing file.
        if git_mode == "000000":
            return None
        return PathState(oid, self.mode_of(path, git_mode))


class Shadow:
    """The shadow repository of a project, created on first use. A file above `max_file_bytes` is not stored. A snapshot
    fails with more than `max_files` files, or after `seconds`."""

    def __init__(
        self,
        folder: Path,
        *,
        max_file_bytes: int = MAX_CHECKPOINT_FILE_BYTES,
        max_files: int = MAX_CHECKPOINT_FILES,
        seconds: float = SCAN_SECONDS,
    ) -> None:
        self.folder = folder
        self.max_file_bytes = max_file_bytes
        self.max_files = max_files
        self._seconds = seconds
        self.directory = folder / "shadow.git"
        self._lock = threading.Lock()
        self._ready = False

    def open(self) -> None:
        """Create the repository if it does not exist. Raise CheckpointError."""
        with self._lock:
            if self._ready:
                return
            if shutil.which("git") is None:
                raise CheckpointError("git is not installed")
            private_folder(self.folder / "index")
            if not (self.directory / "HEAD").is_file():
                try:
                    self._create()
                except OSError as error:
                    raise CheckpointError(f"{self.directory} cannot be made ({error})") from error
            self._ready = True

    def _create(self) -> None:
        unfinished = self.folder / f"making-{os.getpid()}-{os.urandom(4).hex()}.git"
        make_repository(unfinished)
        (unfinished / "info" / "attributes").write_text(_ATTRIBUTES)
        try:
            unfinished.rename(self.directory)
        except OSError:
            # Another process was faster.
            shutil.rmtree(unfinished, ignore_errors=True)
            if not (self.directory / "HEAD").is_file():
                raise

    def git(
        self, arguments: list[str], *, root: Path | None = None, index: Path | None = None, stdin: bytes = b""
    ) -> bytes:
        """Run one git command on the shadow repository. Raise CheckpointError if it fails."""
        environment = self._environment()
        if root is not None:
            environment["GIT_WORK_TREE"] = str(root)
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        line = command_line(arguments, _CONFIG)
        try:
            program = prepare(line, clearance="own", environment=environment, cwd=root or self.folder)
            done = run(program, stdin_bytes=stdin, seconds=self._seconds)
        except TimeoutExpired as error:
            raise CheckpointError(f"the workspace could not be scanned in {self._seconds:g} s") from error
        except OSError as error:
            raise CheckpointError(f"git could not be started ({error})") from error
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise CheckpointError(f"git {arguments[0]} failed: {lines[-1] if lines else done.returncode}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Return an environment in which git ignores the settings of the user and the system."""
        ours = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": str(self.directory)}
        return clean(os.environ) | ours

    # Objects

    def keep(self, data: bytes, kind: bytes = b"blob") -> str:
        """Store content and return its id. This does not use git, because starting a program takes longer."""
        self.open()
        content = b"%b %d\0%b" % (kind, len(data), data)
        oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        path = self.directory / "objects" / oid[:2] / oid[2:]
        if path.exists():
            with suppress(OSError):
                os.utime(path)
            return oid
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"tmp_obj_{os.urandom(6).hex()}")
        beside.write_bytes(zlib.compress(content, 1))
        beside.chmod(0o444)
        beside.replace(path)
        return oid

    def commit(self, ref: str, snapshot: RootSnapshot, message: str, at: float) -> None:
        """Store a tree as a commit under a ref, so that people find it and git does not prune it."""
        signature = f"{SHADOW_AUTHOR} {int(at)} +0000"
        text = f"tree {snapshot.tree}\nauthor {signature}\ncommitter {signature}\n\n{message}\n"
        oid = self.keep(text.encode("utf-8", "replace"), b"commit")
        path = self.directory / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
        beside.write_text(f"{oid}\n")
        beside.replace(path)

    @contextmanager
    def reading(self) -> Iterator[Blobs]:
        """Yield a function that returns contents by id."""
        self.open()
        line = command_line(["cat-file", "--batch"])
        program = prepare(line, clearance="own", environment=self._environment(), cwd=self.folder)
        process = open_program(program, stdin=PIPE)

        def get(oid: str) -> bytes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{oid}\n".encode())
            process.stdin.flush()
            head = process.stdout.readline().split()
            if len(head) != 3:
                raise CheckpointError(f"the content {oid[:12]} is no longer kept")
            return process.stdout.read(int(head[2]) + 1)[:-1]

        try:
            yield get
        finally:
            process.kill()
            process.communicate()

    def differences(self, before: RootSnapshot, after: RootSnapshot) -> list[tuple[str, Difference]]:
        """Return the changes between two snapshots of the same root, including folders, in the order of their relative
        paths."""
        changes: dict[str, Difference] = {}
        if before.tree != after.tree:
            raw = self.git(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", before.tree, after.tree])
            fields = raw.split(b"\0")[:-1]
            for head, name in zip(fields[::2], fields[1::2], strict=True):
                old_mode, new_mode, old_oid, new_oid, _ = head.decode().lstrip(":").split(" ")
                path = os.fsdecode(name)
                if _GITLINK not in (old_mode, new_mode):
                    old = before.state_of(path, old_oid, old_mode)
                    changes[path] = (old, after.state_of(path, new_oid, new_mode))
        self._add_modes(before, after, changes)
        folder = PathState("", stat.S_IFDIR | 0o755)
        # A folder may have replaced a file.
        for path in after.folders - before.folders:
            changes[path] = (changes.get(path, (None, None))[0], folder)
        for path in before.folders - after.folders:
            changes[path] = (folder, changes.get(path, (None, None))[1])
        return sorted(changes.items())

    def _add_modes(self, before: RootSnapshot, after: RootSnapshot, changes: dict[str, Difference]) -> None:
        """Add changes of permission bits that git does not see to `changes`."""
        changed = {path for path, _ in before.modes.items() ^ after.modes.items()} - changes.keys()
        usual_changed = before.usual != after.usual
        if not changed and not usual_changed:
            return
        listed = self.git(["ls-tree", "-r", "-z", after.tree]).split(b"\0")[:-1]
        for line in listed:
            head, _, name = line.partition(b"\t")
            path = os.fsdecode(name)
            if path in changed or (usual_changed and path not in changes):
                git_mode, _, oid = head.decode().split(" ")
                old, new = before.mode_of(path, git_mode), after.mode_of(path, git_mode)
                if old != new:
                    changes[path] = (PathState(oid, old), PathState(oid, new))


def blob_id(data: bytes) -> str:
    """Return the id of content in git, without storing it."""
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()
