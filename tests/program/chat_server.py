"""A real HTTP server that speaks OpenAI's Chat Completions as OpenRouter and Ollama do, and wants a key if told so."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class ChatServer:
    """Use with `with`. `asked` holds the path, the key and the body of every request in order of arrival."""

    def __init__(self, *models: str, key: str = "", says: str = "Hello from a real model.") -> None:
        self.models, self.key, self.says = models, key, says
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server._list(self)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server._answer(self, body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port: int = self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests to a model."""
        return [body for path, _, body in self.asked if path.endswith("/chat/completions")]

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _list(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append((handler.path, handler.headers.get("authorization", ""), {}))
        if handler.path == "/api/ps":
            loaded = [{"name": model, "context_length": 65_536} for model in self.models]
            _send(handler, 200, {"models": loaded})
        elif handler.path.endswith("/models"):
            # Everybody may see OpenRouter's list: it says nothing about a key.
            _send(handler, 200, {"object": "list", "data": [{"id": model} for model in self.models]})
        else:
            _send(handler, 404, {"error": {"message": "no such page"}})

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        given = handler.headers.get("authorization", "").removeprefix("Bearer ")
        self.asked.append((handler.path, given, body))
        if self.key and given != self.key:
            _send(handler, 401, {"error": {"message": "User not found.", "code": 401}})
        elif body.get("model") not in self.models:
            _send(handler, 404, {"error": {"message": f"model '{body.get('model')}' not found"}})
        else:
            _stream(handler, self.says)


def _send(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _stream(handler: BaseHTTPRequestHandler, text: str) -> None:
    events: list[Any] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
    ]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    data = "".join([*lines, "data: [DONE]\n\n"]).encode()
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)
