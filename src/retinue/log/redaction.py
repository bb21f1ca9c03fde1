"""What the log needs of whoever keeps secrets out of it. The guard provides it."""

from __future__ import annotations

from typing import Protocol

from retinue.core.events import Body


class TextStream(Protocol):
    """Text that arrives in pieces. What `feed` returns is safe to show; it may hold back the
    end of a piece until it is clear that no secret begins there. `finish` gives the rest."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


class Redactor(Protocol):
    def suspects(self, encoded: bytes) -> bool:
        """Whether any of some bodies, as JSON on a line each, holds a secret. May be wrong about
        there being one, never about there being none."""
        ...

    def body(self, body: Body, encoded: bytes) -> Body:
        """`body` without secrets: the very same object when it has none. `encoded` is its JSON,
        which is quicker to look through than the object."""
        ...

    def stream(self) -> TextStream: ...
