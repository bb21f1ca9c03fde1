"""Calls that could not be started, kept for a while so that a model need not write them again.

The caller gets a handle; calling again with the handle and only the corrected field runs the
stored call. A handle stays the same while the same call keeps failing.
"""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.delegation import Refusal, SpawnCall

KEEP_SECONDS = 600.0


class Stash:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, tuple[float, SpawnCall]] = {}

    def keep(self, call: SpawnCall) -> str:
        """Store `call` (under the handle it came with, if any) and return its handle."""
        self._forget()
        handle = call.retry or f"retry-{secrets.token_hex(4)}"
        self._calls[handle] = (self._clock.monotonic(), replace(call, retry=handle))
        return handle

    def take(self, call: SpawnCall) -> SpawnCall | Refusal:
        """The stored call of `call.retry` with what `call` says laid over it; `call` itself when
        it names no handle."""
        if call.retry is None:
            return call
        self._forget()
        stored = self._calls.get(call.retry)
        if stored is None:
            return Refusal(
                code="UNKNOWN_RETRY",
                message=f'There is no stored call "{call.retry}" (any more). Make the whole call again.',
            )
        said = {name: value for name in _NAMES if (value := getattr(call, name)) not in (None, "")}
        return replace(stored[1], **said)

    def drop(self, handle: str | None) -> None:
        """The call has been started: its handle is no longer needed."""
        if handle is not None:
            self._calls.pop(handle, None)

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - KEEP_SECONDS
        self._calls = {handle: entry for handle, entry in self._calls.items() if entry[0] >= oldest}


_NAMES = tuple(name for name in SpawnCall.__struct_fields__ if name != "vocabulary")
