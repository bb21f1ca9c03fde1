"""What a launcher does, step by step: from a plan to the system calls that carry it out.

What must hold is checked: if one call fails that the plan relies on, the program is not started
and the exit code is 125. With namespaces three processes stay: the first, which waits; the first
of a process namespace, with which everything inside it ends; and the program.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from retinue.domain.lean import dataclass
from retinue.guard.sandbox.kernel import Machine
from retinue.guard.sandbox.steps import BASE, Mark, Result, Steps

_CWD = -100
_WRONLY, _CLOEXEC, _PATH = 1, 0x80000, 0x200000
_CLONE_TREE = 1 | 0x80000 | 0x8000
"""open_tree: a private copy, closed on exec, with everything mounted below."""
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_PRIVATE = 1 << 18
_RECURSIVE, _EMPTY_PATH = 0x8000, 0x1000
_ATTRIBUTES = {"rw": _NOSUID | _NODEV, "ro": _RDONLY | _NOSUID | _NODEV, "device": _NOSUID}
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SIGHUP, _SIGINT, _SIGKILL, _SIGPIPE, _SIGTERM, _SIGXFSZ = 1, 2, 9, 13, 15, 25
_DEFAULT, _IGNORE = bytes(32), b"\1" + bytes(31)
_PATH_MAX = 4096
_SAYS = b"retinue sandbox: "

HAND = 3
"""The descriptor over which a program that may reach some hosts gives its port away."""


@dataclass(frozen=True, slots=True)
class Script:
    image: bytes
    folder: int
    """Where the name of the working directory belongs."""

    def at(self, folder: Path) -> bytes:
        name = os.fsencode(folder)
        name = (name if len(name) < _PATH_MAX else b"").ljust(_PATH_MAX, b"\0")
        return self.image[: self.folder] + name + self.image[self.folder + _PATH_MAX :]


def script(plan: dict[str, Any], machine: Machine) -> Script:
    steps = Steps(machine.calls)
    message = steps.own(_SAYS + bytes(_PATH_MAX))
    folder = message + len(_SAYS)
    steps.must("inherited descriptors", "close_range", HAND + 1 if plan["proxy"] else 3, 0xFFFFFFFF, 0)
    _put(steps, "/proc/self/oom_score_adj", "800")  # when memory runs out, this goes first
    given = plan["namespaces"] == "bubblewrap"  # which has arranged everything before it starts this
    outside = steps.give_up("namespaces are not available here") if plan["namespaces"] == "must" else Mark()
    if plan["namespaces"] != "never":
        if not given:
            _enter(steps, plan, outside)
        if plan["proxy"]:
            steps.call("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        steps.must(message, "chdir", folder)
        if not given:
            _divide(steps, plan)
        _confine(steps, plan, "inside")
    if plan["namespaces"] in ("never", "try"):
        steps.set(outside)
        steps.must(message, "chdir", folder)
        _confine(steps, plan, "outside")
    return Script(steps.image(), folder - BASE)


def _put(steps: Steps, path: str, text: str, failing: Mark | None = None) -> None:
    """Writes to a file of the kernel. That this is not possible matters only with `failing`."""
    over = Mark()
    file = steps.call("openat", _CWD, path, _WRONLY | _CLOEXEC, failing=failing or over, keep=steps.own(bytes(8)))
    steps.call("write", file, text.encode(), len(text), failing=failing)
    steps.call("close", file)
    steps.set(over)


def _enter(steps: Steps, plan: dict[str, Any], outside: Mark) -> None:
    """A view of the file system of its own, read-only but for what the plan says, and without
    network. What fails leads to `outside`, with everything usable as it was, if less private."""
    flags = _NEWNS | _NEWIPC | (_NEWNET if plan["isolate_network"] else 0)
    user, group, entered = os.geteuid(), os.getegid(), Mark()
    if user == 0:
        steps.call("unshare", flags, zero=entered)
    steps.call("unshare", flags | _NEWUSER, failing=outside)
    _put(steps, "/proc/self/setgroups", "deny")
    _put(steps, "/proc/self/uid_map", f"{user} {user} 1", outside)
    _put(steps, "/proc/self/gid_map", f"{group} {group} 1", outside)
    steps.set(entered)
    _arrange(steps, plan, outside)
    if plan["isolate_network"]:
        _wake_loopback(steps)
        if plan["proxy"]:
            _hand_over(steps, plan["proxy"])


def _arrange(steps: Steps, plan: dict[str, Any], outside: Mark) -> None:
    """All copies are taken before anything becomes read-only, and attached from the outside in.
    Once it has become so there is no way back: what fails then ends the start."""
    steps.call("mount_setattr", _CWD, "/", _RECURSIVE, words(0, 0, _PRIVATE, 0), 32, failing=outside)
    copies = [
        (steps.call("open_tree", _CWD, source, _CLONE_TREE, keep=steps.own(bytes(8))), target, kind)
        for source, target, kind in plan["mounts"]
    ]
    sealed = words(_ATTRIBUTES["ro"], 0, 0, 0)
    steps.call("mount_setattr", _CWD, "/", _RECURSIVE, sealed, 32, failing=outside)
    for tree, target, kind in copies:
        _attach(steps, tree, target, kind)


def _attach(steps: Steps, tree: Result, target: str, kind: str) -> None:
    """A device may be missing, and so may a path that was to be hidden or kept as it is."""
    over = Mark()
    failing = over if kind == "device" else steps.give_up(f"{target} cannot be put in its place")
    if kind == "ro":
        steps.call("faccessat", _CWD, target, 0, failing=over)
    reach = _EMPTY_PATH | (_RECURSIVE if kind == "ro" else 0)
    steps.call("mount_setattr", tree, "", reach, words(_ATTRIBUTES[kind], 0, 0, 0), 32, failing=failing)
    steps.call("move_mount", tree, "", _CWD, target, 4, failing=failing)
    steps.set(over)
    steps.call("close", tree)


def _wake_loopback(steps: Steps) -> None:
    """Programs may talk to themselves. Not vital: without it they cannot."""
    over = Mark()
    end = steps.call("socket", 2, 2, 0, failing=over, keep=steps.own(bytes(8)))
    steps.call("ioctl", end, 0x8914, b"lo".ljust(16, b"\0") + (0x41).to_bytes(2, "little") + bytes(22))
    steps.call("close", end)
    steps.set(over)


def _hand_over(steps: Steps, port: int) -> None:
    """Opens the one port that leads out, and gives it to the process outside that serves it."""
    what = "the port that leads to the allowed hosts"
    rights = steps.own(words(20, 1 | 1 << 32, 0))  # a control message with one descriptor
    piece = steps.own(words(steps.own(b"x"), 1))
    end = steps.must(what, "socket", 2, 1 | _CLOEXEC, 0, keep=rights + 16)
    address = b"\2\0" + port.to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    steps.must(what, "bind", end, address, len(address))
    steps.must(what, "listen", end, 128)
    steps.must(what, "sendmsg", HAND, words(0, 0, piece, 1, rights, 24, 0), 0)
    steps.call("close", HAND)
    steps.call("close", end)


def _divide(steps: Steps, plan: dict[str, Any]) -> None:
    """Goes on in the program's process only. Whatever it leaves running ends with it, because
    the first process of the namespace does."""
    undivided, first, hidden, program = Mark(), Mark(), Mark(), Mark()
    steps.call("unshare", _NEWPID, failing=undivided)
    for number in (_SIGTERM, _SIGINT, _SIGHUP):  # the program gets its own; SIGKILL ends everything at once
        steps.call("rt_sigaction", number, _IGNORE, 0, 8)
    steps.end_as(steps.fork("a process of its own", child=first))
    steps.set(first)
    steps.call("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    steps.call("mount", "proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC, 0, failing=hidden)
    if plan["processes"]:
        _put(steps, "/proc/sys/kernel/pid_max", str(max(plan["processes"], 301)))
    steps.call("mount_setattr", _CWD, "/proc", 0, words(_RDONLY, 0, 0, 0), 32)
    steps.set(hidden)
    steps.end_as(steps.fork("a process of its own", child=program))
    steps.set(program)
    for number in (_SIGTERM, _SIGINT, _SIGHUP):
        steps.call("rt_sigaction", number, _DEFAULT, 0, 8)
    steps.set(undivided)


def _confine(steps: Steps, plan: dict[str, Any], where: str) -> None:
    """The last steps, none of which can be undone, in the process that becomes the program."""
    for number, most in plan["limits"]:
        steps.call("prlimit64", 0, number, words(most, most), 0)
    _drop_rights(steps, plan)
    steps.must("no_new_privs", "prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _restrict_paths(steps, plan["landlock"][where])
    code: bytes = plan["seccomp"][where]
    steps.must("seccomp", "prctl", _PR_SET_SECCOMP, 2, words(len(code) // 8, steps.own(code)), 0, 0)
    for number in (_SIGPIPE, _SIGXFSZ):
        steps.call("rt_sigaction", number, _DEFAULT, 0, 8)
    steps.become_the_program()


def _drop_rights(steps: Steps, plan: dict[str, Any]) -> None:
    """Of root's powers only those over files stay, which Landlock and the mounts bound. What
    this process has not got cannot be kept: then fewer are."""
    kept = plan["capabilities"] if os.geteuid() == 0 else 0
    dropped = Mark()
    steps.call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        if not kept >> capability & 1:
            steps.call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
    for allowed in dict.fromkeys((kept, kept & _held())):
        if allowed:
            steps.call("capset", _CAPABILITY_HEADER, _capabilities(allowed), zero=dropped)
    steps.must("capset", "capset", _CAPABILITY_HEADER, _capabilities(0))
    steps.set(dropped)


_CAPABILITY_HEADER = (0x20080522).to_bytes(4, "little") + bytes(4)


def _capabilities(allowed: int) -> bytes:
    low, high = (allowed & 0xFFFFFFFF).to_bytes(4, "little"), (allowed >> 32).to_bytes(4, "little")
    return low + low + bytes(4) + high + high + bytes(4)


def _held() -> int:
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123 - a file of the kernel
        line = next((line for line in status if line.startswith(b"CapPrm:")), b"CapPrm: 0")
    return int(line.split()[1], 16)


def _restrict_paths(steps: Steps, landlock: dict[str, Any]) -> None:
    handled: bytes = landlock["handled"]
    rules = steps.must("landlock", "landlock_create_ruleset", handled, len(handled), 0, keep=steps.own(bytes(8)))
    for path, access in landlock["rules"]:
        missing = Mark()  # what is not there needs no permission
        rule = steps.own(words(access, 0))
        place = steps.call("openat", _CWD, path, _PATH | _CLOEXEC, failing=missing, keep=rule + 8)
        steps.call("landlock_add_rule", rules, 1, rule, 0)
        steps.call("close", place)
        steps.set(missing)
    steps.must("landlock", "landlock_restrict_self", rules, 0)
    steps.call("close", rules)


def words(*values: int) -> bytes:
    return b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in values)
