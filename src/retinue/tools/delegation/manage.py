"""get_subagent_result, list_subagents, steer_subagent and clear_subagents: tools for agents that were already
started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from retinue.core.delegation import Refusal, WaitEnd
from retinue.core.format import format_wait
from retinue.core.messages import Text
from retinue.core.run_state import ActiveRun
from retinue.core.tool import ToolContext, ToolOutput, failed, ok
from retinue.tools.base import Aliases, Arguments, Properties, ToolError
from retinue.tools.delegation.base import ID_NAMES, DelegationTool, agent_id, bound_text, flag_property, text_property
from retinue.tools.delegation.frame import one_line
from retinue.tools.delegation.views import (
    NO_OUTPUT,
    Peek,
    count_noun,
    error_text,
    header,
    list_line,
    partial_text,
    peek_text,
    queue_line,
    read_peek,
    refusal,
    shown_name,
    state,
)

MAX_SHOWN_SUCCESSES = 2
MAX_LISTED_AGENTS = 200


class ListSubagentsTool(DelegationTool):
    name = "list_subagents"
    required = ()
    properties: ClassVar[Properties] = {"all": flag_property("Older successes, too")}

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return ok(list_children(self.delegation.children(), every=arguments.flag("all")))


def list_children(children: tuple[ActiveRun, ...], *, every: bool) -> str:
    """Return one line for each agent. Unless `every`, only the newest successes are listed."""
    if not children:
        return "You have started no agents."
    chosen = list(children)
    if not every:
        chosen = _worth_showing(children)
    shown = chosen[:MAX_LISTED_AGENTS]
    lines = list(map(list_line, shown))
    hidden = len(chosen) - len(shown)
    older = len(children) - len(chosen)
    if hidden:
        lines.append(f"[{hidden} more are not shown]")
    if older:
        lines.append(f"[{count_noun(older, 'older successful agent')} hidden; all: true shows them]")
    return "\n".join(lines)


def _worth_showing(children: tuple[ActiveRun, ...]) -> list[ActiveRun]:
    """Return the running agents, then the failed ones, then the newest successful ones."""
    active: list[ActiveRun] = []
    problems: list[ActiveRun] = []
    successes: list[ActiveRun] = []
    for child in children:
        if child.live:
            active.append(child)
        elif child.succeeded:
            successes.append(child)
        else:
            problems.append(child)
    return [*active, *problems, *successes[:MAX_SHOWN_SUCCESSES]]


class SteerSubagentTool(DelegationTool):
    name = "steer_subagent"
    required = ("agent_id", "message")
    properties: ClassVar[Properties] = {"agent_id": text_property("Id or name"), "message": {"type": "string"}}
    aliases: ClassVar[Aliases] = {"agent_id": ID_NAMES, "message": ("prompt", "text", "content", "input")}

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        message = arguments.text("message").strip()
        if not message:
            raise ToolError('steer_subagent: "message" is blank. Say what the agent should do.')
        child = self.delegation.steer(agent_id(arguments), message)
        if isinstance(child, Refusal):
            return failed(refusal(child, self.delegation.children()))
        who = f"{child.id} ({shown_name(child)})"
        if child.status in ("queued", "starting"):
            return ok(f"Message kept for agent {who}, which is {child.status}: it is delivered as soon as it works.")
        return ok(
            f"Message sent to agent {who}. It reads it as a user message after its current tool execution.\n"
            f"Current state: {state(child)}"
        )


DEFAULT_AGE_MINUTES = 5.0
MIN_ID_CHARACTERS = 4
"""The fewest characters with which the beginning of an id identifies an agent."""


class ClearSubagentsTool(DelegationTool):
    name = "clear_subagents"
    required = ()
    properties: ClassVar[Properties] = {
        "agent_ids": {"type": "array", "items": {"type": "string"}, "description": "Just these, of any age"},
        "older_than_minutes": {
            "type": "number",
            "description": f"Minutes since their end (default {DEFAULT_AGE_MINUTES:g})",
        },
        "include_errors": flag_property("Failed ones, too"),
    }
    aliases: ClassVar[Aliases] = {"agent_ids": ("agent_id", "ids")}

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        ids = _ids(arguments)
        if ids is None:
            minutes = arguments.number("older_than_minutes")
            if minutes is not None and minutes < 0:
                raise arguments.wrong("older_than_minutes", "0 or more", minutes)
            if minutes is None:
                minutes = DEFAULT_AGE_MINUTES
            return self._old(minutes, arguments.flag("include_errors"))
        ended, problems = resolve(ids, self.delegation.children())
        # An agent named by id is cleared regardless of its age and how it ended.
        cleared: tuple[str, ...] = ()
        if ended:
            cleared = self.delegation.clear(tuple(ended), 0.0, True)
        for run_id in ended:
            if run_id not in cleared:
                problems.append(f"{run_id}: could not be cleared")
        text = "\n".join([_cleared(cleared), *problems])
        return ToolOutput((Text(text),), is_error=bool(problems))

    def _old(self, minutes: float, include_errors: bool) -> ToolOutput:
        cleared = self.delegation.clear((), minutes, include_errors)
        if cleared:
            return ok(_cleared(cleared))
        text = f"No agent ended more than {minutes:g} minutes ago."
        if not include_errors:
            text += " Failed ones are kept unless include_errors is set."
        return ok(text)


def resolve(names: Sequence[str], children: Sequence[ActiveRun]) -> tuple[list[str], list[str]]:
    """Return the ids of ended runs meant by `names` (an id, a unique beginning of one, or a name), and
    a line for each name that matches no run, several runs, or a run that has not ended."""
    resolved: dict[str, None] = {}
    problems: list[str] = []
    for name in names:
        alike = _meant(name.strip().removeprefix("@"), children)
        shown = one_line(name, 80) or '""'
        if not alike:
            problems.append(f"{shown}: there is no such agent")
        elif len(alike) > 1:
            ids = ", ".join(child.id for child in alike[:5])
            problems.append(f"{shown}: could be any of {ids}")
        elif alike[0].live:
            problems.append(f"{shown}: is {alike[0].status}, and only agents that have ended can be cleared")
        else:
            resolved[alike[0].id] = None
    return list(resolved), problems


def _meant(word: str, children: Sequence[ActiveRun]) -> list[ActiveRun]:
    exact = [child for child in children if word in (child.id, child.name)]
    # A short beginning could clear the wrong agent.
    if exact or len(word) < MIN_ID_CHARACTERS:
        return exact[:1]
    return [child for child in children if child.id.startswith(word)]


def _ids(arguments: Arguments) -> list[str] | None:
    """Return the ids in the call, or None if it has none. A string is treated as a list with one id."""
    value: Any = arguments.find("agent_ids")
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = list(filter(str.strip, [value]))
    elif isinstance(value, str):
        value = arguments.items("agent_ids")
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise arguments.wrong("agent_ids", "a list of ids", value)
    return value


def _cleared(ids: Sequence[str]) -> str:
    return f"Cleared {len(ids)}: {', '.join(ids)}" if ids else "Cleared none."


_NOTIFICATION_NOTE = "You are notified automatically when it ends; wait: true waits for that."


class GetSubagentResultTool(DelegationTool):
    name = "get_subagent_result"
    required = ()
    properties: ClassVar[Properties] = {
        "agent_id": text_property("Id or name; none: a list"),
        "wait": flag_property("Wait for its end"),
        "verbose": flag_property("With the conversation"),
        "peek": {
            "type": "object",
            "description": "A part of its output",
            "properties": {"lines": {"type": "integer"}, "regex": {"type": "string"}, "after": {"type": "integer"}},
        },
    }
    hidden: ClassVar[Properties] = {"all": {"type": "boolean"}}
    aliases: ClassVar[Aliases] = {"agent_id": ID_NAMES, "wait": ("block", "blocking")}

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if arguments.find("agent_id") is None:
            return ok(list_children(self.delegation.children(), every=arguments.flag("all")))
        name, wait, verbose = agent_id(arguments), arguments.flag("wait"), arguments.flag("verbose")
        peek = read_peek(arguments) if not verbose else None
        child = self.delegation.view(name)
        end: WaitEnd | None = None
        live = self.live()
        if wait and not isinstance(child, Refusal) and child.live:
            waited = await self.delegation.wait(name, live.wait_seconds, call_id)
            if isinstance(waited, Refusal):
                child = waited
            else:
                child, end = waited.run, waited.end
        if isinstance(child, Refusal):
            return failed(refusal(child, self.delegation.children()))
        if peek is not None:
            body = await self._peek(child, peek, context)
        else:
            body = await _body(child, end, live.wait_seconds, live.max_concurrent, context)
        if verbose:
            body += await self._conversation(child, context)
        if not child.live:
            self.delegation.consume(child.id, call_id)
        return ok("\n".join([*header(child, show_cost=live.show_cost), "", body]))

    async def _peek(self, child: ActiveRun, peek: Peek, context: ToolContext) -> str:
        if not child.live and child.result.strip():
            lines, kind = child.result.split("\n"), "result"
        else:
            lines, kind = self.delegation.transcript_lines(child.id), "output file"
            if child.live:
                kind = "live output file"
        if lines:
            return await peek_text(peek, lines, kind, context)
        if child.live:
            return "No output yet for this agent."
        return NO_OUTPUT

    async def _conversation(self, child: ActiveRun, context: ToolContext) -> str:
        text = self.delegation.conversation(child.id)
        if not text:
            return ""
        shown = await bound_text(text, child.id, context, label="conversation")
        return f"\n\n--- Agent Conversation ---\n{shown.text}"


async def _body(child: ActiveRun, end: WaitEnd | None, seconds: float, most: int, context: ToolContext) -> str:
    if child.live:
        return _still_at_work(child, end, seconds, most)
    if child.succeeded:
        return (await bound_text(child.result, child.id, context)).text if child.result.strip() else NO_OUTPUT
    lines: list[str] = []
    if child.failure_text or child.status == "error":
        lines.append(f"Error: {error_text(child)}")
    partial = partial_text(child)
    if partial:
        lines += ["Partial output before the end:", (await bound_text(partial, child.id, context)).text]
    return "\n".join(lines) or NO_OUTPUT


def _still_at_work(child: ActiveRun, end: WaitEnd | None, seconds: float, most: int) -> str:
    match end:
        case "timeout":
            first = f"Still not done after waiting {format_wait(seconds)}; it goes on."
        case "aborted":
            first = "The wait was broken off; the agent goes on."
        case "pending_message":
            first = "The wait ended early because a message for you is waiting: see to that first. The agent goes on."
        case "completed" | None:
            first = "The agent is still running."
            if child.status == "queued":
                first = "The agent has not started yet."
    lines = [first]
    if child.status == "queued":
        lines.append(queue_line(child, most))
    elif child.last_tool:
        lines.append(f"Now: {one_line(child.last_tool, 160)}")
    return "\n".join([*lines, _NOTIFICATION_NOTE])
