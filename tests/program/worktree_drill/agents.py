"""The models of the drill: of the agents, each with its plan, and of the one that started them.

Every answer is a function of the conversation, so that a process that was killed and asks again
gets on.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Any

from tests.program.drill import BLOCK, parts, said_to
from tests.program.model_server import Reply, Request
from tests.program.worktree_drill.plans import Plan, plan_of
from tests.program.worktree_drill.seen import Seen, blob_of

BATCH = re.compile(r"batch (\d+): jobs (\d+) to (\d+)\b")
JOB = re.compile(r"\b(inner job|job) (\d+)\b")
OF = re.compile(r"\bof batch (\d+)\b")
_LOST = ("effect is unknown", "was not run", "interrupted")


class Agents:
    def __init__(self, seed: int, seen: Seen) -> None:
        self.seed, self.seen = seed, seen
        self.answered: Counter[str] = Counter()
        self._more = threading.Condition()

    def plan(self, number: int, *, inner: bool = False) -> Plan:
        return plan_of(self.seed, f"i{number}" if inner else str(number), self.seen.port, inner=inner)

    def wait_for(self, who: str, count: int, seconds: float) -> None:
        """Until `who` (a batch, or a job) had that many more answers."""
        with self._more:
            goal = self.answered[who] + count
            self._more.wait_for(lambda: self.answered[who] >= goal, seconds)

    def answer(self, request: Request) -> Reply:
        first = next(parts(request.body))[2]["text"]
        batch = BATCH.search(first)
        if batch is not None:
            self._count(f"batch {batch[1]}")
            return self._lead(request.body, range(int(batch[2]), int(batch[3])))
        job = JOB.search(first)
        assert job is not None, first
        number, inner = int(job[2]), job[1] == "inner job"
        self._count(
            f"job {number}",
            *([] if (asked := first.split(" of batch ")[1:]) == [] else [f"batch {asked[0].split()[0]}"]),
        )
        return self._work(self.plan(number, inner=inner), request, f"{job[1]} {number}")

    def _count(self, *names: str) -> None:
        with self._more:
            self.answered.update(names)
            self._more.notify_all()

    def _work(self, plan: Plan, request: Request, job: str) -> Reply:
        results = request.results
        for step, result in zip(plan.steps, results, strict=False):
            text = _text(result)
            if text.startswith("Denied"):  # then less is drilled than it seems
                self.seen.denied.add(f"{job}: {step.arguments} was denied: {text[:300]}")
            if result.get("is_error") or any(word in text for word in _LOST):
                self.seen.missed.add(job)
                continue
            for content in step.contents:
                self.seen.add("blob", {blob_of(content): job})
            for path in step.gone:
                self.seen.gone.setdefault(job, set()).add(path)
        if len(results) < len(plan.steps):
            step = plan.steps[len(results)]
            return Reply("", [(step.tool, step.arguments)])
        return Reply("refused", status=401) if plan.fails else Reply(f"{job} is done")

    def _lead(self, body: dict[str, Any], jobs: range) -> Reply:
        last: dict[str, tuple[int, str]] = {}
        taken_up: dict[str, int] = {}
        for place, (role, kind, part) in enumerate(parts(body)):
            if role == "user" and kind == "text":
                last.update({run_id: (place, status) for run_id, status in BLOCK.findall(part["text"])})
            elif kind == "tool_use" and part["input"].get("resume"):
                taken_up[part["input"]["resume"]] = place
        cut = [i for i, (place, how) in last.items() if how == "Interrupted" and taken_up.get(i, -1) < place]
        if cut:
            return Reply("Taking up. ", [("Agent", {"prompt": "go on", "resume": run_id}) for run_id in cut])
        told = [text for text in said_to(body) if "Agent ID:" in text or "<task-id>" in text]
        known = {int(number) for text in told for number in re.findall(r"\bjob (\d+)\b", text)}
        missing = [number for number in jobs if number not in known]
        batch = BATCH.search(next(parts(body))[2]["text"])
        assert batch is not None
        return Reply("Starting. ", [self._start(number, batch[1]) for number in missing]) if missing else Reply("heard")

    def _start(self, number: int, batch: str) -> tuple[str, dict[str, Any]]:
        agent = "boss" if self.plan(number).kind == "boss" else "general-purpose"
        prompt = f"Please do job {number} of batch {batch} ."
        return (
            "Agent",
            {"prompt": prompt, "description": f"job {number}", "subagent_type": agent, "isolation": "worktree"},
        )


def _text(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
