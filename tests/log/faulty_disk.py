"""A disk that takes nothing for a while: the commits of the log's writer fail as SQLite lets them fail."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from retinue.log.sqlite import SqliteConnection


def no_space() -> Exception:
    return OSError(errno.ENOSPC, "No space left on device")


def full() -> Exception:
    return _named("database or disk is full", "SQLITE_FULL")


def failing() -> Exception:
    return _named("disk I/O error", "SQLITE_IOERR_WRITE")


def _named(text: str, name: str) -> Exception:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


class FaultyDisk:
    """`writes` counts the commits that were tried, `failed` those that failed: the ones for whose number `fails` is
    true, with `error`."""

    def __init__(self, patch: Any, fails: Callable[[int], bool] = lambda number: False) -> None:
        self.writes = self.failed = 0
        self.fails = fails
        self.error = full
        original = SqliteConnection.execute

        def execute(connection: SqliteConnection, sql: str, *values: Any) -> Any:
            if sql == "COMMIT" and threading.current_thread().name == "retinue-log":
                self.writes += 1
                if self.fails(self.writes):
                    self.failed += 1
                    raise self.error()
            return original(connection, sql, *values)

        patch.setattr(SqliteConnection, "execute", execute)

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Let nothing be written inside."""
        self.fails = lambda number: True
        try:
            yield
        finally:
            self.fails = lambda number: False
