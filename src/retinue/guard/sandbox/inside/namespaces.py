"""System calls, namespaces and mounts for the launcher.

System calls are made by number and raise OSError. No slow module is imported.
"""

import posix
import sys
from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, _SimpleCData, dlopen, dlsym, get_errno
from _signal import signal  # type: ignore[import-not-found]  # without the enumerations, which take time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .launcher import Watcher

AT_CWD = -100
O_PATH = 0x200000
PR_SET_PDEATHSIG = 1
SIGHUP, SIGINT, SIGKILL, SIGUSR2, SIGTERM = 1, 2, 9, 12, 15
SIG_DFL, SIG_IGN = bytes(32), b"\1" + bytes(31)
"""Structures of rt_sigaction."""

_ENCODING = sys.getfilesystemencoding()

numbers: "dict[str, int]" = {}
"""Of the system calls, from the plan: they differ between machines."""


class _Long(_SimpleCData):  # type: ignore[type-arg]  # subscripts are for type checkers only
    _type_ = "l"


class _Address(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "z"


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_syscall = _Function(dlsym(dlopen(None, 2), "syscall"))  # type: ignore[arg-type]  # None is the program itself


class SandboxError(Exception):
    """A part of the sandbox cannot be made."""


def call(name: str, *arguments: "int | bytes | None") -> int:
    """Return what a system call returned. Raise OSError if it failed. Numbers above 32 bits do not occur."""
    result: int = _syscall(numbers[name], *arguments)
    if result < 0:
        number = get_errno()
        raise OSError(number, posix.strerror(number))
    return result


def attempt(name: str, *arguments: "int | bytes | None") -> bool:
    """Make a system call, and return whether it succeeded."""
    result: int = _syscall(numbers[name], *arguments)
    return result >= 0


def encode(path: str) -> bytes:
    return path.encode(_ENCODING, "surrogateescape")


def set_actions(signals: "tuple[int, ...]", action: bytes) -> None:
    for number in signals:
        attempt("rt_sigaction", number, action, 0, 8)


def pack_numbers(*values: int) -> bytes:
    """Return numbers of 64 bits as the kernel reads them."""
    return b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in values)


def address(content: bytes) -> bytes:
    """Return a pointer to `content`, which must be kept by the caller."""
    return bytes(memoryview(_Address(content)))


def put(path: str, text: str) -> None:
    """Write to a file of the kernel."""
    file = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC)
    try:
        posix.write(file, text.encode())
    finally:
        posix.close(file)


def try_write_file(path: str, text: str) -> bool:
    """Write to a file of the kernel, and return whether that succeeded."""
    try:
        put(path, text)
    except OSError:
        return False
    return True


def get(path: str) -> bytes:
    """Read a file of the kernel."""
    file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return posix.read(file, 65536)
    finally:
        posix.close(file)


def open_path(path: str) -> int:
    return posix.open(path, O_PATH | posix.O_CLOEXEC)


def open_exactly(path: str, identity: "tuple[int, int] | None" = None) -> int:
    """Open a path without following links, and compare it with the identity in the plan. Raise SandboxError if the path
    leads elsewhere, and FileNotFoundError if it does not exist."""
    try:
        location = call("openat2", AT_CWD, encode(path), _THROUGH_NO_LINK, len(_THROUGH_NO_LINK))
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (_ELOOP, _ENOTDIR):
            raise SandboxError(f"{path} was replaced while the command was starting. Run it again") from error
        raise
    if identity is not None and identify(location) != identity:
        raise SandboxError(f"{path} was replaced while the command was starting. Run it again")
    return location


def identify(location: int) -> "tuple[int, int]":
    status = posix.fstat(location)
    return status.st_dev, status.st_ino


EXIT_NOT_STARTED = 125
LISTENER_DESCRIPTOR = 3
"""The descriptor over which a program that may reach some hosts gives its port away."""

_THROUGH_NO_LINK = pack_numbers(O_PATH | posix.O_CLOEXEC, 0, 4)
"""How openat2 opens a path."""
_AF_UNIX = 1
_EPERM, _ENOTDIR, _ELOOP = 1, 20, 40
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH, AT_RECURSIVE = 0x100, 0x1000, 0x8000
_CLONE_TREE = 1 | 0x80000 | AT_RECURSIVE
"""open_tree: a private copy, closed on exec, with everything mounted below."""
_FROM_EMPTY_PATH, _TO_EMPTY_PATH = 4, 0x40
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, NOSUID, NODEV, _NOEXEC = 1, 2, 4, 8
_PRIVATE = 1 << 18
_NO_SCRATCH = "the scratch folder of this run is gone. Run the command again"
_ENDING_SIGNALS = (SIGTERM, SIGINT, SIGHUP)
"""Signals that ask a program to end."""


def enter(plan: "dict[str, Any]") -> "tuple[dict[str, int], int] | None":
    """Enter namespaces in which the file system is read-only, apart from the writable paths of the plan, and in
    which there may be no network. Return the open writable paths and the open folder of stand-ins; None, with nothing
    changed, if this host does not allow namespaces."""
    flags = NEWNS | NEWIPC | (NEWNET if plan["isolate_network"] else 0)
    if plan["space"]:
        join(plan["space"])
    try:
        if plan["space"]:
            call("unshare", flags)
        elif posix.geteuid() != 0 or not attempt("unshare", flags):
            unshare_with_own_id(flags)
        call("mount_setattr", AT_CWD, b"/", AT_RECURSIVE, pack_numbers(0, 0, _PRIVATE, 0), 32)
        early, void = copies(plan)
        call("mount_setattr", AT_CWD, b"/", AT_RECURSIVE, pack_numbers(_SEALED, 0, 0, 0), 32)
    except OSError:
        return None
    # A failure from here on ends the start.
    opened = attach_all(plan, early, void)
    open_network(plan)
    return opened, void


def join(space: "tuple[int, int, int, tuple[int, int]]") -> None:
    """Enter the namespaces in which the scratch folder of the run is mounted."""
    process, user, mounts, _ = space
    try:
        for name, number in ("user", user), ("mnt", mounts):
            # Root stays in its own.
            if posix.stat(f"/proc/self/ns/{name}").st_ino == number:
                continue
            location = posix.open(f"/proc/{process}/ns/{name}", posix.O_RDONLY | posix.O_CLOEXEC)
            # The number may belong to another process by now.
            if posix.fstat(location).st_ino != number:
                raise SandboxError(_NO_SCRATCH)
            call("setns", location, 0)
            posix.close(location)
    except OSError as error:
        raise SandboxError(_NO_SCRATCH) from error


def unshare_with_own_id(flags: int) -> None:
    """Enter a user namespace in which this user and group keep their numbers, and all others have none."""
    user, group = posix.geteuid(), posix.getegid()
    call("unshare", flags | NEWUSER)
    try_write_file("/proc/self/setgroups", "deny")
    put("/proc/self/uid_map", f"{user} {user} 1")
    put("/proc/self/gid_map", f"{group} {group} 1")


def copies(plan: "dict[str, Any]") -> "tuple[dict[str, int], int]":
    """Copy the mounts that would be covered or read-only by the time they are attached, and open the folder of
    stand-ins. A path that does not exist has no copy."""
    early: dict[str, int] = {}
    for target, kind, identity, _ in plan["mounts"]:
        if not kind.startswith("early"):
            continue
        if plan["space"] and target == plan["scratch"]:
            identity = plan["space"][3]
        try:
            early[target] = copy(open_exactly(target, identity))
        except FileNotFoundError:
            continue
    void = open_path(plan["void"])
    return early, void


def copy(location: int) -> int:
    """Return a private copy of what is mounted at an open path, and close that."""
    try:
        return call("open_tree", location, b"", _CLONE_TREE | _AT_EMPTY_PATH)
    finally:
        posix.close(location)


_SEALED = _RDONLY | NOSUID | NODEV
_ATTRIBUTES = {"early rw": NOSUID | NODEV, "early device": NOSUID, "ro": _SEALED, "kept": _RDONLY}
"""Mount attributes by kind. Those of `early shown` depend on the policy (`attributes`)."""


def attach_all(plan: "dict[str, Any]", early: "dict[str, int]", void: int) -> "dict[str, int]":
    """Attach the mounts, folders before what is in them. A missing device or shown path is skipped. Return the
    open writable paths, for which the rules of Landlock are made."""
    opened: dict[str, int] = {}
    covers = Covers(void)
    for target, kind, identity, instead in plan["mounts"]:
        try:
            if kind == "cover":
                covers.attach(target, identity, instead)
            elif kind == "memory":
                size = f",size={instead}" if instead else ""
                options = f"mode=1777{size}".encode()
                call("mount", b"tmpfs", encode(target), b"tmpfs", NOSUID | NODEV, options)
                opened[target] = open_path(target)
            elif kind.startswith("early"):
                if target in early:
                    attach(early[target], open_exactly(target), attributes(plan, kind), kind != "early rw")
                    opened[target] = early[target]
            else:
                attach_copy(plan, open_exactly(target, identity), kind, instead, void)
        except FileNotFoundError:
            if kind in ("early shown", "early device"):
                continue
            raise SandboxError(f"{target} is gone. Run the command again") from None
        except OSError as error:
            if kind != "early device":
                raise SandboxError(f"{target} cannot be put in its place") from error
    covers.close()
    return opened


class Covers:
    """Puts stand-ins in front of paths. Hundreds of paths can be in few folders, and follow each other by folder, so
    a folder is opened once. A file that is replaced after the comparison is covered under its name."""

    def __init__(self, void: int) -> None:
        self._void = void
        self._path: str | None = None
        self._folder = -1

    def attach(self, target: str, identity: "tuple[int, int]", stand_in: str) -> None:
        path, _, name = target.rpartition("/")
        if path != self._path:
            self.close()
            self._folder, self._path = open_exactly(path or "/"), path
        status = posix.stat(name, dir_fd=self._folder, follow_symlinks=False)
        if (status.st_dev, status.st_ino) != identity:
            raise SandboxError(f"{target} was replaced while the command was starting. Run it again")
        # Stand-ins are copied from what is read-only.
        tree = call("open_tree", self._void, encode(stand_in), _CLONE_TREE | _AT_SYMLINK_NOFOLLOW)
        try:
            # A link would be covered, not followed.
            call("move_mount", tree, b"", self._folder, encode(name), _FROM_EMPTY_PATH)
        finally:
            posix.close(tree)

    def close(self) -> None:
        if self._path is not None:
            posix.close(self._folder)
            self._path = None


def attributes(plan: "dict[str, Any]", kind: str) -> int:
    if kind == "early shown":
        return _SEALED if plan["change"] == "listed" else 0
    return _ATTRIBUTES.get(kind, 0)


def attach_copy(plan: "dict[str, Any]", location: int, kind: str, instead: str, void: int) -> None:
    """Attach a stand-in, or a copy with the attributes of its kind, to an open path, and close that."""
    if kind == "cover":
        # Stand-ins are copied from what is read-only.
        tree = call("open_tree", void, encode(instead), _CLONE_TREE | _AT_SYMLINK_NOFOLLOW)
    else:
        tree = call("open_tree", location, b"", _CLONE_TREE | _AT_EMPTY_PATH)
    try:
        attach(tree, location, attributes(plan, kind), True)
    finally:
        posix.close(tree)


def attach(tree: int, location: int, change: int, recursive: bool) -> None:
    """Attach a copy to an open path, and close that. `recursive` also changes the mounts below."""
    try:
        if change:
            reach = _AT_EMPTY_PATH | AT_RECURSIVE if recursive else _AT_EMPTY_PATH
            call("mount_setattr", tree, b"", reach, pack_numbers(change, 0, 0, 0), 32)
        call("move_mount", tree, b"", location, b"", _FROM_EMPTY_PATH | _TO_EMPTY_PATH)
    finally:
        posix.close(location)


def attach_again(plan: "dict[str, Any]", target: str, kind: str, instead: str, void: int) -> bool:
    """Mask the file at a masked path again if its mask is gone. Return False if the file was replaced meanwhile.
    Raise FileNotFoundError if there is no file at the path."""
    location = open_exactly(target)
    if kind == "cover":
        masked = identify(location) in plan["stand_ins"]
    else:
        masked = bool(posix.fstatvfs(location).f_flag & _RDONLY)
    if masked:
        posix.close(location)
        return True
    if void < 0:
        raise OSError(_EPERM, posix.strerror(_EPERM))
    try:
        attach_copy(plan, location, kind, instead, void)
    except FileNotFoundError:
        return False
    return True


def check_mounts(plan: "dict[str, Any]") -> "dict[str, int]":
    """Compare what bubblewrap has mounted, by names, with what the plan saw. Return what programs may write, open."""
    opened: dict[str, int] = {}
    for target, kind, identity, _ in plan["mounts"]:
        if kind in ("memory", "early device"):
            opened[target] = open_path(target)
            continue
        covered = kind == "cover"
        # It is not there: the root was empty before.
        if covered and plan["root"] is not None and target.count("/") == 1:
            continue
        try:
            location = open_exactly(target, None if covered else identity)
        except FileNotFoundError:
            if kind == "early shown":
                continue
            raise SandboxError(f"{target} is gone. Run the command again") from None
        if covered and identify(location) not in plan["stand_ins"]:
            raise SandboxError(f"{target} was replaced while the command was starting. Run it again")
        if kind == "early rw":
            opened[target] = location
        else:
            posix.close(location)
    return opened


def socket_pair(kind: int) -> "tuple[int, int]":
    """Return both ends of a connection, which close on exec."""
    ends = bytes(8)
    # The kernel writes both descriptors there.
    call("socketpair", _AF_UNIX, kind | posix.O_CLOEXEC, 0, ends)
    return int.from_bytes(ends[:4], "little"), int.from_bytes(ends[4:], "little")


def enable_loopback() -> None:
    """Let programs connect to their own ports. A failure is ignored."""
    try:
        end = call("socket", 2, 2, 0)
    except OSError:
        return
    attempt("ioctl", end, 0x8914, b"lo".ljust(16, b"\0") + (0x41).to_bytes(2, "little") + bytes(22))
    posix.close(end)


def send_listener(port: int) -> None:
    """Open the port through which programs reach the allowed hosts, and send its socket to the proxy outside."""
    from _socket import AF_INET, AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

    try:
        listener = socket(AF_INET, SOCK_STREAM)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        hand = socket(AF_UNIX, SOCK_STREAM, 0, LISTENER_DESCRIPTOR)
        hand.sendmsg([b"x"], [(SOL_SOCKET, SCM_RIGHTS, listener.fileno().to_bytes(4, "little"))])
    except OSError as error:
        raise SandboxError("the port that leads to the allowed hosts cannot be opened") from error
    hand.close()
    listener.close()


def enter_process_namespace(plan: "dict[str, Any]", watcher: "Watcher | None") -> None:
    """Enter a process namespace with a new /proc, and return in the program's process only. When the program ends,
    the first process of the namespace ends, and with it every process that the program started."""
    try:
        call("unshare", NEWPID)
    except OSError as error:
        raise SandboxError("other processes cannot be hidden. See: retinue doctor") from error
    fork_and_wait(watcher)
    # The first process of a namespace must not end before the program.
    set_actions(_ENDING_SIGNALS, SIG_IGN)
    try:
        call("mount", b"proc", b"/proc", b"proc", NOSUID | NODEV | _NOEXEC, 0)
        if plan["processes"]:
            limit_processes(plan["processes"])
        if plan["memory_bytes"]:
            # Segments of memory that no process has attached: none of them is counted.
            try_write_file("/proc/sys/kernel/shmall", str(plan["memory_bytes"] // 4096))
        call("mount_setattr", AT_CWD, b"/proc", 0, pack_numbers(_RDONLY, 0, 0, 0), 32)
    except OSError as error:
        raise SandboxError("other processes cannot be hidden. See: retinue doctor") from error
    program = posix.fork()
    if program:
        posix._exit(wait_for_exit(program))
    set_actions(_ENDING_SIGNALS, SIG_DFL)


def fork_and_wait(watcher: "Watcher | None") -> None:
    """Fork, and return in the child only. The parent waits for the child and exits with its code. The parent ignores
    the signals that ask a program to end, because the child gets them too."""
    set_actions(_ENDING_SIGNALS, SIG_IGN)
    child = posix.fork()
    if child:
        signal(SIGUSR2, lambda *_: posix.kill(child, SIGKILL))
        # When Retinue is killed, there is still this to do.
        call("prctl", PR_SET_PDEATHSIG, SIGUSR2, 0, 0, 0)
        if watcher is not None:
            watcher.begin(child)
        code = wait_for_exit(child)
        if watcher is not None:
            watcher.finish()
        posix._exit(code)
    if watcher is not None:
        watcher.join()
    set_actions(_ENDING_SIGNALS, SIG_DFL)
    call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)


def limit_processes(most: int) -> None:
    """Limit the processes of root, which RLIMIT_NPROC does not count. Older kernels have one limit for all
    namespaces and refuse this."""
    try_write_file("/proc/sys/kernel/pid_max", str(max(most, 301)))


def wait_for_exit(child: int) -> int:
    """Reap until `child` has ended, and return its code as a shell would."""
    while True:
        try:
            done, status = posix.wait()
        except InterruptedError:
            continue
        except ChildProcessError:
            return EXIT_NOT_STARTED
        if done == child:
            if posix.WIFEXITED(status):
                return posix.WEXITSTATUS(status)
            return 128 + posix.WTERMSIG(status)


def kill_descendants() -> None:
    """Kill all descendants. This is repeated, because a process can start others while it is being killed."""
    for _ in range(50):
        numbers = descendants()
        if not numbers:
            return
        for number in numbers:
            try:
                posix.kill(int(number), SIGKILL)
            except OSError:
                continue


def descendants() -> "list[str]":
    """Return the numbers of all processes that this one, or one of its descendants, has started and that still run."""
    parents = {number: parent_of(number) for number in process_numbers()}
    own = str(posix.getpid())
    ours = {own}
    grown = True
    while grown:
        children = {number for number, parent in parents.items() if parent in ours} - ours
        ours |= children
        grown = bool(children)
    return sorted(ours - {own})


def process_numbers() -> "list[str]":
    return [name for name in posix.listdir("/proc") if name.isdigit()]


def parent_of(number: str) -> str:
    """Return "" for a process that is gone, or has ended."""
    try:
        state, parent, _ = get(f"/proc/{number}/stat").rpartition(b")")[2].split(None, 2)
    except (OSError, ValueError):
        return ""
    return "" if state in (b"Z", b"X") else parent.decode()


def write_all_ids(pid: int) -> bool:
    """Map all user and group ids to themselves in the new user namespace of a process, which itself may map no
    ids but its own."""
    try:
        for name in ("uid_map", "gid_map"):
            ranges = [row.split() for row in get(f"/proc/self/{name}").splitlines()]
            put(f"/proc/{pid}/{name}", "".join(f"{int(row[0])} {int(row[0])} {int(row[2])}\n" for row in ranges))
    except OSError:
        return False
    return True


def mask_paths(plan: "dict[str, Any]", map_ids: "Callable[[], bool]") -> bool:
    """Cover and protect paths, and nothing else. Return whether a process namespace is needed: root can do
    without a user namespace, but must then not see other processes, whose view of the files has no masks.

    `map_ids` has a process outside let all ids mean what they meant, so that root works with files of others."""
    flags = NEWNS | (NEWNET if plan["isolate_network"] else 0)
    alone = False
    try:
        if posix.geteuid() == 0:
            call("unshare", flags | NEWUSER)
            if not map_ids():
                raise OSError(_EPERM, "the ids of this system cannot be kept in a user namespace")
        else:
            unshare_with_own_id(flags)
    except OSError as error:
        alone = posix.geteuid() == 0 and attempt("unshare", flags)
        if not alone:
            raise SandboxError(
                "files that rules deny cannot be hidden from commands, because namespaces are not available here. "
                "See: retinue doctor"
            ) from error
    call("mount_setattr", AT_CWD, b"/", AT_RECURSIVE, pack_numbers(0, 0, _PRIVATE, 0), 32)
    early, void = copies(plan)
    protect_stand_ins(void, plan["void"])
    posix.close(void)
    void = open_path(plan["void"])
    attach_all(plan, early, void)
    posix.close(void)
    open_network(plan)
    return alone


def protect_stand_ins(void: int, path: str) -> None:
    """Make the stand-ins read-only, because they belong to the user who runs the program."""
    tree = call("open_tree", void, b"", _CLONE_TREE | _AT_EMPTY_PATH)
    call("mount_setattr", tree, b"", _AT_EMPTY_PATH | AT_RECURSIVE, pack_numbers(_RDONLY, 0, 0, 0), 32)
    call("move_mount", tree, b"", AT_CWD, encode(path), _FROM_EMPTY_PATH)
    posix.close(tree)


def open_network(plan: "dict[str, Any]") -> None:
    if plan["isolate_network"]:
        enable_loopback()
        if plan["proxy"]:
            send_listener(plan["proxy"])
