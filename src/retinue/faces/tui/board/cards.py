"""One run as people see it: kept up to date event by event, so that drawing looks at nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from retinue.core import events
from retinue.core.delegation import LIVE_STATUSES, Status
from retinue.core.format import context_percent
from retinue.core.outcome import SUCCESS, Outcome
from retinue.core.toolnames import canonical
from retinue.core.usage import Usage
from retinue.faces.text import clip, first_line, optional
from retinue.log.rows import larger

LONGEST = 60

# What an agent does with a tool, and with several calls of it to what.
_VERBS: dict[str, tuple[str, str]] = {
    "read": ("reading", "files"),
    "write": ("writing", "files"),
    "edit": ("editing", "files"),
    "bash": ("running", "commands"),
    "grep": ("searching", "patterns"),
    "find": ("finding", "patterns"),
    "ls": ("listing", "folders"),
    "web_search": ("searching the web for", "queries"),
    "fetch_content": ("fetching", "pages"),
    "lsp": ("asking the language server", "questions"),
    "Agent": ("delegating to", "agents"),
    "subagent": ("delegating to", "agents"),
    "dispatch_agent": ("delegating to", "agents"),
    "get_subagent_result": ("waiting for", "agents"),
    "skill": ("loading", "skills"),
    "todo": ("planning", "lists"),
}


def describe(tools: Iterable[str], text: str = "") -> str:
    """Return `reading 3 files, searching…`, the first line of the current text, or `thinking…`."""
    counts: Counter[str] = Counter()
    for tool in tools:
        for name in canonical(tool):
            if name in _VERBS:
                tool = name
                break
        counts[tool] += 1
    phrases = []
    for tool, count in counts.items():
        phrase, noun = _VERBS.get(tool, (f"using {tool}", ""))
        if count > 1 and noun:
            phrase += f" {count} {noun}"
        elif count > 1:
            phrase += f" × {count}"
        phrases.append(phrase)
    if phrases:
        return ", ".join(phrases) + "…"
    return clip(first_line(text), LONGEST) or "thinking…"


# How large the context of a model is, by its full name; None when that is not known.
Window = Callable[[str], int | None]

# Characters of the current answer that are kept for the activity line.
_KEPT = 200


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
    call_id: str | None = None
    """The call that started it."""
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
    answer: str = ""
    """What a person last answered it."""
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
        """Return whether it is a run that a person talks to."""
        return self.depth == 0 and self.parent_id is None and bool(self.agent)

    @property
    def name(self) -> str:
        return self.label or self.agent or self.id[:8]

    def activity(self) -> str:
        """Return what it does right now, in a few words."""
        if self.status == "waiting":
            return "waiting for an answer" + optional(": {}", next(iter(self.asks.values()), ""))
        return describe(self.tools.values(), self.text)

    def elapsed_ms(self, now: float) -> float:
        begun, ended = self.began, self.ended_at
        if begun is None:
            begun = self.queued_at
        if ended is None:
            ended = now
        return max(ended - begun, 0.0) * 1000

    def context_percent(self, window: Window) -> float | None:
        if not self.model:
            return None
        return context_percent(self.context_tokens, window(self.model))

    def take(self, event: events.Event) -> None:
        """Take one event of this run. Anything not of interest here changes nothing."""
        match event.body:
            case events.TextDelta(text):
                if len(self.text) < _KEPT:
                    self.text = (self.text + text)[:_KEPT]
            case events.ToolStarted(call):
                self.tools[call.id] = call.name
            case events.ToolEnded():
                self.tools.pop(event.body.call_id, None)
                self.tool_uses += 1
            case events.TurnStarted(turn):
                self.turns, self.text = turn, ""
            case events.AssistantEnded() | events.Retrying():
                self.text = ""
            case events.TurnEnded():
                self.turns = event.body.turn
                self.usage = larger(self.usage, event.body.total, event.body.usage)
                self.context_tokens = event.body.context_tokens
                self.tools.clear()
            case events.Compacted():
                self.compactions += 1
                self.context_tokens = 0
            case _:
                self._move(event)

    def _move(self, event: events.Event) -> None:
        """Take what changes how the run stands."""
        match event.body:
            case events.InboxOpened():
                self.asks[event.body.item_id] = event.body.title
                self.status = "waiting"
            case events.InboxClosed():
                self.asks.pop(event.body.item_id, None)
                self.answer = ""
                if event.body.state == "answered":
                    self.answer = event.body.choice + optional(" {}", event.body.message)
                if not self.asks and self.status == "waiting":
                    self.status = "running"
            case events.RunCreated():
                self._created(event.body, event.at)
            case events.Warned(code=code) if code == events.MOVED:
                self.background = True
            case events.RunStarted() | events.RunResumed():
                self._began(event)
            case events.RunEnded(outcome):
                self._ended(outcome, event.at)
            case _:
                pass

    def mark_lost(self, at: float) -> None:
        """Note that its process is gone: it neither works nor has it ended."""
        if self.live:
            self.status, self.ended_at, self.text = "interrupted", at, ""
            self.tools.clear()
            self.asks.clear()

    def _created(self, body: events.RunCreated, at: float) -> None:
        spec, options = body.spec, body.options
        self.agent, self.model, self.depth = body.agent, body.model, body.depth
        self.label = str(spec.get("display_name") or body.agent)
        self.description = str(options.get("description") or "") or first_line(body.task)
        self.handle, self.call_id = options.get("name"), options.get("call_id")
        if isinstance(spec.get("color"), str):
            self.color = spec["color"]
        self.twin = spec.get("prompt_mode") == "append"
        self.background = bool(options.get("background", True))
        self.max_turns = (options.get("limits") or {}).get("max_turns") or spec.get("max_turns") or None
        self.tags = _tags(body)
        self.status, self.queued_at = "queued", at

    def _began(self, event: events.Event) -> None:
        if isinstance(event.body, events.RunStarted):
            self.model = event.body.model
        self.status, self.outcome, self.ended_at = "running", None, None
        # A run that is taken up again counts its time from there.
        if self.began is None or isinstance(event.body, events.RunResumed):
            self.began = event.at

    def _ended(self, outcome: Outcome, at: float) -> None:
        self.status, self.outcome, self.ended_at = outcome.ended, outcome, at
        self.usage, self.turns = larger(self.usage, outcome.usage), max(self.turns, outcome.turns)
        self.tools.clear()
        self.asks.clear()
        self.text = ""


def _tags(body: events.RunCreated) -> tuple[str, ...]:
    """Return how the run was asked for, where that is worth a word."""
    spec, options = body.spec, body.options
    thinking, model = options.get("thinking"), spec.get("model")
    if not thinking and isinstance(model, Mapping):
        thinking = model.get("thinking")
    tags = [optional("{}", options.get("model")), optional("thinking: {}", thinking)]
    if spec.get("isolated"):
        tags.append("isolated")
    if "worktree" in (spec.get("isolation"), options.get("isolation")):
        tags.append("worktree")
    if spec.get("inherit_context"):
        tags.append("inherits context")
    tags.append(optional("max turns: {}", (options.get("limits") or {}).get("max_turns")))
    if body.depth > 1:
        tags.append(f"depth {body.depth}")
    return tuple(filter(None, tags))
