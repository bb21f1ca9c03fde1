"""Bounds on what all processes of a program take together: memory, and a scratch folder on a disk.

The kernel limits each process. It limits all of them together where a control group can be made, and the scratch
folder where that is a file system in memory. The process that stays outside counts the rest, more often when less room
is left. A program that exceeds a limit is killed. A program that finds the scratch folder full can remove files, but
cannot write to any."""

import posix
from _signal import ITIMER_REAL, setitimer, signal  # type: ignore[import-not-found]  # without the enumerations
from time import monotonic

from .namespaces import O_PATH, SandboxError, descendants, get, parent_of, process_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MIN_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 0.02, 0.5
_TIME_SHARE = 20
"""Counting takes at most one part in so many of the time."""
_MAX_BYTES_PER_SECOND = 4 * 1024**3
"""How fast a program is assumed to fill memory or a disk."""
_ENTRY_BYTES = 512
"""Bytes that an entry costs in the folder's own list, so that millions of empty files count."""
_SIGALRM = 14
_PAGE_BYTES = posix.sysconf("SC_PAGE_SIZE")
_FOLDER_FLAGS = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC


class UsageCheck:
    """A use that is counted, more often when less room is left."""

    def __init__(self, most: int, count: "Callable[[int], int]", sentence: str) -> None:
        self._most = most
        self._count = count
        self.sentence = sentence
        self.due = monotonic() + min(_MAX_INTERVAL_SECONDS, most / _MAX_BYTES_PER_SECOND)

    def is_exceeded(self) -> bool:
        began = monotonic()
        if began < self.due:
            return False
        room = self._most - self._count(self._most)
        ended = monotonic()
        self.due = ended + max(min(_MAX_INTERVAL_SECONDS, room / _MAX_BYTES_PER_SECOND), _TIME_SHARE * (ended - began))
        return room < 0


class Group:
    """The control group in which the kernel bounds the memory of a program and all that it starts."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        # Opened now: this process does not reach the files any more once it has its own view of the system.
        folder, name, limits, events = plan["group"]
        self._name = f"{name}.{posix.getpid()}"
        self._most = plan["memory_bytes"]
        try:
            self._folder = posix.open(folder, _FOLDER_FLAGS)
            posix.mkdir(self._name, dir_fd=self._folder)
            for file, text in limits:
                number = self._open(file, posix.O_WRONLY)
                posix.write(number, text.encode())
                posix.close(number)
            self._events = self._open(events, posix.O_RDONLY)
            self._members = self._open("cgroup.procs", posix.O_WRONLY)
        except OSError as error:
            raise SandboxError("the memory of the command cannot be bounded by a control group") from error

    def _open(self, file: str, flags: int) -> int:
        return posix.open(f"{self._name}/{file}", flags | posix.O_CLOEXEC, dir_fd=self._folder)

    def join(self) -> None:
        """Put this process into the group, and let go of it."""
        posix.write(self._members, b"0")
        for number in (self._members, self._events, self._folder):
            posix.close(number)

    def has_killed(self) -> bool:
        """Return whether the kernel has ended a process because there was no memory left."""
        return not posix.pread(self._events, 4096, 0).partition(b"oom_kill ")[2].startswith(b"0")

    def close(self) -> str:
        """Remove the group. Return a sentence if something in it was ended by the kernel."""
        sentence = memory_complaint(self._most) if self.has_killed() else ""
        try:
            posix.rmdir(self._name, dir_fd=self._folder)
        except OSError:
            # Something the program left running is in it. Retinue removes it later.
            return sentence
        return sentence


def watch(
    scratch: str,
    scratch_bytes: "int | None",
    memory_bytes: "int | None",
    alone: bool,
    group: "Group | None",
    stop: "Callable[[str], None]",
) -> None:
    """Count the use at intervals (SIGALRM), and call `stop` with a sentence when a limit is exceeded.

    `scratch` is the folder to count, if `scratch_bytes` is given. With `alone` the program gets a /proc that shows its
    processes only; otherwise its processes are the descendants of this one."""

    def count_memory(most: int) -> int:
        # The kernel ends one process; all of them are to end.
        if group is not None and group.has_killed():
            return most + 1
        if not alone:
            return used_memory(descendants(), most)
        # As soon as the program has its own /proc, this process is not in it.
        return 0 if parent_of("self") else used_memory(process_numbers(), most)

    checks = []
    if memory_bytes:
        checks.append(UsageCheck(memory_bytes, count_memory, memory_complaint(memory_bytes)))
    if scratch_bytes:
        checks.append(
            UsageCheck(scratch_bytes, lambda most: used_bytes(scratch, most), scratch_complaint(scratch_bytes))
        )

    def check_usage(*_: object) -> None:
        for check in checks:
            if check.is_exceeded():
                stop(check.sentence)
                return
        setitimer(ITIMER_REAL, max(_MIN_INTERVAL_SECONDS, min(check.due for check in checks) - monotonic()))

    signal(_SIGALRM, check_usage)
    check_usage()


def used_memory(numbers: "list[str]", most: int) -> int:
    """Return the bytes of memory of processes. Shared memory counts once, if the sum would be too much."""
    total = sum(_resident_bytes(number) for number in numbers)
    if total <= most:
        return total
    return sum(_proportional_bytes(number) for number in numbers)


def _resident_bytes(number: str) -> int:
    try:
        return int(get(f"/proc/{number}/statm").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional_bytes(number: str) -> int:
    """Return the bytes of a process, where a page of several processes is divided between them."""
    try:
        _, _, rollup = get(f"/proc/{number}/smaps_rollup").partition(b"\nPss:")
        return int(rollup.split(None, 1)[0]) * 1024
    except (OSError, IndexError, ValueError):
        return _resident_bytes(number)


def memory_complaint(most: int) -> str:
    return f"This command took more than {most // 1024**2} MB of memory, which is what sandbox.memoryMb allows."


def used_bytes(path: str, most: int) -> int:
    """Return how many bytes a folder holds. Counting stops above `most`."""
    try:
        top = posix.open(path, _FOLDER_FLAGS)
    except OSError:
        return 0
    try:
        return _count(top, most)
    finally:
        posix.close(top)


def _count(folder: int, most: int) -> int:
    total = 0
    with posix.scandir(folder) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
                total += status.st_blocks * 512 + _ENTRY_BYTES
                if entry.is_dir(follow_symlinks=False) and total <= most:
                    inner = _open_again(folder, entry.name)
                    try:
                        total += _count(inner, most - total)
                    finally:
                        posix.close(inner)
            except OSError:
                # It went away meanwhile.
                continue
            if total > most:
                break
    return total


def _open_again(folder: int, name: str) -> int:
    """Open a folder. One without rights gets them back, because a program could otherwise hide files in it."""
    try:
        return posix.open(name, _FOLDER_FLAGS, dir_fd=folder)
    except PermissionError:
        location = posix.open(name, O_PATH | posix.O_NOFOLLOW | posix.O_DIRECTORY | posix.O_CLOEXEC, dir_fd=folder)
        try:
            posix.chmod(f"/proc/self/fd/{location}", 0o700)
        finally:
            posix.close(location)
        return posix.open(name, _FOLDER_FLAGS, dir_fd=folder)


def scratch_complaint(most: int) -> str:
    return (
        f"The scratch folder of this run ($TMPDIR) holds more than {most // 1024**2} MB, which is what "
        "sandbox.scratchMb allows. Remove files in it."
    )
