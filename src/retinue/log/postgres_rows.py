"""Rows of a PostgreSQL server, read by place and by name like those of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any


class PostgresRow(tuple[Any, ...]):
    """A row of the server: by place and by name."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return tuple.__getitem__(self, self.names[key])
        return tuple.__getitem__(self, key)


@lru_cache(maxsize=512)
def _row_class(names: tuple[str, ...]) -> type[PostgresRow]:
    places = {name: place for place, name in enumerate(names)}
    return type("PostgresRow", (PostgresRow,), {"names": places})


def read_rows(cursor: Any) -> Any:
    columns = cursor.description or ()
    return _row_class(tuple(column.name for column in columns))


class NoRows:
    """The cursor of a statement that finds nothing."""

    rowcount = 0

    def fetchone(self) -> None:
        return None

    def fetchall(self) -> list[Any]:
        return []

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@lru_cache(maxsize=1)
def number_loader() -> Any:
    """Return the reader of `numeric`, which sums of whole numbers are: they are whole numbers here too."""
    from psycopg.adapt import Loader

    def load(_: Any, data: Any) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text or "N" in text else int(text)

    return type("Number", (Loader,), {"load": load})
