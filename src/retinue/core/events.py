"""Everything that can happen in a run: one closed union, each member with its ordering contract.

The loop yields bodies. The recorder turns each into an `Event` (run, parent, root, sequence, time) and writes it to the
log *before* anyone sees it. Bodies in `TRANSIENT` are not written: a durable body repeats their content.

Order within a run, as a grammar:

    RunCreated RunStarted ( MessageAdded | Turn | Compacted | Warned | LimitReached | ResultRead | ChildResumed
        | ModeChanged | MovedToBackground )*
        Undone? RunEnded ( Undone | Rewound )*
    Turn = TurnStarted ( TextDelta | ThinkingDelta | Retrying )* AssistantEnded
           ( ToolStarted | ToolProgress | ToolEnded | TodosUpdated | Inbox )* ToolsEnded? TurnEnded
    Inbox = InboxOpened InboxClosed, of several at once in any order

A resumed run continues its sequence with RunResumed in place of RunCreated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import InboxKind, InboxState, ToolEffect
from retinue.core.request import NO_OPTIONS, RunOptions
from retinue.core.spec import PermissionMode
from retinue.core.tool import Todo
from retinue.core.usage import LimitName, Usage
from retinue.core.value import Tagged


class RunCreated(Tagged, frozen=True, tag="run.created"):
    """First event of a run, once. `spec` is the complete definition, so that a resumed run uses the same version after
    its file has changed or was deleted."""

    agent: str
    task: str
    spec: Mapping[str, Any]
    spec_hash: str
    model: str
    cwd: str
    depth: int = 0
    options: RunOptions = NO_OPTIONS


class RunStarted(Tagged, frozen=True, tag="run.started"):
    """After RunCreated (and any time in the queue), before the first message."""

    model: str
    tools: tuple[str, ...]
    cwd: str
    transcript: str | None = None


class RunResumed(Tagged, frozen=True, tag="run.resumed"):
    """Replaces RunCreated when an interrupted or ended run is resumed. `prompt` is empty if the run was resumed
    without one. `unknown` names the calls that had started and have no result; they are not repeated."""

    prompt: str
    unknown: tuple[str, ...] = ()


class MessageAdded(Tagged, frozen=True, tag="message.added"):
    """A message that no model wrote: task, steering, wrap-up, correction. Only between turns."""

    message: UserMessage


class TurnStarted(Tagged, frozen=True, tag="turn.started"):
    turn: int


class TextDelta(Tagged, frozen=True, tag="text.delta"):
    """Transient. In stream order, between TurnStarted and AssistantEnded."""

    text: str


class ThinkingDelta(Tagged, frozen=True, tag="thinking.delta"):
    """Transient, as TextDelta."""

    text: str


class Retrying(Tagged, frozen=True, tag="model.retrying"):
    """The request failed and will be sent again after `delay` seconds. `attempt` is 0 if another model takes over, and
    `most` is the largest number of attempts (0: not known). Deltas shown since TurnStarted are void: `partial` keeps
    their text, so that nothing shown is lost."""

    attempt: int
    delay: float
    failure: Failure
    partial: str = ""
    most: int = 0


class AssistantEnded(Tagged, frozen=True, tag="assistant.ended"):
    """The complete message of the model. Exactly one per turn; a failed one has `message.failure`."""

    turn: int
    message: AssistantMessage


class ToolStarted(Tagged, frozen=True, tag="tool.started"):
    """Written before the tool runs. Without its ToolEnded the effect of the call is unknown."""

    call: ToolCall


class ToolProgress(Tagged, frozen=True, tag="tool.progress"):
    """Transient. Output of a running tool."""

    call_id: str
    text: str


class ToolEnded(Tagged, frozen=True, tag="tool.ended"):
    """In order of completion. The model sees results in call order: see ToolsEnded."""

    call_id: str
    name: str
    result: ToolResult
    effect: ToolEffect
    duration_ms: int


class ToolsEnded(Tagged, frozen=True, tag="tools.ended"):
    """All results of the turn, in call order, as they enter the conversation."""

    message: ToolMessage


class TurnEnded(Tagged, frozen=True, tag="turn.ended"):
    """Last of a turn. `usage` is this turn's, `total` the run's so far."""

    turn: int
    usage: Usage
    total: Usage
    context_tokens: int = 0


class InboxOpened(Tagged, frozen=True, tag="inbox.opened"):
    """The run waits for a person. Between ToolStarted and ToolEnded of the call `call_id`, which has not run yet;
    without a call it is about something else, such as a quote. The inbox item `item_id` holds the question."""

    item_id: str
    kind: InboxKind
    title: str
    call_id: str | None = None


class InboxClosed(Tagged, frozen=True, tag="inbox.closed"):
    """After its InboxOpened, once, and written before the call runs: without it, the call never began. `state` says how
    it ended, `by` who answered, and `message` is the text of the answer."""

    item_id: str
    state: InboxState
    choice: str = ""
    by: str = ""
    message: str = ""
    call_id: str | None = None


class TodosUpdated(Tagged, frozen=True, tag="todos.updated"):
    """The complete to-do list of the run; it replaces earlier ones. Between ToolStarted and ToolEnded of the call that
    wrote it."""

    todos: tuple[Todo, ...] = ()


class ResultRead(Tagged, frozen=True, tag="child.read"):
    """This run has received the result of its child `child_id` as a tool result, so no notification is due. A
    notification is a MessageAdded."""

    child_id: str
    call_id: str | None = None
    """The call with the result: without the ToolEnded of that call the run has not seen it."""


class ChildResumed(Tagged, frozen=True, tag="child.resumed"):
    """This run has resumed its child `child_id`, which may still wait in the queue."""

    child_id: str


class ModeChanged(Tagged, frozen=True, tag="run.mode_changed"):
    """Another permission mode applies from here on: a person chose it, or approved a plan."""

    mode: PermissionMode
    cause: Literal["person", "plan"]


class MovedToBackground(Tagged, frozen=True, tag="run.moved"):
    """The call `call_id` of the parent stopped waiting for the run, which continues in the background."""

    call_id: str | None = None


class LimitReached(Tagged, frozen=True, tag="limit.reached"):
    """A limit was reached. `action` is the consequence: one wrap-up message, or the end of the run."""

    limit: LimitName
    action: Literal["wrap-up", "end"]
    detail: str


class Compacted(Tagged, frozen=True, tag="run.compacted"):
    """The conversation was replaced by `messages`, which always begin with the task. A replay drops the earlier
    messages at this event."""

    reason: Literal["threshold", "overflow", "manual"]
    method: Literal["pruned", "summarised"]
    tokens_before: int
    tokens_after: int
    messages: tuple[Message, ...]


FILE_PROBLEM = "agent_file"
"""The code of a warning about the file of the run's agent, which is the same for all runs of that file."""
MISSING = "missing_tools"
"""The code of a warning about tools that an agent names and that are not available."""
STEERED = "steered_by"
"""The code of the warning that names the front end through which a person sent a message to a run."""


class Warned(Tagged, frozen=True, tag="run.warned"):
    """A warning for people that did not stop the run. `code` is stable, and `text` has no effect on the program."""

    code: str
    text: str


class Undone(Tagged, frozen=True, tag="run.undone"):
    """Files that the run had changed were restored to their state before it, or before `turn`. Before RunEnded if the
    agent's file asks for it on failure; else after it, by a person."""

    restored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Files that were not restored, each with the reason."""
    turn: int | None = None
    by: Literal["person", "rollback"] = "person"
    forced: bool = False


class Rewound(Tagged, frozen=True, tag="run.rewound"):
    """A person went back: the conversation continues after event `to`, without what came between. Those events stay in
    the log as a branch. After RunEnded, by a person."""

    to: int
    changed: tuple[str, ...] = ()
    """Files that the dropped part had changed; the model is told of them."""


class RunEnded(Tagged, frozen=True, tag="run.ended"):
    """Last event of a run until someone resumes it. Exactly one per ending."""

    outcome: Outcome


class RunPruned(Tagged, frozen=True, tag="run.pruned"):
    """The last event of an old run: that number of its `events` was removed to save space, and it cannot be resumed.
    Its task, outcome and usage are kept."""

    events: int


Body = (
    RunCreated
    | RunStarted
    | RunResumed
    | MessageAdded
    | TurnStarted
    | TextDelta
    | ThinkingDelta
    | Retrying
    | AssistantEnded
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | ToolsEnded
    | TurnEnded
    | InboxOpened
    | InboxClosed
    | TodosUpdated
    | ResultRead
    | ChildResumed
    | ModeChanged
    | MovedToBackground
    | LimitReached
    | Compacted
    | Warned
    | Undone
    | Rewound
    | RunEnded
    | RunPruned
)

Delta = TextDelta | ThinkingDelta | ToolProgress
STREAMED = (TextDelta, ThinkingDelta)
"""The pieces of an answer."""
TRANSIENT = (*STREAMED, ToolProgress)
TURN_ENDS = (ToolsEnded, TurnEnded, RunEnded)
"""After one of these, no call of the turn is running."""


class EventPlace(Struct, frozen=True):
    """The run and position of an event. `seq` starts at 1 and has no gaps within a run's durable events; a transient
    event has the `seq` of the durable one before it. `at` is Unix seconds."""

    run_id: str
    parent_id: str | None
    root_id: str
    seq: int
    at: float


class Event(EventPlace, frozen=True):
    body: Body
