"""What this host can enforce. `why_not` is quick and for every run; what starts programs to find
out is for `retinue doctor`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from retinue.guard.sandbox.kernel import has_seccomp, landlock_abi, machine

if TYPE_CHECKING:
    from retinue.guard.sandbox.policy import Namespaces

_TRUNCATION = 3
"""From this version on Landlock alone keeps files from being emptied."""


@cache
def why_not() -> str | None:
    """Why programs cannot be kept from writing here; None if they can. A start that then fails
    all the same starts nothing: the launcher does not let a program run half confined."""
    if machine() is None:
        return "only Linux on x86-64 and ARM64 can confine programs"
    if not has_seccomp():
        return "the kernel has no seccomp"
    abi = landlock_abi()
    if abi >= _TRUNCATION:
        return None
    if abi == 0:
        return "the kernel has no Landlock, or this container forbids it"
    if namespaces_work():
        return None
    return f"Landlock is too old here (version {abi} of {_TRUNCATION}) and namespaces are not available"


def can_confine() -> bool:
    return why_not() is None


@cache
def namespaces_work() -> bool:
    """Starts a program in namespaces of its own. Takes some milliseconds, once."""
    return try_out("must", "exit 0")[0] == 0


def try_out(namespaces: Namespaces, script: str, **variables: str) -> tuple[int, str]:
    """Runs a script for sh in a read-only box: its exit code (-1 if it could not be started) and
    what it said."""
    import subprocess
    from pathlib import Path

    from retinue.guard.sandbox.box import Box
    from retinue.guard.sandbox.policy import Policy

    box = Box(Policy(namespaces=namespaces), "probe")
    try:
        done = subprocess.run(  # noqa: S603 - our own launcher
            box.wrap(["/bin/sh", "-c", script], Path("/")),
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
