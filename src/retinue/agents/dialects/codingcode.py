"""CodingCode: `.codingcode/agents`; `name` and `description` are required."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST
from retinue.agents.dialects.structures import HOOKS, MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.values import DISABLED, MODE, READONLY, STEPS, TEXT

CODINGCODE = Dialect(
    name="codingcode",
    title="CodingCode",
    folders=(".codingcode/agents/*.md", "~/.codingcode/agents/*.md"),
    description_required=True,
    frontmatter_required=True,
    foreign=LIMITING,
    inherited_limits=("max_turns",),
    fields=(
        NAME,
        DESCRIPTION,
        FieldRow(
            "tools", TOOL_LIST.kind, "tools.allow", note="a comma text is the list it looks like, never all tools"
        ),
        FieldRow(
            "mcpServers", SERVERS, "servers", note="without it no server, but those that tools names (server:tool)"
        ),
        FieldRow("readonly", READONLY, "readonly"),
        FieldRow("maxSteps", STEPS, "max_turns"),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("permissionMode", MODE, "permission_mode"),
        FieldRow("hooks", HOOKS, "hooks"),
        FieldRow("disabled", DISABLED, "enabled"),
        FieldRow("systemPrompt", TEXT, "prompt", note="used when there is no text below the frontmatter"),
    ),
)
