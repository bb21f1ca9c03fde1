"""A model server whose answers come piece by piece, so that a page can be watched while they do.

An answer is a list of pieces: words, a `threading.Event` to wait for, seconds to wait, or a call. It speaks Anthropic
Messages. Which answer a request gets is a function of the request, as in `tests/program/model_server.py`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.program.model_server import Request


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


Piece = str | float | threading.Event | Call
Script = Callable[[Request], Sequence[Piece]]


class StoryServer:
    """Use with `with`. `script` may be changed while it runs."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.over = threading.Event()
        story = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                request = Request(body, 0)
                story.requests.append(request)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for event in story.events(request):
                    data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> StoryServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()

    def events(self, request: Request) -> Iterator[dict[str, Any]]:
        """Yield the events of one answer, each when it is due."""
        size = len(json.dumps(request.body["messages"])) // 4
        usage = {"input_tokens": 40 + size // 8, "output_tokens": 1, "cache_read_input_tokens": size}
        yield {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}}
        index, words, open_text, called = 0, 0, False, False
        for piece in self.script(request):
            if isinstance(piece, threading.Event):
                self._wait(piece)
            elif isinstance(piece, float):
                time.sleep(piece)
            elif isinstance(piece, str):
                if not open_text:
                    block = {"type": "text", "text": ""}
                    yield {"type": "content_block_start", "index": index, "content_block": block}
                    open_text = True
                delta = {"type": "text_delta", "text": piece}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
                words += len(piece) // 4
            else:
                if open_text:
                    yield {"type": "content_block_stop", "index": index}
                    index, open_text = index + 1, False
                block = {"type": "tool_use", "id": f"call-{request.turn}-{index}", "name": piece.name, "input": {}}
                yield {"type": "content_block_start", "index": index, "content_block": block}
                part = {"type": "input_json_delta", "partial_json": json.dumps(piece.arguments)}
                yield {"type": "content_block_delta", "index": index, "delta": part}
                yield {"type": "content_block_stop", "index": index}
                index, called = index + 1, True
                words += 40
        if open_text:
            yield {"type": "content_block_stop", "index": index}
        stop = "tool_use" if called else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": words + 5}}
        yield {"type": "message_stop"}

    def _wait(self, due: threading.Event) -> None:
        while not due.wait(0.05) and not self.over.is_set():
            pass


def first_words(request: Request) -> str:
    """The task of the run that asks."""
    return json.dumps(request.body["messages"][0])
