"""A real HTTP server that speaks Anthropic Messages and says what a test tells it to.

The answer is a function of the request, so that it stays right when a client is killed and asks
again: `turn` is the number of tool results in the conversation so far.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What one request gets. `calls` are (name, arguments); `status` other than 200 is an error;
    `cut` closes the connection after that many events; `hang` keeps silent until the test ends, after
    the first event or, with `speaks`, after its text;
    `stop` is the reason why the model stopped, where it is not the usual one."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang: bool = False
    speaks: bool = False
    stop: str = ""


@dataclass
class Request:
    body: dict[str, Any]
    attempt: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def turn(self) -> int:
        return sum(
            part.get("type") == "tool_result"
            for message in self.body["messages"]
            if isinstance(message["content"], list)
            for part in message["content"]
        )

    @property
    def results(self) -> list[dict[str, Any]]:
        return [
            part
            for message in self.body["messages"]
            if isinstance(message["content"], list)
            for part in message["content"]
            if part.get("type") == "tool_result"
        ]


class ModelServer:
    """Use with `with`. `requests` holds every request in order of arrival. `models` is what it lists; without any it
    has no list."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.requests: list[Request] = []
        self.models: tuple[str, ...] = ()
        self.answer = answer
        self.over = threading.Event()
        self._attempts: dict[int, int] = {}
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server._respond(self, body)

            def do_GET(self) -> None:
                server._list(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # clients are killed here all the time
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()

    def _respond(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self._lock:
            request = Request(body, 0, {name.lower(): value for name, value in handler.headers.items()})
            request.attempt = self._attempts.get(request.turn, 0)
            self._attempts[request.turn] = request.attempt + 1
            self.requests.append(request)
        reply = self.answer(request)
        if reply.status != 200:
            return self._fail(handler, reply)
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for number, event in enumerate(events(reply, request.turn)):
            if reply.cut is not None and number >= reply.cut:
                handler.close_connection = True
                handler.connection.close()
                return None
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            if reply.hang and (not reply.speaks or event["type"] == "content_block_stop"):
                handler.wfile.flush()
                self.over.wait(60)
                handler.close_connection = True
                return None
        handler.wfile.write(b"0\r\n\r\n")
        return None

    def _list(self, handler: BaseHTTPRequestHandler) -> None:
        if not self.models or not handler.path.startswith("/v1/models"):
            return self._fail(handler, Reply("not found", status=404))
        data = json.dumps({"data": [{"id": model, "type": "model"} for model in self.models]}).encode()
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        return None

    def _fail(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        kind = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error"}.get(
            reply.status, "api_error"
        )
        data = json.dumps({"type": "error", "error": {"type": kind, "message": reply.text or kind}}).encode()
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def events(reply: Reply, turn: int) -> list[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    found: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}}
    ]
    index = 0
    if reply.text:
        found.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for piece in (reply.text[i : i + 65536] for i in range(0, len(reply.text), 65536)):
            found.append({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
        found.append({"type": "content_block_stop", "index": 0})
        index = 1
    for number, (name, arguments) in enumerate(reply.calls):
        block = {"type": "tool_use", "id": f"call-{turn}-{number}", "name": name, "input": {}}
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
        half = len(raw) // 2
        found.append({"type": "content_block_start", "index": index, "content_block": block})
        for piece in (raw[:half], raw[half:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            found.append({"type": "content_block_delta", "index": index, "delta": delta})
        found.append({"type": "content_block_stop", "index": index})
        index += 1
    stop = reply.stop or ("tool_use" if reply.calls else "end_turn")
    found.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}})
    found.append({"type": "message_stop"})
    return found
