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
