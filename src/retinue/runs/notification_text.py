"""Texts about runs: how background runs ended, and what a run has said.

The message about an end is text for a model, in frames that only we can make: everything a run said is escaped, so no
output can close its frame or open another (guarantee 9), and what is shaped like an instruction is marked as data.
Fields come in one fixed order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from retinue.core.delegation import ChildView, Status
from retinue.core.events import AssistantEnded, Event, MessageAdded, ToolsEnded
from retinue.core.format import format_cost
from retinue.core.messages import AssistantMessage, ToolMessage, UserMessage, notification
from retinue.core.notice import ChildEnding, ChildrenEnded
from retinue.core.outcome import CUT_OFF
from retinue.tools.delegation.frame import as_data

if TYPE_CHECKING:
    from retinue.runs.run import Run


RESULT_CHARACTERS = 200


def spoken_lines(events: Iterable[Event]) -> list[str]:
    """Text of the agent and of its tool results, line by line, without blank lines."""
    lines: list[str] = []
    for event in events:
        match event.body:
            case AssistantEnded(_, message):
                lines += message.text.splitlines()
            case ToolsEnded(message):
                for result in message.results:
                    lines += result.text.splitlines()
            case _:
                pass
    return [line for line in lines if line.strip()]


def conversation_text(events: Iterable[Event]) -> str:
    """The conversation in blocks with a blank line between; tool results are shortened."""
    blocks: list[str] = []
    for event in events:
        match event.body:
            case MessageAdded(message):
                blocks.append(f"[User]: {message.text.strip()}")
            case AssistantEnded(_, answer):
                blocks += _answer(answer)
            case ToolsEnded(results):
                blocks += _results(results)
            case _:
                pass
    return "\n\n".join(blocks)


def _answer(message: AssistantMessage) -> list[str]:
    blocks = [f"[Assistant]: {message.text.strip()}"] if message.text.strip() else []
    if message.tool_calls:
        names = "\n".join(f"  Tool: {call.name or 'unknown'}" for call in message.tool_calls)
        blocks.append(f"[Tool Calls]:\n{names}")
    return blocks


def _results(message: ToolMessage) -> list[str]:
    return [f"[Tool Result ({result.name})]: {_cut(result.text.strip())}" for result in message.results]


def _cut(text: str) -> str:
    return text if len(text) <= RESULT_CHARACTERS else text[:RESULT_CHARACTERS] + "…"


SINGLE_PREVIEW = 6_000
GROUP_PREVIEW = 2_000
GROUP_TOTAL = 24_000
"""Characters of results that one message of many ends may have: of more ends, each has less."""
LEAST_PREVIEW = 300
NOTE_LENGTH = 1_000
_UNREAD = 20

LABELS: dict[Status, str] = {
    "completed": "Done",
    "steered": "Wrapped up (turn limit)",
    "aborted": "Aborted (max turns exceeded)",
    "stopped": "Stopped",
    "timeout": "Timed out",
    "over-budget": "Stopped (budget spent)",
    "refused": "Refused (no language model)",
}
_NOTES: dict[Status, str] = {
    "steered": " — wrapped up at its turn limit; the result may be partial",
    "aborted": " — hit its turn limit; the result may be incomplete",
    "stopped": " — stopped before it had finished; the result is partial",
    "timeout": " — ran out of time; the result is partial",
    "over-budget": " — its budget was spent; the result is partial",
    "refused": " — refused, because no language model is set up",
    "interrupted": " — its process ended while it worked; it can be resumed by its task id",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def status_label(view: ChildView) -> str:
    """How a run stands, for people and models."""
    if _is_truncated(view):
        return f"{LABELS[view.status]} ({CUT_OFF})"
    if _is_stopped_by_user(view):
        return f"{LABELS['stopped']} by the user"
    if view.status in LABELS:
        return LABELS[view.status]
    return f"Error: {view.error or 'unknown'}" if view.status == "error" else view.status.capitalize()


def status_note(view: ChildView) -> str:
    """What to add for a parent that might take a partial result for a whole one."""
    if _is_truncated(view):
        return f" — its answer was {CUT_OFF}; the result is incomplete"
    if _is_stopped_by_user(view):
        return " — the result is partial; leave it: do not resume or repeat it unless the user asks you to"
    return _NOTES.get(view.status, "")


def _is_stopped_by_user(view: ChildView) -> bool:
    return view.outcome is not None and view.outcome.stopped_by == "person"


def _is_truncated(view: ChildView) -> bool:
    return view.outcome is not None and view.outcome.truncated


def escape(text: str) -> str:
    """`text` as content of a frame: no tag, no control character. Tabs and line feeds stay."""
    plain = _CONTROL.sub("", text)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def announcement(
    views: Sequence[ChildView],
    *,
    group: bool = False,
    partial: bool = False,
    show_cost: bool = False,
    head: str | None = None,
) -> UserMessage:
    """Return one message for one or several ended runs. `head` is the first line in place of the usual one."""
    limit = _preview_limit(len(views), group)
    text = _text(views, limit, group=group, partial=partial, show_cost=show_cost, head=head)
    return notification(text, ChildrenEnded(tuple(ending(view, limit) for view in views), group, partial))


def ending(view: ChildView, limit: int = SINGLE_PREVIEW) -> ChildEnding:
    """Return how a run ended, with at most `limit` characters of its answer."""
    model = view.outcome.model if view.outcome is not None else ""
    counted = view.usage.is_counted(view.turns, model)
    return ChildEnding(
        id=view.id,
        status=view.status,
        label=" ".join(status_label(view).split()),
        description=" ".join(view.description.split()) or view.agent,
        result=view.text.strip()[:limit],
        truncated=_is_truncated(view),
        stopped_by_person=_is_stopped_by_user(view),
        transcript=view.transcript or "",
        branch=(view.outcome.branch if view.outcome is not None else None) or "",
        notes=tuple(dict.fromkeys(view.notes)),
        tool_uses=view.tool_uses,
        tokens=view.usage.total_tokens if counted else None,
        duration_ms=view.duration_ms,
    )


def _preview_limit(count: int, group: bool) -> int:
    if not group:
        return SINGLE_PREVIEW
    return min(GROUP_PREVIEW, max(GROUP_TOTAL // count, LEAST_PREVIEW))


def _text(
    views: Sequence[ChildView], limit: int, *, group: bool, partial: bool, show_cost: bool, head: str | None
) -> str:
    blocks = [_block(view, limit, show_cost) for view in views]
    if not group:
        return "\n\n".join(filter(None, (head, *blocks)))
    if head is None:
        head = f"Background agent group completed: {len(views)} agent(s) finished"
        head += " (partial — others still running)" if partial else ""
    hint = "Use get_subagent_result with an id above for the whole result of an agent."
    return "\n\n".join([head, *blocks, *_group_total(views, show_cost), hint])


def roster(parent: Run) -> str:
    """The children of a run that it must not forget: those at work, and those whose result it
    has not read."""
    live = [child for child in parent.children if child.live]
    unread = [child for child in parent.children if not child.live and not child.consumed][-_UNREAD:]
    parts = []
    if live:
        head = "These agents that you started are still at work; you will be told when each has ended:"
        parts.append("\n".join([head, *map(_roster_line, live)]))
    if unread:
        head = "These have ended; get_subagent_result has what they found:"
        parts.append("\n".join([head, *map(_roster_line, unread)]))
    return "\n\n".join(parts)


def _roster_line(child: Run) -> str:
    return f"- {child.id} ({child.agent}, {child.status}): {escape(child.state.description)}"


def _block(view: ChildView, limit: int, show_cost: bool) -> str:
    lines = ["<task-notification>", f"<task-id>{escape(view.id)}</task-id>"]
    if view.call_id:
        lines.append(f"<tool-use-id>{escape(view.call_id)}</tool-use-id>")
    if view.transcript:
        lines.append(f"<output-file>{escape(view.transcript)}</output-file>")
    label = escape(" ".join(status_label(view).split()))
    lines.append(f"<status>{label}</status>")
    about = escape(" ".join(view.description.split()) or view.agent)
    lines.append(f'<summary>Agent "{about}" {label}{status_note(view)}</summary>')
    lines.append(f"<result>{_preview(view, limit)}</result>")
    if view.outcome is not None and view.outcome.branch:
        lines.append(f"<branch>{escape(view.outcome.branch)}</branch>")
    notes = [escape(" ".join(note.split())) for note in dict.fromkeys(view.notes)]
    lines += [f"<note>{note[:NOTE_LENGTH]}</note>" for note in notes if note]
    if view.usage.total_tokens or view.tool_uses:
        lines.append(_usage(view, show_cost))
    lines.append("</task-notification>")
    return "\n".join(lines)


def _group_total(views: Sequence[ChildView], show_cost: bool) -> list[str]:
    """What several agents cost together, if that is known of all of them."""
    costs = [view.usage.cost_usd for view in views]
    known = [cost for cost in costs if cost is not None]
    if not show_cost or len(views) < 2 or len(known) < len(costs) or not format_cost(sum(known)):
        return []
    return [f"Estimated cost of all {len(views)} agents: ${sum(known):.4f}"]


def _preview(view: ChildView, limit: int) -> str:
    text = view.text.strip()
    if not text:
        return "No output."
    if len(text) <= limit:
        return escape(as_data(text))
    where = f'get_subagent_result with agent_id "{escape(view.id)}"'
    if view.transcript:
        where += ", or the output-file above"
    return f"{escape(as_data(text[:limit]))}\n… (truncated; the rest: {where})"


def _usage(view: ChildView, show_cost: bool) -> str:
    model = view.outcome.model if view.outcome is not None else ""
    counted = view.usage.is_counted(view.turns, model)
    parts = [
        f"<total_tokens>{view.usage.total_tokens if counted else 'unknown'}</total_tokens>",
        f"<tool_uses>{view.tool_uses}</tool_uses>",
    ]
    if view.context_percent is not None:
        parts.append(f"<context_percent>{round(view.context_percent)}</context_percent>")
    if view.compactions:
        parts.append(f"<compactions>{view.compactions}</compactions>")
    if show_cost and format_cost(view.usage.cost_usd):
        parts.append(f"<estimated_cost_usd>{view.usage.cost_usd:.4f}</estimated_cost_usd>")
    parts.append(f"<duration_ms>{view.duration_ms}</duration_ms>")
    return f"<usage>{''.join(parts)}</usage>"
