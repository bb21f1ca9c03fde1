"""Answers as a model reads them: framed, bounded, with a way to the rest."""

from __future__ import annotations

from retinue.capabilities.web.frame import NOTE, framed
from retinue.capabilities.web.store import Answer, Found, Result

_LEAST = 2_000
_SNIPPET = 600


def show_pages(answer: Answer, results: list[Result], *, offset: int, most: int) -> str:
    """The pages side by side, `most` characters in all, each from `offset` on."""
    share = max(_LEAST, most // max(1, len(results)))
    parts = [f"responseId: {answer.id}", NOTE]
    for result in results:
        text = result.content
        end = min(len(text), offset + share)
        span = f"{offset + 1}-{end} of {len(text)}" if text else "0"
        parts.append(
            framed(
                text[offset:end] or "(no text)",
                source=result.url,
                title=result.title,
                type=result.content_type,
                characters=span,
            )
        )
        parts += _remarks(answer, result, end)
    return "\n\n".join(parts)


def _remarks(answer: Answer, result: Result, end: int) -> list[str]:
    found = [f"[{result.warning}]"] if result.warning else []
    if end < len(result.content):
        where = f'get_search_content with responseId "{answer.id}", url "{result.url}", offset {end}'
        found.append(f"[{len(result.content) - end:,} more characters; continue with {where}]")
    elif result.truncated:
        found.append("[The page is longer; the rest was cut off when it was fetched.]")
    return found


def show_search(answer: Answer, found: tuple[Found, ...], provider: str = "", notes: tuple[str, ...] = ()) -> str:
    parts = [f"responseId: {answer.id}" + (f" (searched with {provider})" if provider else ""), NOTE]
    for each in found:
        lines = [line for number, result in enumerate(each.results, 1) for line in _lines(number, result)]
        parts.append(framed("\n".join(lines) or "No results.", source=f"web search: {each.query}"))
    parts += [f"[{note}]" for note in notes]
    return "\n\n".join(parts)


def _lines(number: int, result: Result) -> list[str]:
    lines = [f"{number}. {result.title or '(no title)'}", f"   {result.url}"]
    if result.snippet:
        lines.append("   " + " ".join(result.snippet.split())[:_SNIPPET])
    if result.content:
        lines.append(f"   (page read: {len(result.content):,} characters, kept for get_search_content)")
    return lines
