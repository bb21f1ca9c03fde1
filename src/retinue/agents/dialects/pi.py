"""pi with the sub-agents extensions: `.pi/agents`, `.agents/agents`; the file's name will do."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import MODEL
from retinue.agents.dialects.table import Dialect, Field
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
        Field("display_name", TEXT, "display_name"),
        DESCRIPTION,
        Field("color", TEXT, "color"),
        Field("tools", TOOL_LIST.kind, "tools.allow", note="ext:NAME selects tools of an extension"),
        Field("disallowed_tools", DENY, "tools.deny"),
        Field("extensions", ALL_OR_NAMES, "tools.extensions", ("inherit_extensions",)),
        Field("exclude_extensions", SOME_NAMES, "tools.exclude_extensions"),
        Field("skills", ALL_OR_NAMES, "skills", ("inherit_skills", "inheritSkills"), "names preload exactly these"),
        Field("model", MODEL, "model.name"),
        Field("fallbackModels", NAMES, "model.fallbacks"),
        Field("thinking", THINKING, "model.thinking"),
        Field("max_turns", TURNS, "max_turns"),
        Field("prompt_mode", PROMPT_MODE, "prompt_mode", ("systemPromptMode",)),
        Field("inherit_context", EXACT_TRUE, "inherit_context"),
        Field("isolated", EXACT_ISOLATED, "isolated"),
        Field("run_in_background", EXACT_TRUE, "background"),
        Field("memory", MEMORY, "memory"),
        Field("isolation", ISOLATION, "isolation"),
        Field("allowed_subagents", SUBAGENTS, "subagents", ("allowSubagents", "subagent_agents", "spawns")),
        Field("persist_session", EXACT_TRUE, "session.persist"),
        Field("session_dir", TEXT, "session.directory"),
        Field("output_transcript", EXACT_TRUE, "session.transcript"),
        Field("enabled", ENABLED, "enabled"),
        *unused("inheritProjectContext", "defaultContext", "defaultReads", "defaultProgress", "output"),
        *unused("maxSubagentDepth", "completionGuard", "auto-exit", "spawning", "taskType", "tool_budget"),
    ),
    notes=(
        "A file without frontmatter is an agent too: the whole text is its prompt.",
        "A missing description is the agent's name.",
        "A name with ':' is refused.",
    ),
)
