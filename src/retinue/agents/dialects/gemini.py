"""Gemini CLI: `.gemini/agents`."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, Field
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
        Field("display_name", TEXT, "display_name"),
        DESCRIPTION,
        TOOL_LIST,
        Field("mcp_servers", SERVERS, "servers", ("mcpServers",)),
        Field("model", MODEL, "model.name"),
        Field("temperature", TEMPERATURE, "model.temperature"),
        Field("max_turns", STEPS, "max_turns"),
        Field("timeout_mins", MINUTES, "timeout_seconds"),
        *unused("kind", note="only local agents are supported"),
        *unused("agent_card_url", "auth", note="remote agents are not supported"),
    ),
)
