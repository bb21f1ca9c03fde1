"""Shared parts of the web tools: stored results, errors with a stable code, and how results are shown.

Results of searches and fetches are stored by id with the other outputs of a run, so a resumed run still has them. Text
from the web is framed by two lines that it cannot contain. Shown results are bounded, and name the call for the next
part.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import MsgspecError, Struct, field, to_builtins
from msgspec.json import decode

from retinue.tools.base import Arguments
from retinue.tools.coded import CodedError, CodedTool
from retinue.tools.delegation.frame import NOTE, frame_untrusted
from retinue.tools.safe_dir import replace_entry

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web


_RESPONSE_ID = re.compile(r"web-[0-9a-f]{8}")


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
    """The results of one query. All pages of a fetch are under an empty query."""

    query: str
    results: tuple[Result, ...] = ()


class StoredAnswer(Struct, frozen=True):
    id: str
    kind: Literal["search", "fetch"]
    queries: tuple[StoredQuery, ...] = field(name="found")


def results_of(queries: Sequence[StoredQuery]) -> list[Result]:
    """Return the results of all queries, in order."""
    results: list[Result] = []
    for query in queries:
        results += query.results
    return results


class Store:
    """The answers of one run, one file each. A file that cannot be read is treated as missing."""

    def __init__(self, outputs: Path, *, limit: int = 100) -> None:
        self._folder = outputs / "web"
        self._limit = limit

    def add(self, kind: Literal["search", "fetch"], queries: Sequence[StoredQuery]) -> StoredAnswer:
        answer = StoredAnswer(f"web-{secrets.token_hex(4)}", kind, tuple(queries))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{answer.id}.json"
        data = {"at": time.time(), **to_builtins(answer)}
        content = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
        replace_entry(None, str(path), content, 0o600)
        for old in self.ids()[self._limit :]:
            with suppress(OSError):
                (self._folder / f"{old}.json").unlink()
        return answer

    def get(self, identifier: str) -> StoredAnswer | None:
        if not _RESPONSE_ID.fullmatch(identifier):
            return None
        try:
            return decode((self._folder / f"{identifier}.json").read_bytes(), type=StoredAnswer)
        except (OSError, MsgspecError):
            return None

    def ids(self) -> list[str]:
        """Return the ids of all answers, the newest first."""
        entries: list[tuple[int, str]] = []
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    entries.append((entry.stat().st_mtime_ns, entry.name.removesuffix(".json")))
        return [name for _, name in sorted(entries, reverse=True)]


def as_value(answer: StoredAnswer) -> dict[str, Any]:
    """Return the answer for programs: names in camelCase, without empty values."""

    def plain(result: Result) -> dict[str, Any]:
        fields = {
            "url": result.url,
            "title": result.title,
            "snippet": result.snippet,
            "source": result.source,
            "content": result.content,
            "contentType": result.content_type,
            "parseWarning": result.warning,
        }
        data: dict[str, Any] = {name: value for name, value in fields.items() if value}
        if answer.kind == "fetch":
            data["truncated"] = result.truncated
        return data

    if answer.kind == "fetch":
        return {"responseId": answer.id, "results": list(map(plain, results_of(answer.queries)))}
    queries = [{"query": query.query, "results": list(map(plain, query.results))} for query in answer.queries]
    return {"responseId": answer.id, "queries": queries}


WEB_SECONDS = 20.0
"""How long one page or one search may take."""


class WebError(CodedError):
    """A failed call of a web tool. `limited`: it failed because of a rate limit."""

    def __init__(
        self, code: str, message: str, *, hosts: tuple[str, ...] = (), provider: str = "", limited: bool = False
    ) -> None:
        super().__init__(code, message, hosts, provider)
        self.limited = limited

    @property
    def effect_code(self) -> str:
        # The effect has one code for all rate limits; the model gets the code of the service.
        return "RATE_LIMITED" if self.limited else self.code


_MIN_SHOWN_CHARACTERS = 2_000
_MAX_SNIPPET_CHARACTERS = 600


def show_pages(answer: StoredAnswer, results: list[Result], *, offset: int, limit: int) -> str:
    """Return the pages one after another, at most `limit` characters in all, each from `offset` on."""
    # With many pages an equal share would be too short to be useful.
    share = max(_MIN_SHOWN_CHARACTERS, limit // max(1, len(results)))
    parts = [f"responseId: {answer.id}", NOTE]
    for result in results:
        text = result.content
        end = min(len(text), offset + share)
        span = f"{offset + 1}-{end} of {len(text)}" if text else "0"
        parts.append(
            frame_untrusted(
                text[offset:end] or "(no text)",
                source=result.url,
                title=result.title,
                type=result.content_type,
                characters=span,
            )
        )
        parts += _remarks(answer, result, end)
    return "\n\n".join(parts)


def _remarks(answer: StoredAnswer, result: Result, end: int) -> list[str]:
    remarks = []
    if result.warning:
        remarks.append(f"[{result.warning}]")
    if end < len(result.content):
        where = f'get_search_content with responseId "{answer.id}", url "{result.url}", offset {end}'
        remarks.append(f"[{len(result.content) - end:,} more characters; continue with {where}]")
    elif result.truncated:
        remarks.append("[The page is longer; the rest was cut off when it was fetched.]")
    return remarks


def show_search(
    answer: StoredAnswer, queries: tuple[StoredQuery, ...], provider: str = "", notes: tuple[str, ...] = ()
) -> str:
    head = f"responseId: {answer.id}"
    if provider:
        head += f" (searched with {provider})"
    parts = [head, NOTE]
    for query in queries:
        lines: list[str] = []
        for number, result in enumerate(query.results, 1):
            lines += _lines(number, result)
        parts.append(frame_untrusted("\n".join(lines) or "No results.", source=f"web search: {query.query}"))
    parts += [f"[{note}]" for note in notes]
    return "\n\n".join(parts)


def _lines(number: int, result: Result) -> list[str]:
    lines = [f"{number}. {result.title or '(no title)'}", f"   {result.url}"]
    if result.snippet:
        lines.append("   " + " ".join(result.snippet.split())[:_MAX_SNIPPET_CHARACTERS])
    if result.content:
        lines.append(f"   (page read: {len(result.content):,} characters, kept for get_search_content)")
    return lines


class WebTool(CodedTool):
    """A tool of the web. `web` returns the service, which is not loaded before the first call."""

    file_error_code = "STORAGE"
    file_error_message = "The results could not be stored"

    def __init__(self, web: Callable[[], Web]) -> None:
        super().__init__()
        self.web = web


def _as_list(value: Any) -> list[Any]:
    """Return the value as a list. Models also write a list as text."""
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    return value if isinstance(value, list) else [value]


def texts(arguments: Arguments, one: str, many: str, *others: str) -> list[str]:
    """Return the texts of both arguments, trimmed and without duplicates, in order."""
    single = arguments.find(one, *others)
    several = arguments.find(many)
    values: list[str] = []
    for value in (single, several):
        if value is None:
            continue
        for text in _as_list(value):
            if not isinstance(text, str):
                raise arguments.wrong(many, "a list of strings", text)
            if text.strip():
                values.append(text.strip())
    return list(dict.fromkeys(values))
