"""Every dialect that Retinue reads, as tables."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.definitions.dialects.claude import CLAUDE
from retinue.definitions.dialects.codingcode import CODINGCODE
from retinue.definitions.dialects.copilot import COPILOT
from retinue.definitions.dialects.cursor import CURSOR
from retinue.definitions.dialects.devkit import DEVKIT
from retinue.definitions.dialects.gemini import GEMINI
from retinue.definitions.dialects.generic import GENERIC
from retinue.definitions.dialects.kimi import KIMI
from retinue.definitions.dialects.opencode import OPENCODE
from retinue.definitions.dialects.pi import PI
from retinue.definitions.dialects.retinue import RETINUE
from retinue.definitions.dialects.table import Dialect, Field, Kind, Match
from retinue.domain.spec import DialectName

DIALECTS: Mapping[DialectName, Dialect] = {
    dialect.name: dialect
    for dialect in (
        RETINUE,
        CLAUDE,
        PI,
        DEVKIT,
        CODINGCODE,
        OPENCODE,
        GEMINI,
        COPILOT,
        CURSOR,
        GENERIC,
        KIMI,
    )
}

__all__ = ["DIALECTS", "Dialect", "Field", "Kind", "Match"]
