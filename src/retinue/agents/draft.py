"""An agent as a person describes it in a few answers, and the spec that makes of it."""

from __future__ import annotations

from retinue.agents.create import check_name
from retinue.agents.dialects.names import split_names
from retinue.agents.own_names import in_dialect
from retinue.core.lean import dataclass
from retinue.core.spec import AgentSpec, DialectName, ModelPolicy, ToolPolicy
from retinue.errors import UsageError

READ_ONLY = ("read", "grep", "find", "ls")
LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
_OPEN = frozenset({"", "inherit", "default"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """`tools` are names, or `all`, `none`, `read-only`; what is empty or `inherit` is left open
    and not written into the file."""

    name: str
    description: str
    tools: str = ""
    model: str = ""
    thinking: str = ""
    prompt: str = ""
    readonly: bool = False
    dialect: DialectName = "retinue"


def spec_of(draft: Draft) -> AgentSpec:
    """Raises UsageError for a name that cannot be one and for an empty description."""
    name = check_name(draft.name)
    description = draft.description.strip()
    if not description:
        raise UsageError("The description is empty.", remedy="Say in a sentence when to use the agent.")
    return AgentSpec(
        name=name,
        description=description,
        prompt=draft.prompt.strip() or starter(name, description),
        tools=ToolPolicy(allow=_tools(draft.tools, draft.dialect, draft.readonly)),
        model=ModelPolicy(name=_chosen(draft.model), thinking=_chosen(draft.thinking)),
        readonly=True if draft.readonly else None,
        dialect=draft.dialect,
    )


def starter(name: str, description: str) -> str:
    """Instructions that do, until someone writes better ones."""
    return (
        f"You are {name}. {description}\n\n"
        "Do what the task says and nothing beside it. "
        "If something is unclear, choose the simplest reading and say so.\n\n"
        "Report the result first, then what you did with `path:line`, then what is uncertain."
    )


def _tools(text: str, dialect: DialectName, readonly: bool) -> tuple[str, ...] | None:
    words = split_names(text)
    if not words:
        words = READ_ONLY if readonly else ()
        if not words:
            return None
    if len(words) == 1 and words[0].lower() in ("all", "*", "inherit"):
        return None
    if len(words) == 1 and words[0].lower() == "none":
        return ()
    listed = (name for word in words for name in (READ_ONLY if word.lower() in ("read-only", "readonly") else (word,)))
    return tuple(dict.fromkeys(own for name in listed for own in in_dialect(name, dialect)))


def _chosen(value: str) -> str | None:
    return None if value.strip() in _OPEN else value.strip()
