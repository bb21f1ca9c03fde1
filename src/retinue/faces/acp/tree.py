"""The events of a main run and of everything below it, as updates of sessions.

To a client that knows child sessions, each run is a session of its own, announced to the session above before anything
else is told of it. To others only the main run is a session, and those below it are summaries (`digest.py`).

What is told of the past is told by the same code: `replays` is True while a conversation is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from msgspec import Struct, field

from retinue.core.events import APPROVED, MODE_CHANGED
from retinue.core.format import retry_text
from retinue.core.spec import PermissionMode
from retinue.faces.acp import updates
from retinue.faces.acp.calls import call_began, call_ended
from retinue.faces.acp.digest import AgentCard, RunDigest
from retinue.faces.acp.updates import ClientFeatures, Update
from retinue.faces.feed.sent_text import SentText
from retinue.faces.text import clean_line, first_line
from retinue.guard.approval import call_title
from retinue.runs.person_prompt import describe_blocks, words_of

Told = tuple[str, Update]
"""The session that is told something, and what."""
_BY_PERSON = frozenset({"task", "follow-up", "steer"})
_TITLE = 80


class ToldRun(Struct, eq=False):
    """What is known of one run, and how much of it was told."""

    id: str
    parent_id: str | None
    agent: str
    cwd: str
    digest: RunDigest
    model: str = ""
    text: SentText = field(default_factory=SentText)
    thinking: SentText = field(default_factory=lambda: SentText("thinking"))
    open: dict[str, Update] = field(default_factory=dict)
    """The calls that have begun and not ended, as they were told, by the model's id."""
    used_ids: dict[str, int] = field(default_factory=dict)
    context: int = 0
    cost: float | None = 0.0
    is_live: bool = True
    turn: int = 0

    def shown_id(self, call_id: str) -> str:
        """Return the id of the newest call of that id: some models use the same ids again and again."""
        number = self.used_ids.get(call_id, 1)
        return call_id if number == 1 else f"{call_id}#{number}"


class TreeStory:
    """Translates events in the order of the log."""

    def __init__(self, root: str, features: ClientFeatures, window: Callable[[str], int | None]) -> None:
        self.root = root
        self.replays = False
        self.mode: PermissionMode | None = None
        """The mode that holds since someone changed it while the run worked."""
        self.own_words: list[str] = []
        """What this client has said and the log has not repeated yet: the client shows it itself."""
        self.runs: dict[str, ToldRun] = {}
        self.cards: dict[str, AgentCard] = {}
        self._card_of: dict[str, AgentCard] = {}
        self._features = features
        self._window = window
        self._take: Mapping[str, Callable[[ToldRun, Mapping[str, Any]], list[Told]]] = {
            "run.started": self._started,
            "run.resumed": self._resumed,
            "message.added": self._message,
            "turn.started": self._turn_started,
            "text.delta": self._said,
            "text.partial": self._said,
            "thinking.delta": self._thought,
            "thinking.partial": self._thought,
            "model.retrying": self._retrying,
            "assistant.ended": self._answered,
            "tool.started": self._call_started,
            "tool.ended": self._call_ended,
            "todos.updated": lambda run, data: [(run.id, updates.plan(data["todos"]))],
            "turn.ended": self._turn_ended,
            "inbox.opened": self._asked,
            "inbox.closed": self._asked_no_more,
            "limit.reached": lambda run, data: self._note(run, "warning", data["detail"]),
            "run.compacted": self._compacted,
            "run.warned": self._warned,
            "run.interrupted": lambda run, data: self._over(run, "interrupted", {"state": "idle"}),
            "run.ended": self._ended,
        }

    def take(self, kind: str, data: Mapping[str, Any]) -> list[Told]:
        """Return what is told of one event."""
        run_id = data.get("run_id")
        if not run_id:
            return []
        if kind == "run.created":
            return self._visible(self._created(data))
        run, handler = self.runs.get(run_id), self._take.get(kind)
        if run is None or handler is None:
            return []
        return self._visible(handler(run, data))

    def tick(self) -> list[Told]:
        """Return the summaries that are due because time has passed."""
        now = time.time()
        return [(self.root, told) for card in self.cards.values() if card.is_live for told in card.tell(now)]

    def has_live_cards(self) -> bool:
        return any(card.is_live for card in self.cards.values())

    def lost(self, live: set[str]) -> list[str]:
        """Return the runs that never ended and do not live any more."""
        return [run.id for run in self.runs.values() if run.is_live and run.id not in live]

    def settle(self, live: set[str]) -> list[Told]:
        """Return what is told at the end of the past: runs that are lost are over."""
        found: list[Told] = []
        for run_id in self.lost(live):
            found += self._over(self.runs[run_id], "interrupted", {"state": "idle"})
        for card in self.cards.values():
            if card.is_live:
                found += [(self.root, told) for told in card.tell(time.time(), at_once=True)]
        return self._visible(found)

    def call_id_of(self, run_id: str, call_id: str) -> str:
        """Return the id under which the client knows a call of a run; for one that it does not see, that of the call
        that started the run or one above it."""
        run = self.runs.get(run_id)
        if run is None or self.session_of(run_id) == run_id:
            return run.shown_id(call_id) if run is not None else call_id
        card = self._card_of.get(run_id)
        return card.call_id if card is not None else call_id

    def session_of(self, run_id: str) -> str:
        """Return the session in which the client is told about a run."""
        if self._features.subagents and run_id in self.runs:
            return run_id
        return self.root

    def _visible(self, told: list[Told]) -> list[Told]:
        if self._features.subagents:
            return told
        return [each for each in told if each[0] == self.root]

    # A run begins and ends

    def _created(self, data: Mapping[str, Any]) -> list[Told]:
        options = data.get("options") or {}
        about = options.get("description") or ""
        title = f"{data['agent']}: {about}" if about and about != data["agent"] else data["agent"]
        digest = RunDigest(data["run_id"], clean_line(title, _TITLE), data["at"])
        run = ToldRun(data["run_id"], data["parent_id"], data["agent"], data["cwd"], digest, data["model"])
        self.runs[run.id] = run
        if run.id == self.root:
            return [(run.id, updates.session_info(task_title(data["task"]), iso_time(data["at"])))]
        facts = {"title": title, "description": first_line(data["task"])[:500], "cwd": data["cwd"]}
        told = updates.subagent(run.id, {"state": "running"}, capabilities={"cancel": {}}, **facts)
        found = [(run.parent_id or self.root, told)] if self._features.subagents else []
        return found + self._add_to_card(run, options.get("call_id"))

    def _add_to_card(self, run: ToldRun, call_id: str | None) -> list[Told]:
        if self._features.subagents:
            return []
        above = self.runs.get(run.parent_id or "")
        if above is not None and above.id in self._card_of:
            above.digest.below.append(run.digest)
            self._card_of[run.id] = self._card_of[above.id]
            return []
        root = self.runs.get(self.root)
        if root is None or call_id is None or call_id not in root.open:
            return self._own_card(run)
        shown = root.shown_id(call_id)
        card = self.cards.setdefault(shown, AgentCard(shown))
        card.runs.append(run.digest)
        self._card_of[run.id] = card
        return [(self.root, told) for told in card.tell(run.digest.began_at, at_once=not self.replays)]

    def _own_card(self, run: ToldRun) -> list[Told]:
        """A run that no call of the main run has started, such as one that a person took up again."""
        card = AgentCard(f"{run.id}-{len(self.cards)}", [run.digest], own_end={"status": "completed"})
        self.cards[card.call_id] = self._card_of[run.id] = card
        began = {"sessionUpdate": "tool_call", "toolCallId": card.call_id, "title": run.digest.title, "kind": "think"}
        return [(self.root, {**began, "status": "in_progress"})]

    def _started(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        run.model, run.cwd = data["model"], data["cwd"]
        return []

    def _resumed(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        run.is_live, run.digest.ended, run.digest.took = True, "", 0.0
        run.digest.began_at = data["at"]
        if run.id == self.root:
            return []
        if self._features.subagents:
            return [(run.parent_id or self.root, updates.subagent(run.id, {"state": "running"}))]
        card = self._card_of.get(run.id)
        if card is not None and card.is_over:
            return self._own_card(run)
        return []

    def _ended(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        outcome = data["outcome"]
        word = updates.stop_word(outcome)
        run.cost = outcome["usage"]["cost_usd"]
        run.digest.result = outcome.get("text") or ""
        state: dict[str, Any] = {"state": "idle", "stopReason": word or "error"}
        if word is None:
            run.digest.result = updates.failure_text(outcome)
            state["error"] = {"code": -32603, "message": run.digest.result}
        ended = outcome["ended"] if word is not None else "failed"
        found = self._over(run, ended, state, data["at"])
        if run.id == self.root and word == "max_turn_requests":
            found += self._note(run, "warning", updates.failure_text(outcome))
        elif run.id == self.root and word is None and self.replays:
            # While it happens, the answer to the prompt says it.
            found += self._note(run, "error", updates.failure_text(outcome))
        return found

    def _over(self, run: ToldRun, how: str, state: Mapping[str, Any], at: float | None = None) -> list[Told]:
        found: list[Told] = []
        for told in run.open.values():
            ended = {"status": "failed", "content": [updates.text_content("It did not come to an end.")]}
            if told["toolCallId"] not in self.cards:
                found.append((run.id, updates.call_changed(told["toolCallId"], **ended)))
            else:
                self.cards[told["toolCallId"]].own_end = ended
        run.open.clear()
        run.is_live, run.digest.ended, run.digest.waits_for = False, how, ""
        run.digest.took = max((at or time.time()) - run.digest.began_at, 0.001)
        if run.id == self.root:
            cards = list(self.cards.values())
        elif self._features.subagents:
            return [*found, (run.parent_id or self.root, updates.subagent(run.id, state))]
        else:
            cards = [self._card_of[run.id]] if run.id in self._card_of else []
        return found + [(self.root, told) for card in cards for told in card.end(at or time.time())]

    # What it says and hears

    def _message(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        message = data["message"]
        text = "\n".join(part["text"] for part in message["content"] if part["type"] == "text")
        if message["origin"] not in _BY_PERSON:
            return []
        if run.id == self.root and not self.replays:
            if text in self.own_words:
                self.own_words.remove(text)
                return []
            if message["origin"] == "task":
                return []
        shown = "\n".join([words_of(text), *(f"[{line}]" for line in describe_blocks(text))])
        return [(run.id, updates.said("user_message_chunk", shown, f"{run.id}-{data['seq']}"))]

    def _turn_started(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        run.turn = data["seq"]
        run.text.take("turn.started", data)
        run.thinking.take("turn.started", data)
        run.digest.words = ""
        return []

    def _said(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        return self._speak(run, "agent_message_chunk", run.text.take(data["type"], data))

    def _thought(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        return self._speak(run, "agent_thought_chunk", run.thinking.take(data["type"], data))

    def _speak(
        self, run: ToldRun, speaker: Literal["agent_message_chunk", "agent_thought_chunk"], text: str
    ) -> list[Told]:
        if not text:
            return []
        if run.id != self.root and speaker == "agent_message_chunk":
            run.digest.words += text
        kind = "t" if speaker == "agent_thought_chunk" else "m"
        return [(run.id, updates.said(speaker, text, f"{run.id}-{run.turn}-{kind}"))]

    def _answered(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        thought = self._speak(run, "agent_thought_chunk", run.thinking.take("assistant.ended", data))
        return thought + self._speak(run, "agent_message_chunk", run.text.take("assistant.ended", data))

    def _retrying(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        if self.replays:
            return []
        text = retry_text(data["failure"]["message"], data["delay"], data["attempt"], data.get("most") or 0)
        return self._note(run, "warning", text)

    # What it does

    def _call_started(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        call = data["call"]
        run.used_ids[call["id"]] = run.used_ids.get(call["id"], 0) + 1
        told = call_began(run.shown_id(call["id"]), call["name"], call["arguments"], run.cwd)
        run.open[call["id"]] = told
        run.digest.step(call_title(call["name"], call["arguments"]))
        return [(run.id, told)]

    def _call_ended(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        call_id = data["call_id"]
        run.digest.calls += 1
        found: list[Told] = []
        if call_id not in run.open:
            # It was refused before it began.
            found = self._call_started(run, {"call": {"id": call_id, "name": data["name"], "arguments": {}}})
        began = run.open.pop(call_id)
        ended = call_ended(began["toolCallId"], data, began)
        card = self.cards.get(began["toolCallId"]) if run.id == self.root else None
        if card is None:
            return [*found, (run.id, ended)]
        card.own_end = ended
        return [(self.root, told) for told in card.end(data["at"])]

    def _turn_ended(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        run.context, run.cost = data["context_tokens"], data["total"]["cost_usd"]
        run.digest.tokens = data["total"]["input"] + data["total"]["output"] + data["total"]["cache_write"]
        root = self.runs.get(self.root)
        found: list[Told] = []
        for each in (run, root) if run is not root else (run,):
            size = self._window(each.model) if each is not None else None
            if each is not None and size:
                cost = self.cost() if each is root else each.cost
                found.append((each.id, updates.usage(each.context, max(size, each.context), cost)))
        return found

    def cost(self) -> float | None:
        """Return what all runs of the tree have cost; None where a part is not known."""
        costs = [run.cost for run in self.runs.values()]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def _compacted(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        if self._features.compactions:
            return [(run.id, updates.compacted(f"{run.id}-{data['seq']}"))]
        return self._note(run, "info", f"The conversation was shortened ({data['method']}).")

    # What a person should know

    def _asked(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        run.digest.waits_for = data["title"]
        if self._features.subagents and run.id != self.root:
            return [(run.parent_id or self.root, updates.subagent(run.id, {"state": "requires_action"}))]
        return []

    def _asked_no_more(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        run.digest.waits_for = ""
        if self._features.subagents and run.id != self.root:
            return [(run.parent_id or self.root, updates.subagent(run.id, {"state": "running"}))]
        return []

    def _warned(self, run: ToldRun, data: Mapping[str, Any]) -> list[Told]:
        found = self._note(run, "warning", data["text"])
        if run.id == self.root and data["code"] in (APPROVED, MODE_CHANGED):
            mode = next((each for each in get_args(PermissionMode) if f" {each} now." in data["text"]), None)
            if mode is not None:
                self.mode = mode
                found = [(run.id, updates.mode_changed(mode))]
        return found

    def _note(self, run: ToldRun, severity: Literal["info", "warning", "error"], text: str) -> list[Told]:
        run.digest.step(text)
        if self._features.notices:
            return [(run.id, updates.notice(severity, text))]
        return [(run.id, updates.said("agent_thought_chunk", f"{text}\n", None))]


def task_title(task: str) -> str:
    """Return the first words of a task, for a list."""
    return clean_line(first_line(words_of(task)), _TITLE) or "Conversation"


def iso_time(at: float) -> str:
    """Return a moment as the protocol writes it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
