"""The mode auto: a model answers what the mode would ask, and nothing else.

It never sees, and cannot overrule, what a rule, a critical deletion, a protected path or an
unclear command makes the guard ask. When it denies too often, people are asked again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from retinue.core.permission import Decision, ToolUse, Verdict
from retinue.guard.permissions.policy import Policy

LONGEST = 8_000
_ANSWERS: dict[str, Verdict] = {"ALLOW": "allow", "DENY": "deny", "ASK": "ask"}


class Classifier(Protocol):
    async def __call__(self, system: str, question: str) -> str:
        """What a model answers. May raise; then a person is asked."""
        ...


async def classified(policy: Policy, use: ToolUse, decision: Decision, classifier: Classifier) -> Decision:
    """`decision`, or what the classifier made of it. Anything but a clear answer leaves it."""
    if decision.verdict != "ask" or not decision.facts.get("classify") or policy.denials.too_many:
        return decision
    asked = question(use, decision)
    if asked is None:
        return decision
    try:
        answer = await classifier(prompt(), asked)
    except Exception:  # noqa: BLE001 - a model that fails has no opinion
        return decision
    verdict, reason = read_answer(answer)
    policy.denials.count(verdict)
    if verdict == "ask":
        return decision
    return Decision(verdict, f"The classifier says: {reason or verdict}.", "classifier", risk=decision.risk)


def prompt() -> str:
    return Path(__file__).with_name("auto.md").read_text(encoding="utf-8")


def question(use: ToolUse, decision: Decision) -> str | None:
    """The call as data; None for one that is too long to be judged as a whole."""
    call = {"tool": use.tool, "arguments": use.arguments, "why asked": decision.reason}
    text = json.dumps(call, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else None


def read_answer(text: str) -> tuple[Verdict, str]:
    """The one line that was asked for. Anything else, or more, asks."""
    line = text.strip()
    word, _, reason = line.partition(":")
    verdict = _ANSWERS.get(word.strip().upper())
    if verdict is None or "\n" in line:
        return "ask", ""
    return verdict, " ".join(reason.split())[:200].rstrip(".")
