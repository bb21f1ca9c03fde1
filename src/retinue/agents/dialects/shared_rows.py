"""Rows that several dialects have, and the rows that count in every dialect because they limit."""

from __future__ import annotations

from retinue.agents.dialects.permissions import RULES
from retinue.agents.dialects.structures import BUDGET
from retinue.agents.dialects.table import FieldRow
from retinue.agents.dialects.tools import DENY, SPACED_TOOLS, TOOLS
from retinue.agents.dialects.values import (
    ANYTHING,
    DISABLED,
    ISOLATED,
    ISOLATION,
    LABEL,
    READONLY,
    SANDBOX,
    SCHEMA,
    SUBAGENTS,
    SWITCHED_ON,
    TURNS,
)

NAME = FieldRow("name", LABEL, "name")
DESCRIPTION = FieldRow("description", LABEL, "description")
TOOL_LIST = FieldRow("tools", TOOLS, "tools.allow")

SLIP = "not a key of this dialect; read as what it obviously limits"

LIMITING: tuple[FieldRow, ...] = (
    FieldRow("enabled", SWITCHED_ON, "enabled", note="a key of Retinue and pi, honoured in every dialect"),
    FieldRow("disabled", DISABLED, "enabled", ("disable",), note="a key of CodingCode, honoured in every dialect"),
    FieldRow("readonly", READONLY, "readonly", ("read_only", "readOnly"), note="enforced by Retinue in every dialect"),
    FieldRow("tools", TOOLS, "tools.allow", ("allowed_tools", "allowedTools", "allow_tools", "allow-tools"), note=SLIP),
    FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow", note=SLIP),
    FieldRow(
        "disallowed_tools",
        DENY,
        "tools.deny",
        (
            "disallowedTools",
            "disallowed-tools",
            "denied_tools",
            "deny_tools",
            "deny-tools",
            "exclude_tools",
            "excluded_tools",
            "forbidden_tools",
            "blocked_tools",
        ),
        note=SLIP,
    ),
    FieldRow("max_turns", TURNS, "max_turns", ("maxTurns", "max-turns"), note=SLIP),
    FieldRow("budget", BUDGET, "budget", note="a key of Retinue, honoured in every dialect"),
    FieldRow("isolation", ISOLATION, "isolation", note=SLIP),
    FieldRow("isolated", ISOLATED, "isolated", note="a key of pi, honoured in every dialect"),
    FieldRow("permission", RULES, "tools.rules", note="a key of opencode, honoured in every dialect"),
    FieldRow("output_schema", SCHEMA, "output_schema", note="a key of Retinue, honoured in every dialect"),
    FieldRow("sandbox", SANDBOX, "readonly", ("sandbox_mode",), note="a key of Codex: read-only is enforced"),
    FieldRow("allowed_subagents", SUBAGENTS, "subagents", ("allowedSubagents",), note=SLIP),
)
"""A file of any dialect may say these. Those whose note is SLIP are reported: their own loader
ignores them, and the author most likely does not know."""


def unused(*keys: str, note: str = "not used by Retinue", misses: bool = False) -> tuple[FieldRow, ...]:
    """Keys the dialect knows and Retinue has no use for: kept, and said so."""
    return tuple(FieldRow(key, ANYTHING, None, note=note, misses=misses) for key in keys)
