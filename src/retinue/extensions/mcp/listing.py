"""The tools of a server as it lists them, and their memory on disk.

A server's list is remembered under the digest of its configuration, so that a run can be told
of its tools without starting it. What is remembered is checked again whenever it is connected.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

import orjson

from retinue.domain.lean import dataclass
from retinue.settings.jsonfile import read_object
from retinue.settings.places import private_folder

MEMORY_SECONDS = 24 * 3600
MOST_TOOLS = 2_000
_DESCRIPTION = 8_000
_SCHEMA_BYTES = 128 * 1024
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Listed:
    """One tool of a server. `read_only` is what the server claims of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    tools: tuple[Listed, ...]
    uses_roots: bool = False
    problems: tuple[str, ...] = ()
    at: float = field(default=0.0)


def listing(raw: Iterable[Any], *, uses_roots: bool = False) -> Listing:
    """From the library's `Tool` objects. A tool that no model could be offered is left out, and
    said; a name that comes twice counts once."""
    kept: dict[str, Listed] = {}
    problems: list[str] = []
    for tool in raw:
        made = _listed(tool)
        if made.problem is not None:
            problems.append(f"{made.name[:80]!r}: {made.problem}")
        elif len(kept) >= MOST_TOOLS:
            problems.append(f"it has more than {MOST_TOOLS} tools: the rest is left out")
            break
        else:
            kept.setdefault(made.name, made)
    return Listing(tuple(kept.values()), uses_roots, tuple(problems), time.time())


def _listed(tool: Any) -> Listed:
    schema = tool.input_schema
    description = _CONTROL.sub("", tool.description or tool.title or "").strip()[:_DESCRIPTION]
    read_only = bool(tool.annotations and tool.annotations.read_only_hint)
    if not tool.name or len(tool.name) > 200:
        return Listed(tool.name, "", {}, problem="its name has no usable length")
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return Listed(tool.name, "", {}, problem="its parameters are not a JSON object")
    try:
        size = len(orjson.dumps(schema))
    except (TypeError, ValueError):
        return Listed(tool.name, "", {}, problem="its parameters are not JSON")
    if size > _SCHEMA_BYTES:
        return Listed(tool.name, "", {}, problem=f"its parameters take more than {_SCHEMA_BYTES} bytes")
    return Listed(tool.name, description, {"type": "object", "properties": {}, **schema}, read_only)


class ListingMemory:
    """One small file per configuration. Losing it costs a connection, nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, digest: str) -> Listing | None:
        """None when there is none, or it is too old to build on."""
        data = read_object(self._folder / f"{digest}.json").data
        try:
            at = float(data["at"])
            tools = tuple(Listed(t["name"], t["description"], t["parameters"], t["read_only"]) for t in data["tools"])
            found = Listing(tools, bool(data["uses_roots"]), (), at)
        except (KeyError, TypeError, ValueError):
            return None
        return found if 0 <= time.time() - at < MEMORY_SECONDS else None

    def keep(self, digest: str, found: Listing) -> None:
        tools = [
            {"name": t.name, "description": t.description, "parameters": t.parameters, "read_only": t.read_only}
            for t in found.tools
        ]
        data = orjson.dumps({"at": found.at, "uses_roots": found.uses_roots, "tools": tools})
        with suppress(OSError):
            path = private_folder(self._folder) / f"{digest}.json"
            fresh = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
            fresh.write_bytes(data)
            fresh.chmod(0o600)
            fresh.replace(path)

    def forget(self, digest: str) -> None:
        with suppress(OSError):
            (self._folder / f"{digest}.json").unlink(missing_ok=True)
