"""The loop of one run: ask the model, run its tool calls, repeat. `run_loop` is a pure async generator; `Steps` has the
decisions in between: whether there is another turn, which messages precede it, and how the run ends.

It takes a job, a model and controls, and yields events of `retinue.core.events` from the first MessageAdded to exactly
one RunEnded. The consumer records each event before it asks for the next one, and the loop does nothing in between, so
the record matches the actions. A failing model or tool raises no exception: the outcome has the failure.

Iterate it inside `contextlib.aclosing`. It may be closed, or its task cancelled, at any point: running tools are
cancelled and waited for, and the stream of the model is closed. In that case there is no RunEnded; call
`Controls.stop` to end a run with an outcome."""

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
from retinue.loop.compact import MAX_OVERFLOWS, Compactor, Reason
from retinue.loop.dispatch import Dispatch
from retinue.loop.ending import Ending, error_in_disguise, gone_quiet, out_of_time, stopped
from retinue.loop.job import Controls, Interrupt, Job
from retinue.loop.limits import Repeats, Turns, Watch, overdrawn
from retinue.loop.prompts import prompt
from retinue.loop.shrink import cut
from retinue.loop.submission import Submission, as_text
from retinue.models.protocol import MeasuredConversation, Model, ModelRequest, overhead

_UNDELIVERED_NOTIFICATION = (
    "It ended before the last notification about its agents was delivered; it gets their results when it is resumed."
)


class Steps:
    """The state of one run between its steps. `ending` is set once the run is to end, `calls` are the calls of the
    newest message, and `is_final` is true when the model has finished."""

    def __init__(self, job: Job, model: Model, controls: Controls, past: PastMessages) -> None:
        # These two may raise, so they come before anything is started.
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
        self._idle = self._watch.start(limits.idle_seconds, self._idle_expired)
        self._watch.start(limits.seconds, self._out_of_time)
        self._compactor = Compactor(job, model, self._interrupt, self._idle, self._tally.evidence.files)
        timeout = job.context.tool_timeout or limits.tool_seconds
        self._context = replace(job.context, progress=self._progress, tool_timeout=timeout)
        self._dispatch: Dispatch | None = None
        self._thread = threading.get_ident()
        self._failure: Failure | None = None
        self._calls = 0
        self._refused = False
        self._continued = False
        """Whether the newest answer continues one that was cut off."""
        self._noted: list[Warned] = []
        self.number = job.past.turn + 1
        self.ending: Ending | None = None
        self.is_final = False
        self.calls: tuple[ToolCall, ...] = ()
        controls.catch_up()

    # Signals from outside, at any time

    def wake(self) -> None:
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
        # The tool runs in its own thread.
        if threading.get_ident() != self._thread:
            # Without the event loop there is no reader.
            with suppress(RuntimeError):
                self._interrupt.loop.call_soon_threadsafe(self._progress, call_id, text)
            return
        self._job.context.progress(call_id, text)
        if self._dispatch is not None:
            self._dispatch.progress(call_id, text)

    def _out_of_time(self) -> None:
        self._interrupt.fire(out_of_time(self._job.limits.seconds or 0.0))

    def _idle_expired(self) -> None:
        if self._interrupt.is_waiting:
            self._interrupt.fire(gone_quiet(self._job.limits.idle_seconds or 0.0))
        else:  # a tool or the consumer is active, not the model
            self._idle.again()

    # Before a turn

    def add_message(self, message: UserMessage) -> MessageAdded:
        self._conversation.add(message)
        return MessageAdded(message)

    def before_turn(self) -> Iterator[Body]:
        """Decide whether another turn is allowed, and yield the messages that precede it."""
        if self._must_end():
            return
        due = self._turns.before_next(self._refused, self._job.account.verdict())
        if isinstance(due, Ending):
            self.ending = due
            return
        for message in self._controls.take_steers():
            yield self.add_message(message)
        if due is not None:
            yield LimitReached(due.limit, "wrap-up", due.detail)
            yield self.add_message(due.message)

    async def compact_if_due(self) -> list[Body]:
        """Compact the conversation if that is necessary or a person asked for it."""
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
        stopping = self._must_end()
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

    def _must_end(self) -> bool:
        self.ending = self.ending or self._interrupt.ending
        if self.ending is None:
            verdict = self._job.account.verdict()
            self.ending = overdrawn(verdict) if verdict is not None and not verdict.wrap_up else None
        return self.ending is not None

    # The turn

    def request_answer(self) -> ModelTurn:
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
        """Offer tools that became available since the last request. They are appended in order, so that the providers'
        caches of the others stay valid."""
        for tool in self._job.late_tools():
            spec = tool.spec
            if spec.name not in self._specs:
                self._specs[spec.name], self._tools[spec.name] = spec, tool
                if spec.shown:
                    self._offered = (*self._offered, spec)

    def answered(self, turn: ModelTurn) -> AssistantMessage:
        message = settle_message(turn.message, self._used)
        self.calls = message.tool_calls
        self._failure = failure_of(message)
        if self._failure is None and not self.calls:
            self._failure = error_in_disguise(message)
            if self._failure is not None:
                message = replace(message, content=(), stop="error", failure=self._failure)
        # After an overflow the conversation is shortened and the turn is tried again.
        if self._failure is None or self._failure.kind != "context_overflow":
            self._conversation.answered(message)
        self._tally.answered(message, turn.shown)
        self._note(turn)
        self._job.account.charge(message.usage, turns=1)
        if message.stop == "aborted" and turn.sent:
            self._tally.notes.append("The last request was cut off; its tokens are not in the usage.")
        return message

    def _note(self, turn: ModelTurn) -> None:
        """Add the remarks of the model's provider to the outcome, each once."""
        for note in turn.notes:
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
        limit, shared = self._job.limits.max_tool_calls, self._job.account.calls_left()
        if limit is None:
            return shared
        own = max(limit - self._calls, 0)
        return own if shared is None else min(own, shared)

    def dispatched(self, dispatch: Dispatch) -> ToolMessage:
        """Return the results as they enter the conversation, and decide whether they end the run."""
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
        """Decide whether the run has finished, and yield warnings for people."""
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
            yield self.add_message(user(prompt("continue"), "correction"))
            return
        else:  # a limit that is reached after the answer has no effect
            self.is_final = True
        self._continued = False

    def _may_continue(self) -> bool:
        """Return whether the model is asked to continue an answer that was cut off at the output limit.

        That happens once, and not if a limit or a person ends the run. Runs with an output schema have their own
        reminders.
        """
        if not self._tally.truncated or self._continued or self._submission is not None:
            return False
        if self._interrupt.ending is not None or self._controls.pending or not self._turns.allows_another:
            return False
        return self._job.account.verdict() is None

    def _failed(self, failure: Failure) -> None:
        if self._interrupt.ending is not None:
            self.ending = self._interrupt.ending
        elif failure.kind == "context_overflow" and self._compactor.overflows < MAX_OVERFLOWS:
            self._compactor.overflows += 1
        elif self._continued:  # the beginning of the answer is more useful than the error
            self._tally.not_continued(failure)
            self._continued, self.is_final = False, True
        else:
            self.ending = Ending("refused" if failure.kind == "no-model" else "error", failure)

    def finish(self) -> Iterator[Body]:
        """End the run because the model has finished, unless messages are pending or a result is missing.

        `is_final` stays set if children still keep the run open.
        """
        follow_ups = [] if self._controls.pending_steer else self._controls.take_follow_ups()
        if not follow_ups and not self._controls.pending_steer and self._controls.held:
            return
        self.is_final = False
        for message in follow_ups:
            yield self.add_message(message)
        if follow_ups or self._controls.pending_steer:
            return
        if self._submission is None:
            self.ending = self._done(None)
            return
        answer = self._submission.take(self._tally.text)
        if isinstance(answer, UserMessage):
            yield self.add_message(answer)
        else:
            self.ending = answer if isinstance(answer, Ending) else self._done(answer)

    async def ask_before_end(self) -> None:
        """Ask `before_end` whether a run that would end with success continues, unless messages are pending.

        After the wrap-up message it is not asked, because a limit ends the run. A person's stop interrupts the
        question and takes effect."""
        ask, controls = self._job.before_end, self._controls
        handed_in = self.ending is not None and self.ending.ended in SUCCESS
        if ask is None or self._turns.wrapped or not (handed_in or (self.is_final and self._submission is None)):
            return
        if not handed_in and (controls.pending or controls.held):
            return
        instruction = await self._interrupt.unless(ask())
        interrupted = self._interrupt.ending
        if interrupted is not None and interrupted.limit is None:
            self.ending, self.is_final = interrupted, False
        elif instruction and interrupted is None and handed_in:
            self.ending = None
            controls.steer(instruction, "follow-up")
        elif instruction and interrupted is None:
            controls.follow_up(instruction)

    async def wait_for_children(self) -> None:
        """Wait until there is a message, nothing keeps the run open, or the run is interrupted."""
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
        """Return the outcome. The controls accept no more orders."""
        self._controls.close()
        for message in self._controls.pending:
            note = f"Not delivered, the run had ended: {cut(message.text, 200)}"
            if message.origin == "notification":
                note = _UNDELIVERED_NOTIFICATION
            if note not in self._tally.notes:
                self._tally.notes.append(note)
        return self._tally.outcome(self.ending or Ending("completed"))

    def release(self) -> None:
        """Break all reference cycles, so that the conversation is freed at once and not when the garbage collector
        runs."""
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
            yield steps.add_message(opening)
        while True:
            for body in steps.before_turn():
                yield body
            for body in await steps.compact_if_due():
                yield body
            if steps.ending is not None:
                break
            yield TurnStarted(steps.number)
            turn = steps.request_answer()
            try:
                while (answer_event := await turn.next()) is not None:
                    yield answer_event
            finally:
                await turn.close()
            message = steps.answered(turn)
            yield AssistantEnded(steps.number, message)
            if steps.calls:
                dispatch = steps.dispatch(message.stop)
                try:
                    while (tool_event := await dispatch.next()) is not None:
                        yield tool_event
                finally:
                    await dispatch.close()
                yield ToolsEnded(steps.dispatched(dispatch))
            yield steps.turn_ended(message)
            for body in steps.after_turn():
                yield body
            await steps.ask_before_end()
            while steps.is_final:
                for body in steps.finish():
                    yield body
                if steps.is_final:
                    await steps.wait_for_children()
                    await steps.ask_before_end()
        for body in steps.limit_reached():
            yield body
        yield RunEnded(steps.end())
    finally:
        steps.release()
