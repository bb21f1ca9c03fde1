"""Notifications of completions: each completion of a background run is announced to its parent exactly once.

    async   each completion separately
    smart   runs that were started together are announced together; a single run separately
    group   as smart, but even a single run is announced as a group

A group waits for all of its members, but at most 30 seconds after its first completion. Then the completed runs are
announced as a partial group, and the others form a new group, which waits 15 seconds after its next completion.

A completion is announced after a short delay. A parent that reads the result in that time needs no notification, and
further completions during the delay, or during a turn of the parent, are announced together. A parent that only waits
for its last run is notified at once. While a child is live or its completion is not announced yet, the parent is kept
open. A parent that has ended is notified when it is resumed: its own log has what was announced
(`retinue.runs.resume`). `missed` is called, so that the parent can be resumed.

The message is text for a model, in frames that only this module can produce: all text of a run is escaped, so no output
can close its frame or open another (guarantee 9), and text in the form of instructions is marked as data. The fields
have a fixed order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from msgspec import Struct, field

from retinue.core.clock import Clock, Timer
from retinue.core.delegation import JoinMode, Status
from retinue.core.events import AssistantEnded, Event, MessageAdded, ToolsEnded
from retinue.core.format import context_percent, format_cost
from retinue.core.messages import AssistantMessage, ChildEnding, ChildrenEnded, ToolMessage, UserMessage, notification
from retinue.core.outcome import CUT_OFF
from retinue.core.run_state import ActiveRun
from retinue.loop.job import Controls
from retinue.runs.run import Run
from retinue.tools.delegation.frame import as_data

MAX_TOOL_RESULT_CHARACTERS = 200


def spoken_lines(events: Iterable[Event]) -> list[str]:
    """Return the lines of the agent's answers and tool results, without blank lines."""
    lines: list[str] = []
    for event in events:
        match event.body:
            case AssistantEnded(_, message):
                lines += message.text.splitlines()
            case ToolsEnded(message):
                for result in message.results:
                    lines += result.text.splitlines()
            case _:
                pass
    return [line for line in lines if line.strip()]


def conversation_text(events: Iterable[Event]) -> str:
    """Return the conversation in blocks, separated by blank lines, with shortened tool results."""
    blocks: list[str] = []
    for event in events:
        match event.body:
            case MessageAdded(message):
                blocks.append(f"[User]: {message.text.strip()}")
            case AssistantEnded(_, answer):
                blocks += _answer(answer)
            case ToolsEnded(results):
                blocks += _results(results)
            case _:
                pass
    return "\n\n".join(blocks)


def _answer(message: AssistantMessage) -> list[str]:
    blocks = [f"[Assistant]: {message.text.strip()}"] if message.text.strip() else []
    if message.tool_calls:
        names = "\n".join(f"  Tool: {call.name or 'unknown'}" for call in message.tool_calls)
        blocks.append(f"[Tool Calls]:\n{names}")
    return blocks


def _results(message: ToolMessage) -> list[str]:
    return [f"[Tool Result ({result.name})]: {_cut(result.text.strip())}" for result in message.results]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TOOL_RESULT_CHARACTERS else text[:MAX_TOOL_RESULT_CHARACTERS] + "…"


SINGLE_RESULT_CHARACTERS = 6_000
GROUP_RESULT_CHARACTERS = 2_000
MAX_GROUP_CHARACTERS = 24_000
"""The limit of all results in one message. In a message about many runs, each result gets less."""
MIN_RESULT_CHARACTERS = 300
MAX_NOTE_CHARACTERS = 1_000
_MAX_UNREAD_RUNS = 20

STATUS_LABELS: dict[Status, str] = {
    "completed": "Done",
    "steered": "Wrapped up (turn limit)",
    "aborted": "Aborted (max turns exceeded)",
    "stopped": "Stopped",
    "timeout": "Timed out",
    "over-budget": "Stopped (budget spent)",
    "refused": "Refused (no language model)",
}
_STATUS_NOTES: dict[Status, str] = {
    "steered": " — wrapped up at its turn limit; the result may be partial",
    "aborted": " — hit its turn limit; the result may be incomplete",
    "stopped": " — stopped before it had finished; the result is partial",
    "timeout": " — ran out of time; the result is partial",
    "over-budget": " — its budget was spent; the result is partial",
    "refused": " — refused, because no language model is set up",
    "interrupted": " — its process ended while it worked; it can be resumed by its task id",
}
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def status_label(child: ActiveRun) -> str:
    """Return the status of a run for people and models."""
    if _is_truncated(child):
        return f"{STATUS_LABELS[child.status]} ({CUT_OFF})"
    if _is_stopped_by_user(child):
        return f"{STATUS_LABELS['stopped']} by the user"
    if child.status in STATUS_LABELS:
        return STATUS_LABELS[child.status]
    return f"Error: {child.failure_text or 'unknown'}" if child.status == "error" else child.status.capitalize()


def status_note(child: ActiveRun) -> str:
    """Return a note for a parent that might mistake a partial result for a complete one."""
    if _is_truncated(child):
        return f" — its answer was {CUT_OFF}; the result is incomplete"
    if _is_stopped_by_user(child):
        return " — the result is partial; leave it: do not resume or repeat it unless the user asks you to"
    return _STATUS_NOTES.get(child.status, "")


def _is_stopped_by_user(child: ActiveRun) -> bool:
    return child.outcome is not None and child.outcome.stopped_by == "person"


def _is_truncated(child: ActiveRun) -> bool:
    return child.outcome is not None and child.outcome.truncated


def escape(text: str) -> str:
    """Return `text` as content of a frame, without tags and control characters other than tabs and line feeds."""
    plain = _CONTROL_CHARACTERS.sub("", text)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def announcement(
    children: Sequence[ActiveRun],
    *,
    group: bool = False,
    partial: bool = False,
    show_cost: bool = False,
    head: str | None = None,
) -> UserMessage:
    """Return one notification about one or several completed runs. `head` replaces the usual first line."""
    limit = SINGLE_RESULT_CHARACTERS
    if group:
        limit = min(GROUP_RESULT_CHARACTERS, max(MAX_GROUP_CHARACTERS // len(children), MIN_RESULT_CHARACTERS))
        if head is None:
            head = f"Background agent group completed: {len(children)} agent(s) finished"
            head += " (partial — others still running)" if partial else ""
    blocks = [head, *(_block(child, limit, show_cost) for child in children)]
    if group:
        blocks += _group_total(children, show_cost)
        blocks.append("Use get_subagent_result with an id above for the whole result of an agent.")
    endings = tuple(ending(child, limit) for child in children)
    return notification("\n\n".join(filter(None, blocks)), ChildrenEnded(endings, group, partial))


def ending(child: ActiveRun, limit: int = SINGLE_RESULT_CHARACTERS) -> ChildEnding:
    """Return the completion of a run, with at most `limit` characters of its answer."""
    model = child.outcome.model if child.outcome is not None else ""
    counted = child.usage.is_counted(child.turns, model)
    return ChildEnding(
        id=child.id,
        status=child.status,
        label=" ".join(status_label(child).split()),
        description=" ".join(child.description.split()) or child.agent,
        result=child.result.strip()[:limit],
        truncated=_is_truncated(child),
        stopped_by_person=_is_stopped_by_user(child),
        transcript=child.transcript or "",
        branch=(child.outcome.branch if child.outcome is not None else None) or "",
        notes=tuple(dict.fromkeys(child.notes)),
        tool_uses=child.tool_uses,
        tokens=child.usage.total_tokens if counted else None,
        duration_ms=child.duration_ms,
    )


def roster(parent: Run) -> str:
    """Return a reminder of a run's live children, and of those whose result it has not read."""
    live = [child for child in parent.children if child.live]
    unread = [child for child in parent.children if not child.live and not child.consumed][-_MAX_UNREAD_RUNS:]
    blocks = []
    if live:
        head = "These agents that you started are still at work; you will be notified when each has ended:"
        blocks.append("\n".join([head, *map(_roster_line, live)]))
    if unread:
        head = "These have ended; get_subagent_result has their results:"
        blocks.append("\n".join([head, *map(_roster_line, unread)]))
    return "\n\n".join(blocks)


def _roster_line(child: Run) -> str:
    return f"- {child.id} ({child.agent}, {child.status}): {escape(child.state.description)}"


def _block(child: ActiveRun, limit: int, show_cost: bool) -> str:
    lines = ["<task-notification>", f"<task-id>{escape(child.id)}</task-id>"]
    if child.call_id:
        lines.append(f"<tool-use-id>{escape(child.call_id)}</tool-use-id>")
    if child.transcript:
        lines.append(f"<output-file>{escape(child.transcript)}</output-file>")
    label = escape(" ".join(status_label(child).split()))
    lines.append(f"<status>{label}</status>")
    description = escape(" ".join(child.description.split()) or child.agent)
    lines.append(f'<summary>Agent "{description}" {label}{status_note(child)}</summary>')
    lines.append(f"<result>{_preview(child, limit)}</result>")
    if child.outcome is not None and child.outcome.branch:
        lines.append(f"<branch>{escape(child.outcome.branch)}</branch>")
    notes = [escape(" ".join(note.split())) for note in dict.fromkeys(child.notes)]
    lines += [f"<note>{note[:MAX_NOTE_CHARACTERS]}</note>" for note in notes if note]
    if child.usage.total_tokens or child.tool_uses:
        lines.append(_usage(child, show_cost))
    lines.append("</task-notification>")
    return "\n".join(lines)


def _group_total(children: Sequence[ActiveRun], show_cost: bool) -> list[str]:
    """Return the cost of several agents together, if all their costs are known."""
    costs = [child.usage.cost_usd for child in children if child.usage.cost_usd is not None]
    if not show_cost or len(children) < 2 or len(costs) < len(children) or not format_cost(sum(costs)):
        return []
    return [f"Estimated cost of all {len(children)} agents: ${sum(costs):.4f}"]


def _preview(child: ActiveRun, limit: int) -> str:
    text = child.result.strip()
    if not text:
        return "No output."
    if len(text) <= limit:
        return escape(as_data(text))
    source = f'get_subagent_result with agent_id "{escape(child.id)}"'
    if child.transcript:
        source += ", or the output-file above"
    return f"{escape(as_data(text[:limit]))}\n… (truncated; the rest: {source})"


def _usage(child: ActiveRun, show_cost: bool) -> str:
    model = child.outcome.model if child.outcome is not None else ""
    counted = child.usage.is_counted(child.turns, model)
    fields = [
        f"<total_tokens>{child.usage.total_tokens if counted else 'unknown'}</total_tokens>",
        f"<tool_uses>{child.tool_uses}</tool_uses>",
    ]
    percent = context_percent(child.context_tokens, child.window)
    if percent is not None:
        fields.append(f"<context_percent>{round(percent)}</context_percent>")
    if child.compactions:
        fields.append(f"<compactions>{child.compactions}</compactions>")
    if show_cost and format_cost(child.usage.cost_usd):
        fields.append(f"<estimated_cost_usd>{child.usage.cost_usd:.4f}</estimated_cost_usd>")
    fields.append(f"<duration_ms>{child.duration_ms}</duration_ms>")
    return f"<usage>{''.join(fields)}</usage>"


GATHER_SECONDS = 0.1
GROUP_SECONDS = 30.0
STRAGGLER_SECONDS = 15.0


class Delivery(Struct, frozen=True):
    """Completions to announce in one message. `partial`: other runs of the group are still live."""

    runs: tuple[str, ...]
    group: bool = False
    partial: bool = False


class _Group(Struct, eq=False):
    waiting: list[str]
    ended: list[str] = field(default_factory=list)
    timer: Timer | None = None
    stragglers: bool = False


class CompletionGroups:
    """Groups the completions of one parent's children. `deliver` is called on the event loop, never inside a call that
    starts or ends a run of another parent."""

    def __init__(self, clock: Clock, deliver: Callable[[Delivery], None]) -> None:
        self._clock = clock
        self._deliver = deliver
        self._gathering: list[str] = []
        self._forced = False
        self._early: list[str] = []
        self._debounce: Timer | None = None
        self._groups: dict[str, _Group] = {}

    @property
    def pending(self) -> bool:
        """Whether a completion has not been delivered yet."""
        return bool(self._early) or any(group.ended for group in self._groups.values())

    def started(self, run_id: str, mode: JoinMode) -> None:
        if mode == "async":
            return
        self._gathering.append(run_id)
        self._forced = self._forced or mode == "group"
        if self._debounce is not None:
            self._debounce.cancel()
        self._debounce = self._clock.call_later(GATHER_SECONDS, self._gathered)

    def ended(self, run_id: str) -> None:
        if run_id in self._gathering:
            self._early.append(run_id)
            return
        group = self._groups.get(run_id)
        if group is None:
            self._deliver(Delivery((run_id,)))
            return
        self._end(group, run_id)

    def close(self) -> None:
        """Stop all timers, and deliver all completions at once."""
        for timer in [self._debounce, *(group.timer for group in self._groups.values())]:
            if timer is not None:
                timer.cancel()
        ended = self._early + [run for group in self._all_groups() for run in group.ended]
        self._gathering, self._early, self._groups, self._debounce = [], [], {}, None
        if ended:
            self._deliver(Delivery(tuple(ended), group=len(ended) > 1))

    def _gathered(self) -> None:
        runs, early, forced = self._gathering, self._early, self._forced
        self._gathering, self._early, self._forced, self._debounce = [], [], False, None
        if len(runs) > 1 or forced:
            group = _Group(list(runs))
            self._groups.update(dict.fromkeys(runs, group))
        for run_id in early:
            self.ended(run_id)

    def _end(self, group: _Group, run_id: str) -> None:
        group.waiting.remove(run_id)
        group.ended.append(run_id)
        if not group.waiting:
            self._finish(group, partial=False)
        elif group.timer is None:
            seconds = STRAGGLER_SECONDS if group.stragglers else GROUP_SECONDS
            group.timer = self._clock.call_later(seconds, lambda: self._expired(group))

    def _expired(self, group: _Group) -> None:
        stragglers = _Group(group.waiting, stragglers=True)
        group.waiting = []
        self._groups.update(dict.fromkeys(stragglers.waiting, stragglers))
        self._finish(group, partial=True)

    def _finish(self, group: _Group, *, partial: bool) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        for run_id in group.ended:
            self._groups.pop(run_id, None)
        runs, group.ended = tuple(group.ended), []
        self._deliver(Delivery(runs, group=True, partial=partial))

    def _all_groups(self) -> list[_Group]:
        return list({id(group): group for group in self._groups.values()}.values())


DELAY_SECONDS = 0.2


class _ExpectedCompletion(Struct, eq=False):
    """A completion of which the parent has not been notified yet. `attempt` tells completions of the same child apart
    across resumes. `keeping` keeps the parent open."""

    child: Run
    attempt: int
    keeping: ExitStack = field(default_factory=ExitStack)

    @property
    def is_present(self) -> bool:
        """Whether the child was not resumed since. A resumed child will have another completion."""
        return self.attempt == self.child.attempt

    @property
    def is_due(self) -> bool:
        """Whether the parent must still be notified. If the child was resumed, its next completion is announced."""
        return self.is_present and not self.child.consumed and not self.child.announced


class _SentNotification(Struct, frozen=True, eq=False):
    """A notification that the parent may not have read yet."""

    controls: Controls
    message: UserMessage
    deliveries: tuple[Delivery, ...]
    completions: tuple[_ExpectedCompletion, ...]

    def can_grow(self, controls: Controls) -> bool:
        """Return whether later completions may be added. If a child was resumed, its former result cannot be written
        again."""
        return self.controls is controls and all(completion.is_present for completion in self.completions)


class Notifications:
    """The notifications of one parent run, across all its attempts."""

    def __init__(
        self,
        parent: Run,
        clock: Clock,
        *,
        show_cost: Callable[[], bool],
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        self._parent = parent
        self._clock = clock
        self._show_cost = show_cost
        self._missed = missed
        self._groups = CompletionGroups(clock, self._enqueue)
        self._expected: dict[str, _ExpectedCompletion] = {}
        self._queued: list[Delivery] = []
        self._timer: Timer | None = None
        self._sent: _SentNotification | None = None

    def started(self, child: Run, mode: JoinMode) -> None:
        """Expect the completion of a child."""
        expected = _ExpectedCompletion(child, child.attempt)
        self._keep_open(expected)
        self._expected[_key(child)] = expected
        self._groups.started(_key(child), mode)

    def ended(self, child: Run) -> None:
        """Announce the completion of a child."""
        if _key(child) in self._expected:
            self._groups.ended(_key(child))

    def consumed(self, child: Run) -> None:
        """Record that the parent has read the result itself, so that it need not wait for a notification."""
        child.consumed = True
        expected = self._expected.get(_key(child))
        if expected is not None:
            expected.keeping.close()
        self._remove_from_sent(child)

    def _remove_from_sent(self, child: Run) -> None:
        """Remove a result that the parent has read from an unread notification."""
        sent = self._sent
        if sent is None or all(completion.child is not child for completion in sent.completions):
            return
        if sent.controls.withdraw(sent.message):
            self._sent = None
            others = tuple(
                completion for completion in sent.completions if completion.child is not child and completion.is_present
            )
            if others:
                self._announce(sent.deliveries, others)

    def reopened(self) -> None:
        """Keep the resumed parent open for its children again."""
        for expected in self._expected.values():
            expected.keeping.close()
            if expected.is_due:
                self._keep_open(expected)

    def close(self) -> None:
        """Send no more notifications. When the parent is resumed, the log shows which completions it does not know."""
        self._groups.close()
        self._cancel_timer()
        self._queued.clear()
        for expected in self._expected.values():
            expected.keeping.close()
        self._expected.clear()

    def _keep_open(self, expected: _ExpectedCompletion) -> None:
        controls = self._parent.controls
        expected.keeping.enter_context(controls.keep_open())
        controls.rested = self._send_if_last

    def _enqueue(self, delivery: Delivery) -> None:
        self._queued.append(delivery)
        if self._timer is None:
            self._timer = self._clock.call_later(DELAY_SECONDS, self._send)
        if self._parent.controls.at_rest:
            self._send_if_last()

    def _send_if_last(self) -> None:
        """Send at once if no further completion is expected: the parent rests and cannot read a result now."""
        if self._queued and sum(len(delivery.runs) for delivery in self._queued) == len(self._expected):
            self._send()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._cancel_timer()
        deliveries, self._queued = tuple(self._queued), []
        completions: list[_ExpectedCompletion] = []
        for delivery in deliveries:
            completions += map(self._expected.pop, delivery.runs)
        due = tuple(completion for completion in completions if completion.is_due)
        try:
            if due:
                self._announce(deliveries, due)
        finally:
            for completion in completions:
                completion.keeping.close()

    def _announce(self, deliveries: tuple[Delivery, ...], completions: tuple[_ExpectedCompletion, ...]) -> None:
        controls, sent = self._parent.controls, self._sent
        if sent is not None and sent.can_grow(controls) and controls.withdraw(sent.message):
            unread = [completion for completion in sent.completions if not completion.child.consumed]
            deliveries, completions = (*sent.deliveries, *deliveries), (*unread, *completions)
        message = announcement(
            [completion.child.snapshot() for completion in completions],
            group=len(completions) > 1 or any(delivery.group for delivery in deliveries),
            partial=any(delivery.partial for delivery in deliveries),
            show_cost=self._show_cost(),
        )
        self._sent = None
        if not controls.deliver(message):
            self._missed()
            return
        self._sent = _SentNotification(controls, message, deliveries, completions)
        for completion in completions:
            completion.child.announced = True


def _key(child: Run) -> str:
    return f"{child.id} {child.attempt}"
