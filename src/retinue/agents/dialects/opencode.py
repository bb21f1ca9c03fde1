"""opencode: `.opencode/agent` or `agents`, recursive; the name is the path below that folder."""

from __future__ import annotations

from retinue.agents.dialects.permissions import RULES
from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import MODEL
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.values import DISABLED, HIDDEN, PRIMARY, STEPS, TEMPERATURE, TEXT, THINKING

OPENCODE = Dialect(
    name="opencode",
    title="opencode",
    folders=(".opencode/agent/**/*.md", ".opencode/agents/**/*.md", "~/.config/opencode/agent/**/*.md"),
    name_rule="path",
    foreign=LIMITING,
    fields=(
        NAME,
        DESCRIPTION,
        FieldRow(
            "tools",
            TOOL_LIST.kind,
            "tools.allow",
            note="a map with any true allows only those; one with only false denies those",
        ),
        FieldRow("permission", RULES, "tools.rules", ("permissions",), "the last pattern that matches a call counts"),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("reasoningEffort", THINKING, "model.thinking"),
        FieldRow("temperature", TEMPERATURE, "model.temperature"),
        FieldRow("steps", STEPS, "max_turns", ("maxSteps",)),
        FieldRow("prompt", TEXT, "prompt", note="used when there is no text below the frontmatter"),
        FieldRow("disable", DISABLED, "enabled"),
        FieldRow("color", TEXT, "color"),
        FieldRow("mode", PRIMARY, "offered", note="a primary agent is not offered to other agents"),
        FieldRow("hidden", HIDDEN, "offered", note="not offered to other agents"),
        *unused("top_p", "options", "variant"),
    ),
)
