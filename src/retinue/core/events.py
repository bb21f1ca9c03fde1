"""Everything that can happen in a run: one closed union, each member with its ordering contract.

The loop yields bodies; the recorder stamps them into an `Event` (run, parent, root, sequence,
time) and writes it to the log *before* anyone sees it. Bodies in `TRANSIENT` are live only:
what they said arrives again, whole, in a durable body.

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
    """First event of a run, once. `spec` is the whole definition, so that a resume after the
    file changed or vanished still runs the same version."""

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
    """Replaces RunCreated when an interrupted or ended run goes on. `unknown` names the calls
    that had started and never reported; they are not repeated."""

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
    """The request failed and will be made again after `delay` seconds; `attempt` is 0 where another
    model takes over, and `most` is how many there will be before the request is given up (0: not known).
    Deltas shown since TurnStarted are void: `partial` keeps their text, so that nothing shown is lost."""

    attempt: int
    delay: float
    failure: Failure
    partial: str = ""
    most: int = 0


class AssistantEnded(Tagged, frozen=True, tag="assistant.ended"):
    """The model's message, whole. Exactly one per turn; `message.failure` if it failed."""

    turn: int
    message: AssistantMessage


class ToolStarted(Tagged, frozen=True, tag="tool.started"):
    """Written before the tool runs. Without its ToolEnded the effect is unknown."""

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
    """The run waits for a person. Between ToolStarted and ToolEnded of the call `call_id`, of
    which nothing has run yet; without one it is about something else, such as a quote. What is
    asked is in the inbox under `item_id`, with all that belongs to it."""

    item_id: str
    kind: InboxKind
    title: str
    call_id: str | None = None


class InboxClosed(Tagged, frozen=True, tag="inbox.closed"):
    """After its InboxOpened, once, and written before anything of the call runs: without it, the
    call never began. `state` says how it ended, `by` who answered; `message` is theirs."""

    item_id: str
    state: InboxState
    choice: str = ""
    by: str = ""
    message: str = ""
    call_id: str | None = None


class TodosUpdated(Tagged, frozen=True, tag="todos.updated"):
    """What the run has to do, whole: the newest counts. Between ToolStarted and ToolEnded of the
    call that wrote it."""

    todos: tuple[Todo, ...] = ()


class ResultRead(Tagged, frozen=True, tag="child.read"):
    """This run has the result of its child `child_id`: no announcement of it is due any more.
    Written when the result went back as a tool result; an announcement is a MessageAdded."""

    child_id: str
    call_id: str | None = None
    """The call whose result carries it: without the ToolEnded of that call the run has not seen it."""


class ChildResumed(Tagged, frozen=True, tag="child.resumed"):
    """This run has taken up its child `child_id` again; the child may still wait in the queue."""

    child_id: str


class ModeChanged(Tagged, frozen=True, tag="run.mode_changed"):
    """Another permission mode holds from here on: a person chose it, or approved a plan."""

    mode: PermissionMode
    cause: Literal["person", "plan"]


class MovedToBackground(Tagged, frozen=True, tag="run.moved"):
    """The call `call_id` of the parent stopped waiting for the run, which continues in the background."""

    call_id: str | None = None


class LimitReached(Tagged, frozen=True, tag="limit.reached"):
    """`action` says what follows: one wrap-up message, or the end of the run."""

    limit: LimitName
    action: Literal["wrap-up", "end"]
    detail: str


class Compacted(Tagged, frozen=True, tag="run.compacted"):
    """The conversation was replaced by `messages`, which always begin with the task.
    A replay that meets this event drops what it had and goes on from here."""

    reason: Literal["threshold", "overflow", "manual"]
    method: Literal["pruned", "summarised"]
    tokens_before: int
    tokens_after: int
    messages: tuple[Message, ...]


FILE_PROBLEM = "agent_file"
"""The code of a warning about the file of the run's agent: it is the same for all runs of that file."""
MISSING = "missing_tools"
"""The code of a warning about tools that an agent asks for and that are not there."""
STEERED = "steered_by"
"""The code of the warning that names the front end through which a person has said something to a run."""


class Warned(Tagged, frozen=True, tag="run.warned"):
    """Something for people that did not stop the run; `code` is stable. The program decides nothing by `text`."""

    code: str
    text: str


class Undone(Tagged, frozen=True, tag="run.undone"):
    """Files the run had changed were put back to how they were before it, or before `turn`.
    Before RunEnded when its file wants that on failure; else after it, by a person."""

    restored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Left as they are, each with the reason."""
    turn: int | None = None
    by: Literal["person", "rollback"] = "person"
    forced: bool = False


class Rewound(Tagged, frozen=True, tag="run.rewound"):
    """A person went back: the conversation goes on after event `to`, as if what lies between had not been said.
    Those events stay, as a branch of their own. After RunEnded, by a person."""

    to: int
    changed: tuple[str, ...] = ()
    """Files as the part that was left had changed them; the model hears of them."""


class RunEnded(Tagged, frozen=True, tag="run.ended"):
    """Last event of a run until someone resumes it. Exactly one per ending."""

    outcome: Outcome


class RunPruned(Tagged, frozen=True, tag="run.pruned"):
    """The last event of a run of long ago: so many of its `events` were removed to save space, and it cannot go on.
    What it was asked, how it ended and what it used are still there."""

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
"""After one of these, no call of the turn is at work."""


class EventPlace(Struct, frozen=True):
    """The place of an event. `seq` starts at 1 and has no gaps within a run's durable events; a transient event has the
    `seq` of the durable one before it. `at` is Unix seconds."""

    run_id: str
    parent_id: str | None
    root_id: str
    seq: int
    at: float


class Event(EventPlace, frozen=True):
    body: Body
