"""Bubblewrap, where it may do what we may not: some systems let only known programs make
namespaces. It then builds the view of the file system, and the launcher does the rest inside."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

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


def arguments(plan: dict[str, Any]) -> list[str]:
    """How bubblewrap is told what the launcher would have done itself."""
    program = bubblewrap() or "bwrap"
    argv = [program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--dev", "/dev"]
    argv += ["--proc", "/proc", *(["--unshare-net"] if plan["isolate_network"] else [])]
    for source, target, kind in plan["mounts"]:
        if kind == "rw" or (kind == "ro" and Path(target).exists()):
            argv += ["--bind" if kind == "rw" else "--ro-bind", source, target]
    return [*argv, "--"]
