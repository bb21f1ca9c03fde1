"""Scratch folders in memory: a process per run holds one, for the commands of that run.

Only a file system in memory has a limit for the whole folder that the kernel enforces. A folder that may become larger
than half of the memory stays on the disk, where the launcher counts.
"""

from __future__ import annotations

import os
from pathlib import Path

from retinue.core.programs import DEVNULL, PIPE, open_program, prepare
from retinue.guard.sandbox.kernel import Machine
from retinue.guard.sandbox.policy import SandboxPolicy
from retinue.guard.sandbox.view import Identity, in_python

_CALLS = ("unshare", "mount_setattr", "mount")
_BYTES_PER_FILE = 4096
"""A file system of so many bytes for each file that it may hold: the kernel keeps some for each in its own memory."""
_LIMITS_OF_GROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


Space = tuple[int, int, int, Identity]
"""Where a scratch folder is mounted: the process that holds it, its namespaces of users and mounts, and the identity of
the folder."""


class ScratchHolder:
    """The process that holds a scratch folder in memory, if this host lets it."""

    def __init__(self, machine: Machine, folder: Path, size: int) -> None:
        calls = " ".join(f"{name}={machine.calls[name]}" for name in _CALLS)
        options = f"mode=700,size={size},nr_inodes={max(size // _BYTES_PER_FILE, 1024)}"
        inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        program = prepare([*in_python("holder"), calls, str(folder), options], clearance="own", environment=inherited)
        self._process = open_program(program, stdin=PIPE, stderr=DEVNULL)
        self._space: Space | None = None

    @property
    def space(self) -> Space | None:
        """Return where it is; None if it could not be made. Waits for it the first time."""
        if self._space is None and self._process.stdout is not None:
            fields = [int(field) for field in self._process.stdout.readline().split()]
            self._process.stdout.close()
            self._process.stdout = None
            if len(fields) == 5:
                self._space = fields[0], fields[1], fields[2], (fields[3], fields[4])
        return self._space

    @property
    def lost(self) -> bool:
        """Return whether a folder was held, and its files are gone."""
        return self._space is not None and self._process.poll() is not None

    def close(self) -> None:
        """Let go of the folder; safe to call twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()


def fits_in_memory(policy: SandboxPolicy) -> bool:
    """Return whether the scratch folder of a policy can be one in memory."""
    size = policy.limits.scratch_bytes
    return (
        policy.change == "listed"
        and policy.namespaces in ("try", "must")
        and size is not None
        and 2 * size <= _memory_bytes()
    )


def _memory_bytes() -> int:
    """Return the memory of this machine, or of the container around this process."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMITS_OF_GROUP:
        try:
            most = min(most, int(Path(path).read_text()))
        except (OSError, ValueError):
            # "max" is no number.
            continue
    return most
