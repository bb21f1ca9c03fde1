"""The interface between the log and its database. SQLite (`sqlite`) and PostgreSQL (`postgres`) implement it.

The statements of this package are written once, in SQLite's dialect with `?` for values. A connection executes them on
its database. The few differences between the two are methods here. `BEGIN IMMEDIATE` means the same on both: a project
has one writer at a time, until `COMMIT`. So numbers of events grow with commits, and rows that a transaction has read
do not change before it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from retinue.errors import StateError

if TYPE_CHECKING:
    from retinue.core.programs import Owner

Row = Sequence[object]


class LostDatabaseError(StateError):
    """The connection to the database server was lost. `unsure`: during a commit, which may have succeeded."""

    unsure = False


class LogCursor(Protocol):
    """The result rows of a statement. A row gives access to its values by index and by column name."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class LogConnection(Protocol):
    """One connection to the log of a project.

    `shared`: processes of several machines write to this log, so only heartbeats show which of them are alive.
    `heartbeat_seconds`: the interval of an owner's heartbeats. `stream_seconds`: how long streamed text is collected
    before it is written.
    """

    shared: bool
    heartbeat_seconds: float
    stream_seconds: float

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> LogCursor: ...

    def executemany(self, sql: str, rows: Iterable[Any], /) -> LogCursor: ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows. Their values are in the order of `columns`."""

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Update `columns` of several rows. In `rows` the `id` follows the values."""

    def version(self) -> int:
        """Return a number that changes whenever another connection has committed something."""

    def clock(self) -> float:
        """Return the time with which heartbeats are compared: that of the machine with the database."""

    def owners(self) -> dict[str, Owner]:
        """Return the processes that own runs, by id. Their heartbeats are in the time of this machine."""

    def size(self) -> int:
        """Return the size of the log on the disk in bytes."""

    def shrink(self) -> bool:
        """Release the space of removed rows to the system. Return False if it stays reserved for new rows."""

    def reopen(self) -> None:
        """Connect again after a LostDatabaseError. Raise LostDatabaseError if that fails."""

    def close(self) -> None: ...


class LogBackend(Protocol):
    """The log of one project. Messages name it by `label`. All methods raise StateError with cause and remedy."""

    label: str

    def exists(self) -> bool:
        """Return whether the log exists."""

    def connect(self) -> LogConnection:
        """Return a connection for writing. Create the log if it is missing, and migrate its schema."""

    def connect_to_read(self) -> LogConnection:
        """Return a connection for reading. A missing log is not created and reads as an empty one."""

    def check(self) -> list[str]:
        """Return the problems of the log; an empty list if it is sound."""
