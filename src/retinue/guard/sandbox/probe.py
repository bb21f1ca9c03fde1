"""What this host can enforce. `can_confine` is quick and for every run; `examine` starts real
programs and is for people who ask."""

from __future__ import annotations

from functools import cache

from retinue.guard.sandbox.kernel import has_seccomp, landlock_abi, machine

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
    """Starts a program in namespaces of its own. Takes some 20 ms, once."""
    import subprocess
    from pathlib import Path

    from retinue.guard.sandbox.box import Box
    from retinue.guard.sandbox.policy import Policy

    box = Box(Policy(namespaces="must"), "probe")
    try:
        argv = box.wrap(["/bin/sh", "-c", ":"], Path("/"))
        return subprocess.run(argv, capture_output=True, timeout=20, check=False).returncode == 0  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        box.close()
