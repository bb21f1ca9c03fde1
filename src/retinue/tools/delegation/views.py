"""A run in words for the model that started it: one place, so that every tool says the same.

Lines of the harness come first and what an agent said stands in its frame; nothing an agent
chose, from its description to an error text, can add a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.core.delegation import ChildView, Refusal, Status
from retinue.core.format import format_cost, format_count, format_duration, session_tokens
from retinue.core.outcome import CUT_OFF, SUCCESS
from retinue.tools.delegation.frame import one_line

NO_OUTPUT = "No output."
_LISTED = 10

_NOTES: dict[Status, str] = {
    "steered": "it wrapped up at its turn limit, so the work may be unfinished",
    "aborted": "it went over its turn limit and was cut off, so the work is probably unfinished",
    "stopped": "it was stopped before it was done, so the work is unfinished",
    "timeout": "it ran out of time, so the work is unfinished",
    "over-budget": "it ran out of budget, so the work is unfinished",
    "interrupted": "its process ended while it worked; resume takes it up again",
}
_RETRY_FIELDS = {
    "UNKNOWN_MODEL": "model",
    "MODEL_NOT_IN_SCOPE": "model",
    "UNKNOWN_AGENT": "subagent_type",
    "AGENT_DISABLED": "subagent_type",
    "SUBAGENT_DISABLED": "subagent_type",
}
_NOT_FOUND = frozenset({"UNKNOWN_RUN", "NOT_FOUND", "AGENT_NOT_FOUND"})


def succeeded(view: ChildView) -> bool:
    return view.status in SUCCESS


def status_note(view: ChildView) -> str:
    """What a reader must know about how it ended; empty for a plain success."""
    if view.outcome is not None and view.outcome.truncated:
        return f"its answer was {CUT_OFF}, so the end is missing; resume it to have the rest"
    if view.outcome is not None and view.outcome.stopped_by == "person":
        return "the user stopped it, so the work is unfinished; leave it, and do not resume or repeat it unasked"
    return _NOTES.get(view.status, "")


def shown_name(view: ChildView) -> str:
    return one_line(view.display_name or view.agent, 128)


def error_text(view: ChildView) -> str:
    """Why it failed, on one line; never empty."""
    return one_line(view.error or "", 1_000) or status_note(view) or "the run ended without saying why"


def partial_text(view: ChildView) -> str:
    """What a failed run had said, unless that is nothing but its error."""
    text = view.text.strip()
    return "" if text == (view.error or "").strip() else text


def stats(view: ChildView, *, show_cost: bool = False) -> str:
    """`3 tool uses, 33.8k tokens, ~$0.0042`."""
    uses = "1 tool use" if view.tool_uses == 1 else f"{view.tool_uses} tool uses"
    cost = format_cost(view.usage.cost_usd) if show_cost else ""
    return ", ".join(part for part in (uses, _tokens(view), cost) if part)


def identity(view: ChildView) -> list[str]:
    """The lines by which a parent finds the run again."""
    lines = [f"Agent ID: {view.id}"]
    if view.handle:
        lines.append(f"Name: {one_line(view.handle, 128)}")
    lines.append(f"Type: {one_line(view.agent, 128)}")
    if view.description:
        lines.append(f"Description: {one_line(view.description)}")
    if view.transcript:
        lines.append(f"Output file: {view.transcript}")
    return lines


def header(view: ChildView, *, show_cost: bool = False) -> list[str]:
    """The first lines of `get_subagent_result`."""
    note = status_note(view)
    fields = [
        f"Type: {one_line(view.agent, 128)}",
        f"Status: {view.status}{f' ({note})' if note else ''}",
        f"Tool uses: {view.tool_uses}",
        _tokens(view),
    ]
    if show_cost and format_cost(view.usage.cost_usd):
        fields.append(f"Cost: {format_cost(view.usage.cost_usd)}")
    if view.context_percent is not None:
        fields.append(f"Context: {round(view.context_percent)}%")
    if view.compactions:
        fields.append(f"Compactions: {view.compactions}")
    fields.append(f"Duration: {format_duration(view.duration_ms)}")
    lines = [f"Agent: {view.id}", " | ".join(field for field in fields if field)]
    if view.description:
        lines.append(f"Description: {one_line(view.description)}")
    if view.transcript:
        lines.append(f"Output file: {view.transcript}")
    return [*lines, *notes(view.notes)]


def state(view: ChildView) -> str:
    """`33.8k tokens · 3 tool uses · context 62% full · 2 compactions`."""
    parts = [_tokens(view), "1 tool use" if view.tool_uses == 1 else f"{view.tool_uses} tool uses"]
    if view.context_percent is not None:
        parts.append(f"context {round(view.context_percent)}% full")
    if view.compactions:
        parts.append("1 compaction" if view.compactions == 1 else f"{view.compactions} compactions")
    return " · ".join(part for part in parts if part)


def notes(said: Iterable[str]) -> list[str]:
    """Each thing the caller must know, once."""
    return [f"Note: {one_line(note, 1_000)}" for note in dict.fromkeys(said) if note]


def listed(view: ChildView) -> str:
    """One run as one line of a list."""
    name = f" @{one_line(view.handle, 128)}" if view.handle else ""
    line = (
        f"{view.id}{name} [{view.status}] {shown_name(view)}: {one_line(view.description, 100) or '(no description)'}"
    )
    if view.live:
        doing = one_line(view.activity, 80)
        return f"{line} - {doing}" if doing else line
    unread = "" if view.consumed else ", not read yet"
    trouble = "" if succeeded(view) else f" - {one_line(error_text(view), 160)}"
    return f"{line} ({stats(view)}, {format_duration(view.duration_ms)}{unread}){trouble}"


def refusal(refused: Refusal, children: Sequence[ChildView] = ()) -> str:
    """Why nothing happened and what to do. A stored call says how to repeat it; an unknown id
    comes with the ids there are, each once."""
    text = refused.message.strip() or f"Refused ({refused.code})."
    if refused.retry:
        field = _RETRY_FIELDS.get(refused.code)
        example = f'{{"retry": "{refused.retry}"' + (f', "{field}": "..."}}' if field else "}")
        rest = "" if field else " and what should change"
        text += f"\nThe call is kept for 10 minutes: call Agent again with only {example}{rest}."
    if refused.code in _NOT_FOUND:
        others = [view for view in children if view.id not in text]
        known = [listed(view) for view in sorted(others, key=lambda view: not view.live)[:_LISTED]]
        if known:
            text += "\n" + "\n".join(["Agents you started:", *known])
        elif not children:
            text += "\nYou have started no agents."
    return text


def _tokens(view: ChildView) -> str:
    count = session_tokens(view.usage)
    return f"{format_count(count)} tokens" if count else ""
