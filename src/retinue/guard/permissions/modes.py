"""The permission mode of a run, the classifier of the mode auto, preset rules, and tainted runs.

The mode in an agent's file holds where its parent's mode leaves room: a parent that acts freely
passes that on; a parent that may only plan, or must not ask, keeps its children there.

In the mode auto a model answers what the mode alone would ask. The model never sees, and cannot
overrule, what a rule, a critical deletion, a protected path or an unclear command makes the guard
ask. When it denies too often, people are asked again.

CodingCode treated a rule that asks as no answer, so reading `.env` went through. Here it asks.

A web page may hold instructions that a model follows. Where the setting `web.taint` asks for it, a
run is tainted from the moment it received something from another host. Taint spreads to every run
above, which will read its answer, and to every run started from then on, whose task the page may have
written. It is never lifted.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Protocol

from retinue.core.permission import READ_ONLY, Decision, EffectKind, Permissions, ToolEffect, ToolUse, Verdict
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.toolnames import TOOLS
from retinue.guard.permissions.policy import PermissionPolicy
from retinue.guard.permissions.rule import Kind, Rule, parse_rule

LONGEST = 8_000
_ANSWERS: dict[str, Verdict] = {"ALLOW": "allow", "DENY": "deny", "ASK": "ask"}


class Classifier(Protocol):
    async def __call__(self, system: str, question: str) -> str:
        """Return what a model answers. It may raise; then a person is asked."""
        ...


async def classify_call(policy: PermissionPolicy, use: ToolUse, decision: Decision, classifier: Classifier) -> Decision:
    """Return `decision`, or what the classifier made of it. Anything but a clear answer leaves it."""
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
    """Return the call as data; None for one that is too long to be judged as a whole."""
    call = {"tool": use.tool, "arguments": use.arguments, "why asked": decision.reason}
    text = json.dumps(call, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else None


def read_answer(text: str) -> tuple[Verdict, str]:
    """Return the verdict of the one line that was asked for. Anything else, or more, asks."""
    line = text.strip()
    word, _, reason = line.partition(":")
    verdict = _ANSWERS.get(word.strip().upper())
    # A model that argues has not given a clear answer.
    if verdict is None or "\n" in line:
        return "ask", ""
    return verdict, " ".join(reason.split())[:200].rstrip(".")


OVERRIDING: frozenset[PermissionMode] = frozenset({"bypassPermissions", "acceptEdits", "auto"})
_BY_FREEDOM: tuple[PermissionMode, ...] = ("plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions")
FREEDOM = {mode: freedom for freedom, mode in enumerate(_BY_FREEDOM)}


def effective_mode(
    above: PermissionMode, spec: AgentSpec, *, trusted: bool, bypass_disabled: bool, notes: list[str]
) -> PermissionMode:
    """`above` is the parent's mode; for a run that has no parent, that of the session. `trusted`:
    someone has consented to what the file brings."""
    if above == "bypassPermissions" and bypass_disabled:
        notes.append("bypassPermissions is disabled by permissions.disableBypass: the mode is default")
        above = "default"
    wanted = spec.permission_mode
    if wanted is None or wanted == above:
        return above
    if above in OVERRIDING:
        notes.append(f"permission mode {above} of the parent replaces {wanted} of the file")
        return above
    # A narrower mode needs nobody's consent.
    if FREEDOM[wanted] > FREEDOM[above]:
        refusal = _may_not_rise(above, wanted, spec, trusted, bypass_disabled)
        if refusal is not None:
            notes.append(f"permission mode {wanted} of the file is ignored, the mode is {above}: {refusal}")
            return above
    return wanted


def _may_not_rise(
    above: PermissionMode, wanted: PermissionMode, spec: AgentSpec, trusted: bool, bypass_disabled: bool
) -> str | None:
    if above != "default":
        return "an agent has no more freedom than the one that started it"
    if wanted == "bypassPermissions" and bypass_disabled:
        return "permissions.disableBypass is set"
    if spec.source == "plugin":
        return "plugins cannot bring one"
    if trusted:
        return None
    return "the project's file is not trusted"


SOURCE = "CodingCode's presets"
_RULES: tuple[tuple[Kind, str], ...] = (
    ("deny", "Bash(rm -rf /)"),
    ("deny", "Bash(sudo:*)"),
    ("deny", "Bash(chmod u+s *)"),
    ("deny", "Bash(shutdown:*)"),
    ("deny", "Read(//etc/shadow)"),
    ("deny", "Read(//etc/passwd)"),
    ("ask", "Read(//**/.ssh/**)"),
    ("ask", "Read(//**/.env)"),
)


@cache
def preset_rules() -> tuple[Rule, ...]:
    found: list[Rule] = []
    for kind, text in _RULES:
        rule = parse_rule(text, kind, source=SOURCE)
        assert isinstance(rule, Rule)
        found.append(rule)
    return tuple(found)


_OUTWARD: frozenset[EffectKind] = frozenset({"execute", "spawn"})


class Taint:
    """Whether one run is tainted, and by whom first."""

    def __init__(self, above: Taint | None = None, source: str | None = None) -> None:
        self._above = above
        self.source = source
        if source is None and above is not None:
            self.source = above.source

    def mark(self, source: str) -> None:
        """Record that the run has received something from `source`."""
        self.source = self.source or source
        if self._above is not None and self._above.source is None:
            self._above.mark(source)

    def observe(self, effect: ToolEffect) -> None:
        if effect.hosts:
            self.mark(effect.hosts[0])


class Wary:
    """The permissions of a run that may be tainted: what they allow and what reaches outward is
    asked about, each call by itself, in every mode."""

    def __init__(self, inner: Permissions, taint: Taint) -> None:
        self._inner = inner
        self._taint = taint

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)

    def decide(self, use: ToolUse) -> Decision:
        decision = self._inner.decide(use)
        source = self._taint.source
        # Inside the sandbox of `confine` nothing can be sent anywhere.
        if decision.verdict != "allow" or source is None or not reaches_outward(use):
            return decision
        reason = f"This run has read text from {source}, which may have told it to do this."
        if self.mode == "dontAsk":
            return Decision("deny", f"{reason} The mode is dontAsk.", "taint", "web.taint", "high")
        return Decision("ask", reason, "taint", "web.taint", "high")


def reaches_outward(use: ToolUse) -> bool:
    """Return whether a call can do harm beyond the files of the workspace, which can be put back."""
    # Our own tools that only look send other hosts no more than an address.
    if use.confined or (use.tool in TOOLS and use.effects <= READ_ONLY):
        return False
    return bool(use.effects & (_OUTWARD | {"network"})) or use.tool.startswith("mcp__")
