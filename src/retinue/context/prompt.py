"""The system prompt of a run.

The parts that never change between runs of an agent come first and the ones that do come last,
so that a provider's cache keeps the prefix. In `append` mode the parent's prompt is an exact,
byte-identical prefix. Project files such as AGENTS.md are not loaded here: only a twin of the
parent sees them, through that prefix.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from retinue.context.environment import Environment
from retinue.domain.spec import AgentSpec

_PROMPTS = Path(__file__).parent.parent / "builtin" / "prompts"


@cache
def shipped(name: str) -> str:
    """A prompt that comes with Retinue, without surrounding blank lines."""
    return (_PROMPTS / f"{name}.md").read_text("utf-8").strip()


def system_prompt(spec: AgentSpec, environment: Environment, *, parent: str | None = None, depth: int = 0) -> str:
    """Everything the model is told before its first message.

    A main agent (depth 0) is not told that it is a sub-agent; its file's body replaces the
    prompt of the built-in main agent.
    """
    body = spec.prompt.strip() or _fallback_role(spec)
    if spec.prompt_mode == "append":
        instructions = f"<agent_instructions>\n{body}\n</agent_instructions>" if spec.prompt.strip() else ""
        parts = [parent if parent else shipped("subagent"), shipped("bridge") if depth else ""]
        parts += [_active_agent(spec), environment.block(), instructions]
    else:
        parts = [f"{_active_agent(spec)}\n{shipped('subagent')}" if depth else "", environment.block(), body]
    return "\n\n".join(part for part in parts if part)


def _active_agent(spec: AgentSpec) -> str:
    name = spec.name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<active_agent name="{name}"/>'


def _fallback_role(spec: AgentSpec) -> str:
    """A file without a body still gets a role: what its description says, or its name."""
    if spec.description.strip() and spec.description != spec.name:
        return f"Your role: {spec.description.strip()}"
    return f"You are the {spec.name} agent."
