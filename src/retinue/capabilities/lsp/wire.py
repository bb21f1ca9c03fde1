"""Messages of the protocol as bytes: a header with the length, then JSON. Everything is bounded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MOST_HEADER = 8 * 1024
MOST_BODY = 64 * 1024 * 1024
_END = b"\r\n\r\n"


class WireError(Exception):
    """What came is not the protocol; nothing after it can be understood."""


def encode(message: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), ensure_ascii=True).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Decoder:
    """Feed it pieces as they come; it gives whole messages."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._length: int | None = None

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Raises WireError, for good."""
        self._waiting += data
        while (body := self._next()) is not None:
            try:
                message = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise WireError(f"it sent something that is not JSON: {error}") from None
            if not isinstance(message, dict):
                raise WireError("it sent JSON that is not an object")
            yield message

    def _next(self) -> bytes | None:
        if self._length is None:
            end = self._waiting.find(_END)
            if end < 0:
                if len(self._waiting) > MOST_HEADER:
                    raise WireError("it sent something without a header")
                return None
            self._length = _length(bytes(self._waiting[:end]))
            del self._waiting[: end + len(_END)]
        if len(self._waiting) < self._length:
            return None
        body = bytes(self._waiting[: self._length])
        del self._waiting[: self._length]
        self._length = None
        return body


def _length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            text = value.strip()
            if text.isdigit() and len(text) < 12 and int(text) <= MOST_BODY:
                return int(text)
            raise WireError(f"it announced a message of {text[:20].decode('ascii', 'replace')} bytes")
    raise WireError(f"its header has no length: {header[:80]!r}")
