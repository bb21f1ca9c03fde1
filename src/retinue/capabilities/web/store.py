"""Results of searches and fetches of a run, by id, for as long as the outputs of the run are kept.

They are stored with the other outputs, so a resumed run still has them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins

_ID = re.compile(r"web-[0-9a-f]{8}")


class Result(Struct, frozen=True):
    """One result of a search, or one page."""

    url: str
    title: str = ""
    snippet: str = ""
    source: str = ""
    content: str = ""
    truncated: bool = False
    content_type: str = ""
    warning: str = ""


class StoredQuery(Struct, frozen=True):
    """The results of one query; of a fetch, all pages under no query."""

    query: str
    results: tuple[Result, ...] = ()


class StoredAnswer(Struct, frozen=True):
    id: str
    kind: Literal["search", "fetch"]
    found: tuple[StoredQuery, ...]


def results_of(found: Sequence[StoredQuery]) -> list[Result]:
    """Return the results of all queries, in order."""
    return [result for each in found for result in each.results]


class Store:
    """The answers of one run, in a folder of files. A file that cannot be read counts as missing."""

    def __init__(self, outputs: Path, *, most: int = 100) -> None:
        self._folder = outputs / "web"
        self._most = most

    def add(self, kind: Literal["search", "fetch"], found: Sequence[StoredQuery]) -> StoredAnswer:
        answer = StoredAnswer(f"web-{secrets.token_hex(4)}", kind, tuple(found))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{answer.id}.json"
        # Written beside and renamed: a reader never sees half an answer.
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        data = {"at": time.time(), **to_builtins(answer)}
        try:
            temporary.write_text(json.dumps(data, ensure_ascii=False), "utf-8", "replace")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        for old in self.ids()[self._most :]:
            with suppress(OSError):
                (self._folder / f"{old}.json").unlink()
        return answer

    def get(self, identifier: str) -> StoredAnswer | None:
        if not _ID.fullmatch(identifier):
            return None
        try:
            data = json.loads((self._folder / f"{identifier}.json").read_text("utf-8"))
            found = []
            for each in data["found"]:
                results = [Result(**result) for result in each["results"]]
                found.append(StoredQuery(str(each["query"]), tuple(results)))
            return StoredAnswer(identifier, data["kind"], tuple(found))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def ids(self) -> list[str]:
        """Return the ids of all answers, the newest first."""
        found: list[tuple[int, str]] = []
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    found.append((entry.stat().st_mtime_ns, entry.name.removesuffix(".json")))
        return [name for _, name in sorted(found, reverse=True)]


def as_value(answer: StoredAnswer) -> dict[str, Any]:
    """Return the answer for programs: names in camelCase, without empty values."""

    def plain(result: Result) -> dict[str, Any]:
        given = {
            "url": result.url,
            "title": result.title,
            "snippet": result.snippet,
            "source": result.source,
            "content": result.content,
            "contentType": result.content_type,
            "parseWarning": result.warning,
        }
        data: dict[str, Any] = {name: value for name, value in given.items() if value}
        if answer.kind == "fetch":
            data["truncated"] = result.truncated
        return data

    if answer.kind == "fetch":
        return {"responseId": answer.id, "results": list(map(plain, results_of(answer.found)))}
    queries = [{"query": each.query, "results": list(map(plain, each.results))} for each in answer.found]
    return {"responseId": answer.id, "queries": queries}
