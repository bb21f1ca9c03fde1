"""Many rows with few statements.

While a statement works, other threads may go on, and when it is done it waits until they let it.
Beside a busy event loop that is five milliseconds each time, so a thousand rows one by one are
five seconds. Here they go together, in statements of a few sizes, which SQLite keeps compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

Row = tuple[object, ...]

_SIZES = (512, 64, 8, 1)
_UPDATES_FROM = (3, 33)
"""The version of SQLite that can change rows by a list of values."""


def insert(connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Adds rows whose values stand in the order of `columns`."""
    if rows:
        names = ", ".join(columns)
        _execute(connection, lambda values: f"INSERT INTO {table} ({names}) VALUES {values}", len(columns), rows)  # noqa: S608


def update(connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Sets `columns` of the rows whose `id` follows their values."""
    if not rows:
        return
    import sqlite3

    one = f"UPDATE {table} SET {', '.join(f'{name}=?' for name in columns)} WHERE id=?"  # noqa: S608
    if len(rows) == 1 or sqlite3.sqlite_version_info < _UPDATES_FROM:
        connection.executemany(one, rows)
        return
    values = ", ".join(f"{name}=new.column{number}" for number, name in enumerate(columns, 1))
    many = f"UPDATE {table} SET {values} FROM (VALUES %s) AS new WHERE id=new.column{len(columns) + 1}"  # noqa: S608
    _execute(connection, lambda values: many % values, len(columns) + 1, rows)


def _execute(connection: sqlite3.Connection, sql: Callable[[str], str], width: int, rows: Sequence[Row]) -> None:
    marks = f"({', '.join('?' * width)})"
    for chunk in _chunks(rows, _most(connection) // width):
        connection.execute(sql(", ".join([marks] * len(chunk))), tuple(chain.from_iterable(chunk)))


def _chunks(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    start = 0
    for size in _SIZES:
        while size <= most and len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def _most(connection: sqlite3.Connection) -> int:
    """How many values one statement may have."""
    import sqlite3

    return connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
