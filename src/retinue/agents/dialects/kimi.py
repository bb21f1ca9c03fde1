"""Kimi CLI: a whole file of YAML, the fields at the top or below `agent:`."""

from __future__ import annotations

from retinue.agents.dialects.permissions import ONLY
from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import MODEL
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import DENY
from retinue.agents.dialects.values import ROLE, TEXT, THINKING

KIMI = Dialect(
    name="kimi",
    title="Kimi CLI",
    folders=("a *.yaml file named to `retinue agents parse`",),
    name_rule="file",
    suffixes=(".yaml", ".yml"),
    nested_under="agent",
    foreign=LIMITING,
    fields=(
        NAME,
        DESCRIPTION,
        FieldRow("when_to_use", TEXT, "description", ("whenToUse",), "used when there is no description"),
        TOOL_LIST,
        FieldRow("allowed_tools", ONLY, "tools.rules", ("allowedTools",), "narrows the tools further"),
        FieldRow("exclude_tools", DENY, "tools.deny", ("excludeTools",)),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("thinkingLevel", THINKING, "model.thinking"),
        *unused("extend", "extends", note="the file it builds on is not read", misses=True),
        *unused("system_prompt_path", "systemPromptPath", note="the prompt's own file is not read", misses=True),
        FieldRow("system_prompt_args", ROLE, "prompt", ("promptVars",), "its role text is the prompt"),
        *unused("subagents", "version"),
    ),
)
