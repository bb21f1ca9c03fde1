"""The answer to a fetched URL, unpacked within bounds, and why one could not be fetched."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Problem = Literal[
    "INVALID_URL",
    "UNSUPPORTED_PROTOCOL",
    "PRIVATE_NETWORK_BLOCKED",
    "DNS_RESOLUTION_FAILED",
    "NOT_PERMITTED",
    "TOO_MANY_REDIRECTS",
    "TIMEOUT",
    "RATE_LIMITED",
    "HTTP_STATUS",
    "ENCODING",
    "EXTRA_MISSING",
    "NETWORK_ERROR",
]
"""Why a URL could not be fetched, finer than the codes that models see."""


class FetchError(Exception):
    """A URL that could not be fetched. `hosts` are those that were contacted on the way."""

    def __init__(self, problem: Problem, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.problem: Problem = problem
        self.message = message
        self.status = status
        self.hosts: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The code that models see."""
        match self.problem:
            case "INVALID_URL" | "UNSUPPORTED_PROTOCOL":
                return "CONTENT_FETCH_INVALID_URL"
            case "TIMEOUT":
                return "CONTENT_FETCH_TIMEOUT"
            case _:
                return "CONTENT_FETCH_FAILED"


class Fetched(Struct, frozen=True):
    """An answer with a status of success. `url` is where it came from after all redirects; `hosts` are all that were
    contacted for it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    hosts: tuple[str, ...] = ()

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")


ACCEPTED = "gzip, deflate"
_MOST_LAYERS = 2
_STEP = 64 * 1024


class Unpacker:
    """Unpacks a body piece by piece. `data` never grows beyond `most` bytes, however tightly it was packed; `full`
    says that there was more."""

    def __init__(self, encodings: str, most: int) -> None:
        names = [name.strip().lower() for name in encodings.split(",")]
        names = [name for name in names if name not in ("", "identity")]
        wrong = next((name for name in names if name not in ("gzip", "x-gzip", "deflate")), None)
        if wrong is not None or len(names) > _MOST_LAYERS:
            how = ""
            # The name comes from the server, so it is repeated only if it looks like one.
            if wrong is not None and re.fullmatch(r"[a-z0-9-]{1,20}", wrong):
                how = f" as {wrong}"
            raise FetchError("ENCODING", f"The server packed its answer{how}, in a way that was not asked for.")
        self.data = bytearray()
        self.full = False
        self._most = most
        # The header lists encodings in the order in which they were applied.
        self._layers = list(map(_Layer, reversed(names)))

    def feed(self, piece: bytes) -> bool:
        """Unpack a piece. Return False when nothing more is wanted."""
        self._push(piece, 0)
        return not self.full

    def _push(self, piece: bytes, depth: int) -> None:
        if depth == len(self._layers):
            room = self._most - len(self.data)
            self.data += piece[:room]
            self.full = self.full or len(piece) > room
            return
        layer = self._layers[depth]
        while piece and not self.full:
            out, piece = layer.unpack(piece)
            self._push(out, depth + 1)


class _Layer:
    def __init__(self, name: str) -> None:
        self._deflate = name == "deflate"
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._fresh = True

    def unpack(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return at most two steps of unpacked bytes, and the unused rest of the piece."""
        if self._engine.eof:
            return b"", b""
        try:
            out = self._engine.decompress(piece, _STEP)
        except zlib.error:
            if not (self._deflate and self._fresh):
                raise FetchError("ENCODING", "The server sent a packed answer that cannot be unpacked.") from None
            # Some servers send bare deflate data, without the zlib header that "deflate" demands.
            self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
            self._fresh = False
            return self.unpack(piece)
        self._fresh = False
        if self._engine.eof:
            return out, self._next_member()
        rest = self._engine.unconsumed_tail
        if not rest and len(out) == _STEP:
            # All input is taken, but more may wait inside: ask for it with nothing new.
            return out + self._engine.decompress(b"", _STEP), b""
        return out, rest

    def _next_member(self) -> bytes:
        """Prepare for a further gzip member and return its bytes. Anything else after the end is ignored."""
        rest = self._engine.unused_data
        if not rest.startswith(b"\x1f\x8b"):
            return b""
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return rest
