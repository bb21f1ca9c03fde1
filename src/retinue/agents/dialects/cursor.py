"""Cursor: `.cursor/agents`."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST
from retinue.agents.dialects.structures import MODEL
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.values import READONLY, SWITCH

CURSOR = Dialect(
    name="cursor",
    title="Cursor",
    folders=(".cursor/agents/*.md", "~/.cursor/agents/*.md"),
    name_rule="file",
    foreign=LIMITING,
    fields=(
        NAME,
        DESCRIPTION,
        TOOL_LIST,
        FieldRow("model", MODEL, "model.name"),
        FieldRow("readonly", READONLY, "readonly"),
        FieldRow("is_background", SWITCH, "background"),
    ),
)
