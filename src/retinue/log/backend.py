"""What the log needs of a database: SQLite (`sqlite`) and PostgreSQL (`postgres`) provide it.

The statements of this package are written once, in SQLite's words with `?` for values. A connection runs them on its
database. The few things that the two do differently are methods here. `BEGIN IMMEDIATE` means the same on both:
one writer of a project at a time, from there to `COMMIT`. So numbers of events grow with commits, and what
a transaction has looked at stays true until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from retinue.errors import StateError

if TYPE_CHECKING:
    from retinue.core.programs import Owner

Row = Sequence[object]


class LostDatabaseError(StateError):
    """The connection to the database server broke. `unsure`: it broke during a commit, which may have happened."""

    unsure = False


class LogCursor(Protocol):
    """The rows that a statement found. A row gives its values by place and by the name of the column."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class LogConnection(Protocol):
    """One connection to the log of a project.

    `shared`: processes of several machines write to this log, so only heartbeats say who lives. `heartbeat_seconds`:
    how often an owner says that it does. `stream_seconds`: how long streamed text waits for more of it.
    """

    shared: bool
    heartbeat_seconds: float
    stream_seconds: float

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> LogCursor: ...

    def executemany(self, sql: str, rows: Iterable[Any], /) -> LogCursor: ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Add rows whose values are in the order of `columns`."""

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Set `columns` of the rows whose `id` follows their values."""

    def version(self) -> int:
        """Return a number that changes whenever another connection has committed something."""

    def clock(self) -> float:
        """Return the time by which heartbeats are judged: that of the machine which all owners share."""

    def owners(self) -> dict[str, Owner]:
        """Return who runs something. Their heartbeats are in the time of this machine."""

    def size(self) -> int:
        """Return how many bytes the log takes on the disk."""

    def shrink(self) -> bool:
        """Give back the space of removed rows, or leave it to new rows where others keep it from that. Return whether
        it was given back."""

    def reopen(self) -> None:
        """Connect again after a LostDatabaseError. Raise it again when that is not possible."""

    def close(self) -> None: ...


class LogBackend(Protocol):
    """The log of one project. `label` is how messages call it. All methods raise StateError with cause and remedy."""

    label: str

    def exists(self) -> bool:
        """Return whether there is a log yet."""

    def connect(self) -> LogConnection:
        """Return a connection that writes. Makes the log, and brings its schema up to date."""

    def connect_to_read(self) -> LogConnection:
        """Return a connection that reads. Makes nothing: a log that does not exist reads as an empty one."""

    def check(self) -> list[str]:
        """Return what is wrong with the log; an empty list when it is sound."""
