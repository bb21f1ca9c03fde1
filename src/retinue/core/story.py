"""A run as people read it: its events as entries, one event at a time.

    entry      begins with                          changes with
    task       RunCreated
    message    MessageAdded
    thinking   ThinkingDelta or AssistantEnded      ThinkingDelta, Retrying, AssistantEnded
    answer     TextDelta or AssistantEnded          TextDelta, Retrying, AssistantEnded
    call       AssistantEnded, ToolStarted          ToolStarted, ToolProgress, InboxOpened, InboxClosed, ToolEnded,
                                                    and the end or the resumption of the run
    todos      TodosUpdated
    note       every other event that a person should know of
    ended      RunEnded

All front ends, reports and recordings use this, so an event means the same everywhere and every note has one text. A
`Story` only keeps the open entries of one run. A caller that needs the others keeps them itself.
"""

from __future__ import annotations

from itertools import groupby
from typing import Literal

from msgspec import Struct

from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    InboxClosed,
    InboxOpened,
    LimitReached,
    MessageAdded,
    ModeChanged,
    MovedToBackground,
    Retrying,
    Rewound,
    RunCreated,
    RunEnded,
    RunPruned,
    RunResumed,
    TextDelta,
    ThinkingDelta,
    TodosUpdated,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnStarted,
    Undone,
    Warned,
)
from retinue.core.format import MOVED_TEXT, mode_text, retry_text
from retinue.core.messages import Text, Thinking, ToolCall, ToolResult, UserMessage
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect
from retinue.core.spec import PermissionMode
from retinue.core.tool import Todo

EntryKind = Literal["task", "message", "thinking", "answer", "call", "todos", "note", "ended"]
Topic = Literal[
    "asked",
    "answered",
    "compacted",
    "failed",
    "limit",
    "mode",
    "moved",
    "plan",
    "pruned",
    "resumed",
    "retry",
    "rewound",
    "undone",
    "warning",
]
"""The subject of a note. `failed`: all attempts of a request failed. `mode` and `plan`: the permission mode changed,
because a person chose it or approved a plan."""
CallState = Literal["pending", "running", "finished", "failed", "denied", "cut"]
"""`cut`: the run continued or ended without a result of the call."""
Change = Literal["added", "grew", "began", "asked", "answered", "ended", "void"]
"""The change of an entry by an event. A call `began`, `asked` a person, was `answered` or `ended`. A text `ended` when
it is complete (with no earlier change if it was not streamed), and is `void` if the request is sent again."""


class Entry(Struct, eq=False):
    """One entry of the story. `seq` and `at` are those of its first event, `turn` is its turn.

    `detail` is a second text: the description of a task, the withdrawn text of a retry, the remedy of a failure, the
    prompt of a resumption, the code of a warning, the inbox item of a question. `cut_off`: the answer ended at the
    output limit; `continues` is such an answer that this one continues. `asks` is the open question of a call,
    `approval` the last answer to it."""

    kind: EntryKind
    seq: int = 0
    at: float = 0.0
    turn: int = 0
    pieces: list[str] = []
    topic: Topic | None = None
    detail: str = ""
    name: str = ""
    """The agent of a task."""
    message: UserMessage | None = None
    mode: PermissionMode | None = None
    """The new permission mode, in a note about it."""
    cut_off: bool = False
    continues: Entry | None = None
    call: ToolCall | None = None
    state: CallState = "pending"
    asks: str = ""
    approval: str = ""
    result: ToolResult | None = None
    effect: ToolEffect = ToolEffect()
    duration_ms: int = 0
    todos: tuple[Todo, ...] = ()
    outcome: Outcome | None = None

    @property
    def text(self) -> str:
        # Joined when it is needed: a long answer comes in thousands of pieces.
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class StoryStep(Struct, frozen=True, gc=False):
    """One change of one entry. `piece` is the text by which it grew; the output of a running tool is kept nowhere else.
    When a text is complete, `piece` is the remaining text for readers that cannot replace earlier pieces."""

    entry: Entry
    change: Change
    piece: str = ""


class Story:
    """Turns the events of one run, in order, into entries. It may begin at any event, and events may be missing."""

    def __init__(self) -> None:
        self.turn = 0
        self.writing: list[Entry] = []
        """The thoughts and texts of the unfinished answer."""
        self.calls: list[Entry] = []
        """The calls of the last answer that have not ended."""
        self._cut_off: Entry | None = None
        self._continued: Entry | None = None
        self._place: tuple[int, float, int] = (0, 0.0, 0)
        """Number, time and turn of the current event."""

    def take(self, body: Body, seq: int = 0, at: float = 0.0) -> list[StoryStep]:
        """Return the changes that an event makes."""
        self._place = seq, at, self.turn
        # The most frequent events come first.
        if isinstance(body, (TextDelta, ThinkingDelta)):
            kind: Literal["answer", "thinking"] = "answer" if type(body) is TextDelta else "thinking"
            if self.writing and self.writing[-1].kind == kind:
                self.writing[-1].pieces.append(body.text)
                return [StoryStep(self.writing[-1], "grew", body.text)]
            return self._begin_text(kind, body.text)
        match body:
            case ToolProgress(call_id, text):
                entry = self._call(call_id)
                return [StoryStep(entry, "grew", text)] if entry is not None else []
            case ToolStarted(call):
                return self._begin_call(call)
            case ToolEnded():
                return self._end_call(body)
            case TurnStarted(turn):
                self.turn = turn
                return []
            case AssistantEnded():
                return self._end_answer(body)
            case _:
                return self._note(body)

    def count_written(self, delta: type[TextDelta] | type[ThinkingDelta]) -> int:
        """Return the number of characters of the unfinished answer that came in events of this type."""
        kind = "answer" if delta is TextDelta else "thinking"
        return sum(len(entry.text) for entry in self.writing if entry.kind == kind)

    def _begin_text(self, kind: Literal["answer", "thinking"], piece: str) -> list[StoryStep]:
        entry = Entry(kind, *self._place, [piece])
        if kind == "answer":
            entry.continues = self._continued
        self.writing.append(entry)
        return [StoryStep(entry, "added"), StoryStep(entry, "grew", piece)]

    def _end_answer(self, body: AssistantEnded) -> list[StoryStep]:
        """Replace the streamed entries by those of the complete message. Adjacent blocks of one kind are one entry."""
        steps: list[StoryStep] = []
        message, self.turn, self.calls = body.message, body.turn, []
        self._place = (*self._place[:2], self.turn)
        answer: Entry | None = None
        for kind, blocks in groupby(message.content, type):
            if kind is ToolCall:
                for call in blocks:
                    assert isinstance(call, ToolCall)
                    self.calls.append(Entry("call", *self._place, call=call))
                    steps.append(StoryStep(self.calls[-1], "added"))
                continue
            text = "\n".join(block.text for block in blocks if isinstance(block, (Text, Thinking)) and block.text)
            if text.strip():
                entry = self._settle("answer" if kind is Text else "thinking", text, steps)
                answer = entry if entry.kind == "answer" else answer
        for entry in self.writing:
            # Providers need not repeat thoughts in the message, but a text that is not in it is void.
            steps.insert(0, StoryStep(entry, "ended" if entry.kind == "thinking" else "void"))
        self.writing, self._continued = [], None
        self._cut_off = None
        if answer is not None and message.stop == "length" and not message.tool_calls:
            answer.cut_off = True
            self._cut_off = answer
        if message.failure is not None:
            steps += self._added("failed", message.failure.message, message.failure.remedy)
        return steps

    def _settle(self, kind: Literal["answer", "thinking"], text: str, steps: list[StoryStep]) -> Entry:
        """Complete the first open entry of a kind, or add one."""
        entry = next((entry for entry in self.writing if entry.kind == kind), None)
        if entry is None:
            entry = Entry(kind, *self._place)
            if kind == "answer":
                entry.continues, self._continued = self._continued, None
        else:
            self.writing.remove(entry)
        written, entry.pieces = entry.text, [text]
        unwritten = text[len(written) :] if text.startswith(written) else f"\n\n{text}"
        steps.append(StoryStep(entry, "ended", unwritten))
        return entry

    def _call(self, call_id: str | None) -> Entry | None:
        """Return the first call with that id: some servers use one id for several calls of a message."""
        return next((entry for entry in self.calls if entry.call is not None and entry.call.id == call_id), None)

    def _begin_call(self, call: ToolCall) -> list[StoryStep]:
        steps: list[StoryStep] = []
        for entry in self.calls:
            if entry.state == "pending" and entry.call is not None and entry.call.id == call.id:
                break
        else:
            # The event with the answer is missing.
            entry = Entry("call", *self._place, call=call)
            self.calls.append(entry)
            steps.append(StoryStep(entry, "added"))
        entry.state = "running"
        return [*steps, StoryStep(entry, "began")]

    def _end_call(self, body: ToolEnded) -> list[StoryStep]:
        steps: list[StoryStep] = []
        entry = self._call(body.call_id)
        if entry is None:
            entry = Entry("call", *self._place, call=ToolCall(body.call_id, body.name, {}))
            steps.append(StoryStep(entry, "added"))
        else:
            self.calls.remove(entry)
        entry.result, entry.effect, entry.duration_ms, entry.asks = body.result, body.effect, body.duration_ms, ""
        entry.state = "finished"
        if body.effect.denied is not None:
            entry.state = "denied"
        elif body.result.is_error:
            entry.state = "failed"
        return [*steps, StoryStep(entry, "ended")]

    def _cut_calls(self) -> list[StoryStep]:
        """End the calls that will have no result."""
        calls, self.calls = self.calls, []
        for entry in calls:
            entry.state, entry.asks = "cut", ""
        return [StoryStep(entry, "ended") for entry in calls]

    def _stop_writing(self, change: Literal["ended", "void"]) -> list[StoryStep]:
        """End the streamed entries of an answer that was not completed."""
        writing, self.writing = self.writing, []
        return [StoryStep(entry, change) for entry in writing]

    def _added(self, topic: Topic, text: str, detail: str = "") -> list[StoryStep]:
        return [StoryStep(Entry("note", *self._place, [text], topic, detail), "added")]

    def _note(self, body: Body) -> list[StoryStep]:
        """Return the changes of an event that comes neither from the model nor from a tool."""
        match body:
            case MessageAdded(message):
                self._continued = self._cut_off if message.origin == "correction" else None
                self._cut_off = None
                return [StoryStep(Entry("message", *self._place, [message.text], message=message), "added")]
            case RunCreated(agent, task, options=options):
                return [StoryStep(Entry("task", *self._place, [task], None, options.description, agent), "added")]
            case RunEnded(outcome):
                ended = Entry("ended", *self._place, outcome=outcome)
                return [*self._stop_writing("ended"), *self._cut_calls(), StoryStep(ended, "added")]
            case RunResumed(prompt):
                resumed = self._added("resumed", "Resumed.", prompt)
                return [*self._stop_writing("void"), *self._cut_calls(), *resumed]
            case Retrying():
                text = retry_text(body.failure.message, body.delay, body.attempt, body.most)
                return [*self._stop_writing("void"), *self._added("retry", text, body.partial)]
            case TodosUpdated(todos):
                return [StoryStep(Entry("todos", *self._place, todos=todos), "added")]
            case InboxOpened() | InboxClosed():
                return self._ask(body)
            case _:
                return self._remark(body)

    def _ask(self, body: InboxOpened | InboxClosed) -> list[StoryStep]:
        entry = self._call(body.call_id)
        if isinstance(body, InboxOpened):
            note = self._added("asked", f"waits for an answer: {body.title}", body.item_id)
            if entry is None:
                return note
            entry.asks = body.title
            return [StoryStep(entry, "asked"), *note]
        answer = body.choice or body.state
        text = answer + (f" by {body.by}" if body.by else "") + (f": {body.message}" if body.message else "")
        note = self._added("answered", text, body.item_id)
        if entry is None:
            return note
        entry.asks, entry.approval = "", f"{answer} by {body.by or 'nobody'}"
        return [StoryStep(entry, "answered"), *note]

    def _remark(self, body: Body) -> list[StoryStep]:
        match body:
            case Warned(code, text):
                return self._added("warning", text, code)
            case LimitReached(_, _, detail):
                return self._added("limit", detail)
            case Compacted(_, _, before, after):
                text = f"The conversation was shortened: {before:,} to {after:,} tokens."
                return self._added("compacted", text)
            case ModeChanged(mode, cause):
                steps = self._added("plan" if cause == "plan" else "mode", mode_text(mode, cause))
                steps[0].entry.mode = mode
                return steps
            case MovedToBackground():
                return self._added("moved", MOVED_TEXT)
            case Undone():
                count = len(body.restored) + len(body.removed)
                return self._added("undone", f"{count} files put back, {len(body.kept)} kept")
            case Rewound(to):
                text = f"A person went back to event {to}. What came after it stays in the log."
                return self._added("rewound", text)
            case RunPruned(count):
                return self._added("pruned", f"{count:,} event{'s' * (count != 1)} removed to save space")
            case _:
                return []
