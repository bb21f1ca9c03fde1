"""The state of a run, computed from its events.

The row in the log, the run in memory, the card in the app, and the documents of `--json` and the HTTP API all use it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import force_setattr

from retinue.core.delegation import LIVE, State, Status
from retinue.core.events import (
    AssistantEnded,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    MovedToBackground,
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
)
from retinue.core.outcome import SUCCESS, Ended, Outcome
from retinue.core.usage import NOTHING, Usage, larger

TASK_PREVIEW = 500
"""Characters of the task that a state holds; the whole task is in the run's first event."""
_MAX_TEXT_CHARACTERS = 200

MOVING = frozenset(
    {RunCreated, RunStarted, RunResumed, RunEnded, InboxOpened, InboxClosed, MovedToBackground},
)
"""The events that change more than counts."""
COUNTED = MOVING | {TurnStarted, ToolStarted, ToolEnded, TurnEnded, AssistantEnded, Compacted}
"""All other events change at most the text of an `ActiveRun`."""


class RunPlace(Struct, frozen=True):
    """The place of a run in its tree. A root is its own root."""

    run_id: str
    parent_id: str | None = None
    root_id: str = ""

    def __post_init__(self) -> None:
        if not self.root_id:
            force_setattr(self, "root_id", self.run_id)


class RunState(Struct):
    """One run. `state` is the current one: `interrupted` means that its process is gone. `ended` is how it ended, and
    `error` the kind of its failure. `task` is the beginning of the task, `pid` the process that executes it. Times are
    Unix seconds."""

    id: str
    parent_id: str | None = None
    root_id: str = ""
    depth: int = 0
    agent: str = ""
    name: str | None = None
    """The handle by which people address it: `@name`."""
    display_name: str = ""
    description: str = ""
    color: str | None = None
    tags: tuple[str, ...] = ()
    """Options of the run in words, such as `worktree`."""
    call_id: str | None = None
    """The call of its parent that started it."""
    background: bool = False
    """Whether its parent does not wait for it."""
    doing: str = ""
    """The current activity of a live run in a few words, if it was looked up."""
    task: str = ""
    cwd: str = ""
    model: str = ""
    state: State = "queued"
    ended: Ended | None = None
    error: str | None = None
    pid: int | None = None
    transcript: str | None = None
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    updated_at: float = 0.0
    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = NOTHING

    @property
    def place(self) -> RunPlace:
        return RunPlace(self.id, self.parent_id, self.root_id)

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def status(self) -> Status:
        """The way in which it ended, or else its state."""
        return self.ended or "interrupted" if self.state == "ended" else self.state

    @property
    def succeeded(self) -> bool:
        return self.ended in SUCCESS


class ActiveRun(RunState):
    """A run that is followed event by event. No value in it is changed in place, so a copy never changes."""

    began: float | None = None
    """When its current attempt began."""
    turn: int = 0
    turn_seq: int = 0
    """The current turn, and the number of the event with which it began."""
    max_turns: float | None = None
    inherits_prompt: bool = False
    """Whether its prompt is that of its parent, followed by its own."""
    context_tokens: int = 0
    tools: Mapping[str, str] = {}
    """The tools that are running, by the ids of the calls."""
    last_tool: str = ""
    """The tool that was called last in the current turn."""
    asks: Mapping[str, str] = {}
    """The titles of open inbox items, by id."""
    answer: str = ""
    """The last answer of a person."""
    text: str = ""
    """The beginning of the answer that the model writes."""
    has_saved_text: bool = False
    """Whether the log holds text of an answer that is not complete."""
    outcome: Outcome | None = None
    moved: bool = False
    """Whether its current attempt was moved to the background."""
    window: int = 0
    """The context window of its model; this and what follows is known only to its parent."""
    queue_position: int | None = None
    """Its position in the queue for a slot of this process; None for a run that is not queued here."""
    consumed: bool = False
    """Whether its parent has read the result, so that no notification is due."""
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        """Return the result, or the last text of a run that did not complete."""
        if self.outcome is not None:
            return self.outcome.text
        return "" if self.live else self.text

    @property
    def failure_text(self) -> str:
        """Return the reason and the remedy of a failure; empty for a run that did not fail."""
        if self.outcome is not None and self.outcome.failure is not None:
            failure = self.outcome.failure
            return f"{failure.message} {failure.remedy}".strip()
        return "Its process ended while it worked." if self.status == "interrupted" else ""

    @property
    def duration_ms(self) -> int:
        if self.outcome is not None:
            return self.outcome.duration_ms
        return round(max((self.ended_at or self.updated_at) - self.began, 0.0) * 1000) if self.began else 0

    def apply(self, event: Event) -> bool:
        """Apply the next event of the run. Return whether its row in the log has changed."""
        body = event.body
        match body:
            case TextDelta(text):
                if len(self.text) < _MAX_TEXT_CHARACTERS:
                    self.text = (self.text + text)[:_MAX_TEXT_CHARACTERS]
                return False
            case ToolStarted(call):
                self.tools, self.last_tool = {**self.tools, call.id: call.name}, call.name
                return False
            case TurnStarted(turn):
                self.turn, self.turn_seq, self.text = turn, event.seq, ""
                return False
            case Retrying():
                self.text = ""
                return False
            case AssistantEnded():
                self.text = self.last_tool = ""
                if body.message.model in ("", self.model):
                    return False
                self.model = body.message.model
            case ToolEnded():
                self.tool_uses += 1
                self.tools = _without(self.tools, body.call_id)
            case TurnEnded():
                self.turn, self.turns, self.tools = body.turn, self.turns + 1, {}
                self.usage = larger(self.usage, body.total, body.usage)
                self.context_tokens = body.context_tokens
            case Compacted():
                self.compactions += 1
                self.context_tokens = 0
            case _ if type(body) in MOVING:
                self._move(event)
            case _:
                return False
        self.updated_at = event.at
        return True

    def _move(self, event: Event) -> None:
        body = event.body
        match body:
            case RunCreated():
                self._create(event, body)
            case RunStarted():
                self.model, self.transcript = body.model, body.transcript
                self.started_at = self.started_at or event.at
                self.state, self.began = "running", self.began or event.at
            case RunResumed():
                self._reopen()
                self.state, self.began = "running", event.at
            case RunEnded(outcome):
                self.end("ended", event.at)
                self.ended, self.outcome = outcome.ended, outcome
                self.error = outcome.failure.kind if outcome.failure else None
                self.usage = larger(self.usage, outcome.usage)
                self.turn, self.turns = max(self.turn, outcome.turns), max(self.turns, outcome.turns)
                self.tool_uses = max(self.tool_uses, outcome.tool_uses)
            case InboxOpened():
                self.asks = {**self.asks, body.item_id: body.title}
                self.state = "waiting"
            case InboxClosed():
                self.asks = _without(self.asks, body.item_id)
                self.answer = f"{body.choice} {body.message}".strip() if body.state == "answered" else ""
                self.state = "waiting" if self.asks else "running"
            case MovedToBackground():
                self.background = self.moved = True
            case _:
                pass

    def _create(self, event: Event, body: RunCreated) -> None:
        options, spec = body.options, body.spec
        self.parent_id, self.root_id, self.created_at = event.parent_id, event.root_id, event.at
        self.agent, self.depth, self.cwd, self.model = body.agent, body.depth, body.cwd, body.model
        self.task = body.task[:TASK_PREVIEW]
        self.name, self.call_id, self.background = options.name, options.call_id, options.background
        self.display_name = str(spec.get("display_name") or body.agent)
        self.description = options.description
        self.color = spec["color"] if isinstance(spec.get("color"), str) else None
        self.tags = _tags(body)
        self.max_turns = options.limits.get("max_turns") or spec.get("max_turns") or None
        self.inherits_prompt = spec.get("prompt_mode") == "append"

    def requeue(self) -> None:
        """Begin the next attempt."""
        self._reopen()
        self.state = "queued"

    def _reopen(self) -> None:
        self.ended = self.error = self.outcome = None
        self.began = self.ended_at = None
        self.moved = False
        self.asks = {}

    def end(self, state: State, at: float) -> None:
        """Mark the run as ended, or as `interrupted` where its process is gone."""
        self.state, self.ended_at = state, at
        self.text = self.last_tool = ""
        self.tools = self.asks = {}


def _without(values: Mapping[str, str], key: str) -> Mapping[str, str]:
    return {name: value for name, value in values.items() if name != key} if key in values else values


def _tags(body: RunCreated) -> tuple[str, ...]:
    spec, options = body.spec, body.options
    model, limits = spec.get("model"), options.limits
    thinking = options.thinking or (model.get("thinking") if isinstance(model, Mapping) else None)
    tags = {
        options.model: options.model,
        f"thinking: {thinking}": thinking,
        "isolated": spec.get("isolated"),
        "worktree": "worktree" in (spec.get("isolation"), options.isolation),
        "inherits context": spec.get("inherit_context"),
        f"max turns: {limits.get('max_turns')}": limits.get("max_turns"),
        f"depth {body.depth}": body.depth > 1,
    }
    return tuple(str(tag) for tag, shown in tags.items() if shown)
