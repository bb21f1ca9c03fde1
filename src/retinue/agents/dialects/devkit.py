"""devkit-pi: `.pi/agents` or `.agents` found upward; five keys, one per line."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST
from retinue.agents.dialects.structures import MODEL
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.values import DEVKIT_READONLY

DEVKIT = Dialect(
    name="devkit",
    title="devkit-pi",
    folders=("the nearest .pi/agents or .agents upward: *.md, *.markdown", "~/.pi/agent/agents"),
    frontmatter_required=True,
    suffixes=(".md", ".markdown"),
    simple=True,
    foreign=LIMITING,
    limits={"seconds": 900.0, "idle_seconds": 180.0},
    fields=(
        NAME,
        DESCRIPTION,
        FieldRow("readonly", DEVKIT_READONLY, "readonly"),
        TOOL_LIST,
        FieldRow("model", MODEL, "model.name"),
    ),
    notes=(
        "Every line is 'key: value', all text; a pair of quotes around a value is removed. "
        "A block with lists or nested values is read as YAML instead.",
        "In a shared folder a file is devkit-pi's if it has a name, a readonly key and no key that only pi knows.",
    ),
)
