"""Announcements to a parent: each completion of a background run exactly once, alone or in groups.

    async   each completion by itself
    smart   runs started within a moment of each other are announced together; one alone, alone
    group   as smart, and even one run is announced as a group

A group waits for all of its members. From its first completion it waits 30 seconds; what has ended by then is announced
as a partial group, and the rest form a group of their own whose 15 seconds start at its next completion.

A completion waits a moment before it is announced: a parent that reads the result in that moment needs no announcement,
and completions that gather meanwhile, or while the parent is in a turn, are announced together. A parent that only
waits for its last run is told at once. While a child runs or its completion has yet to be announced, the parent is kept
open. A parent that has ended is told when it is resumed: what was announced is in its own log (`retinue.runs.resume`);
`missed` is called, so that the parent can be resumed.

The message is text for a model, in frames that only we can make: everything a run said is escaped, so no output can
close its frame or open another (guarantee 9), and what is shaped like an instruction is marked as data. Fields come in
one fixed order.
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

RESULT_CHARACTERS = 200


def spoken_lines(events: Iterable[Event]) -> list[str]:
    """Text of the agent and of its tool results, line by line, without blank lines."""
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
    """The conversation in blocks with a blank line between; tool results are shortened."""
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
    return text if len(text) <= RESULT_CHARACTERS else text[:RESULT_CHARACTERS] + "…"


SINGLE_PREVIEW = 6_000
GROUP_PREVIEW = 2_000
GROUP_TOTAL = 24_000
"""Characters of results that one message of many ends may have: of more ends, each has less."""
LEAST_PREVIEW = 300
NOTE_LENGTH = 1_000
_UNREAD = 20

LABELS: dict[Status, str] = {
    "completed": "Done",
    "steered": "Wrapped up (turn limit)",
    "aborted": "Aborted (max turns exceeded)",
    "stopped": "Stopped",
    "timeout": "Timed out",
    "over-budget": "Stopped (budget spent)",
    "refused": "Refused (no language model)",
}
_NOTES: dict[Status, str] = {
    "steered": " — wrapped up at its turn limit; the result may be partial",
    "aborted": " — hit its turn limit; the result may be incomplete",
    "stopped": " — stopped before it had finished; the result is partial",
    "timeout": " — ran out of time; the result is partial",
    "over-budget": " — its budget was spent; the result is partial",
    "refused": " — refused, because no language model is set up",
    "interrupted": " — its process ended while it worked; it can be resumed by its task id",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def status_label(child: ActiveRun) -> str:
    """How a run stands, for people and models."""
    if _is_truncated(child):
        return f"{LABELS[child.status]} ({CUT_OFF})"
    if _is_stopped_by_user(child):
        return f"{LABELS['stopped']} by the user"
    if child.status in LABELS:
        return LABELS[child.status]
    return f"Error: {child.failure_text or 'unknown'}" if child.status == "error" else child.status.capitalize()


def status_note(child: ActiveRun) -> str:
    """What to add for a parent that might take a partial result for a whole one."""
    if _is_truncated(child):
        return f" — its answer was {CUT_OFF}; the result is incomplete"
    if _is_stopped_by_user(child):
        return " — the result is partial; leave it: do not resume or repeat it unless the user asks you to"
    return _NOTES.get(child.status, "")


def _is_stopped_by_user(child: ActiveRun) -> bool:
    return child.outcome is not None and child.outcome.stopped_by == "person"


def _is_truncated(child: ActiveRun) -> bool:
    return child.outcome is not None and child.outcome.truncated


def escape(text: str) -> str:
    """`text` as content of a frame: no tag, no control character. Tabs and line feeds stay."""
    plain = _CONTROL.sub("", text)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def announcement(
    children: Sequence[ActiveRun],
    *,
    group: bool = False,
    partial: bool = False,
    show_cost: bool = False,
    head: str | None = None,
) -> UserMessage:
    """Return one message for one or several ended runs. `head` is the first line in place of the usual one."""
    limit = SINGLE_PREVIEW
    if group:
        limit = min(GROUP_PREVIEW, max(GROUP_TOTAL // len(children), LEAST_PREVIEW))
        if head is None:
            head = f"Background agent group completed: {len(children)} agent(s) finished"
            head += " (partial — others still running)" if partial else ""
    parts = [head, *(_block(child, limit, show_cost) for child in children)]
    if group:
        parts += _group_total(children, show_cost)
        parts.append("Use get_subagent_result with an id above for the whole result of an agent.")
    endings = tuple(ending(child, limit) for child in children)
    return notification("\n\n".join(filter(None, parts)), ChildrenEnded(endings, group, partial))


def ending(child: ActiveRun, limit: int = SINGLE_PREVIEW) -> ChildEnding:
    """Return how a run ended, with at most `limit` characters of its answer."""
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
    """The children of a run that it must not forget: those at work, and those whose result it
    has not read."""
    live = [child for child in parent.children if child.live]
    unread = [child for child in parent.children if not child.live and not child.consumed][-_UNREAD:]
    parts = []
    if live:
        head = "These agents that you started are still at work; you will be told when each has ended:"
        parts.append("\n".join([head, *map(_roster_line, live)]))
    if unread:
        head = "These have ended; get_subagent_result has what they found:"
        parts.append("\n".join([head, *map(_roster_line, unread)]))
    return "\n\n".join(parts)


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
    about = escape(" ".join(child.description.split()) or child.agent)
    lines.append(f'<summary>Agent "{about}" {label}{status_note(child)}</summary>')
    lines.append(f"<result>{_preview(child, limit)}</result>")
    if child.outcome is not None and child.outcome.branch:
        lines.append(f"<branch>{escape(child.outcome.branch)}</branch>")
    notes = [escape(" ".join(note.split())) for note in dict.fromkeys(child.notes)]
    lines += [f"<note>{note[:NOTE_LENGTH]}</note>" for note in notes if note]
    if child.usage.total_tokens or child.tool_uses:
        lines.append(_usage(child, show_cost))
    lines.append("</task-notification>")
    return "\n".join(lines)


def _group_total(children: Sequence[ActiveRun], show_cost: bool) -> list[str]:
    """What several agents cost together, if that is known of all of them."""
    costs = [child.usage.cost_usd for child in children]
    known = [cost for cost in costs if cost is not None]
    if not show_cost or len(children) < 2 or len(known) < len(costs) or not format_cost(sum(known)):
        return []
    return [f"Estimated cost of all {len(children)} agents: ${sum(known):.4f}"]


def _preview(child: ActiveRun, limit: int) -> str:
    text = child.result.strip()
    if not text:
        return "No output."
    if len(text) <= limit:
        return escape(as_data(text))
    where = f'get_subagent_result with agent_id "{escape(child.id)}"'
    if child.transcript:
        where += ", or the output-file above"
    return f"{escape(as_data(text[:limit]))}\n… (truncated; the rest: {where})"


def _usage(child: ActiveRun, show_cost: bool) -> str:
    model = child.outcome.model if child.outcome is not None else ""
    counted = child.usage.is_counted(child.turns, model)
    parts = [
        f"<total_tokens>{child.usage.total_tokens if counted else 'unknown'}</total_tokens>",
        f"<tool_uses>{child.tool_uses}</tool_uses>",
    ]
    percent = context_percent(child.context_tokens, child.window)
    if percent is not None:
        parts.append(f"<context_percent>{round(percent)}</context_percent>")
    if child.compactions:
        parts.append(f"<compactions>{child.compactions}</compactions>")
    if show_cost and format_cost(child.usage.cost_usd):
        parts.append(f"<estimated_cost_usd>{child.usage.cost_usd:.4f}</estimated_cost_usd>")
    parts.append(f"<duration_ms>{child.duration_ms}</duration_ms>")
    return f"<usage>{''.join(parts)}</usage>"


GATHER_SECONDS = 0.1
GROUP_SECONDS = 30.0
STRAGGLER_SECONDS = 15.0


class Delivery(Struct, frozen=True):
    """Ends to announce in one message. `partial`: others of the group still run."""

    runs: tuple[str, ...]
    group: bool = False
    partial: bool = False


class _Group(Struct, eq=False):
    waiting: list[str]
    ended: list[str] = field(default_factory=list)
    timer: Timer | None = None
    stragglers: bool = False


class Joins:
    """The board of one parent. `deliver` is called on the event loop, never inside a call that
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
        """Whether an end that is known has not been announced yet."""
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
        """Stop all timers and announce at once what is known."""
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
        rest = _Group(group.waiting, stragglers=True)
        group.waiting = []
        self._groups.update(dict.fromkeys(rest.waiting, rest))
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


HOLD_SECONDS = 0.2


class _Expected(Struct, eq=False):
    """One end that is to come, or on its way. `attempt` tells it from ends before and after."""

    child: Run
    attempt: int
    keeping: ExitStack = field(default_factory=ExitStack)

    @property
    def due(self) -> bool:
        """Whether the parent has yet to hear of this end. A child that was resumed since will
        have another, which is announced instead."""
        return self.attempt == self.child.attempt and not self.child.consumed and not self.child.announced


class _Unheard(Struct, frozen=True, eq=False):
    """A message that the parent may not have heard yet, and what it is about."""

    controls: Controls
    message: UserMessage
    deliveries: tuple[Delivery, ...]
    children: tuple[tuple[Run, int], ...]

    def can_grow(self, controls: Controls) -> bool:
        """Whether later ends may join it. A child that was resumed since cannot be told of anew:
        the message holds the answer that it gave before."""
        return self.controls is controls and all(child.attempt == attempt for child, attempt in self.children)


class Notifications:
    """The post of one parent run, through all its legs."""

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
        self._joins = Joins(clock, self._hold)
        self._expected: dict[str, _Expected] = {}
        self._held: list[Delivery] = []
        self._timer: Timer | None = None
        self._unheard: _Unheard | None = None

    def started(self, child: Run, mode: JoinMode) -> None:
        expected = _Expected(child, child.attempt)
        self._keep_open(expected)
        self._expected[_key(child)] = expected
        self._joins.started(_key(child), mode)

    def ended(self, child: Run) -> None:
        if _key(child) in self._expected:
            self._joins.ended(_key(child))

    def consumed(self, child: Run) -> None:
        """The parent has the result itself: nothing keeps it from ending."""
        child.consumed = True
        expected = self._expected.get(_key(child))
        if expected is not None:
            expected.keeping.close()
        self._take_out(child)

    def _take_out(self, child: Run) -> None:
        """What the parent has read it need not hear, if it has not heard it yet."""
        before = self._unheard
        if before is None or all(each is not child for each, _ in before.children):
            return
        if before.controls.withdraw(before.message):
            self._unheard = None
            rest = tuple(
                (each, attempt) for each, attempt in before.children if each is not child and each.attempt == attempt
            )
            if rest:
                self._announce(before.deliveries, rest)

    def reopened(self) -> None:
        """The parent was resumed, with a new mailbox: it waits for its children again."""
        for expected in self._expected.values():
            expected.keeping.close()
            if expected.due:
                self._keep_open(expected)

    def close(self) -> None:
        """No more post: what was not brought is found in the log when the parent is resumed."""
        self._joins.close()
        self._rest()
        self._held.clear()
        for expected in self._expected.values():
            expected.keeping.close()
        self._expected.clear()

    def _keep_open(self, expected: _Expected) -> None:
        controls = self._parent.controls
        expected.keeping.enter_context(controls.keep_open())
        controls.rested = self._send_if_last

    def _hold(self, delivery: Delivery) -> None:
        self._held.append(delivery)
        if self._timer is None:
            self._timer = self._clock.call_later(HOLD_SECONDS, self._send)
        if self._parent.controls.at_rest:
            self._send_if_last()

    def _send_if_last(self) -> None:
        """Nobody could read a result, and no other end is to come: there is nothing to wait for."""
        if self._held and sum(len(delivery.runs) for delivery in self._held) == len(self._expected):
            self._send()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._rest()
        deliveries, self._held = tuple(self._held), []
        arrived: list[_Expected] = []
        for delivery in deliveries:
            arrived += map(self._expected.pop, delivery.runs)
        unread = tuple((expected.child, expected.attempt) for expected in arrived if expected.due)
        try:
            if unread:
                self._announce(deliveries, unread)
        finally:
            for expected in arrived:
                expected.keeping.close()

    def _announce(self, deliveries: tuple[Delivery, ...], unread: tuple[tuple[Run, int], ...]) -> None:
        controls, before = self._parent.controls, self._unheard
        if before is not None and before.can_grow(controls) and controls.withdraw(before.message):
            known = tuple((child, attempt) for child, attempt in before.children if not child.consumed)
            deliveries, unread = (*before.deliveries, *deliveries), (*known, *unread)
        message = announcement(
            [child.snapshot() for child, _ in unread],
            group=len(unread) > 1 or any(delivery.group for delivery in deliveries),
            partial=any(delivery.partial for delivery in deliveries),
            show_cost=self._show_cost(),
        )
        self._unheard = None
        if not controls.deliver(message):
            self._missed()
            return
        self._unheard = _Unheard(controls, message, deliveries, unread)
        for child, _ in unread:
            child.announced = True


def _key(child: Run) -> str:
    return f"{child.id} {child.attempt}"
