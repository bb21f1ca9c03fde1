"""From parsed options to what the library takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from retinue.faces.api import Retinue
from retinue.faces.cli.asking import terminal
from retinue.faces.cli.consent import ask_for_trust


def open_crew(args: argparse.Namespace, cwd: Path) -> Retinue:
    """What needs a person is asked on the terminal, where one sits at it."""
    mode = getattr(args, "permission_mode", None)
    trust = getattr(args, "trust", False) or ask_for_trust(cwd)
    return Retinue(cwd, agents=getattr(args, "agents", None), permission_mode=mode, approve=terminal(), trust=trust)


def limits_of(args: argparse.Namespace) -> dict[str, float | None]:
    """Only what was said on the command line; 0 turns means no limit."""
    limits: dict[str, float | None] = {}
    if args.max_turns is not None:
        limits["max_turns"] = args.max_turns or None
    if args.timeout is not None:
        limits["seconds"] = args.timeout
    if args.max_budget_usd is not None:
        limits["max_cost_usd"] = args.max_budget_usd
    return limits
