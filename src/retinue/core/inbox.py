"""What waits for a person: approvals, questions and quotes of any run, answered exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from retinue.core.permission import Risk

InboxKind = Literal["approval", "question", "quote"]
InboxState = Literal["waiting", "answered", "expired", "withdrawn"]

APPROVALS = ("allow", "allow-run", "allow-agent", "always", "deny")
"""Once; for this run and its children; for every run of this agent; as a rule in the settings; no."""


class InboxAnswer(Struct, frozen=True):
    """`choice` is one of the item's options, or free text for a question. `message` reaches the
    agent with a denial. `by` is who answered: a face, `policy`, or `expiry`."""

    choice: str
    message: str = ""
    by: str = ""
    at: float = 0.0


class InboxItem(Struct, frozen=True, kw_only=True):
    """`payload` is the exact call (tool, arguments) or question; `detail` is for people, a diff
    for edits. When `expires_at` passes unanswered, `default` is the answer."""

    id: str
    kind: InboxKind
    run_id: str
    root_id: str
    agent: str
    title: str
    description: str = ""
    """What the agent works on, in a few words: it tells two runs of one agent apart."""
    detail: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    risk: Risk = "medium"
    reason: str = ""
    rule: str | None = None
    options: tuple[str, ...] = APPROVALS
    default: str = "deny"
    created_at: float = 0.0
    expires_at: float | None = None
    state: InboxState = "waiting"
    answer: InboxAnswer | None = None
