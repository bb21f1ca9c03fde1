"""What this host can enforce, with bubblewrap or without it, and how a program reports being stopped.

Some systems let only known programs make namespaces. Bubblewrap then builds the view of the file
system, and the launcher does the rest inside. `why_not` is quick and serves every run; what starts
programs to find out is for `retinue doctor`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.guard.sandbox.kernel import machine, why_not

if TYPE_CHECKING:
    from retinue.guard.sandbox.policy import Namespaces, SandboxPolicy


_RESTRICTIONS = (
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/user/max_user_namespaces", "0"),
)


@cache
def restriction() -> str | None:
    """The setting of the system that keeps this user from making namespaces, if one does."""
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        return None
    for path, value in _RESTRICTIONS:
        try:
            if Path(path).read_text().strip() == value:
                return f"{path.removeprefix('/proc/sys/').replace('/', '.')}={value}"
        except OSError:
            continue
    return None


def bubblewrap() -> str | None:
    return shutil.which("bwrap")


@cache
def bubblewrap_works() -> bool:
    program = bubblewrap()
    if program is None:
        return False
    argv = [program, "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-net", "--unshare-pid", "--", "/bin/true"]
    try:
        return subprocess.run(argv, capture_output=True, timeout=20, check=False).returncode == 0  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return False


def confining_arguments(plan: dict[str, Any]) -> list[str]:
    """How bubblewrap is told what the launcher would have done itself."""
    argv = [*_start(plan), "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    return [*argv, *_binds(plan), "--"]


def masking_arguments(plan: dict[str, Any], folder: str) -> list[str]:
    """For a program that may change everything but some paths: no launcher is needed."""
    return [*_start(plan), "--dev-bind", "/", "/", *_binds(plan), "--chdir", folder, "--"]


def _start(plan: dict[str, Any]) -> list[str]:
    program = bubblewrap() or "bwrap"
    return [program, "--die-with-parent", *(["--unshare-net"] if plan["isolate_network"] else [])]


def _binds(plan: dict[str, Any]) -> list[str]:
    argv: list[str] = []
    for source, target, kind in plan["mounts"]:
        if kind == "early device" or not os.path.lexists(target):
            continue
        place = os.path.join(plan["void"], source) if kind == "cover" else source  # noqa: PTH118 - quick
        free = kind in ("early rw", "pin") or (kind == "early shown" and plan["change"] == "all")
        argv += ["--bind" if free else "--ro-bind", place, target]
    return argv


_KEPT = re.compile(r"Read-only file system|EROFS|Device or resource busy|EBUSY")
_STOPPED = re.compile(
    r"Read-only file system|EROFS|Permission denied|PermissionError|EACCES|Operation not permitted|EPERM"
    r"|Could not resolve host|Temporary failure in name resolution|Name or service not known|EAI_AGAIN|ENOTFOUND"
    r"|Network is unreachable|ENETUNREACH|getaddrinfo|No space left on device"
)
"""How programs say that the system did not let them."""
_MISSING = re.compile(r"(/[^\s:'\"`]+)['\"`]?: No such file or directory")


def find_stop(shown: str, code: int | None, *, listed: bool, system: bool) -> str:
    """Return the line in which a failed program says what it was kept from; "" if it does not.

    `listed`: it may write to a few folders only. `system`: it sees the workspace and the system only.
    """
    if not code:
        return ""
    tail = shown[-4000:]
    signs = _STOPPED if listed else _KEPT
    lines = [line.strip() for line in tail.splitlines() if signs.search(line)]
    if lines:
        return lines[-1][:200]
    for found in _MISSING.finditer(tail) if system else ():
        if os.path.lexists(found.group(1)):
            return f"{found.group(1)[:200]} cannot be seen from inside"
    return ""


@cache
def namespaces_work() -> bool:
    """Start a program in namespaces of its own. Takes some milliseconds, once."""
    return try_out("must", "exit 0")[0] == 0


@cache
def masks_work() -> bool:
    """Whether files can be hidden from a program that is free otherwise. Starts one, once."""
    import tempfile
    from pathlib import Path

    from retinue.guard.sandbox.policy import SandboxPolicy

    if machine() is None:
        return False
    with tempfile.NamedTemporaryFile(prefix="retinue-probe-") as file:
        file.write(b"seen")
        file.flush()
        policy = SandboxPolicy(change="all", network="on", hidden=(Path(file.name),))
        code, said = run_inside(policy, 'cat "$1"', file.name)
    return code == 0 and said == ""


def uncovered(policy: SandboxPolicy) -> str:
    """Return what of a policy this host cannot enforce, in sentences."""
    problem = why_not()
    if policy.change == "all":
        if (policy.hidden or policy.readonly or policy.home) and not masks_work():
            return (
                "Files that rules hide or protect cannot be kept from commands that may change everything: "
                "namespaces are not available here."
            )
        return ""
    if problem is not None:
        return f"Nothing of this can be enforced here: {problem}."
    if namespaces_available():
        return ""
    found = ["Without namespaces, the names of hidden files and the number of processes can be seen."]
    if policy.writable and (policy.readonly or policy.hidden):
        found.append("Files in a writable folder cannot be hidden or protected.")
    if isinstance(policy.network, tuple):
        found.append("Single hosts cannot be allowed, so such a shell does not start.")
    return " ".join(found)


def namespaces_available() -> bool:
    """Whether programs get namespaces of their own here, made by us or by bubblewrap."""
    return namespaces_work() or (restriction() is not None and bubblewrap_works())


def try_out(namespaces: Namespaces, script: str, **variables: str) -> tuple[int, str]:
    """Run a script for sh in a read-only box: its exit code (-1 if it could not be started) and
    what it said."""
    from retinue.guard.sandbox.policy import SandboxPolicy

    return run_inside(SandboxPolicy(namespaces=namespaces), script, **variables)


def run_inside(policy: SandboxPolicy, script: str, *words: str, **variables: str) -> tuple[int, str]:
    """Run a script for sh, with words as $1 and so on, inside a policy."""
    import subprocess
    from pathlib import Path

    from retinue.guard.sandbox.box import Box

    box = Box(policy, "probe")
    try:
        done = subprocess.run(  # noqa: S603 - our own launcher
            box.wrap(["/bin/sh", "-c", script, "sh", *words], Path("/")),
            env={**box.environment({"PATH": "/usr/bin:/bin"}), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    finally:
        box.close()
    return done.returncode, done.stdout
