"""Many rows with few statements, in a real SQLite file."""

import sqlite3

import pytest

from retinue.log.sqlite import SqliteConnection

SIZES = (0, 1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1_600)

pytestmark = pytest.mark.sqlite


@pytest.fixture
def connection(tmp_path):
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None, factory=SqliteConnection)
    connection.execute("CREATE TABLE things (id TEXT PRIMARY KEY, name TEXT, size REAL)")
    yield connection
    connection.close()


def things(count, name="thing"):
    return [(f"id {number}", None if number % 5 == 0 else f"{name} '{number}'", number / 7) for number in range(count)]


def stored(connection):
    return connection.execute("SELECT id, name, size FROM things ORDER BY rowid").fetchall()


@pytest.mark.parametrize("count", SIZES)
def test_rows_are_added_in_order_and_changed_by_their_id(connection, count):
    connection.insert("things", ("id", "name", "size"), things(count))
    assert stored(connection) == things(count)
    other = things(count, "other")
    connection.update("things", ("name", "size"), [(name, size + 1, id) for id, name, size in reversed(other)])
    assert stored(connection) == [(id, name, size + 1) for id, name, size in other]


def test_only_the_rows_that_are_named_change(connection):
    connection.insert("things", ("id", "name", "size"), things(20))
    connection.update("things", ("name",), [("new", "id 3"), ("newer", "id 5"), ("nobody", "id 99")])
    changed = {
        id: name for (id, name, _), (_, old, _) in zip(stored(connection), things(20), strict=True) if name != old
    }
    assert changed == {"id 3": "new", "id 5": "newer"}


def test_a_thousand_rows_are_few_statements(connection):
    """Each one may have to wait for a busy event loop before it returns."""
    statements = []
    connection.set_trace_callback(statements.append)
    connection.insert("things", ("id", "name", "size"), things(1_000))
    connection.update("things", ("name",), [("x", id) for id, _, _ in things(1_000)])
    assert len(statements) <= 40


def test_a_library_that_takes_few_values_gets_smaller_statements(connection):
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 30)
    connection.insert("things", ("id", "name", "size"), things(100))
    assert stored(connection) == things(100)


def test_what_cannot_be_added_is_an_error(connection):
    connection.insert("things", ("id", "name", "size"), things(3))
    with pytest.raises(sqlite3.IntegrityError):
        connection.insert("things", ("id", "name", "size"), things(100))
