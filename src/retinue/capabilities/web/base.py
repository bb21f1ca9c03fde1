"""Shared parts of the web tools: errors with a stable code, a frame around foreign text, and how results are shown.

Text from the web stands between two lines that it cannot write itself. Shown results are bounded, and say how to read
the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from retinue.capabilities.web.store import Result, StoredAnswer, StoredQuery
from retinue.core.messages import Text
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.arguments import Arguments, ToolError
from retinue.tools.base import BuiltinTool
from retinue.tools.delegation.frame import NOTE, frame_untrusted

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web


SECONDS = 20.0
"""How long one page or one search may take."""


class WebError(Exception):
    """A call of a web tool that failed. `hosts` were contacted; `provider` was asked."""

    def __init__(
        self, code: str, message: str, *, hosts: tuple[str, ...] = (), provider: str = "", limited: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hosts = hosts
        self.provider = provider
        self.limited = limited
        """Whether it failed because there were too many requests."""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


_LEAST = 2_000
_SNIPPET = 600


def show_pages(answer: StoredAnswer, results: list[Result], *, offset: int, most: int) -> str:
    """Return the pages one after another, `most` characters in all, each from `offset` on."""
    # With many pages a fair share would be too short to tell what a page is about.
    share = max(_LEAST, most // max(1, len(results)))
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
    found = []
    if result.warning:
        found.append(f"[{result.warning}]")
    if end < len(result.content):
        where = f'get_search_content with responseId "{answer.id}", url "{result.url}", offset {end}'
        found.append(f"[{len(result.content) - end:,} more characters; continue with {where}]")
    elif result.truncated:
        found.append("[The page is longer; the rest was cut off when it was fetched.]")
    return found


def show_search(
    answer: StoredAnswer, found: tuple[StoredQuery, ...], provider: str = "", notes: tuple[str, ...] = ()
) -> str:
    head = f"responseId: {answer.id}"
    if provider:
        head += f" (searched with {provider})"
    parts = [head, NOTE]
    for each in found:
        lines: list[str] = []
        for number, result in enumerate(each.results, 1):
            lines += _lines(number, result)
        parts.append(frame_untrusted("\n".join(lines) or "No results.", source=f"web search: {each.query}"))
    parts += [f"[{note}]" for note in notes]
    return "\n\n".join(parts)


def _lines(number: int, result: Result) -> list[str]:
    lines = [f"{number}. {result.title or '(no title)'}", f"   {result.url}"]
    if result.snippet:
        lines.append("   " + " ".join(result.snippet.split())[:_SNIPPET])
    if result.content:
        lines.append(f"   (page read: {len(result.content):,} characters, kept for get_search_content)")
    return lines


class WebTool(BuiltinTool):
    """A tool of the web. `web` returns the service, which is not loaded before the first call."""

    def __init__(self, web: Callable[[], Web]) -> None:
        super().__init__()
        self.web = web

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except WebError as error:
            return failure(error)
        except ToolError as error:
            return failure(WebError("INVALID_INPUT", str(error)))
        except OSError as error:
            return failure(WebError("STORAGE", f"What was found could not be kept: {error.strerror or error}."))


def failure(error: WebError) -> ToolOutput:
    # The effect has one code for all that sent too many requests; the model gets the code of the service.
    code = "RATE_LIMITED" if error.limited else error.code
    effect = ToolEffect(status="failed", hosts=error.hosts, provider=error.provider or None, code=code)
    value = {"error": {"code": error.code, "message": error.message}}
    return ToolOutput((Text(str(error)),), is_error=True, effect=effect, value=value)


def _listed(value: Any) -> list[Any]:
    """Return the value as a list. Models also write a list as text."""
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    return value if isinstance(value, list) else [value]


def texts(given: Arguments, one: str, many: str, *others: str) -> list[str]:
    """Return the texts given under either name, trimmed and without duplicates, in order."""
    single = given.find(one, *others)
    several = given.find(many)
    found: list[str] = []
    for value in (single, several):
        if value is None:
            continue
        for text in _listed(value):
            if not isinstance(text, str):
                raise given.wrong(many, "a list of texts", text)
            if text.strip():
                found.append(text.strip())
    return list(dict.fromkeys(found))
