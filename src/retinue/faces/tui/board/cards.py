"""One run as people see it: kept up to date event by event, so that drawing looks at nothing else.

`describe` says in a few words what an agent does now: grouped verbs for its tools, or what it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from retinue.core.delegation import LIVE_STATUSES, Status
from retinue.core.events import (
    MOVED,
    AssistantEnded,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    Retrying,
    RunCreated,
    RunEnded,
    RunResumed,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.format import context_percent
from retinue.core.outcome import SUCCESS, Outcome
from retinue.core.toolnames import canonical
from retinue.core.usage import Usage
from retinue.log.rows import larger

LONGEST = 60

_VERBS: dict[str, tuple[str, str, str]] = {
    "read": ("reading", "file", "files"),
    "write": ("writing", "file", "files"),
    "edit": ("editing", "file", "files"),
    "bash": ("running", "command", "commands"),
    "grep": ("searching", "pattern", "patterns"),
    "find": ("finding", "pattern", "patterns"),
    "ls": ("listing", "folder", "folders"),
    "web_search": ("searching the web for", "query", "queries"),
    "fetch_content": ("fetching", "page", "pages"),
    "lsp": ("asking the language server", "question", "questions"),
    "Agent": ("delegating to", "agent", "agents"),
    "subagent": ("delegating to", "agent", "agents"),
    "dispatch_agent": ("delegating to", "agent", "agents"),
    "get_subagent_result": ("waiting for", "agent", "agents"),
    "skill": ("loading", "skill", "skills"),
    "todo": ("planning", "list", "lists"),
}


def describe(tools: Iterable[str], text: str = "") -> str:
    """`reading 3 files, searching…`; the first line of the current text; or `thinking…`."""
    counts = Counter(_known(tool) for tool in tools)
    if counts:
        return ", ".join(_phrase(tool, count) for tool, count in counts.items()) + "…"
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not line:
        return "thinking…"
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _known(tool: str) -> str:
    return next((name for name in canonical(tool) if name in _VERBS), tool)


def _phrase(tool: str, count: int) -> str:
    if tool not in _VERBS:
        return f"using {tool}" if count == 1 else f"using {tool} × {count}"
    verb, _, many = _VERBS[tool]
    return verb if count == 1 else f"{verb} {count} {many}"


Window = Callable[[str], int | None]
"""How large the context of a model is, by its full name; None when that is not known."""

_KEPT = 200
"""Characters of the current answer that are kept for the activity line."""


@dataclass(slots=True)
class RunCard:
    """`queued_at`, `began` and `ended_at` are Unix seconds. `tools` are the calls at work now,
    `asks` what waits for a person: the title of each by its id."""

    id: str
    parent_id: str | None = None
    root_id: str = ""
    agent: str = ""
    label: str = ""
    description: str = ""
    handle: str | None = None
    color: str | None = None
    twin: bool = False
    model: str = ""
    max_turns: int | None = None
    depth: int = 0
    background: bool = True
    tags: tuple[str, ...] = ()
    status: Status = "queued"
    queued_at: float = 0.0
    began: float | None = None
    ended_at: float | None = None
    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = field(default_factory=Usage)
    context_tokens: int = 0
    tools: dict[str, str] = field(default_factory=dict)
    asks: dict[str, str] = field(default_factory=dict)
    text: str = ""
    outcome: Outcome | None = None
    ended_turn: int = 0
    """How many tool calls main had started when this run ended: finished rows linger by turns."""

    @property
    def live(self) -> bool:
        return self.status in LIVE_STATUSES

    @property
    def at_work(self) -> bool:
        return self.live and self.status != "queued"

    @property
    def succeeded(self) -> bool:
        return self.status in SUCCESS

    @property
    def is_main(self) -> bool:
        """Whether it is a run that a person talks to."""
        return self.depth == 0 and self.parent_id is None and bool(self.agent)

    @property
    def name(self) -> str:
        return self.label or self.agent or self.id[:8]

    def activity(self) -> str:
        """What it does right now, in a few words."""
        if self.status == "waiting":
            about = next(iter(self.asks.values()), "")
            return f"waiting for an answer: {about}" if about else "waiting for an answer"
        return describe(self.tools.values(), self.text)

    def elapsed_ms(self, now: float) -> float:
        begun = self.began if self.began is not None else self.queued_at
        return max((self.ended_at if self.ended_at is not None else now) - begun, 0.0) * 1000

    def context_percent(self, window: Window) -> float | None:
        return context_percent(self.context_tokens, window(self.model)) if self.model else None

    def take(self, event: Event) -> None:
        """One event of this run. Anything not of interest here changes nothing."""
        match event.body:
            case TextDelta(text):
                if len(self.text) < _KEPT:
                    self.text = (self.text + text)[:_KEPT]
            case ToolStarted(call):
                self.tools[call.id] = call.name
            case ToolEnded():
                self.tools.pop(event.body.call_id, None)
                self.tool_uses += 1
            case TurnStarted(turn):
                self.turns, self.text = turn, ""
            case AssistantEnded() | Retrying():
                self.text = ""
            case TurnEnded():
                self.turns = event.body.turn
                self.usage = larger(self.usage, event.body.total, event.body.usage)
                self.context_tokens = event.body.context_tokens
                self.tools.clear()
            case Compacted():
                self.compactions += 1
                self.context_tokens = 0
            case _:
                self._move(event)

    def _move(self, event: Event) -> None:
        """What changes how the run stands."""
        match event.body:
            case InboxOpened():
                self.asks[event.body.item_id] = event.body.title
                self.status = "waiting"
            case InboxClosed():
                self.asks.pop(event.body.item_id, None)
                self.status = self.status if self.asks or self.status != "waiting" else "running"
            case RunCreated():
                self._created(event.body, event.at)
            case Warned(code=code) if code == MOVED:
                self.background = True
            case RunStarted() | RunResumed():
                self._began(event)
            case RunEnded(outcome):
                self._ended(outcome, event.at)
            case _:
                pass

    def lost(self, at: float) -> None:
        """Its process is gone: it neither works nor has it ended."""
        if self.live:
            self.status, self.ended_at, self.text = "interrupted", at, ""
            self.tools.clear()
            self.asks.clear()

    def _created(self, body: RunCreated, at: float) -> None:
        spec, options = body.spec, body.options
        self.agent, self.model, self.depth = body.agent, body.model, body.depth
        self.label = str(spec.get("display_name") or body.agent)
        self.description = str(options.get("description") or "") or _first_line(body.task)
        self.handle = options.get("name")
        self.color = spec["color"] if isinstance(spec.get("color"), str) else None
        self.twin = spec.get("prompt_mode") == "append"
        self.background = bool(options.get("background", True))
        self.max_turns = (options.get("limits") or {}).get("max_turns") or spec.get("max_turns") or None
        self.tags = _tags(body)
        self.status, self.queued_at = "queued", at

    def _began(self, event: Event) -> None:
        if isinstance(event.body, RunStarted):
            self.model = event.body.model
        self.status, self.outcome, self.ended_at = "running", None, None
        self.began = self.began if self.began is not None and isinstance(event.body, RunStarted) else event.at

    def _ended(self, outcome: Outcome, at: float) -> None:
        self.status, self.outcome, self.ended_at = outcome.ended, outcome, at
        self.usage, self.turns = larger(self.usage, outcome.usage), max(self.turns, outcome.turns)
        self.tools.clear()
        self.asks.clear()
        self.text = ""


def _tags(body: RunCreated) -> tuple[str, ...]:
    """How it was asked for, where that is worth a word."""
    spec, options = body.spec, body.options
    thinking = options.get("thinking") or _of(spec.get("model")).get("thinking")
    limit = (options.get("limits") or {}).get("max_turns")
    tags = [
        str(options["model"]) if options.get("model") else "",
        f"thinking: {thinking}" if thinking else "",
        "isolated" if spec.get("isolated") else "",
        "worktree" if "worktree" in (spec.get("isolation"), options.get("isolation")) else "",
        "inherits context" if spec.get("inherit_context") else "",
        f"max turns: {limit}" if limit else "",
        f"depth {body.depth}" if body.depth > 1 else "",
    ]
    return tuple(tag for tag in tags if tag)


def _of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
