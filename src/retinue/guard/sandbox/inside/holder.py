"""The program that keeps the scratch folder of a run in memory, where the kernel bounds it.

    holder CALLS FOLDER OPTIONS

It mounts a file system in memory in a new namespace and prints where that is. The launcher of each command starts from
there, so that files last from one command to the next. When its standard input is closed, at the end of the run or of
Retinue, it ends and the files are gone.
"""

import posix
import sys

from .namespaces import (
    AT_CWD,
    AT_RECURSIVE,
    NEWNS,
    NODEV,
    NOSUID,
    attempt,
    call,
    encode,
    numbers,
    pack_numbers,
    unshare_with_own_id,
)

_SLAVE = 1 << 19
"""Later mounts outside appear in this namespace as well."""


def main(calls: str, folder: str, options: str) -> None:
    for entry in calls.split():
        name, _, number = entry.partition("=")
        numbers[name] = int(number)
    posix.chdir("/")
    if posix.geteuid() != 0 or not attempt("unshare", NEWNS):
        unshare_with_own_id(NEWNS)
    call("mount_setattr", AT_CWD, b"/", AT_RECURSIVE, pack_numbers(0, 0, _SLAVE, 0), 32)
    call("mount", b"tmpfs", encode(folder), b"tmpfs", NOSUID | NODEV, options.encode())
    spaces = [posix.stat(f"/proc/self/ns/{name}").st_ino for name in ("user", "mnt")]
    root = posix.stat(folder)
    posix.write(1, " ".join(map(str, (posix.getpid(), *spaces, root.st_dev, root.st_ino))).encode() + b"\n")
    posix.close(1)
    posix.read(0, 1)


if __name__ == "inside.holder":
    main(*sys.argv[1:4])
