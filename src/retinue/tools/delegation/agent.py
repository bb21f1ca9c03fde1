"""The Agent tool, which starts or resumes another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import ClassVar, Literal, cast

from retinue.core.delegation import Delegation, Refusal, SpawnCall
from retinue.core.format import format_duration
from retinue.core.permission import IN_BACKGROUND
from retinue.core.run_state import ActiveRun
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.core.usage import Budget
from retinue.errors import UsageError
from retinue.tools.base import Aliases, Arguments, Properties, ToolError
from retinue.tools.delegation.base import (
    DelegationTool,
    Live,
    Shown,
    bound_text,
    flag_property,
    make_spec,
    read_flag,
    text_property,
)
from retinue.tools.delegation.describe import Wording, describe
from retinue.tools.delegation.frame import one_line
from retinue.tools.delegation.views import (
    NO_OUTPUT,
    error_text,
    identity,
    notes,
    partial_text,
    queue_line,
    refusal,
    stats,
    status_note,
)

_THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
_THINKING_WORDS = {**dict(zip(_THINKING_LEVELS, _THINKING_LEVELS, strict=True)), "none": "off"}
_ISOLATION_WORDS = {"off": "off", "none": "off", "worktree": "worktree"}
_FIXED_PARAMETERS = ("model", "thinking", "max_turns", "isolated", "isolation", "inherit_context", "name")
"""Parameters that a resumed agent keeps from its first run. A call that resumes one cannot change them."""
_SCHEDULE_NOTE = (
    "It fires while this session, the terminal app or `retinue schedule daemon` runs in this project. "
    "The user manages jobs with `retinue schedule list` and `retinue schedule remove`."
)
_BACKGROUND_NOTE = (
    "You will be notified when it ends; do not wait, poll or do its work yourself. "
    "get_subagent_result reads its result, steer_subagent sends it a message."
)


class AgentTool(DelegationTool):
    name = "Agent"
    required = ("prompt", "description")
    asked_for = ()
    properties: ClassVar[Properties] = {
        "prompt": text_property("The task"),
        "description": text_property("3-5 words"),
        "subagent_type": text_property("Default general-purpose"),
        "run_in_background": flag_property("false: wait"),
        "resume": text_property("Id or name"),
        "name": {"type": "string"},
        "model": text_property("provider/name or a part"),
        "thinking": text_property("off to xhigh"),
        "max_turns": {"type": "integer"},
        "isolated": flag_property("Built-in tools only"),
        "isolation": {"type": "string", "enum": ["off", "worktree"]},
        "inherit_context": flag_property("It sees this conversation"),
        "schedule": text_property("Cron, interval or time"),
    }
    hidden: ClassVar[Properties] = {"budget": {"type": "object"}, "retry": {"type": "string"}}
    aliases: ClassVar[Aliases] = {
        "prompt": ("task", "message", "instructions", "input"),
        "description": ("title",),
        "subagent_type": ("agent", "agent_type", "type", "subagent_name", "agent_name", "subagent"),
        "run_in_background": ("background",),
        "resume": ("resume_id", "agent_id", "task_id"),
        "thinking": ("effort", "reasoning_effort"),
    }
    words: ClassVar[Mapping[str, Mapping[str, str]]] = {"isolation": _ISOLATION_WORDS}

    def __init__(
        self, delegation: Delegation, wording: Wording | None = None, *, live: Callable[[], Live] = Live
    ) -> None:
        super().__init__(delegation, live=live, spec=agent_spec(wording or Wording()))

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        call = _call(arguments, call_id)
        if not call.prompt and not call.retry:
            return failed("Missing required argument: prompt.")
        ignored: tuple[str, ...] = ()
        if call.resume is not None:
            call, ignored = _resuming(call, arguments)
        if call.schedule is not None:
            return await self._schedule(call)
        child = await self.delegation.spawn(call)
        if isinstance(child, Refusal):
            return failed(refusal(child, self.delegation.children()))
        extra = _ignored(child, ignored, arguments)
        if child.live:
            return ok(self._started(child, call, extra), IN_BACKGROUND)
        return await self._ended(child, extra, context, call_id)

    async def _schedule(self, call: SpawnCall) -> ToolOutput:
        scheduled = await self.delegation.schedule(call)
        if isinstance(scheduled, Refusal):
            return failed(refusal(scheduled, self.delegation.children()))
        first = f'Scheduled "{scheduled.name}" (id: {scheduled.id}, type: {scheduled.kind}).'
        first += f" Next run: {scheduled.next_run}."
        return ok("\n".join([first, *notes(scheduled.notes), _SCHEDULE_NOTE]))

    def _started(self, child: ActiveRun, call: SpawnCall, extra: tuple[str, ...]) -> str:
        if call.resume is not None:
            done = "resumed in the background"
        elif child.moved:
            done = "moved to the background: it goes on there"
        elif child.status == "queued":
            done = "queued in the background"
        else:
            done = "started in the background"
        lines = [f"Agent {done}.", *identity(child)]
        if child.status == "queued":
            lines.append(queue_line(child, self.live().max_concurrent))
        return "\n".join([*lines, *notes((*child.notes, *extra)), "", _BACKGROUND_NOTE])

    async def _ended(self, child: ActiveRun, extra: tuple[str, ...], context: ToolContext, call_id: str) -> ToolOutput:
        """Return the result of a foreground run with its whole answer and the id that resumes it."""
        # This text contains the result, so no notification may repeat it.
        self.delegation.consume(child.id, call_id)
        head = [*identity(child), *notes((*child.notes, *extra)), ""]
        note = status_note(child)
        if child.succeeded:
            first = f"Agent completed in {format_duration(child.duration_ms)} "
            first += f"({stats(child, show_cost=self.live().show_cost)})."
            if note:
                first += f" Note: {note}."
            shown = Shown(NO_OUTPUT)
            if child.result.strip():
                shown = await bound_text(child.result, child.id, context)
            return ok("\n".join([first, *head, shown.text, "", _closing(shown, note)]))
        word: str = child.status
        if word not in ("stopped", "aborted", "interrupted"):
            word = "failed"
        lines = [f"Agent {word}: {error_text(child)}", *head]
        partial = partial_text(child)
        if partial:
            shown = await bound_text(partial, child.id, context)
            lines += ["Partial output before the failure:", shown.text, "", _closing(shown, note)]
        else:
            lines.append("It produced no output.")
        if note and note not in lines[0]:
            lines.append(f"Note: {note}.")
        return failed("\n".join(lines))


@lru_cache(maxsize=128)
def agent_spec(wording: Wording) -> ToolSpec:
    """Return the spec for `wording`. Parameters of features that are off are not offered."""
    properties = dict(AgentTool.properties)
    unavailable: dict[str, str] = {}
    if not wording.worktrees:
        unavailable["isolation"] = "worktrees are switched off (worktreeIsolation)"
    if not wording.schedules:
        unavailable["schedule"] = "scheduling is switched off (schedulingEnabled)"
    for name in unavailable:
        del properties[name]
    if wording.default != Wording().default:
        properties["subagent_type"] = text_property("Required")
        if wording.default:
            properties["subagent_type"] = text_property(f"Default {one_line(wording.default, 128)}")
    if not wording.background:
        properties["run_in_background"] = flag_property("true: do not wait for the result")
    return make_spec(AgentTool, describe(wording), properties, unavailable)


def _call(arguments: Arguments, call_id: str) -> SpawnCall:
    prompt = (arguments.optional_text("prompt") or "").strip()
    retry = (arguments.optional_text("retry") or "").strip() or None
    description = one_line(arguments.optional_text("description") or "", 200)
    # A call that repeats a stored one keeps the description of that.
    if not description and not retry:
        description = one_line(prompt, 60)
    thinking = arguments.choice("thinking", allowed=_THINKING_WORDS, default="")
    isolation = arguments.choice("isolation", allowed=_ISOLATION_WORDS, default="")
    return SpawnCall(
        prompt=prompt,
        description=description,
        agent=_word(arguments, "subagent_type"),
        model=_word(arguments, "model"),
        thinking=thinking or None,
        max_turns=arguments.whole_number("max_turns"),
        budget=_budget(arguments),
        background=read_flag(arguments, "run_in_background"),
        resume=_name(arguments, "resume"),
        isolated=read_flag(arguments, "isolated"),
        isolation=cast(Literal["worktree", "off"] | None, isolation or None),
        inherit_context=read_flag(arguments, "inherit_context"),
        schedule=_word(arguments, "schedule"),
        name=_name(arguments, "name"),
        retry=retry,
        call_id=call_id,
    )


def _budget(arguments: Arguments) -> Budget | None:
    budgets = arguments.items("budget")
    if not budgets or budgets == [{}]:
        return None
    try:
        return Budget.read(budgets[0]) if len(budgets) == 1 else Budget.read(budgets)
    except UsageError as error:
        raise ToolError(f"Agent: {error}") from error


def _word(arguments: Arguments, name: str) -> str | None:
    return (arguments.optional_text(name) or "").strip() or None


def _name(arguments: Arguments, name: str) -> str | None:
    return (_word(arguments, name) or "").removeprefix("@") or None


def _resuming(call: SpawnCall, arguments: Arguments) -> tuple[SpawnCall, tuple[str, ...]]:
    """Return the call without the parameters that a resumed agent keeps, so that an unknown type or model among them
    causes no error, and the names of the removed parameters."""
    ignored = tuple(name for name in _FIXED_PARAMETERS if getattr(call, name) not in (None, False, "off"))
    resumed = SpawnCall(
        prompt=call.prompt,
        description=one_line(arguments.optional_text("description") or "", 200),
        budget=call.budget,
        background=call.background,
        resume=call.resume,
        schedule=call.schedule,
        retry=call.retry,
        call_id=call.call_id,
    )
    return resumed, ignored


def _ignored(child: ActiveRun, ignored: tuple[str, ...], arguments: Arguments) -> tuple[str, ...]:
    if _name(arguments, "resume") is None:
        return ()
    agent = _word(arguments, "subagent_type")
    if agent is not None and agent.casefold() not in (child.agent.casefold(), child.display_name.casefold()):
        ignored = ("subagent_type", *ignored)
    if ignored:
        return (f"ignored, because a resumed agent keeps its own: {', '.join(ignored)}",)
    return ()


def _closing(shown: Shown, note: str) -> str:
    """Return the last line of a result: whether the text above is complete. `note` is the reason if the run is not."""
    if note:
        return "What it produced is above, and is not all it was asked for."
    if shown.cut:
        return "Its result is above, cut in the middle. To go on with this agent, give its Agent ID as resume."
    return (
        "Everything it produced is above; there is nothing more to fetch. "
        "To go on with this agent, give its Agent ID as resume."
    )
