"""A proxy that adds the token of `retinue serve`: the conformance suite cannot send one."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.frontends.server.conftest import Served

_OF_THE_CONNECTION = {"connection", "transfer-encoding", "keep-alive"}


@contextmanager
def bearer_proxy(server: Served) -> Iterator[str]:
    """Yield the address of a proxy. It passes everything on but the name of its own host."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_THE_CONNECTION}
            own = f":{self.server.server_address[1]}"
            for name in ("Host", "Origin"):
                for key in [key for key in headers if key.lower() == name.lower()]:
                    headers[key] = headers[key].replace(f"127.0.0.1{own}", f"127.0.0.1:{server.port}")
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request(self.command, self.path, body or None, {**headers, **server.headers})
            response = connection.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _OF_THE_CONNECTION | {"date", "server"}:
                    self.send_header(name, value)
            self.end_headers()
            # The end of the connection is the end of the answer, which may be a stream.
            with suppress(http.client.IncompleteRead, BrokenPipeError, ConnectionResetError):
                while piece := response.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *words: object) -> None:
            """Nothing is printed."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}/mcp"
    finally:
        proxy.shutdown()
        proxy.server_close()
