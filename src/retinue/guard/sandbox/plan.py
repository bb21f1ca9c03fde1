"""From a policy to what the launcher carries out: private folders, mounts, Landlock rules, filters, limits.

There are two ways, and the launcher takes the first that works. *Inside* namespaces the program sees no other process,
and a file system that is read-only except for some folders and in which hidden paths are covered by empty ones.
*Outside* of namespaces Landlock alone confines it, and the filter refuses more. *Among others* is inside, on hosts
that do not let a program have its own /proc.

Scratch folders lie in the system's temporary folder, below one that only this user may enter. A
folder's name says which process it belongs to, so that the next process finds and removes those of
processes that were killed. `inside/git_files.py` says why repositories are looked at after each command.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from retinue.core.files import read_text
from retinue.core.programs import start_of
from retinue.errors import StateError
from retinue.guard.sandbox.control_groups import GroupWords, group_place
from retinue.guard.sandbox.holder import ScratchHolder
from retinue.guard.sandbox.inside.git_files import find_git_files
from retinue.guard.sandbox.kernel import (
    AF_INET,
    AF_INET6,
    ENOSYS,
    EOPNOTSUPP,
    Machine,
    filter_program,
    landlock_abi,
    own_proc_works,
)
from retinue.guard.sandbox.policy import DEVICES, SandboxLimits, SandboxPolicy, existing_paths
from retinue.guard.sandbox.view import SHM, Identity, View, identity_of, readable_beside_processes, watched_names

_INCLUDED_PATH = re.compile(r"^\s*(?:path|hookspath)\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_OUR_SETTINGS = (
    *(".retinue/settings.json", ".retinue/settings.local.json", ".claude/settings.json"),
    *(".claude/settings.local.json", ".mcp.json"),
)


_SETTLED_NANOSECONDS = 1_000_000_000


class WritableFolder(Struct, frozen=True):
    """A writable folder, the files that git acted on in it when it was first looked at, and its folders of hooks."""

    root: str
    known_files: frozenset[str]
    hook_folders: tuple[str, ...]


@lru_cache(maxsize=64)
def workspace(root: str) -> WritableFolder:
    """Look at a folder once per process. Files that anyone adds later are new."""
    named = _named_paths(root)
    hook_folders = tuple(path for path in named if not os.path.isfile(path))  # noqa: PTH113 - quick
    known_files = find_git_files(root, hook_folders)
    return WritableFolder(root, frozenset((*known_files, *named)), hook_folders)


def repository_files(root: Path) -> list[str]:
    """Return what in a folder decides which programs git starts, as far as it exists. The settings
    of its own repository are always among them, so that a policy shows that it keeps them."""
    top = os.path.realpath(root)
    known_files = workspace(top).known_files
    derived: set[str] = set()
    for path in known_files:
        if path.endswith("/config"):
            folder = path.removesuffix("/config")
            derived |= {f"{folder}/hooks", f"{folder}/info/attributes"}
    return [f"{top}/.git/config", *sorted(known_files), *sorted(derived)]


def protected_places(root: Path) -> tuple[Path, ...]:
    """Return what in a workspace decides over what runs later without being asked: settings and hooks
    of its repositories, and our settings. A policy that keeps them also has new repositories looked
    at after each command (`inside/git_files.py`)."""
    ours = existing_paths(str(root), _OUR_SETTINGS)
    return (*map(Path, repository_files(root)), *ours)


def find_workspaces(writable: list[str], readonly: tuple[Path, ...]) -> list[WritableFolder]:
    """Return the writable folders whose repositories a policy protects."""
    configs = {os.path.realpath(path) for path in readonly if path.name == "config"}
    return [workspace(root) for root in writable if f"{root}/.git/config" in configs]


def _named_paths(root: str) -> list[str]:
    """Return what in the workspace its own settings lead to: includes and folders of hooks."""
    try:
        text = read_text(f"{root}/.git/config", errors="replace")
    except OSError:
        return []
    paths = []
    for value in _INCLUDED_PATH.findall(text):
        name = value.strip('"')
        # Includes start at the file, folders of hooks at the top.
        for base in (f"{root}/.git", root):
            path = os.path.realpath(os.path.join(base, name))  # noqa: PTH118 - an absolute name wins
            if path.startswith(root + "/"):
                paths.append(path)
    return paths


class Scratch:
    """`folder` is what programs may write; `void` holds stand-ins for what is hidden from them."""

    def __init__(self, run_id: str) -> None:
        base = _base()
        _remove_abandoned(base)
        own = os.getpid()
        self._location = Path(tempfile.mkdtemp(prefix=f"{run_id[:8]}.{_realm()}.{own}.{start_of(own)}.", dir=base))
        self.folder = self._location / "work"
        self.void = self._location / "void"
        self.folder.mkdir(mode=0o700)
        self.void.mkdir(mode=0o700)

    def keep(self, name: str, content: bytes) -> Path:
        """Write something beside the scratch folder, where confined programs cannot change it."""
        path = self._location / name
        path.write_bytes(content)
        return path

    def remove(self) -> None:
        """Remove the folder; safe to call twice. Folders that a program made unreadable are opened first."""
        _remove(self._location)
        groups = group_place()
        # Of commands that were killed together with their launcher.
        if groups is not None:
            groups.remove_abandoned(lambda name: name.startswith(self._location.name))


@cache
def _base() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(os.path.realpath(tempfile.gettempdir()))
    # The walls have devices of their own: nothing under /dev (TMPDIR=/dev/shm) would be there.
    if Path("/dev") in folder.parents:
        folder = Path(os.path.realpath("/tmp"))  # noqa: S108 - a private folder is made in it
    base = folder / f"retinue-{user}"
    base.mkdir(mode=0o700, exist_ok=True)
    status = base.lstat()
    # /tmp belongs to everybody: the name may have been taken by someone else.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or stat.S_IMODE(status.st_mode) & 0o077:
        raise StateError(
            f"{base} is not a private folder of this user.",
            remedy="Someone else made it, or its mode was changed. Remove it, or set TMPDIR to another folder.",
        )
    return base


@cache
def _remove_abandoned(base: Path) -> None:
    """Remove what dead processes left, once per process."""
    for entry in base.iterdir():
        if _is_abandoned(entry.name):
            _remove(entry)
    groups = group_place()
    if groups is not None:
        groups.remove_abandoned(_is_abandoned)


def _is_abandoned(name: str) -> bool:
    """Return whether the process is gone to which a scratch folder or group belongs."""
    parts = name.split(".")
    return len(parts) >= 5 and parts[1] == _realm() and parts[2].isdigit() and start_of(int(parts[2])) != parts[3]


def _realm() -> str:
    """Return where process numbers mean the same: containers may share the folder, not the numbers."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _remove(location: Path) -> None:
    def force(function: object, path: str, error: object) -> None:
        """A folder without rights: its owner may give them back."""
        for folder in (Path(path).parent, Path(path)):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o700)

    # Each pass opens folders that a program has closed.
    for _ in range(3):
        if not os.path.lexists(location):
            return
        shutil.rmtree(location, onerror=force)


_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_READ_RIGHTS = _EXECUTE | _READ | _LIST
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights over files a version of Landlock knows; 16 from the fifth on."""

_FIRST_ABI_WITH_SCOPES = 6
"""From this version on Landlock can keep a program from sockets without a path."""
_ABSTRACT_SOCKETS_SCOPE = bytes(16) + (1).to_bytes(8, "little")

# The capability DAC_READ_SEARCH.
_FILES_OF_OTHERS = 1 << 2
# The capabilities CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER and FSETID.
_FILES_LIKE_ROOT = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4

_RLIMIT_CPU, _RLIMIT_FSIZE, _RLIMIT_DATA, _RLIMIT_CORE, _RLIMIT_NPROC = 0, 1, 2, 4, 6
_LAUNCHER_CALLS = """
capget capset close_range fcntl inotify_add_watch inotify_init1 ioctl landlock_add_rule landlock_create_ruleset
landlock_restrict_self mount mount_setattr move_mount open_tree openat2 prctl prlimit64 rt_sigaction sendmsg setns
socket socketpair unshare
""".split()

_POWERS_OVER_MASKS = sum(1 << number for number in (2, 16, 17, 19, 21, 22, 27, 32, 33, 38, 39, 40))
"""DAC_READ_SEARCH (files by handle), SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, SYS_BOOT, MKNOD,
MAC_OVERRIDE, MAC_ADMIN, PERFMON, BPF, CHECKPOINT_RESTORE: capabilities with which root could undo a mask."""


def make_plan(
    policy: SandboxPolicy,
    machine: Machine,
    scratch: Path,
    void: Path,
    *,
    proxy: int | None = None,
    holder: ScratchHolder | None = None,
) -> dict[str, Any]:
    """Return all that does not depend on one command. `void` is a folder outside the scratch folder where
    stand-ins for hidden paths are kept. Paths are resolved now: the launcher follows no links, and a path that
    leads elsewhere by then ends the start. `proxy` is the port of a program that reaches some hosts only, `holder`
    what keeps the scratch folder in memory. The values are what `marshal` takes."""
    began = time.time_ns()
    view = View(policy, scratch, void)
    isolated = policy.network != "on"
    plan: dict[str, Any] = {
        "change": policy.change,
        "calls": {name: machine.calls[name] for name in _LAUNCHER_CALLS},
        "namespaces": "must" if proxy else policy.namespaces,
        "isolate_network": isolated,
        "proxy": proxy,
        "void": str(void),
        "root": None,
        "space": None,
        "scratch": view.scratch,
        "scratch_bytes": None,
        "memory_bytes": None,
        "group": None,
        "workspaces": [],
        "absent": view.absent,
        "stand_ins": [],
        # A new entry at the top of the file system has to be covered.
        "top_changed": os.stat("/").st_mtime_ns if view.narrow else None,  # noqa: PTH116 - quick
    }
    if policy.change == "all":
        plan["mounts"] = view.masks()
        plan["processes"] = None
        plan["powers_over_masks"] = _POWERS_OVER_MASKS
        plan["scope"] = (
            b"" if policy.abstract_sockets or landlock_abi() < _FIRST_ABI_WITH_SCOPES else _ABSTRACT_SOCKETS_SCOPE
        )
    else:
        plan.update(_confinement(policy, machine, view, holder, void.parent.name))
    # Without mounts nothing can fall off.
    plan["watched"] = [] if policy.namespaces == "never" else list(watched_names(plan["mounts"]).items())
    covers = {instead for _, kind, _, instead in plan["mounts"] if kind == "cover"}
    plan["stand_ins"] = [identity_of(f"{void}/{name}") for name in sorted(covers)]
    plan["identities"] = _identities_by_folder(plan, began)
    plan["needed"] = policy.change == "listed" or bool(plan["mounts"]) or isolated or bool(plan["scope"])
    return plan


def _confinement(
    policy: SandboxPolicy, machine: Machine, view: View, holder: ScratchHolder | None, scratch_name: str
) -> dict[str, Any]:
    abi, isolated, own_processes = landlock_abi(), policy.network != "on", own_proc_works()
    families = () if isolated else (AF_INET, AF_INET6)
    landlock: dict[str, Any] = {}
    # Without mounts a program could change the plans of later ones.
    ways = [] if view.plans_in_reach else ["outside"]
    for where in ("inside" if own_processes else "among others", *ways):
        handled = _handled_rights(abi, network=isolated and where == "outside")
        landlock[where] = {"handled": handled, "rules": _rules(view, abi, where)}
    mounts, root = view.mounts(), view.root()
    # Last, because it may have to be waited for.
    space = None if holder is None else holder.space
    counted = policy.limits.scratch_bytes is not None and space is None
    refused = {"fallocate": EOPNOTSUPP} if counted else {}
    if policy.limits.memory_bytes is not None:
        # Memory that belongs to no process.
        refused["memfd_create"] = ENOSYS
    return {
        "mounts": mounts,
        "root": root,
        "own_processes": own_processes,
        "landlock": landlock,
        "seccomp": {
            "inside": filter_program(
                machine, inside=True, families=(AF_INET, AF_INET6), signals_scoped=True, refused=refused
            ),
            "outside": filter_program(
                machine, inside=False, families=families, signals_scoped=abi >= 6, refused=refused
            ),
        },
        "limits": _limits(policy.limits, counted=counted),
        "processes": policy.limits.processes,
        "space": space,
        "scratch_bytes": policy.limits.scratch_bytes,
        "memory_bytes": policy.limits.memory_bytes,
        "group": _group(policy, scratch_name, in_memory=space is not None),
        "capabilities": _FILES_LIKE_ROOT if policy.writable else _FILES_OF_OTHERS,
        "workspaces": [astuple(folder) for folder in find_workspaces(view.writable, policy.readonly)],
    }


def _group(policy: SandboxPolicy, scratch: str, *, in_memory: bool) -> GroupWords | None:
    """Return the group for the memory of a command; None where it cannot be made or has no bound."""
    groups, most = group_place(), policy.limits.memory_bytes
    # The launcher of bubblewrap starts where the groups are read-only.
    if groups is None or most is None or policy.namespaces == "bubblewrap":
        return None
    # Files that a command writes into a folder in memory count as its memory.
    return groups.group_for(scratch, most + ((policy.limits.scratch_bytes or 0) if in_memory else 0))


def launcher_modules(plan: dict[str, Any]) -> list[str]:
    """Return the modules of `inside/` that the launcher needs for a plan, in the order in which they are imported."""
    modules = ["namespaces"]
    if plan["watched"]:
        modules.append("keeper")
    if plan["memory_bytes"] or plan["scratch_bytes"]:
        modules.append("bounds")
    if plan["workspaces"]:
        modules.append("git_files")
    return [*modules, "launcher"]


def is_current(plan: dict[str, Any]) -> bool:
    """Return whether the paths of a plan still lead where they led when it was made."""
    if plan["top_changed"] not in (None, os.stat("/").st_mtime_ns):  # noqa: PTH116 - quick
        return False
    # Unlike os.path.lexists, this raises nothing inside.
    if any(os.access(path, os.F_OK, follow_symlinks=False) for path in plan["absent"]):
        return False
    if plan["group"] is not None and not os.path.isdir(plan["group"][0]):  # noqa: PTH112 - quick
        return False
    try:
        for folder, change_time, identities in plan["identities"]:
            # A file that is replaced changes the time of its folder. The launcher compares each path in any case.
            if os.stat(folder).st_ctime_ns == change_time:  # noqa: PTH116 - quick
                continue
            if any(identity_of(path) != identity for path, identity in identities):
                return False
    except OSError:
        return False
    return True


def _identities_by_folder(plan: dict[str, Any], began: int) -> list[tuple[str, int, list[tuple[str, Identity]]]]:
    """Return the paths that the launcher compares, by the folder that they are in, with the time of its last change.
    `began` is when the first of them was looked at."""
    rules = chain.from_iterable(rules["rules"] for rules in plan.get("landlock", {}).values())
    identities = {target: identity for target, _, identity, _ in plan["mounts"]}
    identities.update((path, identity) for path, _, identity in rules if identity is not None)
    folders: dict[tuple[str, bool], list[tuple[str, Identity]]] = {}
    for path, identity in identities.items():
        if identity is not None:
            # A mount over a folder does not change the folder above.
            in_folder = os.path.isfile(path)  # noqa: PTH113 - hundreds of these are asked for
            folders.setdefault((os.path.dirname(path), in_folder), []).append((path, identity))  # noqa: PTH120 - quick
    return [
        (folder, _settled_change_time(folder, began) if in_folder else -1, paths)
        for (folder, in_folder), paths in folders.items()
    ]


def _settled_change_time(folder: str, began: int) -> int:
    """Return when a folder last changed, in nanoseconds. Return -1 if that was just before `began` or later: another
    change could have the same time."""
    try:
        change_time = os.stat(folder).st_ctime_ns  # noqa: PTH116 - quick
    except OSError:
        return -1
    return change_time if change_time < began - _SETTLED_NANOSECONDS else -1


def _rules(view: View, abi: int, where: str) -> list[tuple[str, int, Identity | None]]:
    """Return paths and rights, and for what may be changed its identity."""
    everything = (1 << _RIGHTS_BY_ABI.get(abi, 16)) - 1
    device = (_READ | _WRITE | _IOCTL | _TRUNCATE) & everything
    listed: list[str] = []
    if where == "inside":
        reading = ["/"]
    elif where == "among others":
        reading = readable_beside_processes()
    else:
        reading, listed = view.readable()
    rights = {path: _kind(path, _READ_RIGHTS) & everything for path in reading}
    rights.update(dict.fromkeys(listed, _LIST))
    for name in DEVICES:
        rights[f"/dev/{name}"] = device | rights.get(f"/dev/{name}", 0)
    changing = [*view.writable, view.scratch]
    rules: list[tuple[str, int, Identity | None]] = [
        (path, _kind(path, everything), identity_of(path)) for path in changing
    ]
    if where != "outside":
        rules.append((SHM, _kind(SHM, everything), None))
    return rules + [(path, access, None) for path, access in rights.items() if path not in changing]


def _kind(path: str, access: int) -> int:
    """Return the rights that Landlock takes for a path: none of folders for a file."""
    if os.path.isdir(path):  # noqa: PTH112 - hundreds of these are asked for
        return access
    return access & _FILE_RIGHTS


def _handled_rights(abi: int, *, network: bool) -> bytes:
    """Return all rights over files; those to TCP where no namespace takes the network away; signals and
    abstract sockets of processes outside."""
    values = [(1 << _RIGHTS_BY_ABI.get(abi, 16)) - 1]
    if abi >= 4:
        values.append(3 if network else 0)
    if abi >= 6:
        values.append(3)
    return b"".join(value.to_bytes(8, "little") for value in values)


def _limits(limits: SandboxLimits, *, counted: bool) -> list[tuple[int, int]]:
    """Return the limits of a process, as the kernel numbers them. `counted`: the scratch folder is on a disk."""
    largest = [most for most in (limits.file_bytes, limits.scratch_bytes if counted else None) if most is not None]
    limit_by_number = {
        # With 0, core files that are piped to a program of the system would still be made.
        _RLIMIT_CORE: 1,
        _RLIMIT_CPU: limits.cpu_seconds,
        _RLIMIT_FSIZE: min(largest, default=None),
        _RLIMIT_DATA: limits.memory_bytes,
        _RLIMIT_NPROC: None if limits.processes is None else limits.processes + _running(),
    }
    return [(number, most) for number, most in limit_by_number.items() if most is not None]


def _running() -> int:
    """Return the threads of all users: the kernel also counts those outside of the sandbox."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 4096
