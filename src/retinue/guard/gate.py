"""The gate in front of every tool of a run: no call runs without permission, and the record names who gave it.

    PreToolUse hooks → permissions, on the input that will run → PermissionRequest hooks
    → a person, or the policy for when nobody is there → the tool → PostToolUse hooks

Deny takes precedence over ask, and ask over allow. A hook's allow replaces only a question of the permission mode,
never one about a rule, a critical deletion, a protected path or an unparsed command. An error in the gate denies the
call."""

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
from retinue.guard.permissions.modes import Taint, TaintedPermissions
from retinue.loop.arguments import normalise, schema_of
from retinue.loop.schema_check import problem

if TYPE_CHECKING:
    from retinue.core.run_state import RunPlace
    from retinue.guard.inbox_service import InboxService
    from retinue.loop.job import Controls


class Asker(Struct, eq=False):
    """The run that asks a person. `record` writes an event of it; `leftovers` is true if an earlier attempt of the run
    left questions without an answer."""

    place: RunPlace
    agent: str
    controls: Controls
    record: Callable[[Body], object]
    leftovers: bool = False
    description: str = ""
    """A short description of the task."""
    release_slot: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """A context for the time in which the run waits for a person: other runs may use its slot."""


NO_PERSON_REASON = "Nobody is there to ask, and the policy for that is to deny (setting permissions.headless)."


def explain_headless_denial(rule: str | None, tool: str) -> str:
    """Return why a call is denied if no person can be asked, and what would have allowed it."""
    if rule is None:
        return f"{NO_PERSON_REASON} No rule can allow it beforehand; with that setting on `wait` it waits for a person."
    ways = f"--allowedTools {shlex.quote(rule)}"
    if tool in ("edit", "write", "apply_patch"):
        ways += ", --permission-mode acceptEdits"
    return f"{NO_PERSON_REASON} The user can allow it before the run: {ways}, or the rule in permissions.allow."


def new_item_id() -> str:
    # It is short enough to type: `retinue inbox answer 3f9a…`.
    return os.urandom(5).hex()


_SINGLE_CALL_OPTIONS = ("allow", "deny")
MAX_TITLE_CHARACTERS = 200
_TITLE_ARGUMENTS = ("command", "path", "file_path", "url", "query", "pattern", "description", "prompt", "name")
"""Arguments that identify a call, the most informative first."""


def call_title(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a call on one line, such as `edit src/a.py` or `bash: make test`."""
    named = (arguments[name] for name in _TITLE_ARGUMENTS if isinstance(arguments.get(name), str))
    text = _line(next(named, ""), MAX_TITLE_CHARACTERS)
    if not text:
        return tool
    if tool == "write" and arguments.get("delete"):
        return f"delete {text}"
    if tool == "bash":
        return f"{tool}: {text}"
    return f"{tool} {text}"


GUARD = "guard"
"""`Denied.who` if the guard itself failed."""
MAX_REASON_CHARACTERS = 2_000


class Denied(Struct, frozen=True):
    """Why a call does not run. `by` is the kind of judge, `who` its name if it has one, `message` the text of a
    person."""

    by: Judge
    reason: str
    who: str = ""
    message: str = ""


def denial(decision: Decision) -> Denied:
    return Denied(decision.by, decision.reason, decision.source)


def denied_output(tool: str, denied: Denied) -> ToolOutput:
    """Return the result of a call that did not run. Its effect puts the denial into the evidence."""
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


_JUDGE_NAMES: Mapping[Judge, str] = {
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
        return f"{_JUDGE_NAMES[denied.by]} ({denied.who})"
    return _JUDGE_NAMES[denied.by]


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


def _line(text: str, max_characters: int = MAX_REASON_CHARACTERS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


class Allowed(Struct, frozen=True):
    """A permitted call. `arguments` are the ones that run, `who` goes into the record, `context` is added to the
    result, and `clearance` decides in which sandbox a command runs."""

    arguments: Mapping[str, Any]
    who: str
    context: str = ""
    clearance: Clearance = "mode"


_CLEARANCES: Mapping[Judge, Clearance] = {"rule": "rule", "hook": "rule", "person": "person"}
"""The clearance by the judge that allowed a call; any other judge gives that of a mode."""


_VERDICTS_WITHOUT_QUESTION = ("allow", "confine")

_STOPPED_BEFORE_PERMISSION = "Not run: it was stopped while it waited for permission. Nothing of it has happened."

_REDACTED_EFFECTS = frozenset({"execute", "network"})
"""Output of tools with these effects is redacted. The content of files is not: an agent that writes a placeholder back
would destroy the secret."""

_QUOTING_TOOLS = frozenset({"get_search_content"})
"""Tools without effects that repeat text of other hosts."""

OnGranted = Callable[[str, InboxAnswer], Awaitable[None]]
"""Called with a rule that a person allowed for more than one call, and with the answer."""


class PermissionGate:
    """Judges the calls of one run. `inbox_service` creates the service when there is a question."""

    def __init__(
        self,
        permissions: Permissions,
        hooks: Hooks,
        asker: Asker,
        inbox_service: Callable[[], InboxService],
        granted: OnGranted,
        *,
        recall: Callable[[], bool] = lambda: False,
        redact: Callable[[str], str] = lambda text: text,
        classify: Callable[[ToolUse, Decision], Awaitable[Decision]] | None = None,
        previews: Callable[[str], Preview | None] = lambda tool: None,
        taint: Taint | None = None,
    ) -> None:
        """`recall` loads permanent permissions that people gave meanwhile, and returns whether there are new ones.
        `redact` removes secrets from a text; a rule with a secret is never offered, because it would be stored.
        `previews` returns the function that shows people the changes of a call in advance. `taint` records that the
        run has read text of other hosts; from then on, calls that reach outward need an answer."""
        self.permissions = permissions if taint is None else TaintedPermissions(permissions, taint)
        self.taint = taint
        self.hooks = hooks
        self.asker = asker
        self._inbox_service = inbox_service
        self._granted = granted
        self._recall = recall
        self._redact = redact
        self._classify = classify
        self._previews = previews
        self._commands_kept_inside: tuple[str, ...] = ()

    async def judge(self, tool: Tool, use: ToolUse, context: ToolContext) -> Allowed | Denied:
        """Decide whether the call may run, and with which arguments."""
        hook = await self._fire("PreToolUse", use)
        if hook.verdict == "deny" or hook.stop is not None:
            return _denied_by_hook(hook)
        use, changed = _update_input(tool, use, hook)
        if isinstance(changed, Denied):
            return changed
        decision = self.permissions.decide(use)
        if decision.verdict == "deny":
            return denial(decision)
        if hook.verdict == "allow" and decision.by in ("mode", "walls"):
            return _allowed_by_hook(use, hook, changed)
        if hook.verdict == "ask" and (decision.verdict in _VERDICTS_WITHOUT_QUESTION or decision.by == "mode"):
            reason = hook.reason or "A hook requires a person's decision."
            decision = Decision("ask", reason, "hook", _hook_names(hook), decision.risk, None)
        # Another process may have stored the answer to the same question.
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
            return _denied_by_hook(hook)
        use, changed = _update_input(tool, use, hook)
        if isinstance(changed, Denied):
            return changed
        if changed:
            # The hook changed the call, so all rules apply again.
            decision = self.permissions.decide(use)
            if decision.verdict == "deny":
                return denial(decision)
        if hook.verdict == "allow" and (decision.verdict in _VERDICTS_WITHOUT_QUESTION or decision.by == "mode"):
            return _allowed_by_hook(use, hook, changed)
        if decision.verdict in _VERDICTS_WITHOUT_QUESTION:
            reason = "A hook changed the call and did not allow it."
            decision = Decision("ask", reason, "hook", _hook_names(hook), decision.risk)
        answer = await self._person(use, decision, context)
        if isinstance(answer, Denied):
            return answer
        how = {"allow": "once", "allow-run": "for this run", "allow-agent": "for this agent"}.get(
            answer.choice, "always"
        )
        return Allowed(use.arguments, f"person: {answer.by} allowed it {how}{changed}", hook.context, "person")

    async def judge_outside(self, tool: Tool, use: ToolUse, context: ToolContext) -> Allowed | Denied | None:
        """Ask whether a command that the sandbox stopped may run outside of it. Return None if there is no question:
        the same command was refused before, or the mode does not ask."""
        command = str(use.arguments.get("command", ""))
        # Otherwise a model that repeats the command would repeat the question.
        if command in self._commands_kept_inside or self.permissions.mode in ("plan", "dontAsk"):
            return None
        answer = await self._ask_outside(tool, use, context)
        if not isinstance(answer, Allowed):
            self._commands_kept_inside += (command,)
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
        # A rule is stored in a file, so one with a secret is not offered.
        if rule is not None and self._redact(rule) is not rule:
            rule = None
        # The same question may have been answered while no process ran the run.
        if not inbox_service.reachable and not self.asker.leftovers:
            return Denied("policy", f"{decision.reason} {explain_headless_denial(rule, use.tool)}")
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
        """`rule` is the rule that can be granted for more than this call; None if none may be granted."""
        preview, detail = self._previews(use.tool), ""
        if preview is not None:
            try:
                detail = await preview(use.arguments, context)
            except Exception as error:  # noqa: BLE001 - the question is asked without it
                detail = f"(Its changes cannot be shown: {type(error).__name__}: {error})"
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
            options=APPROVALS if rule is not None else _SINGLE_CALL_OPTIONS,
        )

    async def _fire(self, event: Any, use: ToolUse, **payload: Any) -> HookResult:
        if not self.hooks.listens(event):
            return NO_OPINION
        return await self.hooks.fire(event, use.tool, {**_payload(use), **payload})

    async def refused(self, use: ToolUse, denied: Denied) -> None:
        await self._fire("PermissionDenied", use, reason=denied.reason)

    def without_secrets(self, output: ToolOutput) -> ToolOutput:
        """Return the output of a program or another host without secrets."""
        content = list(output.content)
        for at, block in enumerate(content):
            if isinstance(block, Text):
                content[at] = replace(block, text=self._redact(block.text))
        return replace(output, content=tuple(content))

    async def tool_raised(self, use: ToolUse, error: Exception) -> None:
        """Report the exception of a tool to hooks as a failure."""
        await self._fire("PostToolUseFailure", use, error=f"{type(error).__name__}: {error}")

    async def after_tool(self, use: ToolUse, output: ToolOutput) -> ToolOutput:
        """Return the result as hooks changed it: with another text, an addition, or an objection."""
        event, key = ("PostToolUseFailure", "error") if output.is_error else ("PostToolUse", "tool_response")
        hook = await self._fire(event, use, **{key: output.text})
        if hook.updated_output is not None:
            output = replace(output, content=(Text(hook.updated_output),))
        objection = f"A hook objects: {hook.reason}" if hook.verdict == "deny" and hook.reason else ""
        return _append_text(output, _join_texts(objection, hook.context))


class GatedTool:
    """A tool whose calls pass the gate before they run."""

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
            # The run is being stopped, or the call takes too long. Without permission it has not begun.
            return failed(_STOPPED_BEFORE_PERMISSION, ToolEffect("failed"))
        except Exception as error:  # noqa: BLE001 - a broken guard denies
            reason = f"The guard failed ({type(error).__name__}: {error}), so the call was not run."
            verdict = Denied("policy", reason, GUARD)
        if isinstance(verdict, Denied):
            return denied_output(self._name, verdict)
        if verdict.arguments is not use.arguments:
            use = replace(use, arguments=verdict.arguments)
        output = await self._start(use, verdict, context)
        if not isinstance(output, ToolOutput):
            return output
        if output.effect.stopped and not confined and _may_widen(context, verdict.clearance):
            output, verdict = await self._run_outside(use, verdict, output, context)
        if self._has_foreign_text(output, context):
            output = gate.without_secrets(output)
        if gate.taint is not None:
            gate.taint.observe(output.effect)
        output = replace(output, effect=replace(output.effect, allowed=verdict.who))
        output = _append_text(output, verdict.context)
        return await gate.after_tool(use, output)

    def _has_foreign_text(self, output: ToolOutput, context: ToolContext) -> bool:
        """Return whether the text may come from a program or another host. That includes an output that was stored in a
        file because the model got only a part of it."""
        if not self._effects.isdisjoint(_REDACTED_EFFECTS) or self._name in _QUOTING_TOOLS:
            return True
        outputs = _real_folder(str(context.outputs))
        return any(below(path, outputs) is not None for path in output.effect.reads)

    async def _start(self, use: ToolUse, allowed: Allowed, context: ToolContext) -> ToolOutput:
        """Run the tool with its clearance, which decides the sandbox of its programs."""
        if self.spec.confinable:
            context = replace(context, clearance=allowed.clearance)
        try:
            return await self._tool.run(use.call_id, allowed.arguments, context)
        except Exception as error:
            await self._gate.tool_raised(use, error)
            raise

    async def _run_outside(
        self, use: ToolUse, allowed: Allowed, output: ToolOutput, context: ToolContext
    ) -> tuple[ToolOutput, Allowed]:
        """Run a command again outside of the sandbox that stopped it, if a person or a rule allows that."""
        use = replace(use, stopped=output.effect.stopped or "")
        try:
            answer = await self._gate.judge_outside(self._tool, use, context)
        except Exception as error:  # noqa: BLE001 - a broken guard denies
            answer = Denied("policy", f"The guard failed ({type(error).__name__}: {error}).", GUARD)
        if isinstance(answer, Allowed):
            return await self._start(use, answer, context), answer
        if isinstance(answer, Denied):
            message = f" {answer.message}" if answer.message else ""
            output = _append_text(output, f"[It was not run outside of the sandbox: {answer.reason}{message}]")
        return output, allowed


def _may_widen(context: ToolContext, clearance: Clearance) -> bool:
    """Return whether a wider sandbox exists. A person's permission already gives the widest one."""
    if context.confine is None:
        return clearance != "person"
    return context.confine.widens(clearance)


def guard_tools(tools: tuple[Tool, ...], gate: PermissionGate) -> tuple[Tool, ...]:
    return tuple(GatedTool(tool, gate) for tool in tools)


def who_allowed(decision: Decision) -> str:
    """Return who allowed a call, for the record: `rule: … (settings.json)`."""
    source = f" ({decision.source})" if decision.source else ""
    return f"{decision.by}: {decision.reason}{source}"


def _update_input(tool: Tool, use: ToolUse, hook: HookResult) -> tuple[ToolUse, str | Denied]:
    """Return the call with the input of a hook, which replaces the original input."""
    if hook.updated_input is None or hook.updated_input == use.arguments:
        return use, ""
    spec = tool.spec
    updated = normalise(hook.updated_input, spec, [])
    wrong = problem(updated, schema_of(spec))
    if wrong is not None:
        return use, Denied("hook", f"Its input does not fit {use.tool}: {wrong}.", _hook_names(hook))
    return replace(use, arguments=updated), f"; input changed by {_hook_names(hook)}"


def _allowed_by_hook(use: ToolUse, hook: HookResult, changed: str) -> Allowed:
    who = f"{_hook_names(hook)}: {hook.reason}".rstrip(": ") + changed
    return Allowed(use.arguments, who, hook.context, "rule")


def _denied_by_hook(hook: HookResult) -> Denied:
    return Denied("hook", hook.stop or hook.reason or "It gave no reason.", _hook_names(hook))


def _hook_names(hook: HookResult) -> str:
    return f"hook {', '.join(hook.handlers)}" if hook.handlers else "hook"


def _payload(use: ToolUse) -> dict[str, Any]:
    return {"tool_name": use.tool, "tool_input": dict(use.arguments), "tool_use_id": use.call_id}


def _join_texts(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def _append_text(output: ToolOutput, text: str) -> ToolOutput:
    return replace(output, content=(*output.content, Text(text))) if text else output


@lru_cache(maxsize=1024)
def _real_folder(path: str) -> str:
    """Return the real path of a folder of Retinue. Agents cannot replace it, so the result is cached."""
    return os.path.realpath(path)
