"""Being told of changes by the server, instead of asking it again and again.

One thread and one connection per process and project listen. Everyone who waits for changes looks at a number, as
with SQLite: it grows with every message of the server. While the connection is broken it grows with every
look, so that nobody misses anything.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from retinue.errors import StateError

_PAUSE = 0.5
_PATIENCE = 1.0
_listeners: dict[tuple[str, str], PostgresListener] = {}
_lock = threading.Lock()


class PostgresListener:
    """Counts the changes of one schema, and calls `heard` after each, in its own thread."""

    def __init__(self, url: str, schema: str, heard: Callable[[], None] = lambda: None) -> None:
        self._url = url
        self._schema = schema
        self._heard = heard
        self._count = 0
        self._hears = False
        self._raw: Any = None
        self._over = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="retinue-listen", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        if not self._hears:
            self._count += 1
        return self._count

    def wait(self) -> None:
        """Return when it listens, or after a second."""
        self._ready.wait(_PATIENCE)

    def end(self) -> None:
        self._over.set()
        with contextlib.suppress(Exception):
            self._raw.cancel_safe(timeout=1)
        with contextlib.suppress(Exception):
            self._raw.close()

    def _main(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(Exception):
                self._listen()
            self._hears = False
            self._over.wait(_PAUSE)

    def _listen(self) -> None:
        from retinue.log.postgres import open_server

        try:
            self._raw = open_server(self._url, self._schema)
        except StateError:
            return
        from psycopg import sql

        with self._raw:
            self._raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._schema)))
            # What was committed before is not announced any more.
            self._count += 1
            self._hears = True
            self._ready.set()
            self._heard()
            for _ in self._raw.notifies():
                self._count += 1
                self._heard()


def listener_of(url: str, schema: str) -> PostgresListener:
    """Return the listener of this process, started when it is first asked for."""
    found = _listeners.get((url, schema))
    if found is None:
        with _lock:
            found = _listeners.get((url, schema)) or PostgresListener(url, schema)
            _listeners[url, schema] = found
        found.wait()
    return found


def end_listeners(url: str) -> None:
    """Stop hearing of a database."""
    for key in [key for key in _listeners if key[0] == url]:
        _listeners.pop(key).end()
