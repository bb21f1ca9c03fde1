"""Everything that can happen in a run: one closed union, each member with its ordering contract.

The loop yields bodies; the recorder stamps them into an `Event` (run, parent, root, sequence,
time) and writes it to the log *before* anyone sees it. Bodies in `TRANSIENT` are live only:
what they said arrives again, whole, in a durable body.

Order within a run, as a grammar:

    RunCreated RunStarted ( MessageAdded | Turn | Compacted | Warned | LimitReached | ResultRead )*
        Undone? RunEnded Undone*
    Turn = TurnStarted ( TextDelta | ThinkingDelta | Retrying )* AssistantEnded
           ( ToolStarted | ToolProgress | ToolEnded | TodosUpdated | Inbox )* ToolsEnded? TurnEnded
    Inbox = InboxOpened InboxClosed, of several at once in any order

A resumed run continues its sequence with RunResumed in place of RunCreated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from retinue.core.inbox import InboxKind, InboxState
from retinue.core.lean import dataclass
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import ToolEffect
from retinue.core.tool import Todo
from retinue.core.usage import LimitName, Usage


@dataclass(frozen=True, slots=True)
class RunCreated:
    """First event of a run, once. `spec` is the whole definition, so that a resume after the
    file changed or vanished still runs the same version."""

    agent: str
    task: str
    spec: Mapping[str, Any]
    spec_hash: str
    model: str
    cwd: str
    depth: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    type: Literal["run.created"] = field(default="run.created", init=False)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """After RunCreated (and any time in the queue), before the first message."""

    model: str
    tools: tuple[str, ...]
    cwd: str
    transcript: str | None = None
    type: Literal["run.started"] = field(default="run.started", init=False)


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Replaces RunCreated when an interrupted or ended run goes on. `unknown` names the calls
    that had started and never reported; they are not repeated."""

    prompt: str
    unknown: tuple[str, ...] = ()
    type: Literal["run.resumed"] = field(default="run.resumed", init=False)


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message that no model wrote: task, steering, wrap-up, correction. Only between turns."""

    message: UserMessage
    type: Literal["message.added"] = field(default="message.added", init=False)


@dataclass(frozen=True, slots=True)
class TurnStarted:
    turn: int
    type: Literal["turn.started"] = field(default="turn.started", init=False)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Transient. In stream order, between TurnStarted and AssistantEnded."""

    text: str
    type: Literal["text.delta"] = field(default="text.delta", init=False)


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """Transient, as TextDelta."""

    text: str
    type: Literal["thinking.delta"] = field(default="thinking.delta", init=False)


@dataclass(frozen=True, slots=True)
class Retrying:
    """The request failed and will be made again after `delay` seconds. Deltas shown since
    TurnStarted are void: `partial` keeps their text, so that nothing shown is lost."""

    attempt: int
    delay: float
    failure: Failure
    partial: str = ""
    type: Literal["model.retrying"] = field(default="model.retrying", init=False)


@dataclass(frozen=True, slots=True)
class AssistantEnded:
    """The model's message, whole. Exactly one per turn; `message.failure` if it failed."""

    turn: int
    message: AssistantMessage
    type: Literal["assistant.ended"] = field(default="assistant.ended", init=False)


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """Written before the tool runs. Without its ToolEnded the effect is unknown."""

    call: ToolCall
    type: Literal["tool.started"] = field(default="tool.started", init=False)


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """Transient. Output of a running tool."""

    call_id: str
    text: str
    type: Literal["tool.progress"] = field(default="tool.progress", init=False)


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """In order of completion. The model sees results in call order: see ToolsEnded."""

    call_id: str
    name: str
    result: ToolResult
    effect: ToolEffect
    duration_ms: int
    type: Literal["tool.ended"] = field(default="tool.ended", init=False)


@dataclass(frozen=True, slots=True)
class ToolsEnded:
    """All results of the turn, in call order, as they enter the conversation."""

    message: ToolMessage
    type: Literal["tools.ended"] = field(default="tools.ended", init=False)


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """Last of a turn. `usage` is this turn's, `total` the run's so far."""

    turn: int
    usage: Usage
    total: Usage
    context_tokens: int = 0
    type: Literal["turn.ended"] = field(default="turn.ended", init=False)


@dataclass(frozen=True, slots=True)
class InboxOpened:
    """The run waits for a person. Between ToolStarted and ToolEnded of the call `call_id`, of
    which nothing has run yet; without one it is about something else, such as a quote. What is
    asked is in the inbox under `item_id`, with all that belongs to it."""

    item_id: str
    kind: InboxKind
    title: str
    call_id: str | None = None
    type: Literal["inbox.opened"] = field(default="inbox.opened", init=False)


@dataclass(frozen=True, slots=True)
class InboxClosed:
    """After its InboxOpened, once, and written before anything of the call runs: without it, the
    call never began. `state` says how it ended, `by` who answered; `message` is theirs."""

    item_id: str
    state: InboxState
    choice: str = ""
    by: str = ""
    message: str = ""
    call_id: str | None = None
    type: Literal["inbox.closed"] = field(default="inbox.closed", init=False)


@dataclass(frozen=True, slots=True)
class TodosUpdated:
    """What the run has to do, whole: the newest counts. Between ToolStarted and ToolEnded of the
    call that wrote it."""

    todos: tuple[Todo, ...] = ()
    type: Literal["todos.updated"] = field(default="todos.updated", init=False)


@dataclass(frozen=True, slots=True)
class ResultRead:
    """This run has the result of its child `child_id`: no announcement of it is due any more.
    Written when the result went back as a tool result; an announcement is a MessageAdded."""

    child_id: str
    type: Literal["child.read"] = field(default="child.read", init=False)


@dataclass(frozen=True, slots=True)
class LimitReached:
    """`action` says what follows: one wrap-up message, or the end of the run."""

    limit: LimitName
    action: Literal["wrap-up", "end"]
    detail: str
    type: Literal["limit.reached"] = field(default="limit.reached", init=False)


@dataclass(frozen=True, slots=True)
class Compacted:
    """The conversation was replaced by `messages`, which always begin with the task.
    A replay that meets this event drops what it had and goes on from here."""

    reason: Literal["threshold", "overflow", "manual"]
    method: Literal["pruned", "summarised"]
    tokens_before: int
    tokens_after: int
    messages: tuple[Message, ...]
    type: Literal["run.compacted"] = field(default="run.compacted", init=False)


APPROVED = "plan_approved"
"""The code of the warning that tells which permission mode holds since a plan was approved."""
FILE_PROBLEM = "agent_file"
"""The code of a warning about the file of the run's agent: it is the same for all runs of that file."""
MISSING = "missing_tools"
"""The code of a warning about tools that an agent asks for and that are not there."""
MOVED = "moved_to_background"
"""The code of the warning that a run whose caller stopped waiting goes on in the background."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know that did not stop the run; `code` is stable."""

    code: str
    text: str
    type: Literal["run.warned"] = field(default="run.warned", init=False)


@dataclass(frozen=True, slots=True)
class Undone:
    """Files the run had changed were put back to how they were before it, or before `turn`.
    Before RunEnded when its file wants that on failure; else after it, by a person."""

    restored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Left as they are, each with the reason."""
    turn: int | None = None
    by: Literal["person", "rollback"] = "person"
    forced: bool = False
    type: Literal["run.undone"] = field(default="run.undone", init=False)


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Last event of a run until someone resumes it. Exactly one per ending."""

    outcome: Outcome
    type: Literal["run.ended"] = field(default="run.ended", init=False)


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
    | LimitReached
    | Compacted
    | Warned
    | Undone
    | RunEnded
)

TRANSIENT = (TextDelta, ThinkingDelta, ToolProgress)


@dataclass(frozen=True, slots=True)
class Event:
    """A body with its place. `seq` starts at 1 and has no gaps within a run's durable events;
    a transient event carries the `seq` of the durable one before it. `at` is Unix seconds."""

    run_id: str
    parent_id: str | None
    root_id: str
    seq: int
    at: float
    body: Body
