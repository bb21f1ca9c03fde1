"""Everything one run needs, frozen before it starts.

The loop charges every request to a `LoopAccount` and asks it before the next one. It does not know what
an account is made of; the supervisor gives each run the account of its position in the tree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.messages import Message, UserMessage
from retinue.core.tool import Tool, ToolContext
from retinue.core.usage import LimitName, Limits, Usage
from retinue.errors import LaunchError
from retinue.loop.finish import SUBMIT


class Verdict(NamedTuple):
    """Why there may be no ordinary request. With `wrap_up` there may be one more, in which the
    agent is asked to come to its end; without, none."""

    limit: LimitName
    text: str
    wrap_up: bool = False


class LoopAccount(Protocol):
    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        """Record what was spent. Never refuses: it has happened."""
        ...

    def verdict(self) -> Verdict | None:
        """Asked before each request; None: go on."""
        ...

    def calls_left(self) -> int | None:
        """Return how many tool calls may still be made; None: any number."""
        ...


class Unlimited:
    """The account of a run that shares nothing."""

    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        return None

    def verdict(self) -> None:
        return None

    def calls_left(self) -> None:
        return None


UNLIMITED = Unlimited()


class Prior(Struct, frozen=True):
    """What the run had used before it was resumed. Money and tokens count on against the
    budget; turns, tool calls and time are granted anew."""

    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0


class Compaction(Struct, frozen=True):
    """When and how the conversation is shortened. `at` is the share of the model's window that
    may be full before a request; None leaves it to overflow errors and people. The newest
    `keep_turns` turns stay as they are."""

    at: float | None = 0.85
    keep_turns: int = 3


class Job(Struct, frozen=True, kw_only=True):
    """`history` is what the log already has; `messages` is new (the task, or the prompt of a
    resume) and is announced first. `system` and `tools` never change during the run;
    `late_tools` is called before every request, and what it returns is added after them for good.

    Permission checks, hooks and audits are wrappers around the tools: the loop knows no flags
    for them. `remind` returns text that must survive a compaction, such as the live children.
    """

    system: str
    messages: tuple[UserMessage, ...]
    context: ToolContext
    history: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    limits: Limits = field(default_factory=Limits)
    account: LoopAccount = UNLIMITED
    """What the run shares with its tree: charged after every request, asked before the next."""
    thinking: str | None = None
    temperature: float | None = None
    max_output: int | None = None
    schema: Mapping[str, Any] | bool | None = None
    accept: Callable[[Any], object] | None = None
    """Raises ValueError for a result that matches the schema and is wrong all the same."""
    first_turn: int = 1
    prior: Prior = field(default_factory=Prior)
    compaction: Compaction = field(default_factory=Compaction)
    parallel_calls: int = 16
    cancel_seconds: float = 5.0
    """How long a cancelled tool may take to clean up before it is left behind."""
    remind: Callable[[], str] = str
    absent: Callable[[str], str] = lambda name: ""
    """Why the run lacks a tool that exists, as a sentence for its model; empty if it is not known."""
    late_tools: Callable[[], tuple[Tool, ...]] = tuple
    """Tools that became available since: a server that was slow, or what the run searched for."""
    request_headers: Callable[[], Mapping[str, str]] = dict
    """Further headers of the next request to the model."""
    before_end: Callable[[], Awaitable[str | None]] | None = None
    """Asked when the run would end well: a text is its next instruction."""
    before_compact: Callable[[str], Awaitable[str | None]] | None = None
    """Asked with the reason before the conversation is shortened; a text says why not to."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        names = [tool.spec.name for tool in self.tools]
        if self.schema is not None:
            names.append(SUBMIT)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise LaunchError(
                f"Two tools share the name {', '.join(twice)}.",
                remedy="A model calls tools by name: rename or drop one of them.",
            )
        # A provider would refuse an empty conversation.
        if not self.messages and not self.history:
            raise LaunchError("There is nothing to do.", remedy="Give the run a task.")
