"""A main agent with many agents on a provider that misbehaves, for `test_drill.py`.

Every answer is a function of the conversation, so a process that was killed and asks again gets
on; the faults come from a seed. `spent` is what a provider would have billed.
"""

from __future__ import annotations

import random
import re
import threading
from typing import Any

from tests.program.model_server import Reply, Request

BLOCK = re.compile(r"<task-id>([^<]+)</task-id>.*?<status>([^<]+)</status>", re.DOTALL)
IN, OUT = 10, 5
"""Tokens of one answer, as the scripted server counts them."""
FAULTS = (("429", 0.06), ("529", 0.02), ("500", 0.03), ("cut", 0.05), ("hang", 0.02))


def parts(body: dict[str, Any]):
    """What a conversation holds, flat: (role, kind, data)."""
    for message in body["messages"]:
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield message["role"], part["type"], part


def said_to(body: dict[str, Any]) -> list[str]:
    """All that the model has heard: prompts, notifications, results of tools."""
    found: list[str] = []
    for role, kind, part in parts(body):
        if role == "user" and kind == "text":
            found.append(part["text"])
        elif kind == "tool_result":
            content = part["content"]
            found.append(content if isinstance(content, str) else "".join(p.get("text", "") for p in content))
    return found


def _cut_off(result: dict[str, Any]) -> bool:
    """Whether a call was cut off before it was carried out: what it asked for was not done."""
    return bool(result.get("is_error")) and "already running" not in str(result["content"])


class Drill:
    """The main agent starts `agents` agents, starts again those whose start was cut off, takes up
    those that were interrupted, and answers when it has heard of all."""

    def __init__(self, agents: int, seed: int) -> None:
        self.agents = agents
        self.answered = 0
        self.faults: dict[str, int] = {}
        self._random = random.Random(seed)
        self._burst = 0
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)

    @property
    def spent(self) -> float:
        """Dollars for every whole answer, at the price of the model the tests use."""
        return self.answered * (IN * 3 + OUT * 15) / 1e6

    def wait_for(self, count: int, seconds: float) -> bool:
        """Until that many more requests were answered."""
        with self._more:
            goal = self.answered + count
            return self._more.wait_for(lambda: self.answered >= goal, seconds)

    def answer(self, request: Request) -> Reply:
        first = next(parts(request.body))[2]["text"]
        main = "look at angle" not in first
        with self._more:
            fault = self._fault(main)
            self.faults[fault] = self.faults.get(fault, 0) + 1
            if fault == "none":
                self.answered += 1
                self._more.notify_all()
        match fault:
            case "429":
                return Reply(status=429, headers={"retry-after": "0.05"})
            case "529" | "500":
                return Reply(status=int(fault))
        reply = self._lead(request.body) if main else self._work(first, request)
        reply.cut = 2 if fault == "cut" else None
        reply.hang = fault == "hang"
        return reply

    def _fault(self, main: bool) -> str:
        if self._burst and not main:
            self._burst -= 1
            return "429"
        chosen = self._random.random() * (4 if main else 1)
        for name, share in FAULTS:
            chosen -= share
            if chosen < 0:
                if name == "429":
                    self._burst = self._random.randrange(4)
                return name
        return "none"

    @staticmethod
    def _work(task: str, request: Request) -> Reply:
        number = int(task.split("angle ")[1].split()[0])
        if request.turn == 0:
            return Reply("Looking. ", [("bash", {"command": f"echo {number}; sleep 0.02"})])
        if request.turn == 1 and number % 4 == 0:  # something that a kill leaves running
            return Reply("And longer. ", [("bash", {"command": "sleep 61 & sleep 61", "timeout": 1.5})])
        return Reply(f"finding of {number}")

    def _lead(self, body: dict[str, Any]) -> Reply:
        last: dict[str, tuple[int, str]] = {}
        taken_up: dict[str, int] = {}
        calls: dict[str, str] = {}
        for place, (role, kind, part) in enumerate(parts(body)):
            if role == "user" and kind == "text":
                last.update({run_id: (place, status) for run_id, status in BLOCK.findall(part["text"])})
            elif kind == "tool_use" and part["input"].get("resume"):
                calls[part["id"]] = part["input"]["resume"]
            elif kind == "tool_result" and part["tool_use_id"] in calls and not _cut_off(part):
                taken_up[calls[part["tool_use_id"]]] = place
        cut = [i for i, (place, how) in last.items() if how == "Interrupted" and taken_up.get(i, -1) < place]
        if cut:
            return Reply("Taking up. ", [("Agent", {"prompt": "go on", "resume": run_id}) for run_id in cut])
        told = [text for text in said_to(body) if "Agent ID:" in text or "<task-id>" in text]
        known = {int(number) for text in told for number in re.findall(r"angle (\d+)\b", text)}
        missing = [number for number in range(self.agents) if number not in known]
        if missing:
            return Reply("Starting. ", [self._agent(number) for number in missing])
        return Reply(f"heard {len(last)}")

    @staticmethod
    def _agent(number: int):
        prompt = f"look at angle {number} closely"
        return ("Agent", {"prompt": prompt, "description": f"angle {number}", "subagent_type": "general-purpose"})
