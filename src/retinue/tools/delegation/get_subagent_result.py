"""get_subagent_result: how an agent stands, and what it found."""

from __future__ import annotations

from typing import ClassVar

from retinue.core.delegation import ChildView, Refusal, WaitEnd
from retinue.core.format import format_wait
from retinue.core.tool import ToolContext, ToolOutput, failed, ok
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, Properties
from retinue.tools.delegation.base import ID_NAMES, DelegationTool, agent_id, bounded, flag_property, text_property
from retinue.tools.delegation.frame import one_line
from retinue.tools.delegation.views import (
    NO_OUTPUT,
    Peek,
    error_text,
    header,
    partial_text,
    peek_text,
    read_peek,
    refusal,
    succeeded,
)

_NOTIFIED = "You are notified automatically when it ends; wait: true waits for that."


class GetSubagentResultTool(DelegationTool):
    name = "get_subagent_result"
    required = ()
    properties: ClassVar[Properties] = {
        "agent_id": text_property("Id or name. Without one: a list"),
        "wait": flag_property("Wait for its end"),
    }
    hidden: ClassVar[Properties] = {
        "all": {"type": "boolean"},
        "verbose": {"type": "boolean"},
        "peek": {
            "type": "object",
            "properties": {"lines": {"type": "integer"}, "regex": {"type": "string"}, "after": {"type": "integer"}},
            "additionalProperties": False,
        },
    }
    aliases: ClassVar[Aliases] = {"agent_id": ID_NAMES, "wait": ("block", "blocking")}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        if given.find("agent_id") is None:
            from retinue.tools.delegation.manage import list_children

            return ok(list_children(self.delegation.children(), every=given.flag("all")))
        wanted, wait, verbose = agent_id(given), given.flag("wait"), given.flag("verbose")
        peek = None if verbose else read_peek(given)
        view = self.delegation.view(wanted)
        end: WaitEnd | None = None
        live = self.live()
        if wait and not isinstance(view, Refusal) and view.live:
            waited = await self.delegation.wait(wanted, live.wait_seconds, call_id)
            view, end = (waited, None) if isinstance(waited, Refusal) else (waited.view, waited.end)
        if isinstance(view, Refusal):
            return failed(refusal(view, self.delegation.children()))
        if peek is not None:
            body = await self._peek(view, peek, context)
        else:
            body = await _body(view, end, live.wait_seconds, live.max_concurrent, context)
        if verbose:
            body += await self._conversation(view, context)
        if not view.live:
            self.delegation.consume(view.id)
        return ok("\n".join([*header(view, show_cost=live.show_cost), "", body]))

    async def _peek(self, view: ChildView, peek: Peek, context: ToolContext) -> str:
        if not view.live and view.text.strip():
            lines, kind = view.text.split("\n"), "result"
        else:
            lines, kind = self.delegation.transcript_lines(view.id), "live output file" if view.live else "output file"
        if lines:
            return await peek_text(peek, lines, kind, context)
        return "No output yet for this agent." if view.live else NO_OUTPUT

    async def _conversation(self, view: ChildView, context: ToolContext) -> str:
        text = self.delegation.conversation(view.id)
        if not text:
            return ""
        shown = await bounded(text, view.id, context, label="conversation")
        return f"\n\n--- Agent Conversation ---\n{shown.text}"


async def _body(view: ChildView, end: WaitEnd | None, seconds: float, most: int, context: ToolContext) -> str:
    if view.live:
        return _still_at_work(view, end, seconds, most)
    if succeeded(view):
        return (await bounded(view.text, view.id, context)).text if view.text.strip() else NO_OUTPUT
    lines = [f"Error: {error_text(view)}"] if view.error or view.status == "error" else []
    partial = partial_text(view)
    if partial:
        lines += ["Partial output before the end:", (await bounded(partial, view.id, context)).text]
    return "\n".join(lines) or NO_OUTPUT


def _still_at_work(view: ChildView, end: WaitEnd | None, seconds: float, most: int) -> str:
    match end:
        case "timeout":
            first = f"Still not done after waiting {format_wait(seconds)}; it goes on."
        case "aborted":
            first = "The wait was broken off; the agent goes on."
        case "pending_message":
            first = "The wait ended early because a message for you is waiting: see to that first. The agent goes on."
        case "completed" | None:
            first = "The agent is still running." if view.status != "queued" else "The agent has not started yet."
    lines = [first]
    if view.status == "queued":
        lines.append(f"Position: queued (max {most} concurrent)")
    elif view.activity:
        lines.append(f"Now: {one_line(view.activity, 160)}")
    return "\n".join([*lines, _NOTIFIED])
