"""The tests of the log run on both databases; those about the SQLite file itself are marked `sqlite`."""

import itertools
import os

import pytest

from retinue.settings.places import digest

_numbers = itertools.count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, monkeypatch):
    """Return the URL of the database that the logs of a test are in; None for files."""
    monkeypatch.delenv("RETINUE_DATABASE", raising=False)
    if request.param == "sqlite":
        return None
    if request.node.get_closest_marker("sqlite") is not None:
        pytest.skip("about the file")
    url = request.getfixturevalue("postgres")
    monkeypatch.setenv("RETINUE_DATABASE", url)
    return url


@pytest.fixture
def tmp_path(tmp_path, database):
    """Return a state folder of a project that no other test has."""
    if database is None:
        yield tmp_path
        return
    from retinue.log.postgres import forget_connections, open_server, schema_of

    project = f"test-{os.getpid()}-{next(_numbers)}"
    folder = tmp_path / f"{project}@{digest(database)}"
    folder.mkdir()
    yield folder
    forget_connections(database)
    raw = open_server(database, "public")
    raw.execute(f'DROP SCHEMA IF EXISTS "{schema_of(project)}" CASCADE')
    raw.close()
