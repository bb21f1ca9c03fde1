"""The permission modes as front ends show them: their names, their meanings, and the order in which shift+tab selects
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from retinue.capabilities.permissions import project_rules
from retinue.core.spec import PermissionMode

if TYPE_CHECKING:
    from retinue.runs.project import Project


class ModeEntry(NamedTuple):
    """`words` say what the main agent does in the mode, in a status line; `help` explains it in a sentence."""

    mode: PermissionMode
    words: str
    help: str


MODE_ENTRIES: tuple[ModeEntry, ...] = (
    ModeEntry(
        "default",
        "asks before changes",
        "Reading is free. Editing files and running commands that change something are asked about first.",
    ),
    ModeEntry(
        "acceptEdits",
        "⏵⏵ accepts edits",
        "Files of the project are edited without asking. Commands that change something are asked about.",
    ),
    ModeEntry(
        "plan",
        "⏸ plans only",
        "Nothing is changed. The agent reads, makes a plan and asks you to approve it.",
    ),
    ModeEntry(
        "dontAsk",
        "never asks: denies",
        "What no rule allows is denied without asking you.",
    ),
    ModeEntry(
        "auto",
        "a model approves",
        "The model of permissions.autoModel decides instead of a person; a person is asked if it cannot decide.",
    ),
    ModeEntry(
        "bypassPermissions",
        "⏵⏵⏵ asks nothing",
        "Everything runs without asking, except what a rule forbids. Use it only inside a container.",
    ),
)
BY_MODE = {entry.mode: entry for entry in MODE_ENTRIES}
CYCLE: tuple[PermissionMode, ...] = ("default", "acceptEdits", "plan")


def session_mode(project: Project) -> PermissionMode:
    """Return the mode that the settings of a project give its main agent."""
    return project_rules(project).mode or "default"


def mode_words(mode: str) -> str:
    """Return what the status line says about a mode; the name of one that is not known."""
    for entry in MODE_ENTRIES:
        if entry.mode == mode:
            return entry.words
    return mode


def offered_modes(started_with: PermissionMode) -> tuple[PermissionMode, ...]:
    """Return the modes that a person can choose. One outside of the cycle is among them only where the program was
    started with it: nobody gets into `bypassPermissions` by a key alone."""
    if started_with in CYCLE:
        return CYCLE
    return (*CYCLE, started_with)


def next_mode(mode: PermissionMode, started_with: PermissionMode) -> PermissionMode:
    """Return the mode that shift+tab chooses."""
    order = offered_modes(started_with)
    if mode not in order:
        return order[0]
    return order[(order.index(mode) + 1) % len(order)]
