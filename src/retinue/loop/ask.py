"""One request to the model: its parts as events, and in the end always a whole message.

Whatever happens (a failure, a stream that just ends, an exception, a limit, a person) the
message says so in its `stop` and `failure`, and text that was shown is kept in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from retinue.core.clock import Clock
from retinue.core.events import Body, Retrying, TextDelta, ThinkingDelta
from retinue.core.messages import AssistantMessage, Text
from retinue.core.outcome import Failure
from retinue.loop.controls import Interrupt, Interrupted
from retinue.loop.shrink import cut
from retinue.loop.watch import Countdown
from retinue.models.protocol import Finished, Model, ModelRequest, Noted, Part


class ModelTurn:
    """`next` returns the events of the answer and then None. From there on `message` is the answer,
    `shown` the last text that was streamed and then declared void by a retry, `notes` what people
    should know of it, and `sent` whether there was a request at all. Call `close` whatever happens."""

    __slots__ = (
        "_clock",
        "_idle",
        "_interrupt",
        "_model",
        "_patience",
        "_request",
        "_stream",
        "_text",
        "message",
        "notes",
        "sent",
        "shown",
    )

    def __init__(
        self, model: Model, request: ModelRequest, interrupt: Interrupt, idle: Countdown, clock: Clock
    ) -> None:
        self._model = model
        self._request = request
        self._interrupt = interrupt
        self._idle = idle
        self._clock = clock
        self._stream: AsyncGenerator[Part, None] | None = None
        self._patience = 0.0
        self._text: list[str] = []
        self.message = AssistantMessage(())
        self.notes: list[Noted] = []
        self.shown = ""
        self.sent = False

    async def next(self) -> Body | None:
        try:
            if self._stream is None:
                self.sent = self._interrupt.ending is None
                self._stream = self._model.stream(self._request)
            try:
                while True:
                    self._idle.feed(self._clock.monotonic() + self._patience)
                    part = await self._interrupt.part(self._stream)
                    self._patience = 0.0
                    if isinstance(part, Finished):
                        self.message = self._whole(part.message)
                        break
                    body = self._shown(part)
                    if body is not None:
                        return body
            except BaseException:
                await self.close()
                raise
            await self.close()
        except Interrupted:
            self.message = self._cut()
        except StopAsyncIteration:
            self._fail(Failure("dropped", "The model's stream ended without an end."))
        except Exception as error:  # noqa: BLE001 - a model that raises is a failed request, not a dead run
            self._fail(Failure("internal", cut(f"The model raised {type(error).__name__}: {error}", 1_000)))
        return None

    def _shown(self, part: Part) -> Body | None:
        """What others see of a part; None for a mere sign of life."""
        if isinstance(part, TextDelta):
            self._text.append(part.text)
            return part
        if isinstance(part, ThinkingDelta):
            return part
        if isinstance(part, Noted):
            self.notes.append(part)
        elif isinstance(part, Retrying):
            self._patience = max(part.delay, 0.0)  # this silence is announced
            return self._void(part)
        return None

    async def close(self) -> None:
        """Nothing more is wanted of the model's stream."""
        if self._stream is not None:
            await self._stream.aclose()

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
