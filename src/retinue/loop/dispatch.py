"""The tool calls of one turn: side by side where they may, results always in call order.

Calls start in call order. One that is `exclusive` starts when all before it are done, and
nothing starts beside it; so consecutive calls that are not exclusive overlap. ToolStarted is
yielded, and thus logged, before the tool is touched. However the turn ends, every call gets
exactly one result. Events name the tool and the arguments that run; results go back under the
name the model used.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from msgspec import Struct

from retinue.core.events import Body, ToolEnded, ToolProgress, ToolStarted, Warned
from retinue.core.messages import StopReason, Text, ToolCall, ToolMessage, ToolResult
from retinue.core.permission import ToolEffect
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, failed
from retinue.loop import arguments
from retinue.loop.job import Interrupt, Job
from retinue.loop.limits import Countdown, Watch
from retinue.loop.shrink import cut

_MAX_PROGRESS_CHARACTERS = 64_000
_MAX_REASON_CHARACTERS = 1_000


class _RunningCall(Struct):
    """A call that has started. `cut` is the reason of its cancellation, once it was cancelled."""

    call: ToolCall
    task: asyncio.Task[ToolOutput]
    countdown: Countdown
    since: float
    cut: str = ""


class Dispatch:
    """Runs the calls of one assistant message.

    `next` returns the events and then None. After that, `message` has the results, `answer` the output that ends the
    run (if there is one), and `warnings` the events to report. `close` must be called in every case."""

    def __init__(
        self,
        job: Job,
        tools: Mapping[str, Tool],
        specs: Mapping[str, ToolSpec],
        interrupt: Interrupt,
        watch: Watch,
        context: ToolContext,
        *,
        calls: tuple[ToolCall, ...],
        stop: StopReason,
        allowed: int | None,
    ) -> None:
        self._job = job
        self._tools = tools
        self._specs = specs
        self._interrupt = interrupt
        self._watch = watch
        self._calls = calls
        self._sent = {call.id: call.name for call in calls}
        self._translated = {call.id: arguments.translate_call(call, specs) for call in calls}
        self._stop = stop
        self._allowed = allowed
        self._queue = deque(translated.call for translated in self._translated.values())
        self._announced: ToolCall | None = None
        self._running: dict[str, _RunningCall] = {}
        self._outbox: deque[Body] = deque()
        self._results: dict[str, ToolResult] = {}
        self.effects: list[tuple[ToolCall, ToolEffect]] = []
        self.answer: ToolOutput | None = None
        self.warnings: list[Warned] = []
        self.counted = 0
        self.refused = 0
        self._context = context

    @property
    def message(self) -> ToolMessage:
        return ToolMessage(tuple(self._results[call.id] for call in self._calls))

    async def next(self) -> Body | None:
        """Return the next event. A call starts when the caller asks for the event after its announcement, so the
        announcement is in the log by then."""
        if self._announced is not None:
            call, self._announced = self._announced, None
            self._start(call)
        while self._queue or self._running or self._outbox:
            if self._outbox:
                return self._outbox.popleft()
            if self._interrupt.ending is not None or self.answer is not None:
                self._give_up()
            elif self._may_start():
                call = self._queue.popleft()
                # A refused call was never announced, so it has no events.
                if self._is_over_the_limit(call):
                    continue
                self._announced = call
                return ToolStarted(call)
            if self._running and not self._outbox:
                await self._interrupt.woken()
        return None

    def waiting(self, call_id: str, begins: bool) -> None:
        """Pause or resume the clock of a call that waits for a person or another run."""
        running = self._running.get(call_id)
        if running is not None and not running.cut:
            if begins:
                running.countdown.pause()
            else:
                running.countdown.resume()

    def _may_start(self) -> bool:
        if not self._queue:
            return False
        if not self._running:
            return True
        if len(self._running) >= self._job.parallel_calls:
            return False
        calls = [self._queue[0], *(running.call for running in self._running.values())]
        return not any(map(self._is_exclusive, calls))

    def _is_exclusive(self, call: ToolCall) -> bool:
        spec = self._specs.get(call.name)
        return spec is not None and spec.exclusive

    def _ends_run(self, call: ToolCall) -> bool:
        spec = self._specs.get(call.name)
        return spec is not None and spec.ends_run

    def _is_over_the_limit(self, call: ToolCall) -> bool:
        """Refuse a call beyond the limit of tool calls. Submitting the result is always allowed."""
        if self._ends_run(call):
            return False
        if self._allowed is not None and self.counted >= self._allowed:
            self.refused += 1
            self._results[call.id] = self._result(call, failed(arguments.LIMIT_REACHED))
            return True
        self.counted += 1
        return False

    def _start(self, call: ToolCall) -> None:
        refusal = arguments.refusal_reason(call, self._stop, self._specs, self._job.absent)
        if refusal is not None:
            self._finish(call, failed(refusal), 0.0)
        elif self._interrupt.ending is not None:
            self._finish(call, failed(arguments.NOT_RUN), 0.0)
        else:
            task = asyncio.create_task(_run(self._tools[call.name], call, self._context))
            countdown = self._watch.start(self._job.limits.tool_seconds, lambda: self._timed_out(call.id))
            self._running[call.id] = _RunningCall(call, task, countdown, self._job.clock.monotonic())
            task.add_done_callback(lambda done: self._done(call.id, done))

    def _done(self, call_id: str, task: asyncio.Task[ToolOutput]) -> None:
        running = self._running.pop(call_id, None)
        # The call was left behind earlier. Without this look at its error asyncio would report it as never retrieved.
        if running is None:
            if not task.cancelled():
                task.exception()
            return
        running.countdown.stop()
        self._finish(running.call, self._output(running, task), self._job.clock.monotonic() - running.since)

    def _output(self, running: _RunningCall, task: asyncio.Task[ToolOutput]) -> ToolOutput:
        if task.cancelled():
            return failed(running.cut or arguments.CANCELLED, ToolEffect("unknown"))
        error = task.exception()
        if error is not None:
            reason = f"{type(error).__name__}: {error}"
        else:
            output: object = task.result()
            if isinstance(output, ToolOutput):
                return output
            # A user's tool may return anything.
            reason = f"it returned {type(output).__name__}"
        reason = cut(reason, _MAX_REASON_CHARACTERS)
        self.warnings.append(Warned("internal", f"The tool {running.call.name} is defective: {reason}"))
        return failed(arguments.internal_failure(running.call.name, reason), ToolEffect("unknown"))

    def _finish(self, call: ToolCall, output: ToolOutput, seconds: float) -> None:
        result = self._result(call, output)
        self._results[call.id] = result
        self.effects.append((call, output.effect))
        self._outbox.append(ToolEnded(call.id, call.name, result, output.effect, round(seconds * 1000)))
        if self.answer is None and not output.is_error and self._ends_run(call):
            self.answer = output
        self._interrupt.wake()

    def _timed_out(self, call_id: str) -> None:
        running = self._running[call_id]
        seconds = self._job.limits.tool_seconds or 0.0
        self.warnings.append(Warned("tool_time", f"{running.call.name} was stopped after {seconds:g} s."))
        self._cancel(running, arguments.timed_out(seconds))

    def _give_up(self) -> None:
        """Start no other call. Cancel the running ones, unless they may finish beside the answer."""
        text = arguments.NOT_RUN if self.answer is None else arguments.AFTER_ANSWER
        for call in self._queue:
            self._results[call.id] = self._result(call, failed(text))
        self._queue.clear()
        if self._interrupt.ending is not None:
            for running in list(self._running.values()):
                if not running.cut:
                    self._cancel(running, arguments.STOPPED)

    def _cancel(self, running: _RunningCall, why: str) -> None:
        running.cut = why
        running.countdown.stop()
        running.countdown = self._watch.start(self._job.cancel_seconds, lambda: self._leave(running))
        running.task.cancel()

    def _leave(self, running: _RunningCall) -> None:
        """Leave behind a tool that ignores its cancellation, so that it does not delay the run."""
        del self._running[running.call.id]
        self.warnings.append(Warned("tool_stuck", f"{running.call.name} did not stop when it was cancelled."))
        seconds = self._job.clock.monotonic() - running.since
        self._finish(running.call, failed(running.cut, ToolEffect("unknown")), seconds)

    def progress(self, call_id: str, text: str) -> None:
        if call_id not in self._running:
            return
        # A slow consumer gets one longer piece instead of many, so the outbox stays bounded.
        if self._outbox:
            last = self._outbox[-1]
            if isinstance(last, ToolProgress) and last.call_id == call_id:
                self._outbox.pop()
                text = (last.text + text)[-_MAX_PROGRESS_CHARACTERS:]
        self._outbox.append(ToolProgress(call_id, text))
        self._interrupt.wake()

    def _result(self, call: ToolCall, output: ToolOutput) -> ToolResult:
        """Return the result under the name that the model used, with the notes about its arguments."""
        translated = self._translated[call.id]
        content = output.content
        if translated.notes:
            content = (*content, Text("\n".join(f"[Note: {note}]" for note in translated.notes)))
        return ToolResult(call.id, self._sent[call.id], content, output.is_error)

    async def close(self) -> None:
        """Cancel the calls that are still running, after the run was closed or cancelled."""
        if self._running:
            tasks = [running.task for running in self._running.values()]
            self._running.clear()
            for task in tasks:
                task.cancel()
            # A tool that ignores its cancellation is left behind after this time.
            await asyncio.wait(tasks, timeout=self._job.cancel_seconds)


async def _run(tool: Tool, call: ToolCall, context: ToolContext) -> ToolOutput:
    return await tool.run(call.id, call.arguments, context)
