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
from retinue.loop import arguments as refusals
from retinue.loop.arguments import understand
from retinue.loop.job import Interrupt, Job
from retinue.loop.limits import Countdown, Watch
from retinue.loop.shrink import cut

_PROGRESS_KEPT = 64_000
_REASON_KEPT = 1_000


class _Running(Struct):
    """A call at work. `cut` says why it was cancelled, once it was."""

    call: ToolCall
    task: asyncio.Task[ToolOutput]
    countdown: Countdown
    since: float
    cut: str = ""


class Dispatch:
    """Runs the calls of one assistant message. `next` returns the events and then None: from there on
    `message` holds the results, `answer` the output that ends the run if one does, and `warnings`
    what to report. Call `close` whatever happens."""

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
        self._understood = {call.id: understand(call, specs) for call in calls}
        self._stop = stop
        self._allowed = allowed
        self._queue = deque(understood.call for understood in self._understood.values())
        self._announced: ToolCall | None = None
        self._running: dict[str, _Running] = {}
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
        """Return the next event. A call begins once the event that announces it has been dealt with, that
        is, when the next one is wanted."""
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
        """The call waits for a person or another run: its clock stands still meanwhile."""
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
        """Refuse a call that the run may no longer make. Handing in the result always may."""
        if self._ends_run(call):
            return False
        if self._allowed is not None and self.counted >= self._allowed:
            self.refused += 1
            self._results[call.id] = self._result(call, failed(refusals.LIMIT))
            return True
        self.counted += 1
        return False

    def _start(self, call: ToolCall) -> None:
        refusal = refusals.reason(call, self._stop, self._specs, self._job.absent)
        if refusal is not None:
            self._finish(call, failed(refusal), 0.0)
        elif self._interrupt.ending is not None:
            self._finish(call, failed(refusals.NOT_RUN), 0.0)
        else:
            task = asyncio.create_task(_run(self._tools[call.name], call, self._context))
            countdown = self._watch.start(self._job.limits.tool_seconds, lambda: self._timed_out(call.id))
            self._running[call.id] = _Running(call, task, countdown, self._job.clock.monotonic())
            task.add_done_callback(lambda done: self._done(call.id, done))

    def _done(self, call_id: str, task: asyncio.Task[ToolOutput]) -> None:
        running = self._running.pop(call_id, None)
        # It was left behind earlier. Its error is fetched, or asyncio would report it as forgotten.
        if running is None:
            if not task.cancelled():
                task.exception()
            return
        running.countdown.stop()
        self._finish(running.call, self._output(running, task), self._job.clock.monotonic() - running.since)

    def _output(self, running: _Running, task: asyncio.Task[ToolOutput]) -> ToolOutput:
        if task.cancelled():
            return failed(running.cut or refusals.CANCELLED, ToolEffect("unknown"))
        error = task.exception()
        if error is not None:
            reason = f"{type(error).__name__}: {error}"
        else:
            output: object = task.result()
            if isinstance(output, ToolOutput):
                return output
            # A tool of someone's own may return anything.
            reason = f"it returned {type(output).__name__}"
        reason = cut(reason, _REASON_KEPT)
        self.warnings.append(Warned("internal", f"The tool {running.call.name} is defective: {reason}"))
        return failed(refusals.defect(running.call.name, reason), ToolEffect("unknown"))

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
        self._cancel(running, refusals.timed_out(seconds))

    def _give_up(self) -> None:
        """Start nothing more; what runs is cancelled, unless it may finish beside the answer."""
        text = refusals.NOT_RUN if self.answer is None else refusals.AFTER_ANSWER
        for call in self._queue:
            self._results[call.id] = self._result(call, failed(text))
        self._queue.clear()
        if self._interrupt.ending is not None:
            for running in list(self._running.values()):
                if not running.cut:
                    self._cancel(running, refusals.STOPPED)

    def _cancel(self, running: _Running, why: str) -> None:
        running.cut = why
        running.countdown.stop()
        running.countdown = self._watch.start(self._job.cancel_seconds, lambda: self._leave(running))
        running.task.cancel()

    def _leave(self, running: _Running) -> None:
        """A tool that ignores its cancellation does not hold up the run."""
        del self._running[running.call.id]
        self.warnings.append(Warned("tool_stuck", f"{running.call.name} did not stop when it was cancelled."))
        seconds = self._job.clock.monotonic() - running.since
        self._finish(running.call, failed(running.cut, ToolEffect("unknown")), seconds)

    def progress(self, call_id: str, text: str) -> None:
        if call_id not in self._running:
            return
        # A slow consumer gets one longer piece instead of many: the outbox stays bounded.
        if self._outbox:
            last = self._outbox[-1]
            if isinstance(last, ToolProgress) and last.call_id == call_id:
                self._outbox.pop()
                text = (last.text + text)[-_PROGRESS_KEPT:]
        self._outbox.append(ToolProgress(call_id, text))
        self._interrupt.wake()

    def _result(self, call: ToolCall, output: ToolOutput) -> ToolResult:
        """The result under the name the model used, with what was noted about its arguments."""
        understood = self._understood[call.id]
        content = output.content
        if understood.notes:
            content = (*content, Text("\n".join(f"[Note: {note}]" for note in understood.notes)))
        return ToolResult(call.id, self._sent[call.id], content, output.is_error)

    async def close(self) -> None:
        """If the run was closed or cancelled in the middle, nothing it started goes on."""
        if self._running:
            tasks = [running.task for running in self._running.values()]
            self._running.clear()
            for task in tasks:
                task.cancel()
            # A tool that ignores its cancellation is left behind.
            await asyncio.wait(tasks, timeout=self._job.cancel_seconds)


async def _run(tool: Tool, call: ToolCall, context: ToolContext) -> ToolOutput:
    return await tool.run(call.id, call.arguments, context)
