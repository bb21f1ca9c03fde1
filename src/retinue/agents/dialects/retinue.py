"""Retinue's own dialect: the union of all fields, in snake_case, every other spelling accepted."""

from __future__ import annotations

from retinue.agents.dialects.permissions import RULES
from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME
from retinue.agents.dialects.structures import BUDGET, HOOKS, MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, Field
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

UNION: tuple[Field, ...] = (
    NAME,
    Field("display_name", TEXT, "display_name", ("displayName",)),
    DESCRIPTION,
    Field("color", TEXT, "color"),
    Field("tools", TOOLS, "tools.allow"),
    Field("disallowed_tools", DENY, "tools.deny", ("disallowedTools",)),
    Field("permission", RULES, "tools.rules", note="tools to allow, ask or deny, as opencode has it"),
    Field("extensions", ALL_OR_NAMES, "tools.extensions", ("inherit_extensions",)),
    Field("exclude_extensions", SOME_NAMES, "tools.exclude_extensions"),
    Field("isolated", ISOLATED, "isolated", note="no extensions, no skills, built-in tools only"),
    Field("skills", ALL_OR_NAMES, "skills", ("inherit_skills",)),
    Field("memory", MEMORY, "memory"),
    Field("isolation", ISOLATION, "isolation"),
    Field("model", MODEL, "model.name"),
    Field("fallback_models", NAMES, "model.fallbacks", ("fallbackModels",)),
    Field("thinking", THINKING, "model.thinking", ("effort", "thinkingLevel", "reasoningEffort")),
    Field("temperature", TEMPERATURE, "model.temperature"),
    Field("max_turns", TURNS, "max_turns", ("maxTurns", "maxSteps", "steps")),
    Field("timeout_seconds", SECONDS, "timeout_seconds", ("timeout",)),
    Field("budget", BUDGET, "budget", note="what a run of it and all below it may spend"),
    Field("prompt_mode", PROMPT_MODE, "prompt_mode"),
    Field("initial_prompt", TEXT, "initial_prompt", ("initialPrompt",)),
    Field("inherit_context", SWITCH, "inherit_context"),
    Field("omit_instructions", SWITCH, "omit_instructions", ("omitClaudeMd",), "counts as a sub-agent"),
    Field("compact_at_tokens", STEPS, "compact_at_tokens", ("autoCompactWindow",), "only lowers the setting"),
    Field("background", SWITCH, "background", ("run_in_background", "is_background")),
    Field("permission_mode", MODE, "permission_mode", ("permissionMode",)),
    Field("readonly", READONLY, "readonly"),
    Field("rollback", ROLLBACK, "rollback", note="files it changed are put back when it fails"),
    Field("mcp_servers", SERVERS, "servers", ("mcpServers", "mcp-servers")),
    Field("required_mcp_servers", NAMES, "required_servers", ("requiredMcpServers",)),
    Field("hooks", HOOKS, "hooks"),
    Field("allowed_subagents", SUBAGENTS, "subagents"),
    Field("output_schema", SCHEMA, "output_schema", ("outputSchema",)),
    Field("persist_session", SWITCH, "session.persist"),
    Field("session_dir", TEXT, "session.directory"),
    Field("output_transcript", SWITCH, "session.transcript"),
    Field("enabled", ENABLED, "enabled"),
    Field("disabled", DISABLED, "enabled"),
    Field("hidden", HIDDEN, "offered", note="not offered to other agents"),
    Field("prompt", TEXT, "prompt", ("systemPrompt",), "used when there is no text below the frontmatter"),
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
