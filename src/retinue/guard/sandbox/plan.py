"""From a policy to what the launcher carries out: mounts, Landlock rules, filters, limits.

There are two ways, and the launcher takes the first that works. *Inside* namespaces the program
sees a file system that is read-only but for some folders, in which hidden paths are covered by
empty ones, and no other process. *Outside* of them Landlock alone bounds it, and the filter
refuses more. *Among others* is inside, on hosts that do not let a program have its own /proc.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from retinue.guard.sandbox.kernel import AF_INET, AF_INET6, Machine, landlock_abi, own_proc_works, program
from retinue.guard.sandbox.policy import DEVICES, SandboxLimits, SandboxPolicy
from retinue.guard.sandbox.scratch import kept_workspaces
from retinue.guard.sandbox.view import SHM, View, readable_beside_processes

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_READING = _EXECUTE | _READ | _LIST
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights over files a version of Landlock knows; 16 from the fifth on."""

_FILES_OF_OTHERS = 1 << 2  # CAP_DAC_READ_SEARCH
_FILES_LIKE_ROOT = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4  # CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID

_RLIMIT_CPU, _RLIMIT_FSIZE, _RLIMIT_DATA, _RLIMIT_CORE, _RLIMIT_NPROC = 0, 1, 2, 4, 6
_LAUNCHER_CALLS = """
capset close_range ioctl landlock_add_rule landlock_create_ruleset landlock_restrict_self mount mount_setattr move_mount
open_tree prctl prlimit64 rt_sigaction socket unshare
""".split()

_POWERS_OVER_MASKS = sum(1 << number for number in (2, 16, 17, 19, 21, 22, 27, 32, 33, 38, 39, 40))
"""DAC_READ_SEARCH (files by handle), SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, SYS_BOOT, MKNOD,
MAC_OVERRIDE, MAC_ADMIN, PERFMON, BPF, CHECKPOINT_RESTORE: what root could undo a mask with."""


def make_plan(
    policy: SandboxPolicy, machine: Machine, scratch: Path, void: Path, *, proxy: int | None = None
) -> dict[str, Any] | None:
    """Return all that does not depend on one command; None if nothing has to be done. `void` is a
    folder outside the scratch folder where stand-ins for hidden paths are kept. Paths are resolved
    now: links that change later are not. `proxy` is the port of a program that reaches some hosts
    only. The values are what `marshal` takes."""
    view = View(policy, scratch, void)
    isolated = policy.network != "on"
    plan: dict[str, Any] = {
        "change": policy.change,
        "calls": {name: machine.calls[name] for name in _LAUNCHER_CALLS},
        "namespaces": "must" if proxy else policy.namespaces,
        "isolate_network": isolated,
        "proxy": proxy,
        "void": str(void),
    }
    if policy.change == "all":
        plan["mounts"] = view.masks()
        plan["processes"] = None
        plan["powers_over_masks"] = _POWERS_OVER_MASKS
        return plan if plan["mounts"] or isolated else None
    return {**plan, **_confinement(policy, machine, view)}


def _confinement(policy: SandboxPolicy, machine: Machine, view: View) -> dict[str, Any]:
    abi, isolated, own_processes = landlock_abi(), policy.network != "on", own_proc_works()
    families = () if isolated else (AF_INET, AF_INET6)
    landlock: dict[str, Any] = {}
    for where in ("inside" if own_processes else "among others", "outside"):
        handled = _handled(abi, network=isolated and where == "outside")
        landlock[where] = {"handled": handled, "rules": _rules(view, abi, where)}
    return {
        "mounts": view.mounts(),
        "own_processes": own_processes,
        "landlock": landlock,
        "seccomp": {
            "inside": program(machine, inside=True, families=(AF_INET, AF_INET6), signals_scoped=True),
            "outside": program(machine, inside=False, families=families, signals_scoped=abi >= 6),
        },
        "limits": _limits(policy.limits),
        "processes": policy.limits.processes,
        "scratch": view.scratch,
        "scratch_bytes": policy.limits.scratch_bytes,
        "capabilities": _FILES_LIKE_ROOT if policy.writable else _FILES_OF_OTHERS,
        "workspaces": [
            (kept.root, kept.known, kept.hook_folders) for kept in kept_workspaces(view.writable, policy.readonly)
        ],
    }


def _rules(view: View, abi: int, where: str) -> list[tuple[str, int]]:
    everything = (1 << _RIGHTS.get(abi, 16)) - 1
    device = (_READ | _WRITE | _IOCTL | _TRUNCATE) & everything
    listed: list[str] = []
    if where == "inside":
        reading = ["/"]
    elif where == "among others":
        reading = readable_beside_processes()
    else:
        reading, listed = view.readable()
    changing = [*view.writable, view.scratch]
    if where != "outside":
        changing.append(SHM)
    return [
        *((path, _kind(path, _READING) & everything) for path in reading),
        *((path, _LIST) for path in listed),
        *((path, _kind(path, everything)) for path in changing),
        *((f"/dev/{name}", device) for name in DEVICES),
    ]


def _kind(path: str, access: int) -> int:
    """Landlock takes no rights of folders for a file."""
    if os.path.isdir(path):  # noqa: PTH112 - hundreds of these are asked for
        return access
    return access & _OF_FILES


def _handled(abi: int, *, network: bool) -> bytes:
    """All rights over files; those to TCP where no namespace takes the network away; signals and
    abstract sockets of processes outside."""
    values = [(1 << _RIGHTS.get(abi, 16)) - 1]
    if abi >= 4:
        values.append(3 if network else 0)
    if abi >= 6:
        values.append(3)
    return b"".join(value.to_bytes(8, "little") for value in values)


def _limits(limits: SandboxLimits) -> list[tuple[int, int]]:
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
