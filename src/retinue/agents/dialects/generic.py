"""Agent files of no known home (`.agents`, `.kiro/agents`, `.qwen/agents` …): the union of fields."""

from __future__ import annotations

from retinue.agents.dialects.retinue import UNION
from retinue.agents.dialects.shared_rows import LIMITING
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import SPACED_TOOLS, TOOLS

GENERIC = Dialect(
    name="generic",
    title="other agent files",
    folders=("any other place, when a file is named to `retinue agents parse` or `lint`",),
    name_rule="file",
    foreign=LIMITING,
    fields=(
        *UNION,
        FieldRow("allowed_tools", TOOLS, "tools.allow", ("allowedTools",)),
        FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow"),
    ),
)
