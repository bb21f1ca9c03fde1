"""Translates the events of a main run and all runs below it to updates of sessions.

For a client that supports child sessions, each run is a session, announced to its parent session before any other
update about it. For other clients only the main run is a session, and the runs below it appear as summaries
(`summaries.py`).

The same code translates the past; `replays` is True while a conversation is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct, field

from retinue.app.call_text import call_title
from retinue.app.frame_story import FrameStories
from retinue.app.stream import FeedFrame
from retinue.app.text import clean_line, first_line
from retinue.core.events import Event, RunCreated, RunStarted, TurnEnded
from retinue.core.person_prompt import describe_blocks, words_of
from retinue.core.run_state import ActiveRun
from retinue.core.spec import PermissionMode
from retinue.core.story import Entry, StoryStep, Topic
from retinue.frontends.acp import updates
from retinue.frontends.acp.calls import call_began, call_ended
from retinue.frontends.acp.summaries import AgentCard, LiveSummary
from retinue.frontends.acp.updates import ClientFeatures, Update

SessionUpdate = tuple[str, Update]
"""The id of a session, and an update for it."""
_PERSON_ORIGINS = frozenset({"task", "follow-up", "steer"})
_MAX_TITLE_CHARACTERS = 80
Severity = Literal["info", "warning", "error"]
_SEVERITY_OF_TOPIC: Mapping[Topic | None, Severity] = {
    "compacted": "info",
    "limit": "warning",
    "moved": "info",
    "retry": "warning",
    "warning": "warning",
}
"""The notes that are sent to clients."""


class ShownRun(Struct, eq=False):
    """One run, and the part of it that was sent to the client. `cwd` is the folder that it works in."""

    state: ActiveRun
    cwd: str
    summary: LiveSummary
    speaking: dict[str, Entry] = field(default_factory=dict)
    """The newest answer and thought that were sent."""
    open: dict[str, Update] = field(default_factory=dict)
    """The unfinished calls as they were sent, by the model's call id."""
    used_ids: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.state.id

    def shown_id(self, call_id: str) -> str:
        """Return the client's id of the newest call with that id: some models reuse ids."""
        number = self.used_ids.get(call_id, 1)
        return call_id if number == 1 else f"{call_id}#{number}"


class TreeTranslator:
    """Translates events in the order of the log."""

    def __init__(self, root: str, features: ClientFeatures, window: Callable[[str], int | None]) -> None:
        self.root = root
        self.replays = False
        self.mode: PermissionMode | None = None
        """The mode that someone chose while the run worked."""
        self.own_words: list[str] = []
        """Messages of this client that are not in the log yet. The client shows them itself."""
        self.runs: dict[str, ShownRun] = {}
        self.cards: dict[str, AgentCard] = {}
        self._card_of: dict[str, AgentCard] = {}
        self._features = features
        self._window = window
        self._stories = FrameStories()

    def take(self, frame: FeedFrame) -> list[SessionUpdate]:
        """Return the updates for one frame of the event stream."""
        event, steps = self._stories.take(frame) or (None, [])
        if event is None:
            return []
        if isinstance(event.body, RunCreated):
            return self._visible(self._created(event, event.body))
        run = self.runs.get(event.run_id)
        if run is None:
            return []
        sent: list[SessionUpdate] = []
        # Streamed text, which is most of the frames, does not change the run's state.
        if frame.piece is None:
            run.state.apply(event)
            if isinstance(event.body, RunStarted):
                run.cwd = event.body.cwd
            elif isinstance(event.body, TurnEnded):
                sent = self._turn_ended(run)
        for step in steps:
            sent += self._step(run, step, event.at)
        return self._visible(sent)

    def interrupt(self, run_id: str) -> list[SessionUpdate]:
        """Return the updates for a run whose process has died."""
        run = self.runs.get(run_id)
        return self._visible(self._over(run, "interrupted", {"state": "idle"})) if run is not None else []

    def _step(self, run: ShownRun, step: StoryStep, at: float) -> list[SessionUpdate]:
        entry = step.entry
        match entry.kind:
            case "answer" | "thinking":
                return self._speak(run, entry, step.piece)
            case "call" if step.change == "began":
                return self._call_began(run, entry)
            case "call" if entry.result is not None and step.change == "ended":
                return self._call_ended(run, entry, at)
            case "message":
                return self._message(run, entry)
            case "todos":
                return [(run.id, updates.plan(entry.todos))]
            case "note":
                return self._take_note(run, entry)
            case "ended":
                return self._ended(run, entry.at)
            case _:
                return []

    def _take_note(self, run: ShownRun, entry: Entry) -> list[SessionUpdate]:
        match entry.topic:
            case "resumed":
                return self._resumed(run, entry.at)
            case "asked" | "answered":
                run.summary.waits_for = next(iter(run.state.asks.values()), "")
                return self._waiting(run, "requires_action" if entry.topic == "asked" else "running")
            case "mode" | "plan" if run.id == self.root and entry.mode is not None:
                self.mode = entry.mode
                return [(run.id, updates.mode_changed(entry.mode))]
            case "compacted" if self._features.compactions:
                return [(run.id, updates.compacted(f"{run.id}-{entry.seq}"))]
            case "retry" if self.replays:
                return []
            case topic if topic in _SEVERITY_OF_TOPIC:
                return self._note(run, _SEVERITY_OF_TOPIC[topic], entry.text)
            case _:
                return []

    def tick(self) -> list[SessionUpdate]:
        """Return the summaries that are due."""
        now = time.time()
        return [(self.root, update) for card in self.cards.values() if card.is_live for update in card.summarise(now)]

    def has_live_cards(self) -> bool:
        return any(card.is_live for card in self.cards.values())

    def lost(self, live: set[str]) -> list[str]:
        """Return the runs that never ended and are no longer live."""
        return [run.id for run in self.runs.values() if run.state.live and run.id not in live]

    def settle(self, live: set[str]) -> list[SessionUpdate]:
        """Return the updates at the end of the past, in which lost runs end."""
        sent: list[SessionUpdate] = []
        for run_id in self.lost(live):
            sent += self._over(self.runs[run_id], "interrupted", {"state": "idle"})
        for card in self.cards.values():
            if card.is_live:
                sent += [(self.root, update) for update in card.summarise(time.time(), at_once=True)]
        return self._visible(sent)

    def call_id_of(self, run_id: str, call_id: str) -> str:
        """Return the client's id of a call. If the client does not show the run, return the id of the call that started
        it or a run above it."""
        run = self.runs.get(run_id)
        if run is None or self.session_of(run_id) == run_id:
            return run.shown_id(call_id) if run is not None else call_id
        card = self._card_of.get(run_id)
        return card.call_id if card is not None else call_id

    def session_of(self, run_id: str) -> str:
        """Return the session that shows a run."""
        if self._features.subagents and run_id in self.runs:
            return run_id
        return self.root

    def _visible(self, sent: list[SessionUpdate]) -> list[SessionUpdate]:
        if self._features.subagents:
            return sent
        return [pair for pair in sent if pair[0] == self.root]

    # Start and end of a run

    def _created(self, event: Event, body: RunCreated) -> list[SessionUpdate]:
        about = body.options.description
        title = f"{body.agent}: {about}" if about and about != body.agent else body.agent
        summary = LiveSummary(event.run_id, clean_line(title, _MAX_TITLE_CHARACTERS), event.at)
        run = self.runs[event.run_id] = ShownRun(ActiveRun(event.run_id), body.cwd, summary)
        run.state.apply(event)
        if run.id == self.root:
            return [(run.id, updates.session_info(task_title(body.task), iso_time(event.at)))]
        facts = {"title": title, "description": first_line(body.task)[:500], "cwd": body.cwd}
        update = updates.subagent(run.id, {"state": "running"}, capabilities={"cancel": {}}, **facts)
        sent = [(run.state.parent_id or self.root, update)] if self._features.subagents else []
        return sent + self._add_to_card(run, body.options.call_id)

    def _add_to_card(self, run: ShownRun, call_id: str | None) -> list[SessionUpdate]:
        if self._features.subagents:
            return []
        above = self.runs.get(run.state.parent_id or "")
        if above is not None and above.id in self._card_of:
            above.summary.below.append(run.summary)
            self._card_of[run.id] = self._card_of[above.id]
            return []
        root = self.runs.get(self.root)
        if root is None or call_id is None or call_id not in root.open:
            return self._own_card(run)
        shown = root.shown_id(call_id)
        card = self.cards.setdefault(shown, AgentCard(shown))
        card.runs.append(run.summary)
        self._card_of[run.id] = card
        return [(self.root, update) for update in card.summarise(run.summary.began_at, at_once=not self.replays)]

    def _own_card(self, run: ShownRun) -> list[SessionUpdate]:
        """Create a card for a run that no call of the main run started, such as one that a person resumed."""
        card = AgentCard(f"{run.id}-{len(self.cards)}", [run.summary], own_end={"status": "completed"})
        self.cards[card.call_id] = self._card_of[run.id] = card
        began = {"sessionUpdate": "tool_call", "toolCallId": card.call_id, "title": run.summary.title, "kind": "think"}
        return [(self.root, {**began, "status": "in_progress"})]

    def _resumed(self, run: ShownRun, at: float) -> list[SessionUpdate]:
        run.summary.ended, run.summary.took, run.summary.began_at = "", 0.0, at
        if run.id == self.root:
            return []
        if self._features.subagents:
            return self._waiting(run, "running")
        card = self._card_of.get(run.id)
        if card is not None and card.is_over:
            return self._own_card(run)
        return []

    def _ended(self, run: ShownRun, at: float) -> list[SessionUpdate]:
        outcome = run.state.outcome
        assert outcome is not None, "its last event has it"
        word = updates.stop_word(outcome)
        run.summary.result = outcome.text
        state: dict[str, Any] = {"state": "idle", "stopReason": word or "error"}
        if word is None:
            run.summary.result = updates.failure_text(outcome)
            state["error"] = {"code": -32603, "message": run.summary.result}
        ended = outcome.ended if word is not None else "failed"
        sent = self._over(run, ended, state, at)
        if run.id == self.root and word == "max_turn_requests":
            sent += self._note(run, "warning", updates.failure_text(outcome))
        elif run.id == self.root and word is None and self.replays:
            # During a live run, the answer to the prompt has the error.
            sent += self._note(run, "error", updates.failure_text(outcome))
        return sent

    def _over(self, run: ShownRun, how: str, state: Mapping[str, Any], at: float | None = None) -> list[SessionUpdate]:
        sent: list[SessionUpdate] = []
        for update in run.open.values():
            ended = {"status": "failed", "content": [updates.text_content("It did not finish.")]}
            if update["toolCallId"] not in self.cards:
                sent.append((run.id, updates.call_changed(update["toolCallId"], **ended)))
            else:
                self.cards[update["toolCallId"]].own_end = ended
        run.open.clear()
        if run.state.live:
            run.state.end("interrupted", time.time())
        run.summary.ended, run.summary.waits_for = how, ""
        run.summary.took = max((at or time.time()) - run.summary.began_at, 0.001)
        if run.id == self.root:
            cards = list(self.cards.values())
        elif self._features.subagents:
            return [*sent, (run.state.parent_id or self.root, updates.subagent(run.id, state))]
        else:
            cards = [self._card_of[run.id]] if run.id in self._card_of else []
        return sent + [(self.root, update) for card in cards for update in card.end(at or time.time())]

    # Messages

    def _message(self, run: ShownRun, entry: Entry) -> list[SessionUpdate]:
        text, origin = entry.text, entry.message.origin if entry.message is not None else None
        if origin not in _PERSON_ORIGINS:
            return []
        if run.id == self.root and not self.replays:
            if text in self.own_words:
                self.own_words.remove(text)
                return []
            if origin == "task":
                return []
        shown = "\n".join([words_of(text), *(f"[{line}]" for line in describe_blocks(text))])
        return [(run.id, updates.message_chunk("user_message_chunk", shown, f"{run.id}-{entry.seq}"))]

    def _speak(self, run: ShownRun, entry: Entry, text: str) -> list[SessionUpdate]:
        if not text:
            return []
        last = run.speaking.get(entry.kind)
        if last is not entry:
            run.speaking[entry.kind] = entry
            if last is not None and last.turn == entry.turn:
                # The whole turn is one message for the client, which cannot be changed later.
                text = f"\n\n{text}"
        if entry.kind == "thinking":
            return [(run.id, updates.message_chunk("agent_thought_chunk", text, f"{run.id}-{run.state.turn_seq}-t"))]
        if run.id != self.root:
            run.summary.words += text
        return [(run.id, updates.message_chunk("agent_message_chunk", text, f"{run.id}-{run.state.turn_seq}-m"))]

    # Calls

    def _call_began(self, run: ShownRun, entry: Entry) -> list[SessionUpdate]:
        call = entry.call
        assert call is not None, "an entry of a call has it"
        run.used_ids[call.id] = run.used_ids.get(call.id, 0) + 1
        update = call_began(run.shown_id(call.id), call.name, call.arguments, run.cwd)
        run.open[call.id] = update
        run.summary.step(call_title(call.name, call.arguments))
        return [(run.id, update)]

    def _call_ended(self, run: ShownRun, entry: Entry, at: float) -> list[SessionUpdate]:
        assert entry.result is not None, "the call has ended"
        call_id = entry.result.call_id
        run.summary.calls += 1
        sent: list[SessionUpdate] = []
        if call_id not in run.open:
            # It was refused before it began.
            sent = self._call_began(run, entry)
        began = run.open.pop(call_id)
        ended = call_ended(began["toolCallId"], entry.result, entry.effect, began)
        card = self.cards.get(began["toolCallId"]) if run.id == self.root else None
        if card is None:
            return [*sent, (run.id, ended)]
        card.own_end = ended
        return [(self.root, update) for update in card.end(at)]

    def _turn_ended(self, run: ShownRun) -> list[SessionUpdate]:
        run.summary.tokens, run.summary.words = run.state.usage.total_tokens, ""
        root = self.runs.get(self.root, run)
        sent: list[SessionUpdate] = []
        for shown_run in (run, root) if run is not root else (run,):
            size, used = self._window(shown_run.state.model), shown_run.state.context_tokens
            if size:
                cost = self.cost() if shown_run is root else shown_run.state.usage.cost_usd
                sent.append((shown_run.id, updates.usage(used, max(size, used), cost)))
        return sent

    def cost(self) -> float | None:
        """Return the cost of all runs of the tree; None if part of it is unknown."""
        costs = [run.state.usage.cost_usd for run in self.runs.values()]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    # Notes

    def _waiting(self, run: ShownRun, state: Literal["requires_action", "running"]) -> list[SessionUpdate]:
        if self._features.subagents and run.id != self.root:
            return [(run.state.parent_id or self.root, updates.subagent(run.id, {"state": state}))]
        return []

    def _note(self, run: ShownRun, severity: Severity, text: str) -> list[SessionUpdate]:
        run.summary.step(text)
        if self._features.notices:
            return [(run.id, updates.notice(severity, text))]
        return [(run.id, updates.message_chunk("agent_thought_chunk", f"{text}\n", None))]


def task_title(task: str) -> str:
    """Return the beginning of a task, for a list."""
    return clean_line(first_line(words_of(task)), _MAX_TITLE_CHARACTERS) or "Conversation"


def iso_time(at: float) -> str:
    """Return a time in the format of the protocol."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
