"""Gemini CLI: `.gemini/agents`."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.values import MINUTES, STEPS, TEMPERATURE, TEXT

GEMINI = Dialect(
    name="gemini",
    title="Gemini CLI",
    folders=(".gemini/agents/*.md", "~/.gemini/agents/*.md"),
    name_rule="file",
    foreign=LIMITING,
    limits={"max_turns": 30, "seconds": 600.0},
    fields=(
        NAME,
        FieldRow("display_name", TEXT, "display_name"),
        DESCRIPTION,
        TOOL_LIST,
        FieldRow("mcp_servers", SERVERS, "servers", ("mcpServers",)),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("temperature", TEMPERATURE, "model.temperature"),
        FieldRow("max_turns", STEPS, "max_turns"),
        FieldRow("timeout_mins", MINUTES, "timeout_seconds"),
        *unused("kind", note="only local agents are supported"),
        *unused("agent_card_url", "auth", note="remote agents are not supported"),
    ),
)
