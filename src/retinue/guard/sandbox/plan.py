"""From a policy to what the launcher carries out: mounts, Landlock rules, filters, limits.

There are two ways, and the launcher takes the first that works. *Inside* namespaces the program
sees a file system that is read-only but for some folders, in which hidden paths are covered by
empty ones. *Outside* of them Landlock alone bounds it: it cannot subtract, so what may be read
is spelled out around what is hidden, and the filter refuses more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from retinue.guard.sandbox.kernel import Machine, landlock_abi
from retinue.guard.sandbox.policy import DEVICES, Limits, Policy, secret_places
from retinue.guard.sandbox.seccomp import AF_INET, AF_INET6, program

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_READING = _EXECUTE | _READ | _LIST
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights over files a version of Landlock knows; 16 from the fifth on."""

_FILES_OF_OTHERS = 1 << 2  # CAP_DAC_READ_SEARCH
_FILES_LIKE_ROOT = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4  # CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID

_RLIMIT_CPU, _RLIMIT_FSIZE, _RLIMIT_DATA, _RLIMIT_CORE, _RLIMIT_NPROC = 0, 1, 2, 4, 6
_SHM = "/dev/shm"  # noqa: S108 - where programs share memory: inside, a folder of their own


def make_plan(
    policy: Policy, machine: Machine, scratch: Path, void: Path, *, proxy: int | None = None
) -> dict[str, Any]:
    """All that does not depend on one command. `void` is a folder outside the scratch folder where
    stand-ins for hidden paths are kept. Paths are resolved now: links that change later are not.
    `proxy` is the port of a program that reaches some hosts only."""
    abi, isolated = landlock_abi(), policy.network != "on"
    paths = _Paths(policy, scratch)
    return {
        "namespaces": "must" if proxy else policy.namespaces,
        "isolate_network": isolated,
        "proxy": proxy,
        "mounts": paths.mounts(void),
        "landlock": {
            "inside": {"handled": _handled(abi, network=False), "rules": paths.rules(abi, inside=True)},
            "outside": {"handled": _handled(abi, network=isolated), "rules": paths.rules(abi, inside=False)},
        },
        "seccomp": {
            "inside": program(machine, inside=True, families=(AF_INET, AF_INET6), signals_scoped=True),
            "outside": program(
                machine, inside=False, families=() if isolated else (AF_INET, AF_INET6), signals_scoped=abi >= 6
            ),
        },
        "limits": _limits(policy.limits),
        "processes": policy.limits.processes,
        "capabilities": _FILES_LIKE_ROOT if policy.writable else _FILES_OF_OTHERS,
    }


class _Paths:
    def __init__(self, policy: Policy, scratch: Path) -> None:
        self.scratch = os.path.realpath(scratch)
        self.writable = _real(policy.writable)
        self.readonly = _real(policy.readonly)
        self.hidden = _real([*policy.hidden, *(secret_places(policy.home) if policy.home else ())])
        self.shown = _real(policy.shown)

    def mounts(self, void: Path) -> list[tuple[str, str, str]]:
        """Source, target and kind, from the outside in; the launcher copies all sources first."""
        wanted: dict[str, tuple[str, str]] = {}
        for path in self.hidden:
            wanted[path] = (self._stand_in(path, void), "ro")
        wanted.update({path: (path, "ro") for path in self.shown})
        wanted.update({path: (path, "rw") for path in (*self.writable, *self._pinned())})
        wanted.update({path: (path, "ro") for path in self.readonly})
        wanted[self.scratch] = (self.scratch, "rw")
        wanted.update({f"/dev/{device}": (f"/dev/{device}", "device") for device in DEVICES})
        if Path(_SHM).is_dir():
            wanted[_SHM] = (_made(Path(self.scratch) / ".shm"), "rw")
        ordered = sorted(wanted.items(), key=lambda entry: (entry[0].count("/"), entry[0]))
        return [(source, target, kind) for target, (source, kind) in ordered]

    def _pinned(self) -> list[str]:
        """Folders on the way to something that must stay: as mounts of their own they can be
        written but not moved away."""
        ways = [(str(parent), path) for path in self.readonly for parent in Path(path).parents]
        return [way for way, path in ways if any(way != top and _below(way, top) for top in self.writable)]

    def _stand_in(self, path: str, void: Path) -> str:
        """Something empty of the same kind, with the folders that lead to what is to be seen."""
        if not Path(path).is_dir():
            empty = void / "file"
            empty.touch(mode=0o400)
            return str(empty)
        inner = [
            other
            for other in (*self.shown, *self.writable, *self.readonly, self.scratch)
            if other != path and _below(other, path)
        ]
        place = void / (str(len(list(void.iterdir()))) if inner else "folder")
        _made(place)
        for other in inner:
            inside = place / os.path.relpath(other, path)
            if Path(other).is_dir():
                _made(inside)
            else:
                _made(inside.parent)
                inside.touch()
        return str(place)

    def readable(self) -> list[tuple[str, int]]:
        """Everything but what is hidden and the devices, where nothing covers them."""
        seen = [f"/dev/{name}" for name in (*DEVICES, "fd", "stdin", "stdout", "stderr")]
        return _roots_to_read(_around([*self.hidden, "/dev"], [*seen, *self.shown, *self.writable, self.scratch]))

    def rules(self, abi: int, *, inside: bool) -> list[tuple[str, int]]:
        everything = (1 << _RIGHTS.get(abi, 16)) - 1
        device = (_READ | _WRITE | _IOCTL | _TRUNCATE) & everything
        reading = _roots_to_read(("/",)) if inside else self.readable()
        changing = [*self.writable, self.scratch, *([_SHM] if inside else [])]
        return [
            *((path, access & everything) for path, access in reading),
            *((path, everything if _is_dir(path) else everything & _OF_FILES) for path in changing),
            *((f"/dev/{name}", device) for name in DEVICES),
        ]


def _roots_to_read(paths: Iterable[str]) -> list[tuple[str, int]]:
    return [(path, _READING if _is_dir(path) else _READING & _OF_FILES) for path in paths]


def _around(hidden: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The fewest folders and files that hold everything but `hidden`, yet hold `shown`."""
    found: list[str] = []
    ways = {str(parent) for path in hidden for parent in Path(path).parents}

    def visit(folder: str) -> None:
        if folder in hidden:
            found.extend(path for path in shown if _below(path, folder))
            return
        if folder not in ways:
            found.append(folder)
            return
        try:
            entries = sorted(entry.path for entry in os.scandir(folder) if not entry.is_symlink())
        except OSError:
            return
        for path in entries:
            visit(path)

    visit("/")
    return list(dict.fromkeys(found))


def _handled(abi: int, *, network: bool) -> bytes:
    """All rights over files; those to TCP where no namespace takes the network away; signals and
    abstract sockets of processes outside."""
    values = [(1 << _RIGHTS.get(abi, 16)) - 1]
    if abi >= 4:
        values.append(3 if network else 0)
    if abi >= 6:
        values.append(3)
    return b"".join(value.to_bytes(8, "little") for value in values)


def _limits(limits: Limits) -> list[tuple[int, int]]:
    """Core files are refused with 1 rather than 0, which alone also stops those that are piped to
    a program of the system's."""
    wanted = {
        _RLIMIT_CORE: 1,
        _RLIMIT_CPU: limits.cpu_seconds,
        _RLIMIT_FSIZE: limits.file_bytes,
        _RLIMIT_DATA: limits.memory_bytes,
        _RLIMIT_NPROC: None if limits.processes is None else limits.processes + _running(),
    }
    return [(number, most) for number, most in wanted.items() if most is not None]


def _running() -> int:
    """Threads of all users: the kernel counts those of this one, outside of the sandbox too."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 4096


def _real(paths: Iterable[Path]) -> list[str]:
    return [os.path.realpath(path) for path in paths if os.path.exists(path)]  # noqa: PTH110 - quick


def _is_dir(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - hundreds of these are asked for


def _below(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(folder + "/")


def _made(path: Path) -> str:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(path)
