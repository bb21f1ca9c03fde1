"""The loop of one run: turn, model, tools, turn. A pure async generator, and the steps that it puts in order: they
decide whether there is another turn, what is said before it, and how the run ends.

In: a job, a model, a mailbox. Out: the events of `retinue.core.events` from the first
MessageAdded to exactly one RunEnded. The consumer writes each event down before it asks for
the next; nothing happens in between, so what was yielded is what was done. Nothing is raised
for a failing model or tool: how it ended is in the outcome.

Iterate it inside `contextlib.aclosing`. Closing it or cancelling the task that iterates it is
safe at every point: running tools are cancelled and waited for, the model's stream is closed.
That yields no RunEnded; to end a run with an outcome, call `Controls.stop`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress

from msgspec.structs import replace

from retinue.core.events import (
    AssistantEnded,
    Body,
    LimitReached,
    MessageAdded,
    RunEnded,
    ToolsEnded,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.messages import AssistantMessage, StopReason, ToolCall, ToolMessage, UserMessage, user
from retinue.core.outcome import SUCCESS, Ended, Failure, Outcome
from retinue.core.tool import Tool, ToolOutput, shown_specs
from retinue.core.usage import NOTHING
from retinue.loop.answer import ModelTurn, PastMessages, Tally, aside, failure_of, read_past, settle_message
from retinue.loop.compact import MOST_OVERFLOWS, Compactor, Reason
from retinue.loop.dispatch import Dispatch
from retinue.loop.finish import Ending, Submission, as_text, error_in_disguise, gone_quiet, out_of_time, stopped
from retinue.loop.job import Controls, Interrupt, Job
from retinue.loop.limits import Repeats, Turns, Watch, overdrawn
from retinue.loop.prompts import prompt
from retinue.loop.shrink import cut
from retinue.models.protocol import MeasuredConversation, Model, ModelRequest, overhead

_LATE = "It ended before it heard the last news of its agents; what they found is told when it is resumed."


class Steps:
    """The state of one run between its steps. `ending` is set once it is decided; `calls` are
    those of the newest message; `is_final` says that the model considers itself done."""

    def __init__(self, job: Job, model: Model, controls: Controls, past: PastMessages) -> None:
        # These two may raise; nothing has been started yet when they do.
        self._submission = Submission(job.schema, job.accept) if job.schema is not None else None
        controls.attach(self)
        limits = job.limits
        self._job = job
        self._model = model
        self._controls = controls
        tools: tuple[Tool, ...] = (*job.tools, *([self._submission] if self._submission else []))
        self._specs = {spec.name: spec for spec in (tool.spec for tool in tools)}
        self._tools = dict(zip(self._specs, tools, strict=True))
        self._offered = shown_specs(self._specs.values())
        self._used = past.used_ids
        self._conversation = MeasuredConversation(overhead(job.system, self._offered), past.messages, past.tokens)
        self._tally = Tally(job, model.info.full_name)
        self._turns = Turns(limits, hands_in=self._submission is not None)
        self._repeats = Repeats(limits.repeated_calls)
        self._interrupt = Interrupt()
        self._watch = Watch(job.clock)
        self._idle = self._watch.start(limits.idle_seconds, self._quiet)
        self._watch.start(limits.seconds, self._late)
        self._compactor = Compactor(job, model, self._interrupt, self._idle, self._tally.evidence.files)
        timeout = job.context.tool_timeout or limits.tool_seconds
        self._context = replace(job.context, progress=self._progress, tool_timeout=timeout)
        self._dispatch: Dispatch | None = None
        self._thread = threading.get_ident()
        self._failure: Failure | None = None
        self._calls = 0
        self._refused = False
        self._continued = False
        """Whether the newest answer is one that went on where an answer was cut off."""
        self._noted: list[Warned] = []
        self.number = job.past.turn + 1
        self.ending: Ending | None = None
        self.is_final = False
        self.calls: tuple[ToolCall, ...] = ()
        controls.catch_up()

    # Heard from outside, at any time

    def mail(self) -> None:
        self._interrupt.wake()

    def stop(self, reason: str) -> None:
        self._interrupt.fire(stopped(reason))

    def waiting(self, call_id: str | None, begins: bool) -> None:
        if begins:
            self._idle.pause()
        else:
            self._idle.resume()
        if call_id is not None and self._dispatch is not None:
            self._dispatch.waiting(call_id, begins)

    def _progress(self, call_id: str, text: str) -> None:
        # A tool that works in a thread of its own.
        if threading.get_ident() != self._thread:
            # The event loop is gone, and with it every reader.
            with suppress(RuntimeError):
                self._interrupt.loop.call_soon_threadsafe(self._progress, call_id, text)
            return
        self._job.context.progress(call_id, text)
        if self._dispatch is not None:
            self._dispatch.progress(call_id, text)

    def _late(self) -> None:
        self._interrupt.fire(out_of_time(self._job.limits.seconds or 0.0))

    def _quiet(self) -> None:
        if self._interrupt.is_waiting:
            self._interrupt.fire(gone_quiet(self._job.limits.idle_seconds or 0.0))
        else:  # a tool or the consumer is at work, not the model
            self._idle.again()

    # Before a turn

    def say(self, message: UserMessage) -> MessageAdded:
        self._conversation.add(message)
        return MessageAdded(message)

    def before_turn(self) -> Iterator[Body]:
        """Decide whether there may be another turn, and yield what is said to the model before it."""
        if self._cannot_go_on():
            return
        due = self._turns.before_next(self._refused, self._job.account.verdict())
        if isinstance(due, Ending):
            self.ending = due
            return
        for message in self._controls.take_steers():
            yield self.say(message)
        if due is not None:
            yield LimitReached(due.limit, "wrap-up", due.detail)
            yield self.say(due.message)

    async def make_room(self) -> list[Body]:
        """Compact the conversation if it has to be, or if someone asked for it."""
        reason = self._reason_to_compact()
        if self.ending is not None or reason is None:
            return []
        if self._job.before_compact is not None:
            refused = await self._interrupt.unless(self._job.before_compact(reason))
            if refused:
                return [Warned("compaction_refused", f"The conversation was not shortened: {refused}")]
        compacted = await self._compactor.compact(self._conversation, reason)
        used = self._compactor.take_usage()
        self._tally.usage += used
        self._job.account.charge(used)
        stopping = self._cannot_go_on()
        if compacted is not None:
            self._tally.compactions += 1
            return [compacted]
        if reason == "overflow" and not stopping:
            self.ending = Ending("error", self._failure)
        elif reason == "manual" and not stopping:
            return [Warned("nothing_to_compact", "There is nothing in the conversation that could be shortened.")]
        return []

    def _reason_to_compact(self) -> Reason | None:
        if self._compactor.overflows:
            return "overflow"
        if self._compactor.is_asked(self._controls.take_compact()):
            return "manual"
        return "threshold" if self._compactor.is_due(self._conversation) else None

    def _cannot_go_on(self) -> bool:
        self.ending = self.ending or self._interrupt.ending
        if self.ending is None:
            verdict = self._job.account.verdict()
            self.ending = overdrawn(verdict) if verdict is not None and not verdict.wrap_up else None
        return self.ending is not None

    # The turn

    def ask(self) -> ModelTurn:
        job = self._job
        self._add_late_tools()
        request = ModelRequest(
            system=job.system,
            messages=tuple(self._conversation.messages),
            tools=self._offered,
            max_output=job.max_output,
            thinking=job.thinking,
            temperature=job.temperature,
            tool_choice=self._turns.tool_choice,
            headers=job.request_headers(),
        )
        return ModelTurn(self._model, request, self._interrupt, self._idle, job.clock)

    def _add_late_tools(self) -> None:
        """Offer tools that came since the last request. They go to the end, in the order they came, so
        that what providers have cached of the others stays good."""
        for tool in self._job.late_tools():
            spec = tool.spec
            if spec.name not in self._specs:
                self._specs[spec.name], self._tools[spec.name] = spec, tool
                if spec.shown:
                    self._offered = (*self._offered, spec)

    def answered(self, ask: ModelTurn) -> AssistantMessage:
        message = settle_message(ask.message, self._used)
        self.calls = message.tool_calls
        self._failure = failure_of(message)
        if self._failure is None and not self.calls:
            self._failure = error_in_disguise(message)
            if self._failure is not None:
                message = replace(message, content=(), stop="error", failure=self._failure)
        # After an overflow the conversation is shortened and the turn is tried again.
        if self._failure is None or self._failure.kind != "context_overflow":
            self._conversation.answered(message)
        self._tally.answered(message, ask.shown)
        self._note(ask)
        self._job.account.charge(message.usage, turns=1)
        if message.stop == "aborted" and ask.sent:
            self._tally.notes.append("The last request was cut off; its tokens are not in the usage.")
        return message

    def _note(self, ask: ModelTurn) -> None:
        """Put what the model's side had to change into the outcome, once."""
        for note in ask.notes:
            if note.text not in self._tally.notes:
                self._tally.notes.append(note.text)
                self._noted.append(Warned(note.code, note.text))

    def dispatch(self, stop: StopReason) -> Dispatch:
        self._dispatch = Dispatch(
            self._job,
            self._tools,
            self._specs,
            self._interrupt,
            self._watch,
            self._context,
            calls=self.calls,
            stop=stop,
            allowed=self._calls_left(),
        )
        return self._dispatch

    def _calls_left(self) -> int | None:
        most, shared = self._job.limits.max_tool_calls, self._job.account.calls_left()
        if most is None:
            return shared
        own = max(most - self._calls, 0)
        return own if shared is None else min(own, shared)

    def dispatched(self, dispatch: Dispatch) -> ToolMessage:
        """Return the results as they enter the conversation, and draw conclusions from them."""
        self._calls += dispatch.counted
        self._job.account.charge(NOTHING, tool_calls=dispatch.counted)
        self._tally.tool_uses += len(dispatch.effects)
        self._refused = self._refused or dispatch.refused > 0
        for call, effect in dispatch.effects:
            self._tally.evidence.add(call, effect)
        results, interrupted = dispatch.message, self._interrupt.ending
        if dispatch.answer is not None and (interrupted is None or interrupted.limit is not None):
            self.ending = self._done(dispatch.answer)
        elif interrupted is None:
            results, self.ending = self._repeats.judge(self.calls, results)
            if self._submission is not None and self.ending is None:
                self.ending = self._submission.judge(self.calls, results.results)
        self._conversation.add(results)
        return results

    def turn_ended(self, message: AssistantMessage) -> TurnEnded:
        ended = TurnEnded(self.number, message.usage, self._tally.usage, self._conversation.tokens)
        self.number += 1
        return ended

    # After a turn

    def after_turn(self) -> Iterator[Body]:
        """Decide whether the run is done, and yield what people should know."""
        if self._dispatch is not None:
            yield from self._dispatch.warnings
            self._dispatch = None
        noted, self._noted = self._noted, []
        yield from noted
        if self.ending is not None:
            return
        if self._failure is not None:
            self._failed(self._failure)
            return
        self._compactor.overflows = 0
        self._turns.took_one()
        interrupted = self._interrupt.ending
        if self.calls or (interrupted is not None and interrupted.limit is None):
            self.ending = interrupted
        elif self._may_continue():
            self._continued = True
            self._tally.continues()
            yield self.say(user(prompt("continue"), "correction"))
            return
        else:  # a limit that fires when the answer is there comes too late to matter
            self.is_final = True
        self._continued = False

    def _may_continue(self) -> bool:
        """Return whether an answer that was cut off at the output limit is asked for the rest: once, and
        not where a limit or a person ends the run. A result that is handed in has reminders
        of its own."""
        if not self._tally.truncated or self._continued or self._submission is not None:
            return False
        if self._interrupt.ending is not None or self._controls.pending or not self._turns.allows_another:
            return False
        return self._job.account.verdict() is None

    def _failed(self, failure: Failure) -> None:
        if self._interrupt.ending is not None:
            self.ending = self._interrupt.ending
        elif failure.kind == "context_overflow" and self._compactor.overflows < MOST_OVERFLOWS:
            self._compactor.overflows += 1
        elif self._continued:  # what there is of the answer is worth more than the error
            self._tally.not_continued(failure)
            self._continued, self.is_final = False, True
        else:
            self.ending = Ending("refused" if failure.kind == "no-model" else "error", failure)

    def finish(self) -> Iterator[Body]:
        """End the run because the model is done, unless messages are pending or a result is due.
        Leaves `is_final` set if others still hold the run open."""
        follow_ups = [] if self._controls.pending_steer else self._controls.take_follow_ups()
        if not follow_ups and not self._controls.pending_steer and self._controls.held:
            return
        self.is_final = False
        for message in follow_ups:
            yield self.say(message)
        if follow_ups or self._controls.pending_steer:
            return
        if self._submission is None:
            self.ending = self._done(None)
            return
        answer = self._submission.take(self._tally.text)
        if isinstance(answer, UserMessage):
            yield self.say(answer)
        else:
            self.ending = answer if isinstance(answer, Ending) else self._done(answer)

    async def consult(self) -> None:
        """Ask `before_end` whether a run that would end well is to go on, unless messages are
        pending. Not asked after the wrap-up, which a limit made the end. A person's stop cuts
        the question short and counts."""
        ask, controls = self._job.before_end, self._controls
        handed_in = self.ending is not None and self.ending.ended in SUCCESS
        if ask is None or self._turns.wrapped or not (handed_in or (self.is_final and self._submission is None)):
            return
        if not handed_in and (controls.pending or controls.held):
            return
        more = await self._interrupt.unless(ask())
        interrupted = self._interrupt.ending
        if interrupted is not None and interrupted.limit is None:
            self.ending, self.is_final = interrupted, False
        elif more and interrupted is None and handed_in:
            self.ending = None
            controls.steer(more, "follow-up")
        elif more and interrupted is None:
            controls.follow_up(more)

    async def hold(self) -> None:
        """Wait until there is a message, nothing holds the run open any more, or it is interrupted."""
        with self._controls.resting():
            while self._controls.held and not self._controls.pending and self._interrupt.ending is None:
                await self._interrupt.woken()
        if self._interrupt.ending is not None:
            self.ending, self.is_final = self._interrupt.ending, False

    def _done(self, answer: ToolOutput | None) -> Ending:
        ended: Ended = "steered" if self._turns.wrapped else "completed"
        if answer is None:
            return Ending(ended, limit=self._turns.wrapped)
        is_value = self._submission is not None or answer.value is not None
        text = as_text(answer.value) if is_value else answer.text
        return Ending(ended, limit=self._turns.wrapped, value=answer.value, text=text)

    # The end

    def limit_reached(self) -> Iterator[LimitReached]:
        ending = self.ending
        if ending is not None and ending.limit is not None and ending.failure is not None:
            yield LimitReached(ending.limit, "end", ending.failure.message)

    def end(self) -> Outcome:
        """Return the outcome. From here on the mailbox takes nothing more."""
        self._controls.close()
        for message in self._controls.pending:
            note = f"Not delivered, the run had ended: {cut(message.text, 200)}"
            if message.origin == "notification":
                note = _LATE
            if note not in self._tally.notes:
                self._tally.notes.append(note)
        return self._tally.outcome(self.ending or Ending("completed"))

    def release(self) -> None:
        """Leave no circle of references behind: a conversation that is over goes at once, not
        when the garbage collector runs."""
        self._controls.close()
        self._idle.stop()
        self._watch.close()
        self._context = self._job.context


async def run_loop(job: Job, model: Model, controls: Controls) -> AsyncGenerator[Body, None]:  # noqa: C901 - the loop
    """Run `job` to its end. Raise UsageError at once if its schema is not a JSON Schema."""
    past = await aside(read_past, job.past.messages)
    steps = Steps(job, model, controls, past)
    try:
        for opening in job.messages:
            yield steps.say(opening)
        while True:
            for body in steps.before_turn():
                yield body
            for body in await steps.make_room():
                yield body
            if steps.ending is not None:
                break
            yield TurnStarted(steps.number)
            ask = steps.ask()
            try:
                while (said := await ask.next()) is not None:
                    yield said
            finally:
                await ask.close()
            message = steps.answered(ask)
            yield AssistantEnded(steps.number, message)
            if steps.calls:
                dispatch = steps.dispatch(message.stop)
                try:
                    while (done := await dispatch.next()) is not None:
                        yield done
                finally:
                    await dispatch.close()
                yield ToolsEnded(steps.dispatched(dispatch))
            yield steps.turn_ended(message)
            for body in steps.after_turn():
                yield body
            await steps.consult()
            while steps.is_final:
                for body in steps.finish():
                    yield body
                if steps.is_final:
                    await steps.hold()
                    await steps.consult()
        for body in steps.limit_reached():
            yield body
        yield RunEnded(steps.end())
    finally:
        steps.release()
