"""A conversation by size, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from retinue.app.dialogue import main_agent
from retinue.app.rich_text import clean, one_line
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.person_prompt import describe_blocks, words_of
from retinue.core.request import RunRequest
from retinue.models.protocol import estimate, overhead
from retinue.runs.preview import preview

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue

_PART_LABELS = {"instructions": "Instruction files", "delegation": "Agents", "skills": "Skills", "memory": "Memory"}
_SECTION_ORDER = ("System prompt", "Tools", "MCP tools", "Agents", "Skills", "Instruction files", "Memory", "Messages")
_TOOL_LABELS = {"Agent": "Agents", "skill": "Skills"}
_MAX_ARGUMENT_CHARACTERS = 200
_MAX_RESULT_CHARACTERS = 2_000


async def measure_context(retinue: Retinue, main_id: str | None, messages: Sequence[Message]) -> dict[str, int]:
    """Estimate the tokens of each part of the main agent's next request."""
    project = retinue.supervisor.project
    node = retinue.supervisor.members.get(main_id or "")
    request = await preview(RunRequest(spec=main_agent(), task="context", cwd=project.cwd), project)
    tools = [tool.spec for tool in request.tools]
    if node is not None:
        # The tools of the run, including those of connected servers.
        tools = [tool.spec for tool in node.tools]
    sizes = dict.fromkeys(_SECTION_ORDER, 0)
    for part in request.parts:
        sizes[_PART_LABELS.get(part.name, "System prompt")] += overhead(part.text, ())
    for tool in tools:
        label = _TOOL_LABELS.get(tool.name, "Tools")
        if tool.name.startswith("mcp__"):
            label = "MCP tools"
        sizes[label] += overhead("", (tool,))
    sizes["Messages"] = estimate(messages)
    return sizes


def conversation_markdown(title: str, messages: Iterable[Message]) -> str:
    """Return a conversation as Markdown: the messages, and a line for each call with the beginning of its result."""
    parts = [f"# {one_line(title)}"]
    results: dict[str, str] = {}
    listed = list(messages)
    for message in listed:
        if isinstance(message, ToolMessage):
            results |= {result.call_id: result.text for result in message.results}
    for message in listed:
        if isinstance(message, UserMessage):
            parts += _said(message)
        elif isinstance(message, AssistantMessage):
            parts += _answered(message, results)
    return clean("\n\n".join(parts)) + "\n"


def _said(message: UserMessage) -> list[str]:
    head = "## You"
    if message.origin not in ("task", "follow-up", "steer"):
        head = f"## ({message.origin})"
    lines = [f"- {line}" for line in describe_blocks(message.text)]
    return [head, words_of(message.text), *(["\n".join(lines)] if lines else [])]


def _answered(message: AssistantMessage, results: Mapping[str, str]) -> list[str]:
    parts = ["## Agent"]
    if message.text:
        parts.append(message.text)
    for call in message.tool_calls:
        parts.append(_call(call, results.get(call.id, "")))
    return parts if len(parts) > 1 else []


def _call(call: ToolCall, result: str) -> str:
    arguments = ", ".join(f"{name}: {one_line(str(value))}" for name, value in call.arguments.items())
    head = f"**{call.name}** {arguments[:_MAX_ARGUMENT_CHARACTERS]}"
    if not result:
        return head
    shown = result[:_MAX_RESULT_CHARACTERS]
    if len(result) > len(shown):
        shown += "\n…"
    # More backticks than any sequence in the text, so that the text cannot end the block.
    fence = "```"
    while fence in shown:
        fence += "`"
    return f"{head}\n\n{fence}\n{shown}\n{fence}"
