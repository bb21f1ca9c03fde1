"""The hooks of runs: which handlers a run has, when events are fired, and how the run acts on the answers.

The handlers of the settings are read once per process and shared by all runs. Those of an agent's file are added for
its run only. The gate of the guard fires tool events; all other events are fired here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.capabilities.hooks import SessionHooks
from retinue.capabilities.hooks.bus import HandlerEnv, HookBus
from retinue.capabilities.hooks.sources import GUARDING_EVENTS, agent_hooks
from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    MessageAdded,
    RunStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.outcome import Outcome
from retinue.core.permission import NO_OPINION, HookEvent, HookResult, Hooks
from retinue.errors import PromptBlockedError, SpawnDeniedError, StateError
from retinue.models.build import Fallback

if TYPE_CHECKING:
    from retinue.capabilities.hooks.sources import Handler
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.run import Run

MAX_CONTINUATIONS = 8
"""How many times in a row hooks may keep a run from ending."""
MAX_END_SECONDS = 10.0
"""The time for the hooks of an end that they cannot prevent."""
_WATCHED_EVENTS: frozenset[HookEvent] = frozenset(
    {"TurnStart", "TurnEnd", "ModelRequest", "ModelResponse", "PostCompact", "Notification", "Stop", "SubagentStop"}
)
_CLAUDE_ERROR_TYPES = {
    "authentication": "authentication_failed",
    "budget": "billing_error",
    "quota": "billing_error",
    "not_found": "model_not_found",
    "server": "server_error",
    "length": "max_output_tokens",
    "rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "invalid_request": "invalid_request",
}
_NO_REASON = "no reason was given"
_CODINGCODE_STATUS = {"completed": "done", "steered": "done", "error": "error"}
"""The end of a run in CodingCode's terms; any other end is `aborted`."""


class RunHooks(Hooks):
    """The hooks of one run, from before it is recorded until it has ended."""

    def __init__(self, plan: LaunchPlan, *, own: bool = True) -> None:
        self.launch: LaunchPlan | Launch = plan
        self._ids = plan.place
        self._project = project = plan.project
        self.preface: list[str] = []
        """Context from hooks, for the model to read before its first prompt."""
        self.notes: list[str] = []
        self._run: Run | None = None
        self._early_warnings: list[Warned] = []
        self._last_text = ""
        self._model_switch: dict[str, str] = {}
        self._continuations = 0
        self._end_reported = self._has_begun = self._in_session = False
        hooks: list[Handler] = []
        if own and plan.spec.hooks and not project.settings.settings.disable_all_hooks:
            hooks = agent_hooks(plan.spec, self.notes)
        self._handlers = project.part(SessionHooks).handlers(hooks)
        guards = [handler for event in GUARDING_EVENTS for handler in self._handlers.get(event, ())]
        self.guard_sources = frozenset(handler.source for handler in guards if not handler.observes)
        """The files with handlers that can deny something."""
        self.watches = not _WATCHED_EVENTS.isdisjoint(self._handlers)

    def listens(self, event: HookEvent) -> bool:
        return event in self._handlers

    async def fire(self, event: HookEvent, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        if event not in self._handlers:
            return NO_OPINION
        result = await self._bus.fire(event, subject, payload)
        for message in result.messages:
            self._warn("hook", message)
        at_end = event in ("Stop", "SubagentStop", "SessionEnd")
        if result.stop is not None and self._run is not None and not at_end:
            self._run.stop_now(f"A hook stopped the run: {result.stop}")
        return result

    async def close(self) -> list[str]:
        """Call no more hooks of this run, and end the detached ones. Return notes for the outcome."""
        self._handlers, self.watches, self._run = {}, False, None
        if "_bus" in self.__dict__:
            await self._bus.close()
        notes, self.notes = self.notes, []
        return notes

    @cached_property
    def _bus(self) -> HookBus:
        project, request, ids = self._project, self.launch.request, self._ids
        settings = project.settings.settings
        handler_env = HandlerEnv(
            cwd=request.cwd,
            project=project.cwd,
            environment=project.environment,
            transport=lambda: project.transport,
            owner=ids.run_id,
            passed=settings.sandbox_pass_environment,
        )
        identity = {
            "session_id": ids.root_id,
            "run_id": ids.run_id,
            "agent_id": ids.run_id,
            "agent_type": request.spec.name,
            "parent_id": ids.parent_id,
            "depth": request.depth,
            "transcript_path": self.launch.transcript or "",
            "cwd": str(request.cwd),
            "permission_mode": self.launch.mode,
        }
        return HookBus(
            self._handlers,
            handler_env,
            identity,
            fail_open=settings.hooks_fail_open,
            outputs=project.state / "outputs" / ids.run_id,
            report=lambda failure: self._warn("hook_failed", failure),
        )

    def _warn(self, code: str, text: str) -> None:
        """Add a warning to the run's record, as soon as there is one."""
        if not self._has_begun:
            self._early_warnings.append(Warned(code, text))
            return
        try:
            self._project.log.append(self._ids, Warned(code, text))
        except StateError:
            # The run can no longer be recorded, so the outcome gets a note.
            self.notes.append(text)

    # While the run works

    async def admit_prompt(self, *, resumed: bool) -> None:
        """Fire the events of a person's prompt. Hooks may refuse the prompt or add context. Raise
        PromptBlockedError."""
        request = self.launch.request
        if request.depth == 0:
            self._in_session = True
            source = "resume" if resumed else "startup"
            begun = await self.fire("SessionStart", source, {"source": source, "model": self.launch.model_name})
            self._add_context(begun.context)
        if resumed:
            await self._switch_model()
        result = await self.fire("UserPromptSubmit", "", {"prompt": request.task})
        await self._raise_if_refused("The prompt was blocked", result)
        self._add_context(result.context)

    async def _raise_if_refused(self, what: str, result: HookResult) -> None:
        why = _refusal(result)
        if why is not None:
            await self._fire_session_end("prompt_input_exit")
            raise PromptBlockedError(f"{what}: {why}")

    @property
    def _listens_to_switches(self) -> bool:
        return self.listens("PreModelSwitch") or self.listens("PostModelSwitch")

    async def _switch_model(self) -> None:
        """Ask hooks about a resumed run that changes its model. `begin` fires the event that the change has happened.
        Raise PromptBlockedError."""
        if not self._listens_to_switches:
            return
        events = self._project.log.reader.ordered(self._ids.run_id, ("run.started",))
        models = [event.body.model for _, event in events if isinstance(event.body, RunStarted)]
        model = self.launch.model_name
        if models and models[-1] != model:
            switch = self._switch(models[-1], model, "user" if self.launch.request.model else "resume")
            result = await self.fire("PreModelSwitch", model, switch)
            await self._raise_if_refused(f"The change of the model to {model} was refused", result)
            self._model_switch = switch

    def _switch(self, old: str, new: str, source: str) -> dict[str, str]:
        asked = self.launch.request.model or self.launch.model_name
        return {"from_model": old, "to_model": new, "requested_model": asked, "source": source}

    async def _before_fallback(self, old: str, new: str) -> str | None:
        result = await self.fire("PreModelSwitch", new, self._switch(old, new, "fallback"))
        return _refusal(result, "a hook refused it and gave no reason")

    async def _after_fallback(self, old: str, new: str) -> None:
        await self.fire("PostModelSwitch", new, self._switch(old, new, "fallback"))

    async def begin(self, run: Run) -> None:
        """Fire the events of a run that starts to work. From now on hooks can stop it."""
        self._run, self._has_begun, self.launch = run, True, run.launch
        for warning in self._early_warnings:
            self._warn(warning.code, warning.text)
        model = run.launch.model
        if isinstance(model, Fallback) and self._listens_to_switches:
            model.before_switch, model.after_switch = self._before_fallback, self._after_fallback
        if self._model_switch:
            await self.fire("PostModelSwitch", self._model_switch["to_model"], self._model_switch)
        if self.launch.request.depth > 0 and self.listens("SubagentStart"):
            self._add_context((await self.fire("SubagentStart", self.launch.request.spec.name)).context)

    def introduce(self, prompt: str) -> str:
        """Return the prompt with the context of hooks before it."""
        if not self.preface:
            return prompt
        # A hook's text must not close the frame and speak as the user.
        text = "\n\n".join(self.preface).replace("</hook-context", "< /hook-context")
        return f"<hook-context>\n{text}\n</hook-context>\n\n{prompt}"

    async def watch(self, body: Body) -> None:
        """Fire the event for a step of the loop. Call it only if `watches` is true."""
        match body:
            case TurnStarted(turn):
                await self.fire("TurnStart", "", {"turn": turn})
                await self.fire("ModelRequest", self.launch.model_name, {"turn": turn, "model": self.launch.model_name})
            case AssistantEnded(turn, message):
                self._last_text = message.text or self._last_text
                await self.fire("ModelResponse", message.model, {"turn": turn, "text": message.text})
            case TurnEnded(turn):
                await self.fire("TurnEnd", "", {"turn": turn})
            case Compacted():
                trigger = "manual" if body.reason == "manual" else "auto"
                counts = {"tokens_before": body.tokens_before, "tokens_after": body.tokens_after}
                await self.fire("PostCompact", trigger, {"trigger": trigger, **counts})
            case MessageAdded(message) if message.origin == "notification":
                fields = {"notification_type": "task_notification", "message": message.text}
                await self.fire("Notification", "task_notification", fields)
            case _:
                pass

    @property
    def before_end(self) -> Callable[[], Awaitable[str | None]] | None:
        """The function that the loop calls before it ends successfully; None if no hook listens."""
        return self._before_end if self.listens(self._end_event) else None

    @property
    def before_compact(self) -> Callable[[str], Awaitable[str | None]] | None:
        return self._before_compact if self.listens("PreCompact") else None

    async def _before_end(self) -> str | None:
        result = await self._fire_end("completed", active=self._continuations > 0)
        if result.stop is not None or result.verdict != "deny" or not result.context:
            return None
        if self._continuations >= MAX_CONTINUATIONS:
            note = (
                f"{self._end_event} hooks kept it from ending {MAX_CONTINUATIONS} times in a row; then it ended anyway."
            )
            self.notes.append(note)
            self._warn("hook_limit", note)
            return None
        self._continuations += 1
        self._end_reported = False
        return result.context

    async def _before_compact(self, reason: str) -> str | None:
        trigger = "manual" if reason == "manual" else "auto"
        result = await self.fire("PreCompact", trigger, {"trigger": trigger, "custom_instructions": ""})
        # Without compaction a full context would end the run, so only a person's own request can be refused.
        if result.verdict != "deny" or trigger != "manual":
            return None
        return result.reason or "A hook refused it."

    async def end(self, outcome: Outcome) -> None:
        """Fire the events of a run that has ended, unless they were fired already. Bounded in time, because callers
        wait for the end."""
        # A run that never began has no record for its warnings.
        if not self._has_begun:
            self.notes += [warning.text for warning in self._early_warnings]
        if self._handlers:
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_END_SECONDS):
                    await self._fire_end_events(outcome)

    async def _fire_end_events(self, outcome: Outcome) -> None:
        failure = outcome.failure
        if outcome.ended == "error" and failure is not None and self.listens("StopFailure"):
            kind = _CLAUDE_ERROR_TYPES.get(failure.kind, "unknown")
            fields = {"error_type": kind, "error": failure.message, "last_assistant_message": self._last_text}
            await self.fire("StopFailure", kind, fields)
        # `before_end` fires `Stop` for a main run, only if it succeeds; the end of a child always fires an event.
        if self._has_begun and not self._end_reported and self.launch.request.depth > 0:
            await self._fire_end(outcome.ended, active=self._continuations > 0)
        reason = "other" if outcome.ok else outcome.ended
        await self._fire_session_end(reason)

    async def _fire_session_end(self, reason: str) -> None:
        if self._in_session:
            self._in_session = False
            await self.fire("SessionEnd", reason, {"reason": reason})

    @property
    def _end_event(self) -> HookEvent:
        return "SubagentStop" if self.launch.request.depth > 0 else "Stop"

    async def _fire_end(self, status: str, *, active: bool) -> HookResult:
        self._end_reported = True
        request = self.launch.request
        fields = {
            "stop_hook_active": active,
            "last_assistant_message": self._last_text,
            "agent_transcript_path": self.launch.transcript or "",
            "status": _CODINGCODE_STATUS.get(status, "aborted"),
            "ended": status,
            "background_tasks": [],
            "session_crons": [],
            "profile": request.spec.name,
            "childSessionId": self._ids.run_id,
        }
        return await self.fire(self._end_event, request.spec.name, fields)

    def _add_context(self, context: str) -> None:
        if context:
            self.preface.append(context)


def _refusal(result: HookResult, no_reason: str = _NO_REASON) -> str | None:
    """Return the reason of a denial; None if hooks did not deny."""
    if result.verdict != "deny" and result.stop is None:
        return None
    return result.reason or result.stop or no_reason


async def admit(plan: LaunchPlan) -> None:
    """Ask hooks whether the run may start; they may change its task. Raise SpawnDeniedError or PromptBlockedError."""
    hooks = plan.hooks = RunHooks(plan)
    if plan.request.depth > 0 and not plan.resumed:
        await _ask_to_spawn(plan)
    if plan.parent is None:
        await hooks.admit_prompt(resumed=plan.resumed)


async def _ask_to_spawn(plan: LaunchPlan) -> None:
    request, ids, parent = plan.request, plan.place, plan.parent
    # Without a parent the hooks of the session decide. Hooks of the agent's own file are not asked about its start.
    spawner: Hooks = RunHooks(plan, own=False) if parent is None else parent.hooks
    if not spawner.listens("SubagentSpawn"):
        return
    fields = {
        "subagent_type": request.spec.name,
        "subagent_id": ids.run_id,
        "prompt": request.task,
        "model": plan.model_name,
        "profile": request.spec.name,
        "parentSessionId": ids.parent_id,
    }
    result = await spawner.fire("SubagentSpawn", request.spec.name, fields)
    if parent is None and isinstance(spawner, RunHooks):
        await spawner.close()
    if result.verdict in ("deny", "ask") or result.stop is not None:
        # A person cannot be asked at this point, so `ask` is a denial.
        raise SpawnDeniedError(f"Subagent spawn denied: {result.reason or result.stop or _NO_REASON}")
    prompt = (result.updated_input or {}).get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        plan.request = replace(request, task=prompt)
