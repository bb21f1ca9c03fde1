"""One request to the model: its parts as events, and in the end always a whole message.

Whatever happens (a failure, a stream that just ends, an exception, a limit, a person) the
message says so in its `stop` and `failure`, and text that was shown is kept in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from retinue.domain.clock import Clock
from retinue.domain.events import Body, Retrying, TextDelta, ThinkingDelta
from retinue.domain.failure import Failure
from retinue.domain.messages import AssistantMessage, Text
from retinue.loop.interrupt import Interrupt, Interrupted
from retinue.loop.shrink import cut
from retinue.loop.watch import Countdown
from retinue.models.protocol import Finished, Model, ModelRequest


class Ask:
    """After `bodies` is exhausted, `message` is the answer, `shown` the last text that was
    streamed and then declared void by a retry, and `sent` whether there was a request at all."""

    __slots__ = ("_clock", "_idle", "_interrupt", "_model", "_request", "_text", "message", "sent", "shown")

    def __init__(
        self, model: Model, request: ModelRequest, interrupt: Interrupt, idle: Countdown, clock: Clock
    ) -> None:
        self._model = model
        self._request = request
        self._interrupt = interrupt
        self._idle = idle
        self._clock = clock
        self._text: list[str] = []
        self.message = AssistantMessage(())
        self.shown = ""
        self.sent = False

    async def bodies(self) -> AsyncGenerator[Body, None]:
        feed, now, part_of = self._idle.feed, self._clock.monotonic, self._interrupt.part
        patience = 0.0
        self.sent = self._interrupt.ending is None
        try:
            async with aclosing(self._model.stream(self._request)) as stream:
                while True:
                    feed(now() + patience)
                    part = await part_of(stream)
                    patience = 0.0
                    if isinstance(part, TextDelta):
                        self._text.append(part.text)
                        yield part
                    elif isinstance(part, ThinkingDelta):
                        yield part
                    elif isinstance(part, Finished):
                        self.message = self._whole(part.message)
                        return
                    elif isinstance(part, Retrying):
                        yield self._void(part)
                        patience = max(part.delay, 0.0)  # this silence is announced
        except Interrupted:
            self.message = self._cut()
        except StopAsyncIteration:
            self._fail(Failure("dropped", "The model's stream ended without an end."))
        except Exception as error:  # noqa: BLE001 - a model that raises is a failed request, not a dead run
            self._fail(Failure("internal", cut(f"The model raised {type(error).__name__}: {error}", 1_000)))

    def _void(self, part: Retrying) -> Retrying:
        text = part.partial or "".join(self._text)
        self._text.clear()
        self.shown = text or self.shown
        return part if part.partial == text else replace(part, partial=text)

    def _whole(self, message: AssistantMessage) -> AssistantMessage:
        """A failed message that forgot what had been streamed gets it back."""
        if message.stop == "error" and not message.text and self._text:
            return replace(message, content=(*message.content, Text("".join(self._text))))
        return message

    def _cut(self) -> AssistantMessage:
        ending = self._interrupt.ending
        return AssistantMessage(
            self._said(), "aborted", model=self._model.info.full_name, failure=ending.failure if ending else None
        )

    def _fail(self, failure: Failure) -> None:
        self.message = AssistantMessage(self._said(), "error", model=self._model.info.full_name, failure=failure)

    def _said(self) -> tuple[Text, ...]:
        text = "".join(self._text)
        return (Text(text),) if text else ()
