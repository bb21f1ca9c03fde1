"""Bodies as they were before the server packed them, never more of them than was asked for."""

from __future__ import annotations

import re
import zlib

from retinue.capabilities.web.base import FetchError

ACCEPTED = "gzip, deflate"
_MOST_LAYERS = 2
_STEP = 64 * 1024


class Unpacker:
    """Takes a body in pieces; `data` never grows beyond `most` bytes, however small the pieces
    were that it came from. `full` says that there was more."""

    def __init__(self, encodings: str, most: int) -> None:
        names = [name.strip().lower() for name in encodings.split(",") if name.strip()]
        names = [name for name in names if name != "identity"]
        wrong = next((name for name in names if name not in ("gzip", "x-gzip", "deflate")), None)
        if wrong is not None or len(names) > _MOST_LAYERS:
            how = f" as {wrong}" if wrong is not None and re.fullmatch(r"[a-z0-9-]{1,20}", wrong) else ""
            raise FetchError("ENCODING", f"The server packed its answer{how}, in a way that was not asked for.")
        self.data = bytearray()
        self.full = False
        self._most = most
        self._layers = [_Layer(name) for name in reversed(names)]

    def feed(self, piece: bytes) -> bool:
        """False when nothing more is wanted."""
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
        """At most a step of what comes out, and what is left of the piece."""
        if self._engine.eof:
            return b"", b""
        try:
            out = self._engine.decompress(piece, _STEP)
        except zlib.error:
            if not (self._deflate and self._fresh):
                raise FetchError("ENCODING", "The server sent a packed answer that cannot be unpacked.") from None
            self._engine = zlib.decompressobj(-zlib.MAX_WBITS)  # as some servers understand "deflate"
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
        """A gzip file may be followed by another; anything else behind it is of no account."""
        rest = self._engine.unused_data
        if not rest.startswith(b"\x1f\x8b"):
            return b""
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return rest
