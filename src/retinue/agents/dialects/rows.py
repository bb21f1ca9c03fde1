"""Rows that several dialects share, and the two dialects without a program of their own.

`LIMITING` are the rows that count in every dialect because they limit an agent. `UNION` are the fields
of all dialects in snake_case, every other spelling accepted: Retinue's own files, and agent files of no
known home (`.agents`, `.kiro/agents`, `.qwen/agents` …).
"""

from __future__ import annotations

from collections.abc import Mapping

from retinue.agents.dialects.permissions import RULES
from retinue.agents.dialects.structures import BUDGET, HOOKS, MODEL, OBSERVERS, SERVERS
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import DENY, SPACED_TOOLS, TOOLS
from retinue.agents.dialects.values import (
    ALL_OR_NAMES,
    ANYTHING,
    DISABLED,
    ENABLED,
    EXCLUDED,
    HIDDEN,
    ISOLATED,
    ISOLATION,
    LABEL,
    MEMORY,
    MINUTES,
    MODE,
    NAMES,
    PLACEMENT,
    PROMPT_MODE,
    READONLY,
    ROLLBACK,
    SANDBOX,
    SCHEMA,
    SECONDS,
    STEPS,
    SUBAGENTS,
    SWITCH,
    SWITCHED_ON,
    TEMPERATURE,
    TEXT,
    THINKING,
    TIMEOUT,
    TURNS,
    WORKTREE,
)
from retinue.core.toolnames import TOOLS as TOOL_NAMES

NAME = FieldRow("name", LABEL, "name")
DESCRIPTION = FieldRow("description", LABEL, "description")
TOOL_LIST = FieldRow("tools", TOOLS, "tools.allow")

SLIP = "not a key of this dialect; read as what it obviously limits"

LIMITING: tuple[FieldRow, ...] = (
    FieldRow("enabled", SWITCHED_ON, "enabled", note="a key of Retinue and pi, honoured in every dialect"),
    FieldRow("disabled", DISABLED, "enabled", ("disable",), note="a key of CodingCode, honoured in every dialect"),
    FieldRow("readonly", READONLY, "readonly", ("read_only", "readOnly"), note="enforced by Retinue in every dialect"),
    FieldRow("tools", TOOLS, "tools.allow", ("allowed_tools", "allowedTools", "allow_tools", "allow-tools"), note=SLIP),
    FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow", note=SLIP),
    FieldRow(
        "disallowed_tools",
        DENY,
        "tools.deny",
        (
            "disallowedTools",
            "disallowed-tools",
            "denied_tools",
            "deny_tools",
            "deny-tools",
            "exclude_tools",
            "excluded_tools",
            "forbidden_tools",
            "blocked_tools",
        ),
        note=SLIP,
    ),
    FieldRow("max_turns", TURNS, "max_turns", ("maxTurns", "max-turns"), note=SLIP),
    FieldRow("max_steps", STEPS, "max_turns", ("maxSteps", "steps"), note=SLIP),
    FieldRow("timeout_seconds", SECONDS, "timeout_seconds", note="a key of Retinue, honoured in every dialect"),
    FieldRow("timeout", TIMEOUT, "timeout_seconds", note=SLIP),
    FieldRow("timeout_mins", MINUTES, "timeout_seconds", note=SLIP),
    FieldRow("extensions", ALL_OR_NAMES, "tools.extensions", note="a key of pi, honoured in every dialect"),
    FieldRow("exclude_extensions", EXCLUDED, "tools.exclude_extensions", note="a key of pi, honoured in every dialect"),
    FieldRow("worktree", WORKTREE, "isolation", note=SLIP),
    FieldRow("budget", BUDGET, "budget", note="a key of Retinue, honoured in every dialect"),
    FieldRow("permission_mode", MODE, "permission_mode", ("permissionMode",), note=SLIP),
    FieldRow("isolation", ISOLATION, "isolation", note=SLIP),
    FieldRow("placement", PLACEMENT, "placement", note="a key of Retinue, honoured in every dialect"),
    FieldRow("isolated", ISOLATED, "isolated", note="a key of pi, honoured in every dialect"),
    FieldRow("permission", RULES, "tools.rules", note="a key of opencode, honoured in every dialect"),
    FieldRow("output_schema", SCHEMA, "output_schema", note="a key of Retinue, honoured in every dialect"),
    FieldRow("sandbox", SANDBOX, "readonly", ("sandbox_mode",), note="a key of Codex: read-only is enforced"),
    FieldRow("allowed_subagents", SUBAGENTS, "subagents", ("allowedSubagents",), note=SLIP),
)
"""A file of any dialect may say these. Those whose note is SLIP are reported: their own loader
ignores them, and the author most likely does not know."""


def unused(*keys: str, note: str = "not used by Retinue", misses: bool = False) -> tuple[FieldRow, ...]:
    """Keys the dialect knows and Retinue has no use for: kept, and said so."""
    return tuple(FieldRow(key, ANYTHING, None, note=note, misses=misses) for key in keys)


OUR_TOOLS: Mapping[str, str] = dict(zip(TOOL_NAMES, TOOL_NAMES, strict=True))

UNION: tuple[FieldRow, ...] = (
    NAME,
    FieldRow("display_name", TEXT, "display_name", ("displayName",)),
    DESCRIPTION,
    FieldRow("color", TEXT, "color"),
    FieldRow("tools", TOOLS, "tools.allow"),
    FieldRow("disallowed_tools", DENY, "tools.deny", ("disallowedTools",)),
    FieldRow("permission", RULES, "tools.rules", note="tools to allow, ask or deny, as opencode has it"),
    FieldRow("extensions", ALL_OR_NAMES, "tools.extensions", ("inherit_extensions",)),
    FieldRow("exclude_extensions", EXCLUDED, "tools.exclude_extensions"),
    FieldRow("isolated", ISOLATED, "isolated", note="no extensions, no skills, built-in tools only"),
    FieldRow("skills", ALL_OR_NAMES, "skills", ("inherit_skills",)),
    FieldRow("memory", MEMORY, "memory"),
    FieldRow("isolation", ISOLATION, "isolation"),
    FieldRow("placement", PLACEMENT, "placement", note="where its runs work"),
    FieldRow("model", MODEL, "model.name"),
    FieldRow("fallback_models", NAMES, "model.fallbacks", ("fallbackModels",)),
    FieldRow("thinking", THINKING, "model.thinking", ("effort", "thinkingLevel", "reasoningEffort")),
    FieldRow("temperature", TEMPERATURE, "model.temperature"),
    FieldRow("max_turns", TURNS, "max_turns", ("maxTurns", "maxSteps", "steps")),
    FieldRow("timeout_seconds", SECONDS, "timeout_seconds", ("timeout",)),
    FieldRow("budget", BUDGET, "budget", note="what a run of it and all below it may spend"),
    FieldRow("prompt_mode", PROMPT_MODE, "prompt_mode"),
    FieldRow("initial_prompt", TEXT, "initial_prompt", ("initialPrompt",)),
    FieldRow("inherit_context", SWITCH, "inherit_context"),
    FieldRow("omit_instructions", SWITCH, "omit_instructions", ("omitClaudeMd",), "counts as a sub-agent"),
    FieldRow("compact_at_tokens", STEPS, "compact_at_tokens", ("autoCompactWindow",), "only lowers the setting"),
    FieldRow("observer", OBSERVERS, "observer", note="agents that watch its runs: docs/runs.md"),
    FieldRow(
        "observer_message", TEXT, "observer_message", ("observerMessage",), "what they are told below each digest"
    ),
    FieldRow("background", SWITCH, "background", ("run_in_background", "is_background")),
    FieldRow("permission_mode", MODE, "permission_mode", ("permissionMode",)),
    FieldRow("readonly", READONLY, "readonly"),
    FieldRow("rollback", ROLLBACK, "rollback", note="files it changed are put back when it fails"),
    FieldRow("mcp_servers", SERVERS, "servers", ("mcpServers", "mcp-servers")),
    FieldRow("required_mcp_servers", NAMES, "required_servers", ("requiredMcpServers",)),
    FieldRow("hooks", HOOKS, "hooks"),
    FieldRow("allowed_subagents", SUBAGENTS, "subagents"),
    FieldRow("output_schema", SCHEMA, "output_schema", ("outputSchema",)),
    FieldRow("persist_session", SWITCH, "session.persist"),
    FieldRow("session_dir", TEXT, "session.directory"),
    FieldRow("output_transcript", SWITCH, "session.transcript"),
    FieldRow("enabled", ENABLED, "enabled"),
    FieldRow("disabled", DISABLED, "enabled"),
    FieldRow("hidden", HIDDEN, "offered", note="not offered to other agents"),
    FieldRow("prompt", TEXT, "prompt", ("systemPrompt",), "used when there is no text below the frontmatter"),
)

RETINUE = Dialect(
    name="retinue",
    title="Retinue",
    tool_names=OUR_TOOLS,
    folders=(".retinue/agents/**/*.md in every folder up to the repository root", "$RETINUE_HOME/agents/**/*.md"),
    name_rule="file",
    forbidden_in_name=":",
    foreign=LIMITING,
    fields=UNION,
)


GENERIC = Dialect(
    name="generic",
    title="other agent files",
    folders=("any other place, when a file is named to `retinue agents parse` or `lint`",),
    name_rule="file",
    foreign=LIMITING,
    fields=(
        *UNION,
        FieldRow("allowed_tools", TOOLS, "tools.allow", ("allowedTools",)),
        FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow"),
    ),
)
