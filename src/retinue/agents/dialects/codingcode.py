"""CodingCode: `.codingcode/agents`; `name` and `description` are required."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST
from retinue.agents.dialects.structures import HOOKS, MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, Field
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
        Field("tools", TOOL_LIST.kind, "tools.allow", note="a comma text is the list it looks like, never all tools"),
        Field("mcpServers", SERVERS, "servers", note="without it no server, but those that tools names (server:tool)"),
        Field("readonly", READONLY, "readonly"),
        Field("maxSteps", STEPS, "max_turns"),
        Field("model", MODEL, "model.name"),
        Field("permissionMode", MODE, "permission_mode"),
        Field("hooks", HOOKS, "hooks"),
        Field("disabled", DISABLED, "enabled"),
        Field("systemPrompt", TEXT, "prompt", note="used when there is no text below the frontmatter"),
    ),
)
