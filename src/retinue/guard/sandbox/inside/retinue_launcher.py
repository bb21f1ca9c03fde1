"""The program that confines itself and then becomes another: `launcher PLAN PROGRAM ARGUMENT…`.

It runs as `python -I -S` for every confined command, so it imports nothing but built-in modules
and `_ctypes`, and decides nothing: the plan (made by `plan.py`) holds every number, path and
filter, and this file only carries it out. What must hold is checked here: if one step fails that
the plan relies on, the program is not started and the exit code is 125.

With namespaces three processes stay: this one, which waits; the first process of a process
namespace, with which everything inside it ends; and the program.
"""

import marshal
import posix
import sys
from _ctypes import call_function, dlopen, dlsym

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import SIG_DFL, SIG_IGN, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ, signal
    from typing import Any, NoReturn

    Plan = dict[str, Any]
else:  # without the enums around it
    from _signal import SIG_DFL, SIG_IGN, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ, signal

FAILED = 125
_CWD = -100
_CLONE_TREE = 1 | 0x80000 | 0x8000
"""open_tree: a private copy, closed on exec, with everything mounted below."""
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_PRIVATE = 1 << 18
_RECURSIVE, _EMPTY_PATH = 0x8000, 0x1000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

_libc = dlopen(None, 2)  # type: ignore[arg-type]  # the program itself; typeshed wants a name
_syscall = dlsym(_libc, "syscall")


def call(number: int, *arguments: int | bytes | None) -> int:
    """One system call; numbers are passed as C ints, bytes as a pointer to them."""
    result: int = call_function(_syscall, (number, *arguments))
    return result


def must(what: str, result: int) -> int:
    if result < 0:
        call_function(dlsym(_libc, "perror"), (f"retinue sandbox: {what}".encode(),))
        posix._exit(FAILED)
    return result


def address(data: bytes) -> bytes:
    """Where the content of a bytes object lies, as a pointer inside a structure."""
    return (id(data) + bytes.__basicsize__ - 1).to_bytes(8, "little")


def words(*values: int) -> bytes:
    return b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in values)


def put(path: str, text: str) -> bool:
    try:
        file = posix.open(path, posix.O_WRONLY)
        try:
            posix.write(file, text.encode())
        finally:
            posix.close(file)
    except OSError:
        return False
    return True


def main() -> "NoReturn":
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123 - pathlib would cost more than the rest
        plan = marshal.load(file)  # noqa: S302 - written by the process that started this one
    posix.closerange(3, 1 << 30)
    put("/proc/self/oom_score_adj", "800")  # when memory runs out, this goes first
    if plan["proxy"]:
        serve_domains(plan)
    given = plan["namespaces"] == "bubblewrap"  # which has arranged everything before it started this
    inside = given or (plan["namespaces"] != "never" and enter(plan))
    if plan["proxy"]:
        call(plan["nr"]["prctl"], _PR_SET_PDEATHSIG, int(SIGKILL), 0, 0, 0)
    if not inside and plan["namespaces"] == "must":
        must("namespaces are not available here", -1)
    try:
        posix.chdir(plan["cwd"])
    except OSError as error:
        must(f"{plan['cwd']} ({error.strerror})", -1)
    if inside and not given:
        divide(plan)
    confine(plan, inside)


def serve_domains(plan: "Plan") -> None:
    """Goes on in a child; this process stays outside and lets through what the plan allows."""
    __import__("retinue_proxy").split(plan["proxy"])


def enter(plan: "Plan") -> bool:
    """A view of the file system of its own, read-only but for what the plan says, and without
    network. False leaves everything usable as it was, if less private."""
    flags = _NEWNS | _NEWIPC | (_NEWNET if plan["isolate_network"] else 0)
    nr, user, group = plan["nr"], posix.geteuid(), posix.getegid()
    if user != 0 or call(nr["unshare"], flags) < 0:
        if call(nr["unshare"], flags | _NEWUSER) < 0:
            return False
        put("/proc/self/setgroups", "deny")
        if not put("/proc/self/uid_map", f"{user} {user} 1") or not put("/proc/self/gid_map", f"{group} {group} 1"):
            return False
    if not arrange(plan, nr):
        return False
    if plan["isolate_network"]:
        wake_loopback(nr)
        if plan["proxy"]:
            __import__("retinue_proxy").hand_over()
    return True


def arrange(plan: "Plan", nr: dict[str, int]) -> bool:
    """All copies are taken before anything becomes read-only, and attached from the outside in.
    Once it has become so there is no way back: what fails then ends the start."""
    attributes = nr["mount_setattr"]
    if call(attributes, _CWD, b"/", _RECURSIVE, words(0, 0, _PRIVATE, 0), 32) < 0:
        return False
    copies = [(call(nr["open_tree"], _CWD, source.encode(), _CLONE_TREE), *rest) for source, *rest in plan["mounts"]]
    sealed = words(_RDONLY | _NOSUID | _NODEV, 0, 0, 0)
    if call(attributes, _CWD, b"/", _RECURSIVE, sealed, 32) < 0:
        return False
    for tree, target, kind in copies:
        if kind == "device":
            attach(nr, tree, target, kind)
        elif (tree >= 0 and exists(target)) or kind == "rw":
            must(f"{target} cannot be put in its place", attach(nr, tree, target, kind))
    return True


def attach(nr: dict[str, int], tree: int, target: str, kind: str) -> int:
    wanted = {"rw": _NOSUID | _NODEV, "ro": _RDONLY | _NOSUID | _NODEV, "device": _NOSUID}[kind]
    reach = _EMPTY_PATH | (_RECURSIVE if kind == "ro" else 0)
    result = call(nr["mount_setattr"], tree, b"", reach, words(wanted, 0, 0, 0), 32)
    if result >= 0:
        result = call(nr["move_mount"], tree, b"", _CWD, target.encode(), 4)
    if tree >= 0:
        posix.close(tree)
    return result


def exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def wake_loopback(nr: dict[str, int]) -> None:
    """Programs may talk to themselves. Not vital: without it they cannot."""
    end = call(nr["socket"], 2, 2, 0)
    if end >= 0:
        call(nr["ioctl"], end, 0x8914, b"lo".ljust(16, b"\0") + (0x41).to_bytes(2, "little") + bytes(22))
        posix.close(end)


def divide(plan: "Plan") -> None:
    """Returns in the program's process only. Whatever it leaves running ends with it, because
    the first process of the namespace does."""
    nr = plan["nr"]
    if call(nr["unshare"], _NEWPID) < 0:
        return
    signal(SIGTERM, SIG_IGN)  # the program gets its own; SIGKILL ends everything at once
    signal(SIGINT, SIG_IGN)
    signal(SIGHUP, SIG_IGN)
    first = posix.fork()
    if first:
        posix._exit(ending(first))
    call(nr["prctl"], _PR_SET_PDEATHSIG, int(SIGKILL), 0, 0, 0)
    if call(nr["mount"], b"proc", b"/proc", b"proc", _NOSUID | _NODEV | _NOEXEC, None) >= 0:
        if plan["processes"]:
            put("/proc/sys/kernel/pid_max", str(max(plan["processes"], 301)))
        call(nr["mount_setattr"], _CWD, b"/proc", 0, words(_RDONLY, 0, 0, 0), 32)
    program = posix.fork()
    if program:
        posix._exit(ending(program))
    for number in (SIGTERM, SIGINT, SIGHUP):
        signal(number, SIG_DFL)


def ending(child: int) -> int:
    """Reaps until `child` has ended, and gives its code as a shell would."""
    while True:
        try:
            done, status = posix.wait()
        except InterruptedError:
            continue
        except ChildProcessError:
            return FAILED
        if done == child:
            return posix.WEXITSTATUS(status) if posix.WIFEXITED(status) else 128 + posix.WTERMSIG(status)


def confine(plan: "Plan", inside: bool) -> "NoReturn":
    """The last steps, none of which can be undone, in the process that becomes the program."""
    nr = plan["nr"]
    for number, most in plan["limits"]:
        call(nr["prlimit64"], 0, number, words(most, most), None)
    drop_rights(plan, nr)
    must("no_new_privs", call(nr["prctl"], _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    restrict_paths(plan["landlock"]["inside" if inside else "outside"], nr)
    code: bytes = plan["seccomp"]["inside" if inside else "outside"]
    program = len(code).__floordiv__(8).to_bytes(8, "little") + address(code)
    must("seccomp", call(nr["prctl"], _PR_SET_SECCOMP, 2, program, 0, 0))
    signal(SIGPIPE, SIG_DFL)
    signal(SIGXFSZ, SIG_DFL)
    argv = sys.argv[2:]
    try:
        posix.execve(argv[0], argv, posix.environ)
    except OSError as error:
        posix.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    posix._exit(127)


def drop_rights(plan: "Plan", nr: dict[str, int]) -> None:
    """Of root's powers only those over files stay, which Landlock and the mounts bound."""
    kept = plan["capabilities"] if posix.geteuid() == 0 else 0
    call(nr["prctl"], _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        if not kept >> capability & 1:
            call(nr["prctl"], _PR_CAPBSET_DROP, capability, 0, 0, 0)
    allowed = kept & held()
    low, high = (allowed & 0xFFFFFFFF).to_bytes(4, "little"), (allowed >> 32).to_bytes(4, "little")
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    must("capset", call(nr["capset"], header, low + low + bytes(4) + high + high + bytes(4)))


def held() -> int:
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123
        line = next((line for line in status if line.startswith(b"CapPrm:")), b"CapPrm: 0")
    return int(line.split()[1], 16)


def restrict_paths(landlock: "Plan", nr: dict[str, int]) -> None:
    handled: bytes = landlock["handled"]
    rules = must("landlock", call(nr["landlock_create_ruleset"], handled, len(handled), 0))
    for path, access in landlock["rules"]:
        try:
            place = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
        except OSError:
            continue  # what is not there needs no permission
        call(nr["landlock_add_rule"], rules, 1, words(access) + place.to_bytes(4, "little"), 0)
        posix.close(place)
    must("landlock", call(nr["landlock_restrict_self"], rules, 0))
    posix.close(rules)


if __name__ in ("__main__", "retinue_launcher"):
    main()
