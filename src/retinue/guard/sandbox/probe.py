"""What this host can enforce. `why_not` is quick and for every run; what starts programs to find
out is for `retinue doctor`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from retinue.guard.sandbox.bubblewrap import bubblewrap_works, restriction
from retinue.guard.sandbox.kernel import has_seccomp, landlock_abi, machine

if TYPE_CHECKING:
    from retinue.guard.sandbox.policy import Namespaces, Policy

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


@cache
def masks_work() -> bool:
    """Whether files can be hidden from a program that is free otherwise. Starts one, once."""
    import tempfile
    from pathlib import Path

    from retinue.guard.sandbox.policy import Policy

    if machine() is None:
        return False
    with tempfile.NamedTemporaryFile(prefix="retinue-probe-") as file:
        file.write(b"seen")
        file.flush()
        policy = Policy(change="all", network="on", hidden=(Path(file.name),))
        code, said = run_inside(policy, 'cat "$1"', file.name)
    return code == 0 and said == ""


def uncovered(policy: Policy) -> str:
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
    from retinue.guard.sandbox.policy import Policy

    return run_inside(Policy(namespaces=namespaces), script, **variables)


def run_inside(policy: Policy, script: str, *words: str, **variables: str) -> tuple[int, str]:
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
