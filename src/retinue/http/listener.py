"""Who listens at a port of this machine: a server of this user or of the system, or one of somebody else.

Anybody on a shared machine can open a port that a well-known server usually has, and would get every request that is
sent there unasked.
"""

from __future__ import annotations

import os
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"
MIN_PERSON_UID = 1000
"""Lower numbers are accounts that the system's administrator has made for services."""
NOBODY_UID = 65534


def foreign_listener(port: int) -> str | None:
    """Return the name of the user whose program listens at `port`; None if that is this user, root or a service of
    the system. A listener whose user cannot be told counts as foreign."""
    uids = _listening_uids(port)
    if not uids:
        return "a user that this system does not tell"
    for uid in uids:
        if uid != os.getuid() and uid >= MIN_PERSON_UID:
            return _user_name(uid)
    return None


def _listening_uids(port: int) -> set[int]:
    """Return the users of all sockets that listen at `port`, of any address."""
    uids = set()
    for table in _TABLES:
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            local, state, uid = columns[1], columns[3], columns[7]
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                uids.add(int(uid))
    return uids


def _user_name(uid: int) -> str:
    if uid == NOBODY_UID:
        return "nobody"
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"number {uid}"
