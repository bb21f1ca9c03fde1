"""The shadow repository: the files of a workspace at a moment, kept in a git store of our own.

It lives in the state folder of the project and knows the workspace only as a work tree. The
user's own `.git`, index, stash, hooks, filters and configuration are never touched or run. What
a workspace looked like is a tree object, found in the time it takes to look at every file's
stat, because git's index remembers what it has seen. What git does not keep is kept beside it:
exact permission bits, and folders, empty ones included.

All of it blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path

from retinue.domain.lean import dataclass
from retinue.settings.places import private_folder, repository_root

NOBODY = "Retinue <retinue@localhost>"
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -diff -merge\n"
"""So that content is stored and given back byte by byte, and no filter program of anyone runs."""
_CONFIG = (
    *("core.bare=false", "core.fileMode=true", "core.symlinks=true", "core.autocrlf=false", "core.safecrlf=false"),
    *("core.looseCompression=1", "core.fsync=none", "core.hooksPath=/dev/null", "core.preloadIndex=true"),
    *("core.ignoreCase=false", "core.precomposeUnicode=false", "core.attributesFile=/dev/null"),
    *("gc.auto=0", "commit.gpgSign=false", "index.threads=true", "core.quotePath=false", "protocol.allow=never"),
)


class CheckpointError(Exception):
    """No picture of the workspace could be taken, for a reason to tell people."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something at a path: a file or link with the id of its content, or a folder. `mode` is
    the whole `st_mode`."""

    oid: str
    mode: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True, slots=True)
class Limits:
    """What is too large for a checkpoint: one file, the number of files, the time for a scan."""

    file_bytes: int = 10 * 2**20
    files: int = 200_000
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One root at one moment. `modes` has the permission bits of files that differ from
    `usual` (of plain files, of programs); `left_out` names files too large to be kept."""

    root: str
    tree: str
    usual: tuple[int, int] = (0o644, 0o755)
    modes: Mapping[str, int] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

    def mode_of(self, path: str, git_mode: str) -> int:
        if git_mode == "120000":
            return stat.S_IFLNK | 0o777
        usual = self.usual[1] if git_mode == "100755" else self.usual[0]
        return stat.S_IFREG | self.modes.get(path, usual)


@dataclass(frozen=True, slots=True)
class Difference:
    """One path, relative to the root, before and after."""

    path: str
    before: Entry | None
    after: Entry | None


class Shadow:
    """One per project and process; made on first use."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder = folder
        self.limits = limits or Limits()
        self.directory = folder / "shadow.git"
        self._program = shutil.which("git")
        self._lock = threading.Lock()
        self._ready = False

    def open(self) -> None:
        """Makes the repository if there is none. Raises CheckpointError when that cannot be."""
        with self._lock:
            if self._ready:
                return
            if self._program is None:
                raise CheckpointError("git is not installed")
            private_folder(self.folder / "index")
            if not (self.directory / "HEAD").is_file():
                try:
                    self._create()
                except OSError as error:
                    raise CheckpointError(f"{self.directory} cannot be made ({error})") from error
            self._ready = True

    def _create(self) -> None:
        made = self.folder / f"making-{os.getpid()}-{os.urandom(4).hex()}.git"
        template = self.folder / "no-template"
        template.mkdir(exist_ok=True)
        self.git(["init", "-q", "--bare", f"--template={template}", str(made)], bare=True)
        (made / "info").mkdir(exist_ok=True)
        (made / "info" / "attributes").write_text(_ATTRIBUTES)
        try:
            made.rename(self.directory)
        except OSError:  # another process was faster
            shutil.rmtree(made, ignore_errors=True)
            if not (self.directory / "HEAD").is_file():
                raise

    def git(
        self,
        arguments: list[str],
        *,
        root: Path | None = None,
        index: Path | None = None,
        given: bytes = b"",
        bare: bool = False,
    ) -> bytes:
        """Runs one git command on the shadow repository. Raises CheckpointError if it fails."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        if not bare:
            environment["GIT_DIR"] = str(self.directory)
        if root is not None:
            environment["GIT_WORK_TREE"] = str(root)
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        settings = [part for value in _CONFIG for part in ("-c", value)]
        if bare:
            settings = []
        try:
            done = subprocess.run(  # noqa: S603  (a fixed program; paths go through stdin)
                [self._program or "git", *settings, *arguments],
                input=given,
                capture_output=True,
                cwd=root or self.folder,
                env=environment,
                timeout=self.limits.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CheckpointError(f"the workspace could not be scanned in {self.limits.seconds:g} s") from error
        except OSError as error:
            raise CheckpointError(f"git could not be started ({error})") from error
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise CheckpointError(f"git {arguments[0]} failed: {said[-1] if said else done.returncode}")
        return done.stdout

    # Objects

    def keep(self, data: bytes, kind: bytes = b"blob") -> str:
        """Stores content; gives its id. Written here rather than by a program: it takes less
        time than starting one."""
        self.open()
        whole = b"%b %d\0%b" % (kind, len(data), data)
        oid = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        path = self.directory / "objects" / oid[:2] / oid[2:]
        if path.exists():
            with suppress(OSError):
                os.utime(path)
            return oid
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"tmp_obj_{os.urandom(6).hex()}")
        beside.write_bytes(zlib.compress(whole, 1))
        beside.chmod(0o444)
        beside.replace(path)
        return oid

    def commit(self, ref: str, snapshot: Snapshot, message: str, at: float) -> str:
        """Keeps a tree under a name, so that it is found by people and spared by git."""
        lines = (
            f"tree {snapshot.tree}\nauthor {NOBODY} {int(at)} +0000\ncommitter {NOBODY} {int(at)} +0000\n\n{message}\n"
        )
        oid = self.keep(lines.encode("utf-8", "replace"), b"commit")
        path = self.directory / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
        beside.write_text(f"{oid}\n")
        beside.replace(path)
        return oid

    @contextmanager
    def reading(self) -> Iterator[Blobs]:
        """Contents by id, one after another."""
        self.open()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        process = subprocess.Popen(  # noqa: S603  (a fixed program)
            [self._program or "git", "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.folder,
            env={**environment, "GIT_DIR": str(self.directory), "GIT_CONFIG_NOSYSTEM": "1"},
        )
        try:
            yield Blobs(process)
        finally:
            process.kill()
            process.communicate()

    def differences(self, before: Snapshot, after: Snapshot) -> list[Difference]:
        """What changed from one snapshot to another of the same root, folders included."""
        found: dict[str, Difference] = {}
        if before.tree != after.tree:
            raw = self.git(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", before.tree, after.tree])
            fields = raw.split(b"\0")[:-1]
            for head, name in zip(fields[::2], fields[1::2], strict=True):
                old_mode, new_mode, old_oid, new_oid, _ = head.decode().lstrip(":").split(" ")
                path = os.fsdecode(name)
                if "160000" in (old_mode, new_mode):
                    continue  # another repository inside this one
                found[path] = Difference(
                    path,
                    None if old_mode == "000000" else Entry(old_oid, before.mode_of(path, old_mode)),
                    None if new_mode == "000000" else Entry(new_oid, after.mode_of(path, new_mode)),
                )
        self._modes(before, after, found)
        folder = Entry("", stat.S_IFDIR | 0o755)
        for path in after.folders - before.folders:  # perhaps in place of a file
            found[path] = Difference(path, found[path].before if path in found else None, folder)
        for path in before.folders - after.folders:
            found[path] = Difference(path, folder, found[path].after if path in found else None)
        return sorted(found.values(), key=lambda each: each.path)

    def _modes(self, before: Snapshot, after: Snapshot, found: dict[str, Difference]) -> None:
        """Changes of permission bits that git does not see."""
        changed = {path for path, _ in before.modes.items() ^ after.modes.items()} - found.keys()
        every = before.usual != after.usual
        if not changed and not every:
            return
        listed = self.git(["ls-tree", "-r", "-z", after.tree]).split(b"\0")[:-1]
        for line in listed:
            head, _, name = line.partition(b"\t")
            path = os.fsdecode(name)
            if path in changed or (every and path not in found):
                git_mode, _, oid = head.decode().split(" ")
                old, new = before.mode_of(path, git_mode), after.mode_of(path, git_mode)
                if old != new:
                    found[path] = Difference(path, Entry(oid, old), Entry(oid, new))


class Blobs:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def get(self, oid: str) -> bytes:
        """Raises CheckpointError when the content is not there any more."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None and out is not None
        into.write(f"{oid}\n".encode())
        into.flush()
        head = out.readline().split()
        if len(head) != 3:
            raise CheckpointError(f"the content {oid[:12]} is no longer kept")
        data = out.read(int(head[2]) + 1)
        return data[:-1]


def blob_id(data: bytes) -> str:
    """The id that git gives to content, without storing it."""
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()


class Workspace:
    """One root as one run sees it: with an index of its own, begun from the last one anybody
    had of this root, so that only what is new has to be read."""

    def __init__(self, shadow: Shadow, root: Path, run_id: str) -> None:
        self.root = repository_root(root) or root
        self._shadow = shadow
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        self._base = shadow.folder / "index" / f"base-{name}"
        self._index = shadow.folder / "index" / f"{run_id}-{name}"
        self._lock = threading.Lock()
        self._known = ""

    def snapshot(self, also: Iterable[str] = ()) -> Snapshot:
        """The root as it is now. `also` are paths to keep although git ignores them."""
        with self._lock:
            self._shadow.open()
            if not self._index.exists() and self._base.exists():
                with suppress(OSError):
                    shutil.copy2(self._base, self._index)
            return self._take(also)

    def close(self) -> None:
        """The run is over; what its index knows helps the next one."""
        with self._lock, suppress(OSError):
            self._index.replace(self._base)

    def _take(self, also: Iterable[str]) -> Snapshot:
        wanted = self._scan()
        tracked = wanted.pop("H", set()) | wanted.pop("S", set())
        gone = wanted.get("R", set())
        news = (wanted.get("C", set()) | wanted.get("?", set())) - gone
        news |= {path for path in self._relative(also) if path not in tracked and os.path.lexists(self.root / path)}
        small, large = self._sized(news)
        if len(tracked) + len(small) > self._shadow.limits.files:
            raise CheckpointError(f"the workspace has more than {self._shadow.limits.files:,} files")
        drop = gone | {path for path in large if path in tracked}
        if small or drop:
            paths = b"".join(os.fsencode(path) + b"\0" for path in sorted(small | drop))
            # --force-remove is for files that are still there but have grown too large.
            if large & tracked:
                kept_out = b"".join(os.fsencode(path) + b"\0" for path in sorted(large & tracked))
                self._git(["update-index", "-z", "--force-remove", "--stdin"], kept_out)
                paths = b"".join(os.fsencode(path) + b"\0" for path in sorted(small | gone))
            self._git(["update-index", "-z", "--add", "--remove", "--replace", "--stdin"], paths)
            self._known = ""
        if not self._known:
            self._known = self._git(["write-tree"]).decode().strip()
        paths_now = (tracked | small) - drop
        usual, modes = _permissions(self.root, paths_now)
        folders = _parents(paths_now) | self._empty_folders()
        return Snapshot(str(self.root), self._known, usual, modes, folders, tuple(sorted(large)))

    def _scan(self) -> dict[str, set[str]]:
        """Every path by git's letter for it: H known, C changed, R gone, ? new."""
        listed = self._git(["ls-files", "-t", "-z", "-c", "-m", "-d", "-o", *self._exclusions()])
        found: dict[str, set[str]] = {}
        for line in listed.split(b"\0"):
            if line and not line.endswith(b"/"):  # a folder is another repository
                found.setdefault(chr(line[0]), set()).add(os.fsdecode(line[2:]))
        return found

    def _exclusions(self) -> list[str]:
        said = ["--exclude-standard"]
        own = self.root / ".git" / "info" / "exclude"
        if own.is_file():
            said.append(f"--exclude-from={own}")
        for ours in (self._shadow.folder, self._shadow.folder.parent):
            with suppress(ValueError):
                said.append(f"--exclude=/{_quoted(ours.relative_to(self.root).as_posix())}/")
        return said

    def _empty_folders(self) -> set[str]:
        listed = self._git(["ls-files", "-z", "-o", "--directory", *self._exclusions()])
        found: set[str] = set()
        for line in listed.split(b"\0"):
            if not line.endswith(b"/"):
                continue
            top = os.fsdecode(line).rstrip("/")
            inner = [os.path.relpath(folder, self.root) for folder, _, _ in os.walk(self.root / top)]
            if not any(names for _, _, names in os.walk(self.root / top)):
                found.update(inner)
                found.update(_parents(inner))
        return found

    def _sized(self, paths: set[str]) -> tuple[set[str], set[str]]:
        """Those that are kept and those that are too large. What is no file is neither."""
        small: set[str] = set()
        large: set[str] = set()
        for path in paths:
            try:
                found = os.lstat(self.root / path)
            except OSError:
                continue
            if stat.S_ISLNK(found.st_mode) or (
                stat.S_ISREG(found.st_mode) and found.st_size <= self._shadow.limits.file_bytes
            ):
                if stat.S_ISLNK(found.st_mode) or os.access(self.root / path, os.R_OK):
                    small.add(path)
            elif stat.S_ISREG(found.st_mode):
                large.add(path)
        return small, large

    def _relative(self, paths: Iterable[str]) -> list[str]:
        root = str(self.root).rstrip("/") + "/"
        return [path[len(root) :] for path in paths if path.startswith(root)]

    def _git(self, arguments: list[str], given: bytes = b"") -> bytes:
        return self._shadow.git(arguments, root=self.root, index=self._index, given=given)


def _quoted(path: str) -> str:
    return "".join(f"\\{char}" if char in "*?[\\!#" else char for char in path)


def _parents(paths: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


def _permissions(root: Path, paths: Iterable[str]) -> tuple[tuple[int, int], dict[str, int]]:
    """Permission bits: those most plain files and most programs have, and the exceptions."""
    plain: Counter[int] = Counter()
    programs: Counter[int] = Counter()
    every: list[tuple[str, int]] = []
    before = str(root).rstrip("/") + "/"
    for path in paths:
        try:
            mode = os.lstat(before + path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            bits = stat.S_IMODE(mode)
            every.append((path, bits))
            (programs if bits & 0o100 else plain)[bits] += 1
    usual = (plain.most_common(1)[0][0] if plain else 0o644, programs.most_common(1)[0][0] if programs else 0o755)
    return usual, {path: bits for path, bits in every if bits != usual[1 if bits & 0o100 else 0]}
