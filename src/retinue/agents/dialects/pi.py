"""pi with the sub-agents extensions: `.pi/agents`, `.agents/agents`; the file's name will do."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import MODEL
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import DENY
from retinue.agents.dialects.values import (
    ALL_OR_NAMES,
    ENABLED,
    EXACT_ISOLATED,
    EXACT_TRUE,
    ISOLATION,
    MEMORY,
    NAMES,
    PROMPT_MODE,
    SOME_NAMES,
    SUBAGENTS,
    TEXT,
    THINKING,
    TURNS,
)

PI = Dialect(
    name="pi",
    title="pi",
    folders=(".pi/agents/*.md", ".agents/agents/*.md", "$PI_CODING_AGENT_DIR/agents/*.md (default ~/.pi/agent)"),
    name_rule="file",
    forbidden_in_name=":",
    foreign=LIMITING,
    fields=(
        NAME,
        FieldRow("display_name", TEXT, "display_name"),
        DESCRIPTION,
        FieldRow("color", TEXT, "color"),
        FieldRow("tools", TOOL_LIST.kind, "tools.allow", note="ext:NAME selects tools of an extension"),
        FieldRow("disallowed_tools", DENY, "tools.deny"),
        FieldRow("extensions", ALL_OR_NAMES, "tools.extensions", ("inherit_extensions",)),
        FieldRow("exclude_extensions", SOME_NAMES, "tools.exclude_extensions"),
        FieldRow("skills", ALL_OR_NAMES, "skills", ("inherit_skills", "inheritSkills"), "names preload exactly these"),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("fallbackModels", NAMES, "model.fallbacks"),
        FieldRow("thinking", THINKING, "model.thinking"),
        FieldRow("max_turns", TURNS, "max_turns"),
        FieldRow("prompt_mode", PROMPT_MODE, "prompt_mode", ("systemPromptMode",)),
        FieldRow("inherit_context", EXACT_TRUE, "inherit_context"),
        FieldRow("isolated", EXACT_ISOLATED, "isolated"),
        FieldRow("run_in_background", EXACT_TRUE, "background"),
        FieldRow("memory", MEMORY, "memory"),
        FieldRow("isolation", ISOLATION, "isolation"),
        FieldRow("allowed_subagents", SUBAGENTS, "subagents", ("allowSubagents", "subagent_agents", "spawns")),
        FieldRow("persist_session", EXACT_TRUE, "session.persist"),
        FieldRow("session_dir", TEXT, "session.directory"),
        FieldRow("output_transcript", EXACT_TRUE, "session.transcript"),
        FieldRow("enabled", ENABLED, "enabled"),
        *unused("inheritProjectContext", "defaultContext", "defaultReads", "defaultProgress", "output"),
        *unused("maxSubagentDepth", "completionGuard", "auto-exit", "spawning", "taskType", "tool_budget"),
    ),
    notes=(
        "A file without frontmatter is an agent too: the whole text is its prompt.",
        "A missing description is the agent's name.",
        "A name with ':' is refused.",
    ),
)
