"""Masks stay in their places while a program runs.

A mount belongs to a file and not to its name. Editors and git save a file by renaming a new one over it, which removes
the mask in every namespace and leaves the new file readable. So the process that stays outside watches the names of
masked paths and masks each file that takes one. If it cannot, or if a folder above is replaced, it ends the program.

Until then the program can see the file: `README.md` states for how long.
"""

import posix
from _signal import signal  # type: ignore[import-not-found]  # without the enumerations, which take time

from .namespaces import SandboxError, address, attach_again, call, encode, pack_numbers, socket_pair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOVED_FROM, _MOVED_TO, _CREATED, _DELETED = 0x40, 0x80, 0x100, 0x200
_FOLDERS_ONLY, _NO_LINK = 0x1000000, 0x2000000
_WATCHED_EVENTS = _MOVED_FROM | _MOVED_TO | _CREATED | _DELETED | _FOLDERS_ONLY | _NO_LINK
_OVERFLOW = 0x4000
_EVENT_HEAD_BYTES = 16
"""Bytes before the name of an event."""
_SETFL, _SETOWN = 4, 8
_ASYNC = 0x2000
_SIGIO, _IGNORED = 29, 1
_SOCK_DGRAM, _SOL_SOCKET, _SCM_RIGHTS = 2, 1, 1
_ENOENT, _EACCES, _ENOTDIR = 2, 13, 20


class MaskKeeper:
    """Watches the names of masked paths. It starts before the mounts are made, so that it misses no change."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        self._plan = plan
        self._void = -1
        self._stop: Callable[[str], None] | None = None
        self._names: dict[int, dict[bytes, int]] = {}
        """The watched names by the number of their folder, each with its index in the list of mounts; -1 for a folder
        above
        a masked path."""
        try:
            self._events = call("inotify_init1", posix.O_NONBLOCK | posix.O_CLOEXEC)
            for folder, names in plan["watched"]:
                self._watch(folder, names)
        except OSError as error:
            raise SandboxError(
                "files that are hidden or protected cannot be watched. Raise fs.inotify.max_user_instances"
            ) from error

    def _watch(self, folder: str, names: "dict[bytes, int]") -> None:
        try:
            number = call("inotify_add_watch", self._events, encode(folder), _WATCHED_EVENTS)
        except OSError as error:
            # It cannot be seen from inside of bubblewrap, or not be listed by this user.
            if error.errno in (_ENOENT, _ENOTDIR, _EACCES):
                return
            raise
        self._names.setdefault(number, {}).update(names)

    def begin(self, void: int, stop: "Callable[[str], None]") -> None:
        """Start to renew masks, in the mount namespace of the program. `void` is the open folder of stand-ins, or -1
        where this process may not mount; `stop` ends the program and prints a sentence."""
        self._void, self._stop = void, stop
        signal(_SIGIO, self._look)
        call("fcntl", self._events, _SETOWN, posix.getpid())
        call("fcntl", self._events, _SETFL, posix.O_NONBLOCK | _ASYNC)
        self._look()

    def close(self) -> None:
        """Stop watching, without waiting for the kernel to free the watches, which takes up to 25 ms.

        The descriptor is sent into a socket that is queued in itself. The kernel's garbage collector closes both
        later."""
        signal(_SIGIO, _IGNORED)
        try:
            self._leave_to_the_kernel()
        except OSError:
            # Then the end of this process waits.
            return

    def _leave_to_the_kernel(self) -> None:
        sender, receiver = socket_pair(_SOCK_DGRAM)
        carried = pack_numbers(24, _SOL_SOCKET | _SCM_RIGHTS << 32, self._events | receiver << 32)
        call("sendmsg", sender, pack_numbers(0, 0, 0, 0) + address(carried) + pack_numbers(len(carried), 0), 0)
        for descriptor in (self._events, receiver, sender):
            posix.close(descriptor)

    def _look(self, *_: object) -> None:
        assert self._stop is not None
        while True:
            try:
                content = posix.read(self._events, 65_536)
            except BlockingIOError:
                return
            try:
                for number in self._changed(content):
                    self._renew(number)
            except SandboxError as error:
                self._stop(str(error))
                return

    def _changed(self, content: bytes) -> "set[int]":
        """Return the indexes of mounts whose names were taken. Raise SandboxError if a folder above one was
        replaced."""
        changed: set[int] = set()
        while content:
            watch = int.from_bytes(content[:4], "little", signed=True)
            kind = int.from_bytes(content[4:8], "little")
            end = _EVENT_HEAD_BYTES + int.from_bytes(content[12:_EVENT_HEAD_BYTES], "little")
            name, content = content[_EVENT_HEAD_BYTES:end].rstrip(b"\0"), content[end:]
            if kind & _OVERFLOW:
                raise SandboxError("more was changed around hidden or protected files than can be followed")
            number = self._names.get(watch, {}).get(name)
            if number == -1:
                raise SandboxError(
                    f"{name.decode('utf-8', 'replace')}, a folder above hidden or protected files, was replaced"
                )
            if number is not None:
                changed.add(number)
        return changed

    def _renew(self, number: int) -> None:
        target, kind, _, instead = self._plan["mounts"][number]
        try:
            while not attach_again(self._plan, target, kind, instead, self._void):
                # It was replaced once more.
                continue
        except FileNotFoundError:
            # A file that is gone cannot be read; but a new one in its place would not be the protected file.
            if kind != "cover":
                raise SandboxError(f"{target}, which is protected, was taken away") from None
        except OSError as error:
            raise SandboxError(f"{target} was replaced, and the new one cannot be kept from the command") from error
