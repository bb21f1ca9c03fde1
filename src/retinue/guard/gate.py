"""The gate in front of every tool of a run: no call runs that was not allowed, and the record says who allowed it.

    PreToolUse hooks → permissions, on the input that will run → PermissionRequest hooks
    → a person, or the policy for when nobody is there → the tool → PostToolUse hooks

Deny goes before ask, ask before allow. A hook's allow answers only what the mode would ask: never a rule, a critical
deletion, a protected path or what could not be parsed. An error in the gate denies the call.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import Body
from retinue.core.messages import Text
from retinue.core.permission import (
    APPROVALS,
    NO_OPINION,
    Decision,
    HookResult,
    Hooks,
    InboxAnswer,
    InboxItem,
    Judge,
    Permissions,
    ToolEffect,
    ToolUse,
)
from retinue.core.programs import Clearance
from retinue.core.tool import Preview, Tool, ToolContext, ToolOutput, failed
from retinue.guard.permissions.locations import below
from retinue.guard.permissions.modes import Taint, Wary
from retinue.loop.arguments import normalise, schema_of
from retinue.loop.schema_check import problem

if TYPE_CHECKING:
    from retinue.core.run_state import RunPlace
    from retinue.guard.inbox_service import InboxService
    from retinue.loop.job import Controls


class Asker(Struct, eq=False):
    """`record` writes an event of the run down; `leftovers` says that an earlier attempt of it asked
    things of which nothing came yet."""

    place: RunPlace
    agent: str
    controls: Controls
    record: Callable[[Body], object]
    leftovers: bool = False
    description: str = ""
    """The task of the run, in a few words."""
    resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Entered while the run waits for a person, so that other runs may use its slot."""


NOBODY = "Nobody is there to ask, and the policy for that is to deny (setting permissions.headless)."


def explain_nobody(rule: str | None, tool: str) -> str:
    """Return why a call is denied where nobody can be asked, and what would have allowed it."""
    if rule is None:
        return f"{NOBODY} No rule can allow it beforehand; with that setting on `wait` it waits for a person's answer."
    ways = f"--allowedTools {shlex.quote(rule)}"
    if tool in ("edit", "write", "apply_patch"):
        ways += ", --permission-mode acceptEdits"
    return f"{NOBODY} The user can allow it before the run: {ways}, or the rule in permissions.allow."


def new_item_id() -> str:
    # Short enough to be typed: `retinue inbox answer 3f9a…`.
    return os.urandom(5).hex()


_ONCE = ("allow", "deny")
MAX_TITLE_CHARACTERS = 200
_TELLING = ("command", "path", "file_path", "url", "query", "pattern", "description", "prompt", "name")
"""Arguments that say what a call is about, the most telling first."""


def call_title(tool: str, arguments: Mapping[str, Any]) -> str:
    """`edit src/a.py`, `bash: make test`: one line."""
    named = (arguments[name] for name in _TELLING if isinstance(arguments.get(name), str))
    text = _line(next(named, ""), MAX_TITLE_CHARACTERS)
    if not text:
        return tool
    if tool == "write" and arguments.get("delete"):
        return f"delete {text}"
    if tool == "bash":
        return f"{tool}: {text}"
    return f"{tool} {text}"


GUARD = "guard"
"""`Denied.who` where the guard itself is at fault."""
MAX_REASON_CHARACTERS = 2_000


class Denied(Struct, frozen=True):
    """`by` is who denied; `who` names them where there is a name; `message` is a person's."""

    by: Judge
    reason: str
    who: str = ""
    message: str = ""


def denial(decision: Decision) -> Denied:
    return Denied(decision.by, decision.reason, decision.source)


def denied_output(tool: str, denied: Denied) -> ToolOutput:
    """The result of a call that was not run. Its effect carries the denial into the evidence."""
    who = _name(denied)
    lines = [
        f"Denied: {tool} was not run; nothing of this call took effect.",
        f"Denied by: {who}",
        f"Reason: {_line(denied.reason)}",
    ]
    if denied.message:
        lines.append(f"Message to you: {_line(denied.message)}")
    lines.append(f"What to do: {_advice(denied)}")
    short = f"denied by {who}: {_line(denied.message or denied.reason)}"
    return failed("\n".join(lines), ToolEffect(status="failed", denied=short))


_NAMES: Mapping[Judge, str] = {
    "person": "a person",
    "policy": "policy",
    "hook": "a hook",
    "rule": "a rule",
    "mode": "the permission mode",
    "protected": "the protection of this path",
    "critical": "the protection from critical deletions",
    "walls": "the walls around its shell",
    "unparsed": "the guard, which could not make out what the call would do",
    "classifier": "the automatic check",
    "taint": "the guard, because of what this run has read",
}


def _name(denied: Denied) -> str:
    if denied.who and denied.by in ("person", "hook", "rule"):
        return f"{_NAMES[denied.by]} ({denied.who})"
    return _NAMES[denied.by]


def _advice(denied: Denied) -> str:
    if denied.by == "person" and denied.message:
        return "Follow the message. Do not do the same in another way."
    if denied.by == "person":
        return "Do not do the same in another way. Go on without it, or end and say what is left to do."
    if denied.by == "policy" and denied.who != GUARD:
        return (
            "Nobody can approve it now, so do not ask again or do the same in another way. "
            "Go on with what you may do, and say in your answer what could not be done and why."
        )
    if denied.by == "unparsed":
        return "Say it in a simpler form, such as one plain command, or go on without it."
    return (
        "Do not do the same in another way. Go on with what is allowed, and say in your answer what could not be done."
    )


def _line(text: str, most: int = MAX_REASON_CHARACTERS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


class Allowed(Struct, frozen=True):
    """`arguments` are those that run; `who` goes into the record; `context` beside the result.
    `clearance` decides which sandbox a command runs in."""

    arguments: Mapping[str, Any]
    who: str
    context: str = ""
    clearance: Clearance = "mode"


_CLEARANCES: Mapping[Judge, Clearance] = {"rule": "rule", "hook": "rule", "person": "person"}
"""By who allowed a call; anyone not named has the clearance of a mode."""


_UNASKED = ("allow", "confine")

_NOT_BEGUN = "Not run: it was stopped while it waited to be allowed. Nothing of it has happened."

_FOREIGN = frozenset({"execute", "network"})
"""Tools whose output is redacted. The content of files is not: a placeholder that it
writes back would destroy the secret."""

_RETELLING = frozenset({"get_search_content"})
"""Tools that do nothing themselves and repeat what other hosts said."""

Granted = Callable[[str, InboxAnswer], Awaitable[None]]
"""Called with the rule that a person allowed beyond one call, and the answer."""


class PermissionGate:
    """The rules of one run. `inbox_service` returns the service, which is made when there is something to ask."""

    def __init__(
        self,
        permissions: Permissions,
        hooks: Hooks,
        asker: Asker,
        inbox_service: Callable[[], InboxService],
        granted: Granted,
        *,
        recall: Callable[[], bool] = lambda: False,
        redact: Callable[[str], str] = lambda text: text,
        classify: Callable[[ToolUse, Decision], Awaitable[Decision]] | None = None,
        previews: Callable[[str], Preview | None] = lambda tool: None,
        taint: Taint | None = None,
    ) -> None:
        """`recall` brings in what people allowed earlier for good, and says whether there was
        anything new. `redact` takes secrets out of a text: a rule that has one is never
        offered, for it would be kept. `previews` returns what tells people beforehand what a call
        of a tool would change. `taint` remembers that the run has read text of other hosts; from
        then on what reaches outward is asked about."""
        self.permissions = permissions if taint is None else Wary(permissions, taint)
        self.taint = taint
        self.hooks = hooks
        self.asker = asker
        self._inbox_service = inbox_service
        self._granted = granted
        self._recall = recall
        self._redact = redact
        self._classify = classify
        self._previews = previews
        self._kept_inside: tuple[str, ...] = ()

    async def judge(self, tool: Tool, use: ToolUse, context: ToolContext) -> Allowed | Denied:
        """Decide whether the call may run, and with which arguments."""
        hook = await self._fire("PreToolUse", use)
        if hook.verdict == "deny" or hook.stop is not None:
            return _by_hook(hook)
        use, changed = _update_input(tool, use, hook)
        if isinstance(changed, Denied):
            return changed
        decision = self.permissions.decide(use)
        if decision.verdict == "deny":
            return denial(decision)
        if hook.verdict == "allow" and decision.by in ("mode", "walls"):
            return _allowed_by_hook(use, hook, changed)
        if hook.verdict == "ask" and (decision.verdict in _UNASKED or decision.by == "mode"):
            reason = hook.reason or "A hook wants a person to decide."
            decision = Decision("ask", reason, "hook", _hooks(hook), decision.risk, None)
        # Another process may have written the answer to the same question meanwhile.
        if decision.verdict == "ask" and decision.rule is not None and self._recall():
            decision = self.permissions.decide(use)
        if decision.verdict == "ask" and decision.by == "mode" and self._classify is not None:
            decision = await self._classify(use, decision)
            if decision.verdict == "deny":
                return denial(decision)
        if decision.verdict == "confine":
            return Allowed(use.arguments, who_allowed(decision) + changed, hook.context, "inside")
        if decision.verdict == "allow":
            clearance = _CLEARANCES.get(decision.by, "mode")
            return Allowed(use.arguments, who_allowed(decision) + changed, hook.context, clearance)
        allowed = await self._ask(tool, use, decision, context)
        if isinstance(allowed, Allowed):
            return replace(allowed, who=allowed.who + changed, context=_join_texts(hook.context, allowed.context))
        return allowed

    async def _ask(self, tool: Tool, use: ToolUse, decision: Decision, context: ToolContext) -> Allowed | Denied:
        hook = await self._fire("PermissionRequest", use, suggestions=[decision.rule] if decision.rule else [])
        if hook.verdict == "deny" or hook.stop is not None:
            return _by_hook(hook)
        use, changed = _update_input(tool, use, hook)
        if isinstance(changed, Denied):
            return changed
        if changed:
            # The hook has made another call of it: all rules are asked again.
            decision = self.permissions.decide(use)
            if decision.verdict == "deny":
                return denial(decision)
        if hook.verdict == "allow" and (decision.verdict in _UNASKED or decision.by == "mode"):
            return _allowed_by_hook(use, hook, changed)
        if decision.verdict in _UNASKED:
            reason = "A hook changed the call, and did not allow it."
            decision = Decision("ask", reason, "hook", _hooks(hook), decision.risk)
        answer = await self._person(use, decision, context)
        if isinstance(answer, Denied):
            return answer
        how = {"allow": "once", "allow-run": "for this run", "allow-agent": "for this agent"}.get(
            answer.choice, "always"
        )
        return Allowed(use.arguments, f"person: {answer.by} allowed it {how}{changed}", hook.context, "person")

    async def judge_outside(self, tool: Tool, use: ToolUse, context: ToolContext) -> Allowed | Denied | None:
        """Ask whether what the walls stopped may run outside of them. Return None where that is no
        question: somebody said no to the same command before, or the mode does not ask."""
        command = str(use.arguments.get("command", ""))
        # A model that repeats the command would otherwise ask the same person again and again.
        if command in self._kept_inside or self.permissions.mode in ("plan", "dontAsk"):
            return None
        answer = await self._ask_outside(tool, use, context)
        if not isinstance(answer, Allowed):
            self._kept_inside += (command,)
        return answer

    async def _ask_outside(self, tool: Tool, use: ToolUse, context: ToolContext) -> Allowed | Denied | None:
        decision = self.permissions.decide(use)
        if decision.verdict == "ask" and decision.by == "mode" and self._classify is not None:
            decision = await self._classify(use, decision)
        if decision.verdict == "allow":
            if decision.by == "classifier":
                return Allowed(use.arguments, who_allowed(decision))
            return None
        if decision.verdict == "deny":
            return denial(decision)
        return await self._ask(tool, use, decision, context)

    async def _person(self, use: ToolUse, decision: Decision, context: ToolContext) -> InboxAnswer | Denied:
        inbox_service, rule = self._inbox_service(), decision.rule
        # A rule with a secret in it would be kept in a file.
        if rule is not None and self._redact(rule) is not rule:
            rule = None
        # An answer to the same question may have come while no process ran the run.
        if not inbox_service.reachable and not self.asker.leftovers:
            return Denied("policy", f"{decision.reason} {explain_nobody(rule, use.tool)}")
        item = await self._approval(use, decision, rule, context)
        if self.hooks.listens("Notification"):
            await self.hooks.fire("Notification", "permission_prompt", {"message": item.title, "inbox_item": item.id})

        async def granted(answer: InboxAnswer) -> None:
            if rule is not None and answer.choice not in ("allow", "deny"):
                await self._granted(rule, answer)

        answer = await inbox_service.ask(
            item,
            self.asker,
            call_id=use.call_id,
            covered=None if decision.by == "hook" else lambda: self.permissions.decide(use).verdict == "allow",
            granted=granted,
        )
        if answer.choice != "deny":
            return answer
        if answer.by in ("policy", "expiry"):
            return Denied("policy", f"{decision.reason} {answer.message}")
        return Denied("person", decision.reason, answer.by, answer.message)

    async def _approval(self, use: ToolUse, decision: Decision, rule: str | None, context: ToolContext) -> InboxItem:
        """`rule` is what could be granted beyond this call; None where nothing may be granted."""
        preview, detail = self._previews(use.tool), ""
        if preview is not None:
            try:
                detail = await preview(use.arguments, context)
            except Exception as error:  # noqa: BLE001 - the question is put without it
                detail = f"(What it would change cannot be shown: {type(error).__name__}: {error})"
        return InboxItem(
            id=new_item_id(),
            kind="approval",
            run_id=self.asker.place.run_id,
            root_id=self.asker.place.root_id,
            agent=self.asker.agent,
            description=self.asker.description,
            title=call_title(use.tool, use.arguments),
            detail=detail,
            payload={"tool": use.tool, "arguments": dict(use.arguments), "call_id": use.call_id},
            risk=decision.risk,
            reason=decision.reason,
            rule=rule,
            options=APPROVALS if rule is not None else _ONCE,
        )

    async def _fire(self, event: Any, use: ToolUse, **payload: Any) -> HookResult:
        if not self.hooks.listens(event):
            return NO_OPINION
        return await self.hooks.fire(event, use.tool, {**_payload(use), **payload})

    async def refused(self, use: ToolUse, denied: Denied) -> None:
        await self._fire("PermissionDenied", use, reason=denied.reason)

    def without_secrets(self, output: ToolOutput) -> ToolOutput:
        """Return what a program or another host printed, without secrets."""
        content = list(output.content)
        for at, block in enumerate(content):
            if isinstance(block, Text):
                content[at] = replace(block, text=self._redact(block.text))
        return replace(output, content=tuple(content))

    async def broken(self, use: ToolUse, error: Exception) -> None:
        """Tell hooks of a defective tool as of any failure."""
        await self._fire("PostToolUseFailure", use, error=f"{type(error).__name__}: {error}")

    async def afterwards(self, use: ToolUse, output: ToolOutput) -> ToolOutput:
        """Return what hooks make of a result: another text, something beside it, an objection."""
        event, key = ("PostToolUseFailure", "error") if output.is_error else ("PostToolUse", "tool_response")
        hook = await self._fire(event, use, **{key: output.text})
        if hook.updated_output is not None:
            output = replace(output, content=(Text(hook.updated_output),))
        objection = f"A hook objects: {hook.reason}" if hook.verdict == "deny" and hook.reason else ""
        return _beside(output, _join_texts(objection, hook.context))


class GatedTool:
    """A tool whose calls pass its gate before they run. Everything else is the inner tool's."""

    __slots__ = ("_effects", "_gate", "_name", "_tool", "spec")

    def __init__(self, tool: Tool, gate: PermissionGate) -> None:
        self._tool = tool
        self._gate = gate
        self.spec = tool.spec
        self._name = tool.spec.name
        self._effects = tool.spec.effects

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        gate = self._gate
        confined = self.spec.confinable and context.confine is not None and context.confine.readonly
        use = ToolUse(self._name, arguments, self._effects, call_id, confined, paths=self.spec.paths)
        try:
            verdict = await gate.judge(self._tool, use, context)
            if isinstance(verdict, Denied):
                await gate.refused(use, verdict)
        except asyncio.CancelledError:
            # The run is being stopped, or the call takes too long: what was not allowed yet has not begun.
            return failed(_NOT_BEGUN, ToolEffect("failed"))
        except Exception as error:  # noqa: BLE001 - a guard that breaks denies
            reason = f"The guard failed ({type(error).__name__}: {error}), and what it cannot judge is not run."
            verdict = Denied("policy", reason, GUARD)
        if isinstance(verdict, Denied):
            return denied_output(self._name, verdict)
        if verdict.arguments is not use.arguments:
            use = replace(use, arguments=verdict.arguments)
        output = await self._start(use, verdict, context)
        if not isinstance(output, ToolOutput):
            return output
        if output.effect.stopped and not confined and _may_widen(context, verdict.clearance):
            output, verdict = await self._outside(use, verdict, output, context)
        if self._tells_foreign_text(output, context):
            output = gate.without_secrets(output)
        if gate.taint is not None:
            gate.taint.observe(output.effect)
        output = replace(output, effect=replace(output.effect, allowed=verdict.who))
        output = _beside(output, verdict.context)
        return await gate.afterwards(use, output)

    def _tells_foreign_text(self, output: ToolOutput, context: ToolContext) -> bool:
        """Return whether a program or another host may have printed what it says: also a whole output that was kept
        in a file because a model got a part of it."""
        if not self._effects.isdisjoint(_FOREIGN) or self._name in _RETELLING:
            return True
        outputs = _real_folder(str(context.outputs))
        return any(below(path, outputs) is not None for path in output.effect.reads)

    async def _start(self, use: ToolUse, allowed: Allowed, context: ToolContext) -> ToolOutput:
        """Run the tool with its clearance, from which the sandbox of its programs follows."""
        if self.spec.confinable:
            context = replace(context, clearance=allowed.clearance)
        try:
            return await self._tool.run(use.call_id, allowed.arguments, context)
        except Exception as error:
            await self._gate.broken(use, error)
            raise

    async def _outside(
        self, use: ToolUse, allowed: Allowed, output: ToolOutput, context: ToolContext
    ) -> tuple[ToolOutput, Allowed]:
        """Run a command again outside the sandbox that stopped it, if somebody allows that."""
        use = replace(use, stopped=output.effect.stopped or "")
        try:
            answer = await self._gate.judge_outside(self._tool, use, context)
        except Exception as error:  # noqa: BLE001 - a guard that breaks denies
            answer = Denied("policy", f"The guard failed ({type(error).__name__}: {error}).", GUARD)
        if isinstance(answer, Allowed):
            return await self._start(use, answer, context), answer
        if isinstance(answer, Denied):
            message = f" {answer.message}" if answer.message else ""
            output = _beside(output, f"[It was not run outside of the walls: {answer.reason}{message}]")
        return output, allowed


def _may_widen(context: ToolContext, clearance: Clearance) -> bool:
    """Return whether a wider sandbox can be offered. A person has already allowed all that rules leave."""
    if context.confine is None:
        return clearance != "person"
    return context.confine.widens(clearance)


def guard_tools(tools: tuple[Tool, ...], gate: PermissionGate) -> tuple[Tool, ...]:
    return tuple(GatedTool(tool, gate) for tool in tools)


def who_allowed(decision: Decision) -> str:
    """Return who allowed it, for the record: `rule: … (settings.json)`."""
    source = f" ({decision.source})" if decision.source else ""
    return f"{decision.by}: {decision.reason}{source}"


def _update_input(tool: Tool, use: ToolUse, hook: HookResult) -> tuple[ToolUse, str | Denied]:
    """Return the call with the input that a hook gave it, which is what runs from here on."""
    if hook.updated_input is None or hook.updated_input == use.arguments:
        return use, ""
    spec = tool.spec
    updated = normalise(hook.updated_input, spec, [])
    wrong = problem(updated, schema_of(spec))
    if wrong is not None:
        return use, Denied(
            "hook", f"It changed the input into one that does not fit {use.tool}: {wrong}.", _hooks(hook)
        )
    return replace(use, arguments=updated), f"; input changed by {_hooks(hook)}"


def _allowed_by_hook(use: ToolUse, hook: HookResult, changed: str) -> Allowed:
    who = f"{_hooks(hook)}: {hook.reason}".rstrip(": ") + changed
    return Allowed(use.arguments, who, hook.context, "rule")


def _by_hook(hook: HookResult) -> Denied:
    return Denied("hook", hook.stop or hook.reason or "It gave no reason.", _hooks(hook))


def _hooks(hook: HookResult) -> str:
    return f"hook {', '.join(hook.handlers)}" if hook.handlers else "hook"


def _payload(use: ToolUse) -> dict[str, Any]:
    return {"tool_name": use.tool, "tool_input": dict(use.arguments), "tool_use_id": use.call_id}


def _join_texts(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def _beside(output: ToolOutput, text: str) -> ToolOutput:
    return replace(output, content=(*output.content, Text(text))) if text else output


@lru_cache(maxsize=1024)
def _real_folder(path: str) -> str:
    """Return the real path of a folder of ours. Agents cannot replace it, so one look at each is enough."""
    return os.path.realpath(path)
