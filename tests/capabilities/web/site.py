"""A real web site on loopback that misbehaves on demand, and a fetcher that may visit it."""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Page = Callable[["Visit"], None]


class Visit:
    """One request, and how to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, site: Site) -> None:
        self.handler = handler
        self.site = site
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.waits = True

    def send(
        self, body: bytes | str, kind: str = "text/html; charset=utf-8", status: int = 200, **headers: str
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.start(kind, status, content_length=str(len(data)), **headers)
        self.handler.wfile.write(data)

    def start(self, kind: str | None = "text/html", status: int = 200, **headers: str) -> None:
        self.site.leave(self)
        self.handler.send_response(status)
        if kind is not None:
            self.handler.send_header("content-type", kind)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()

    def redirect(self, to: str, status: int = 302) -> None:
        self.send(b"", status=status, location=to)

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)


class Site:
    """Use with `with`. `pages` maps paths to functions; `visits` counts requests by path;
    `crowd` is the most requests that waited for an answer at once: once one has begun, its client
    may be done with it before this thread is."""

    def __init__(self, pages: dict[str, Page], tls: Any = None) -> None:
        self.pages = pages
        self.visits: Counter[str] = Counter()
        self.seen: list[Visit] = []
        self.crowd = 0
        self._now = 0
        self._lock = threading.Lock()
        self.over = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site._visit(self)

            def do_POST(self) -> None:
                site._visit(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # clients hang up on us: that is the point
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._http.server_port
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"

    def __enter__(self) -> Site:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()

    def _visit(self, handler: BaseHTTPRequestHandler) -> None:
        visit = Visit(handler, self)
        with self._lock:
            self.visits[visit.path] += 1
            self.seen.append(visit)
            self._now += 1
            self.crowd = max(self.crowd, self._now)
        try:
            length = int(visit.headers.get("content-length", 0))
            visit.body = handler.rfile.read(length) if length else b""
            page = self.pages.get(visit.path.partition("?")[0])
            if page is None:
                visit.send("not here", status=404)
            else:
                page(visit)
        finally:
            self.leave(visit)

    def leave(self, visit: Visit) -> None:
        """Its answer begins, or there is none."""
        with self._lock:
            self._now -= visit.waits
            visit.waits = False


def endless(visit: Visit) -> None:
    """A body without an end, without pause."""
    visit.start("text/plain", transfer_encoding="chunked")
    while not visit.site.over.is_set():
        visit.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")


def endless_headers(visit: Visit) -> None:
    visit.write(b"HTTP/1.1 200 OK\r\n")
    while not visit.site.over.is_set():
        visit.write(b"x-more: " + b"y" * 4000 + b"\r\n")


def slow(visit: Visit) -> None:
    """One byte now and then: never silent, never done."""
    visit.start("text/plain", transfer_encoding="chunked")
    while not visit.site.over.wait(0.02):
        visit.write(b"1\r\nx\r\n")


def silent(visit: Visit) -> None:
    visit.site.over.wait(30)


@cache
def bomb(size: int = 500_000_000) -> bytes:
    """A gzip file of about half a megabyte that unpacks to `size` zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    block = bytes(1_000_000)
    return b"".join(packer.compress(block) for _ in range(size // len(block))) + packer.flush()


def packed(visit: Visit, data: bytes, encoding: str = "gzip", kind: str = "text/plain") -> None:
    visit.send(data, kind, content_encoding=encoding)


__all__ = ["Site", "Visit", "bomb", "endless", "endless_headers", "gzip", "packed", "silent", "slow", "time"]
