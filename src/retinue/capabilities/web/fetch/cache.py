"""Pages that were fetched before, kept on disk: fresh ones are used as they are, older ones after
their server has said that nothing changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from retinue.core.lean import dataclass

_KEPT_HEADERS = ("content-type", "etag", "last-modified", "content-language", "content-disposition")
_LONGEST_FRESH = 86_400.0
_MAX_AGE = re.compile(r"(?:^|[\s,])(?:s-)?max-?age=\"?(\d{1,10})")


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer. `headers` are those that matter later, with lower-case names."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    fresh_until: float

    @property
    def conditions(self) -> dict[str, str]:
        """Headers that ask whether it has changed; empty when that cannot be asked."""
        asked = {"if-none-match": self.headers.get("etag"), "if-modified-since": self.headers.get("last-modified")}
        return {name: value for name, value in asked.items() if value}


class Cache:
    """One file per page in a folder that is private to the user. What cannot be read or written
    is as if it were not there. `seconds` is how long a page without a word of its own is fresh."""

    def __init__(self, folder: Path, *, most: int = 200, seconds: float = 300.0) -> None:
        self._folder = folder
        self._most = most
        self._seconds = seconds

    def get(self, url: str, space: str) -> Kept | None:
        """`space` keeps apart what was fetched under different rights."""
        try:
            head, _, body = self._path(url, space).read_bytes().partition(b"\n")
            data = json.loads(head)
            if data["url"] != url or data["size"] != len(body):
                return None
            headers = {str(name): str(value) for name, value in data["headers"].items()}
            return Kept(url, headers, body, bool(data["truncated"]), float(data["fresh_until"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, url: str, space: str, headers: Mapping[str, str], body: bytes, truncated: bool) -> None:
        until = fresh_until(headers, self._seconds)
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        if until is None or (until <= time.time() and not ("etag" in kept or "last-modified" in kept)):
            with suppress(OSError):
                self._path(url, space).unlink(missing_ok=True)
            return
        meta = {"url": url, "headers": kept, "truncated": truncated, "fresh_until": until, "size": len(body)}
        path = self._path(url, space)
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
            try:
                temporary.write_bytes(json.dumps(meta).encode() + b"\n" + body)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._evict()

    def refresh(self, kept: Kept, space: str, headers: Mapping[str, str]) -> None:
        """The server said that nothing changed."""
        self.put(kept.url, space, {**kept.headers, **headers}, kept.body, kept.truncated)

    def _path(self, url: str, space: str) -> Path:
        return self._folder / (hashlib.sha256(f"{space}\0{url}".encode()).hexdigest()[:40] + ".page")

    def _evict(self) -> None:
        found = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(self._folder) if entry.is_file()]
        for _, path in sorted(found)[: max(0, len(found) - self._most)]:
            Path(path).unlink(missing_ok=True)


def fresh_until(headers: Mapping[str, str], seconds: float) -> float | None:
    """The moment up to which an answer may be used without asking again; None if it may not be
    kept at all."""
    control = headers.get("cache-control", "").lower()
    if "no-store" in control or headers.get("vary", "").strip() == "*":
        return None
    now = time.time()
    if "no-cache" in control:
        return now
    found = _MAX_AGE.search(control)
    return now + min(float(found[1]) if found else seconds, _LONGEST_FRESH)
