"""How much a run's scratch folder holds, and what happens when that is too much.

No file system of the host can be asked to bound one folder, so the launcher looks: before a
program starts, and while it runs. A program that writes more than it may is killed. The next one
starts, so that something can be removed, but cannot write a byte into any file.
"""

import posix
from _signal import ITIMER_REAL, setitimer, signal  # type: ignore[import-not-found]  # without the enumerations
from time import monotonic

from .calls import O_PATH, SIGALRM, SIGKILL

_FIRST, _EVERY = 0.25, 0.5
_SHARE = 20
"""At most one part in so many of the time is spent on looking."""
_ENTRY = 512
"""What a file costs in the folder's own lists, so that millions of empty ones count."""
_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC


def used_bytes(path: str, most: int) -> int:
    """Return how many bytes a folder holds. Counting stops above `most`."""
    try:
        top = posix.open(path, _FOLDER)
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
                total += status.st_blocks * 512 + _ENTRY
                if entry.is_dir(follow_symlinks=False) and total <= most:
                    total += _count_inner(folder, entry.name, most - total)
            except OSError:
                continue  # it went away meanwhile
            if total > most:
                break
    return total


def _count_inner(folder: int, name: str, most: int) -> int:
    inner = _open(folder, name)
    try:
        return _count(inner, most)
    finally:
        posix.close(inner)


def _open(folder: int, name: str) -> int:
    """A folder that a program has closed to everybody is opened again: it would hide what is in it."""
    try:
        return posix.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        place = posix.open(name, O_PATH | posix.O_NOFOLLOW | posix.O_DIRECTORY | posix.O_CLOEXEC, dir_fd=folder)
        try:
            posix.chmod(f"/proc/self/fd/{place}", 0o700)
        finally:
            posix.close(place)
        return posix.open(name, _FOLDER, dir_fd=folder)


def watch(child: int, path: str, most: int) -> None:
    """Kill a child once the folder holds more than `most` bytes. Looks come with SIGALRM, between
    the waits for the child."""

    def look(*_: object) -> None:
        began = monotonic()
        if used_bytes(path, most) > most:
            posix.write(2, f"\nretinue sandbox: stopped. {complaint(most)}\n".encode())
            posix.kill(child, SIGKILL)
            return
        setitimer(ITIMER_REAL, max(_EVERY, _SHARE * (monotonic() - began)))

    signal(SIGALRM, look)
    setitimer(ITIMER_REAL, _FIRST)


def complaint(most: int) -> str:
    return (
        f"The scratch folder of this run ($TMPDIR) holds more than {most // 1024**2} MB, which is what "
        "sandbox.scratchMb allows. Remove files in it."
    )
