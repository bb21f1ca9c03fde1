"""The file system as a confined program sees it: what is hidden, shown, writable or read-only.

With namespaces the view consists of mounts, and hidden paths are covered by something empty. Landlock alone cannot
exclude a path from a folder, so the readable paths around the hidden ones are listed. The programs in `inside/` are
started by the interpreter that runs this, and load nothing of the user or the project.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from retinue.guard.sandbox.environment import foreign_tops, repository_of, system_roots, tool_roots
from retinue.guard.sandbox.policy import DEVICES, SandboxPolicy, secret_places

INSIDE_FOLDER = Path(__file__).with_name("inside")


def in_python(module: str) -> list[str]:
    """Return the words that start a module of `inside/`. The interpreter is the one below a virtual
    environment, if there is one: that saves looking for it."""
    start = f"import sys;sys.path.append({str(INSIDE_FOLDER.parent)!r});import inside.{module}"
    return [_interpreter(), "-I", "-S", "-c", start]


_START_SCRIPT = """import marshal, posix, sys
try:
    file = posix.open(sys.argv[1], posix.O_RDONLY | posix.O_CLOEXEC)
    modules, plan = marshal.loads(posix.read(file, posix.fstat(file).st_size))
    for name, code in modules:
        sys.modules[name] = module = type(sys)(name)
        module.__package__ = "inside"
        exec(code, module.__dict__)
except BaseException as error:
    posix.write(2, f"retinue sandbox: the plan of the command cannot be used ({error})\\n".encode("utf-8", "replace"))
    posix._exit(125)
module.main(plan, sys.argv[2], sys.argv[3:])
"""


def launcher() -> list[str]:
    """Return the words that start the launcher of a plan file. Its code comes with the plan: looking for the files of
    modules would take a tenth of the start of a command."""
    return [_interpreter(), "-I", "-S", "-c", _START_SCRIPT]


@cache
def module_code(name: str) -> tuple[str, CodeType]:
    """Return the full name of a module of `inside/`, and its code."""
    full_name = f"inside.{name}"
    code = SourceFileLoader(full_name, str(INSIDE_FOLDER / f"{name}.py")).get_code(full_name)
    assert code is not None
    return full_name, code


def _interpreter() -> str:
    return getattr(sys, "_base_executable", "") or sys.executable


SHM = "/dev/shm"  # noqa: S108 - where programs share memory: inside, a folder of their own
_KERNEL_FOLDERS = ("/proc/sys", "/sys")
Identity = tuple[int, int]
"""Device and inode number of a path when the plan was made."""
Mount = tuple[str, str, Identity | None, str]
"""Target, kind, identity of the target, and what is attached there instead of itself: the name of a
stand-in, or the size of a file system in memory (`inside/namespaces.py`)."""


class View:
    """The paths of a policy, resolved now: links that change later are not followed."""

    def __init__(self, policy: SandboxPolicy, scratch: Path, void: Path) -> None:
        self._void = void
        self._memory_bytes = policy.limits.scratch_bytes
        self.scratch = os.path.realpath(scratch)
        self.readonly = _real(policy.readonly)
        writable = _real(_without_inner_links(policy.writable, policy.writable))
        self.shown = _real(_without_inner_links(policy.shown, policy.writable))
        # A program that could change the plans or the launcher would decide how later ones are confined.
        plans = os.path.realpath(void.parent.parent)
        self.plans_in_reach = any(_below(plans, top) for top in writable)
        for own in (plans, os.path.realpath(INSIDE_FOLDER.parent)):
            if any(_below(own, top) for top in writable):
                self.readonly.append(own)
        # A folder that is read-only as a whole is shown, not writable: rules can be about a whole root.
        self.writable = [path for path in writable if path not in self.readonly]
        self.shown += [path for path in writable if path not in (*self.writable, *self.shown)]
        self._denied = frozenset(_real(policy.hidden))
        hidden = [*policy.hidden, *(secret_places(policy.home) if policy.home else ())]
        self.hidden = _real(hidden)
        self.absent = [str(path) for path in (*hidden, *policy.readonly) if not os.path.lexists(path)]
        self.narrow = policy.reach == "system" and "/" not in self.shown
        self._tools: list[str] = []
        self._own: list[str] = []
        self.named_paths = [os.path.abspath(path) for path in (*policy.shown, *policy.writable)]  # noqa: PTH100 - not resolved
        if self.narrow:
            self._tools = tool_roots(policy.home, policy.path)
            for root in (*self.shown, *self.writable):
                self._tools += repository_of(root)
            # Links to tools are shown as links.
            self.named_paths += self._tools
            self._tools = _real(map(Path, self._tools))
            # The launcher starts inside, and must see its plan.
            if policy.namespaces == "bubblewrap":
                self._own = [os.path.realpath(void.parent)]
            self.hidden += [top for top in foreign_tops() if top not in self.hidden]

    @cached_property
    def _visible(self) -> list[str]:
        """The system and the user's tools, but for those that the policy hides by name."""
        if not self.narrow:
            return []
        roots = [*system_roots(), *self._tools]
        allowed = [path for path in roots if self._denied.isdisjoint((path, *_above(path)))]
        return [*allowed, *self._own]

    def mounts(self) -> list[Mount]:
        """Return the mounts, from the outside in."""
        # Of two kinds for the same path the later one counts.
        kinds = _of_kind("shown", (*self.shown, *self._visible))
        kinds.update(_of_kind("pin", self._pinned_folders()))
        kinds.update(_of_kind("rw", self.writable))
        kinds.update(_of_kind("ro", self._kept()))
        kinds.update(self._covers())
        kinds[self.scratch] = ("rw", "")
        kinds.update(_of_kind("device", map("/dev/".__add__, DEVICES)))
        if _is_dir(SHM):
            kinds[SHM] = ("memory", "" if self._memory_bytes is None else str(self._memory_bytes))
        return _order_mounts(kinds)

    def root(self) -> list[tuple[str, str]] | None:
        """Return what a root that begins empty must hold, apart from the mounts: links, with where they lead,
        and folders, with "". None where all of the file system is to be seen."""
        if not self.narrow:
            return None
        entry_links = {path: "" for path in self._seen if path.count("/") == 1}
        for link, text in self._links:
            if not any(_below(link, seen) for seen in self._seen):
                entry_links[link] = text
        with os.scandir("/") as entries:
            for entry in entries:
                if entry.is_symlink():
                    entry_links[entry.path] = os.readlink(entry.path)  # noqa: PTH115 - quick
        return [(text, path) for path, text in sorted(entry_links.items())]

    def masks(self) -> list[Mount]:
        """Return the mounts for a program that may change everything but this; none if all is as it would be."""
        covers = self._covers()
        if not covers and not self.readonly:
            return []
        protected = list(self.readonly)
        # Root could have the kernel start programs.
        if os.access("/proc/sys/kernel/core_pattern", os.W_OK):
            protected += filter(_is_dir, _KERNEL_FOLDERS)
        for disk in _readable_disks():
            covers[disk] = ("cover", self._stand_in(disk))
        kinds = _of_kind("shown", (*self.shown, *self.writable))
        kinds.update(_of_kind("pin", self._parents((*self.readonly, *self.hidden))))
        kinds.update(_of_kind("kept", protected))
        kinds.update(covers)
        return _order_mounts(kinds)

    def _covers(self) -> dict[str, tuple[str, str]]:
        seen = set(self._seen)
        return {path: ("cover", self._stand_in(path)) for path in self.hidden if path not in seen}

    def _kept(self) -> list[str]:
        """Return what must be made read-only: what is only shown is so, and "ro" would leave it covered."""
        shown = [path for path in self.shown if not any(_below(path, top) for top in self.writable)]
        return [path for path in self.readonly if path not in shown]

    def _pinned_folders(self) -> list[str]:
        """Return folders on the way to something that must stay: as mounts of their own they can be
        written but not moved away."""
        folders_above = self._parents((*self.readonly, *self.hidden))
        return [way for way in folders_above if any(way != top and _below(way, top) for top in self.writable)]

    def _parents(self, paths: Iterable[str]) -> list[str]:
        """Return the folders above, as far as this user could rename them."""
        parents: dict[str, None] = {}
        for path in paths:
            for parent in _above(path):
                if parent in parents:
                    break
                if os.access(os.path.dirname(parent), os.W_OK):  # noqa: PTH120 - quick
                    parents[parent] = None
        return list(parents)

    def _stand_in(self, path: str) -> str:
        """Return the name in the void of something empty of the same kind, with the folders and links that
        lead to what is to be seen. The same content is made once."""
        if not _is_dir(path):
            file = self._void / "file"
            if not file.exists():
                file.touch(mode=0o400)
            return file.name
        inner = [other[len(path) + 1 :] for other in self._seen if other.startswith(path + "/")]
        links = [(link[len(path) + 1 :], text) for link, text in self._links if link.startswith(path + "/")]
        kinds = [(name, _is_dir(f"{path}/{name}")) for name in inner]
        location = self._void / sha256(repr((kinds, links)).encode()).hexdigest()[:16]
        # Another hidden folder had the same content.
        if location.exists():
            return location.name
        _make_folder(location)
        for name, is_folder in kinds:
            if is_folder:
                _make_folder(location / name)
            else:
                _make_folder((location / name).parent)
                (location / name).touch()
        for name, text in links:
            if not os.path.lexists(location / name):
                _make_folder((location / name).parent)
                (location / name).symlink_to(text)
        return location.name

    @cached_property
    def _seen(self) -> list[str]:
        return sorted({*self.shown, *self.writable, self.scratch, *self._visible})

    @cached_property
    def _links(self) -> list[tuple[str, str]]:
        """Return links on the way to what is to be seen, as it was named."""
        return sorted({link for path in self.named_paths for link in _links(path)})

    def readable(self) -> tuple[list[str], list[str]]:
        """Return what Landlock is told to let programs read, and the folders that they may only
        list: everything that is not hidden, not a device and not about another process."""
        devices = [f"/dev/{name}" for name in (*DEVICES, "fd", "stdin", "stdout", "stderr")]
        shown = [*devices, *self.shown, *self.writable, self.scratch, *self._visible]
        read, folders_above = _list_around([*self.hidden, "/dev", "/proc"], shown)
        folders = list(filter(_is_dir, (*self.hidden, "/dev", "/proc")))
        listed = [way for way in folders_above if not any(_below(path, way) for path in folders)]
        return [*read, *readable_proc()], listed


def readable_beside_processes() -> list[str]:
    """Return everything but what is about a process."""
    return [*_list_around(["/proc"], [])[0], *readable_proc()]


def readable_proc() -> list[str]:
    """Return what in /proc is about the system, not about a process."""
    with os.scandir("/proc") as entries:
        return sorted(entry.path for entry in entries if not entry.name.isdigit() and not entry.is_symlink())


def _list_around(hidden: Sequence[str], shown: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the fewest folders and files that hold everything but `hidden`, yet hold `shown`; and
    the folders that were taken apart for it."""
    listed: list[str] = []
    apart: list[str] = []
    covered = set(hidden)
    folders_above = {parent for path in hidden for parent in (*_above(path), "/")}

    def visit(folder: str) -> None:
        if folder in covered and folder not in shown:
            for path in shown:
                if path != folder and _below(path, folder):
                    visit(path)
            return
        if folder not in folders_above:
            listed.append(folder)
            return
        try:
            entries = sorted(entry.path for entry in os.scandir(folder) if not entry.is_symlink())
        except OSError:
            return
        apart.append(folder)
        for path in entries:
            visit(path)

    visit("/")
    return list(dict.fromkeys(listed)), apart


def _readable_disks() -> list[str]:
    """Return disks that this user can read past any file system."""
    disks = []
    try:
        names = os.listdir("/sys/class/block")  # noqa: PTH208 - quick
    except OSError:
        return []
    for name in names:
        path = "/dev/" + name.replace("!", "/")
        if os.access(path, os.R_OK):
            disks.append(path)
    return disks


def _links(path: str) -> Iterable[tuple[str, str]]:
    """Yield links on the way of a path, with where they lead."""
    for location in (*reversed(_above(path)), path):
        try:
            yield location, os.readlink(location)  # noqa: PTH115 - quick
        except OSError:
            continue


def _without_inner_links(paths: Iterable[Path], writable: Sequence[Path]) -> list[Path]:
    """Leave out paths with a link in a writable folder on the way: an earlier program may have made it."""
    tops = [os.path.realpath(top) for top in writable]
    paths_outside = []
    for path in paths:
        links = [os.path.realpath(os.path.dirname(link)) for link, _ in _links(os.path.abspath(path))]  # noqa: PTH100, PTH120 - quick
        if not any(_below(folder, top) for folder in links for top in tops):
            paths_outside.append(path)
    return paths_outside


def identity_of(path: str) -> Identity | None:
    """Return which file or folder a path leads to, without following a link; None if it leads to none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _of_kind(kind: str, paths: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return paths that are mounted in their own place."""
    return dict.fromkeys(paths, (kind, ""))


def _order_mounts(kinds: dict[str, tuple[str, str]]) -> list[Mount]:
    """Leave out what is as it should be without a mount. `early` ones are copied before anything
    is covered or made read-only."""
    mounts: list[Mount] = []
    placed: dict[str, str] = {}
    for target, (kind, instead) in sorted(kinds.items(), key=lambda entry: (entry[0].count("/"), entry[0])):
        # Parents come first, so the nearest mount around a path has been decided.
        around = next((placed[parent] for parent in _above(target) if parent in placed), "")
        early = kind in ("rw", "device") or (kind == "shown" and around == "cover")
        needed = early or (kind != "shown" and around != "cover")
        if kind == "ro" and around not in ("rw", "pin"):
            # Everything is read-only there.
            needed = False
        if needed:
            placed[target] = kind
            identity = None if kind == "memory" else identity_of(target)
            mounts.append((target, f"early {kind}" if early else kind, identity, instead))
    return mounts


def watched_names(mounts: Sequence[Mount]) -> dict[str, dict[bytes, int]]:
    """Return by folder the names in it whose change takes a mask away: of masked paths, with their places in the list
    of mounts, and with -1 those of folders above, as far as this user could rename them."""
    names_by_folder: dict[str, dict[bytes, int]] = {}
    for number, (target, kind, _, _) in enumerate(mounts):
        if kind in ("cover", "ro", "kept"):
            folder, _, name = target.rpartition("/")
            names_by_folder.setdefault(folder or "/", {})[os.fsencode(name)] = number
    seen: set[str] = set()
    for path in [*names_by_folder]:
        for way in (path, *_above(path)):
            if way in seen:
                break
            seen.add(way)
            folder, _, name = way.rpartition("/")
            if name and os.access(folder or "/", os.W_OK):
                names_by_folder.setdefault(folder or "/", {}).setdefault(os.fsencode(name), -1)
    return names_by_folder


def _above(path: str) -> list[str]:
    """Return the folders above a path, the nearest first, without the root."""
    parents = []
    cut = path.rfind("/")
    while cut > 0:
        path = path[:cut]
        parents.append(path)
        cut = path.rfind("/")
    return parents


def _real(paths: Iterable[Path]) -> list[str]:
    """Return what exists, resolved. Many files are in few folders, so each folder is resolved once."""
    folders: dict[str, str] = {}
    resolved: dict[str, None] = {}
    for path in paths:
        folder, _, name = str(path).rpartition("/")
        if folder not in folders:
            folders[folder] = os.path.realpath(folder or "/").rstrip("/")
        location = f"{folders[folder]}/{name}"
        if name in ("", "..") or not str(path).startswith("/") or os.path.islink(location):  # noqa: PTH114 - quick
            location = os.path.realpath(path)
        if os.path.exists(location):  # noqa: PTH110 - quick
            resolved[location] = None
    return list(resolved)


def _is_dir(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - hundreds of these are asked for


def _below(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(folder + "/")


def _make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
