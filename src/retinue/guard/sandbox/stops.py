"""How a program says that the walls stopped it: read from what it printed."""

from __future__ import annotations

import os
import re

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
