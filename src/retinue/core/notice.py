"""Facts behind the messages that the harness writes for a model.

The text of such a message is for the model and for people. The program reads these facts and never the text.
"""

from __future__ import annotations

from msgspec import Struct

from retinue.core.delegation import Status
from retinue.core.spec import PermissionMode
from retinue.core.value import Tagged


class ChildEnding(Struct, frozen=True, omit_defaults=True):
    """How one background run ended, as its parent was told. `result` is the beginning of its answer, `label` its status
    in words. `tokens` is None where nobody counted them."""

    id: str
    status: Status
    label: str
    description: str
    result: str = ""
    truncated: bool = False
    stopped_by_person: bool = False
    transcript: str = ""
    branch: str = ""
    notes: tuple[str, ...] = ()
    tool_uses: int = 0
    tokens: int | None = None
    duration_ms: int = 0


class ChildrenEnded(Tagged, frozen=True, tag="children_ended"):
    """`partial`: other runs of the group are still at work."""

    endings: tuple[ChildEnding, ...]
    group: bool = False
    partial: bool = False


class ChildAsked(Tagged, frozen=True, tag="child_asked"):
    """The run `run_id` asks its parent a question. `agent` is its name and what it works on."""

    run_id: str
    agent: str
    question: str
    options: tuple[str, ...] = ()


class ModeNotice(Tagged, frozen=True, tag="mode"):
    """A person has switched the run to plan mode or out of it."""

    mode: PermissionMode


Notice = ChildrenEnded | ChildAsked | ModeNotice
