"""The prompts of a session that wait for their answer, and which end of the run answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from retinue.faces.acp.rpc import INTERNAL_ERROR, RpcError
from retinue.faces.acp.updates import StopWord, failure_text, stop_word


class PromptTurn(Struct, eq=False):
    """One prompt. Ends of the run up to the event `after` belong to what was before it."""

    done: asyncio.Future[StopWord]
    after: int = 0
    is_cancelled: bool = False


class PromptTurns(Struct, eq=False):
    """Several prompts wait where a person spoke while the agent worked: one end answers them all."""

    waiting: list[PromptTurn] = field(default_factory=list)
    _last: tuple[int, Mapping[str, Any]] = (0, {})
    """The newest end of the main run: it may be heard of while a prompt is still being delivered."""

    def expect(self, turn: PromptTurn, after: int) -> None:
        """Let a prompt that has reached the agent be answered by the first end after the event `after`."""
        turn.after = after
        self.waiting.append(turn)
        number, outcome = self._last
        if number > after:
            self._take_main(number, outcome)

    def take_end(self, number: int, outcome: Mapping[str, Any], *, is_main: bool, all_over: bool) -> None:
        """A run of the tree has ended with the event `number`. Cancelled prompts are answered when all runs are
        over, the others when the main run is."""
        if all_over:
            self.end("cancelled", [turn for turn in self.waiting if turn.is_cancelled])
        if is_main:
            self._last = (number, outcome)
            self._take_main(number, outcome)

    def _take_main(self, number: int, outcome: Mapping[str, Any]) -> None:
        ended = [turn for turn in self.waiting if turn.after < number and not turn.is_cancelled]
        word = stop_word(outcome)
        if word is not None:
            self.end(word, ended)
        else:
            self.fail(RpcError(INTERNAL_ERROR, failure_text(outcome)), ended)

    def cancel(self) -> None:
        """The person wants everything to stop: all that wait now are answered as cancelled, however the run ends."""
        for turn in self.waiting:
            turn.is_cancelled = True

    def end(self, word: StopWord, turns: Sequence[PromptTurn] | None = None) -> None:
        """Answer these prompts, or all."""
        for turn in self._take(turns):
            turn.done.set_result(word)

    def fail(self, error: RpcError, turns: Sequence[PromptTurn] | None = None) -> None:
        """Answer these prompts, or all, with an error."""
        for turn in self._take(turns):
            turn.done.set_exception(error)

    def abandon(self) -> None:
        """Answer nobody any more: the session is over."""
        for turn in self._take(None):
            turn.done.cancel()

    def _take(self, turns: Sequence[PromptTurn] | None) -> list[PromptTurn]:
        taken = list(self.waiting if turns is None else turns)
        for turn in taken:
            self.waiting.remove(turn)
        return [turn for turn in taken if not turn.done.done()]
