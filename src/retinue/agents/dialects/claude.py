"""Claude Code: `.claude/agents`, recursive; `name` and `description` are required."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import HOOKS, MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import DENY
from retinue.agents.dialects.values import ISOLATION, MEMORY, MODE, NAMES, STEPS, SWITCH, TEXT, THINKING

CLAUDE = Dialect(
    name="claude",
    title="Claude Code",
    folders=(".claude/agents/**/*.md in every folder up to the repository root", "~/.claude/agents/**/*.md"),
    description_required=True,
    frontmatter_required=True,
    forbidden_in_name=":",
    foreign=LIMITING,
    fields=(
        NAME,
        DESCRIPTION,
        TOOL_LIST,
        FieldRow("disallowedTools", DENY, "tools.deny"),
        FieldRow("model", MODEL, "model.name", note="only the lower-case word inherit means the parent's model"),
        FieldRow("effort", THINKING, "model.thinking"),
        FieldRow("maxTurns", STEPS, "max_turns"),
        FieldRow("permissionMode", MODE, "permission_mode"),
        FieldRow("background", SWITCH, "background"),
        FieldRow(
            "initialPrompt", TEXT, "initial_prompt", note="/name arguments at the start is the skill of that name"
        ),
        FieldRow("isolation", ISOLATION, "isolation"),
        FieldRow("memory", MEMORY, "memory"),
        FieldRow("skills", NAMES, "skills", note="preloads these; other skills stay available"),
        FieldRow("mcpServers", SERVERS, "servers"),
        FieldRow("requiredMcpServers", NAMES, "required_servers"),
        FieldRow("hooks", HOOKS, "hooks"),
        FieldRow("color", TEXT, "color"),
        FieldRow("omitClaudeMd", SWITCH, "omit_instructions", note="counts for runs that another agent starts"),
        FieldRow("autoCompactWindow", STEPS, "compact_at_tokens", note="tokens; only lowers the setting compaction.at"),
        *unused("observer", note="observers are not supported: nobody watches the run", misses=True),
        *unused("observerMessage", note="observers are not supported: nobody watches the run"),
        *unused("criticalSystemReminder_EXPERIMENTAL", note="not supported: the prompt is said once"),
    ),
    notes=(
        "A file without frontmatter is documentation, not an agent.",
        "A name with ':' or a leading '-' is refused.",
        "In a plugin, hooks, mcpServers and permissionMode are ignored, and a missing name is the file's name.",
    ),
)
