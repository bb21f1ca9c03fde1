"""From parsed options to what the library takes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from retinue.core.budget import Budget
from retinue.errors import UsageError
from retinue.faces.api import Retinue
from retinue.faces.cli.asking import terminal
from retinue.faces.cli.consent import ask_for_trust
from retinue.faces.cli.visible import harmless


def open_crew(args: argparse.Namespace, cwd: Path) -> Retinue:
    """What needs a person is asked on the terminal, where one sits at it."""
    mode = getattr(args, "permission_mode", None)
    trust = getattr(args, "trust", False) or ask_for_trust(cwd)
    crew = Retinue(cwd, agents=getattr(args, "agents", None), permission_mode=mode, approve=terminal(), trust=trust)
    if not getattr(args, "quiet", False):
        crew.supervisor.world.on_wait = WaitLines().show
    return crew


class WaitLines:
    """What a launch waits for, as lines on stderr: at once, and then every ten seconds."""

    def __init__(self) -> None:
        self._said: tuple[str, float] = ("", 0.0)

    def show(self, what: str, seconds: float) -> None:
        last, at = self._said
        if what == last and at <= seconds < at + 10:
            return
        self._said = (what, seconds)
        print(harmless(f"  … {what}, {round(seconds)} s"), file=sys.stderr, flush=True)


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


def budget_of(args: argparse.Namespace) -> Budget | None:
    """`--budget tokens=200000,spawns=3`, as often as it was given. Raises UsageError."""
    given: dict[str, float] = {}
    for part in (part for each in args.budget or () for part in each.split(",")):
        kind, _, number = part.partition("=")
        try:
            value = float(number)
            given[kind.strip()] = int(value) if value == int(value) else value
        except (ValueError, OverflowError):
            raise UsageError(
                f"'{part}' is no --budget.", remedy="Say what and how much: --budget tokens=200000,spawns=3"
            ) from None
    return Budget.read(given, "--budget") if given else None
