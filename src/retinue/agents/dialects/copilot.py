"""GitHub Copilot: `.github/agents/*.agent.md`; `.agent.md` is not part of the name."""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, LIMITING, NAME, TOOL_LIST, unused
from retinue.agents.dialects.structures import MODEL, SERVERS
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.values import HIDDEN, SUBAGENTS

COPILOT = Dialect(
    name="copilot",
    title="GitHub Copilot",
    folders=(".github/agents/**/*.agent.md",),
    name_rule="file",
    suffixes=(".agent.md", ".md"),
    foreign=LIMITING,
    fields=(
        NAME,
        DESCRIPTION,
        FieldRow("tools", TOOL_LIST.kind, "tools.allow", note="set names (search), set/tool and server/* are kept"),
        FieldRow("model", MODEL, "model.name", note="a list is tried in order"),
        FieldRow("mcp-servers", SERVERS, "servers"),
        FieldRow("agents", SUBAGENTS, "subagents"),
        FieldRow("disable-model-invocation", HIDDEN, "offered", note="not offered to other agents"),
        *unused("argument-hint", "user-invocable", "handoffs", "handoff"),
        *unused("target", "infer", "mode", "hidden", "metadata"),
    ),
)
