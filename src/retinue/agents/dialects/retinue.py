"""Retinue's own dialect: the union of all fields, in snake_case, every other spelling accepted."""

from __future__ import annotations

from retinue.agents.dialects.permissions import RULES
from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME
from retinue.agents.dialects.structures import BUDGET, HOOKS, MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import DENY, TOOLS
from retinue.agents.dialects.values import (
    ALL_OR_NAMES,
    DISABLED,
    ENABLED,
    HIDDEN,
    ISOLATED,
    ISOLATION,
    MEMORY,
    MODE,
    NAMES,
    PROMPT_MODE,
    READONLY,
    ROLLBACK,
    SCHEMA,
    SECONDS,
    SOME_NAMES,
    STEPS,
    SUBAGENTS,
    SWITCH,
    TEMPERATURE,
    TEXT,
    THINKING,
    TURNS,
)

UNION: tuple[FieldRow, ...] = (
    NAME,
    FieldRow("display_name", TEXT, "display_name", ("displayName",)),
    DESCRIPTION,
    FieldRow("color", TEXT, "color"),
    FieldRow("tools", TOOLS, "tools.allow"),
    FieldRow("disallowed_tools", DENY, "tools.deny", ("disallowedTools",)),
    FieldRow("permission", RULES, "tools.rules", note="tools to allow, ask or deny, as opencode has it"),
    FieldRow("extensions", ALL_OR_NAMES, "tools.extensions", ("inherit_extensions",)),
    FieldRow("exclude_extensions", SOME_NAMES, "tools.exclude_extensions"),
    FieldRow("isolated", ISOLATED, "isolated", note="no extensions, no skills, built-in tools only"),
    FieldRow("skills", ALL_OR_NAMES, "skills", ("inherit_skills",)),
    FieldRow("memory", MEMORY, "memory"),
    FieldRow("isolation", ISOLATION, "isolation"),
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
    folders=(".retinue/agents/**/*.md in every folder up to the repository root", "$RETINUE_HOME/agents/**/*.md"),
    name_rule="file",
    forbidden_in_name=":",
    foreign=LIMITING,
    fields=UNION,
)
