"""Where runs ask people: one service per process, for approvals, questions and quotes alike.

What is asked is in the inbox of the log before anyone is asked, and is answered there, by a
terminal, a program or any other process; the first answer counts. The run that asked waits here
with its clocks stopped. When it goes on, the answer and the fact that it was taken are in the
log first. A run that is stopped meanwhile withdraws what it asked.

Where nobody can answer, the policy does: `deny`, or wait in the inbox until the item expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.core.events import InboxClosed, InboxOpened
from retinue.core.permission import InboxAnswer, InboxItem, InboxState
from retinue.errors import AnsweredError, RetinueError, StateError, UsageError
from retinue.guard.gate import NOBODY, Approver, Asked, Asker, InboxPolicy, cancel_errands, new_item_id, subject
from retinue.log.inbox import adopt, closed, fingerprint, give, put, settle, take, withdraw

if TYPE_CHECKING:
    from retinue.log.store import Log

__all__ = ["LOOK_SECONDS", "NOBODY", "Approver", "InboxPolicy", "InboxService", "new_item_id"]

LOOK_SECONDS = 0.2


class InboxService:
    """Use from one event loop. `approvers` are asked beside the inbox, all at once; `attended`
    counts those in this process who watch the inbox."""

    def __init__(
        self,
        log: Log,
        approvers: list[Approver] | None = None,
        *,
        policy: Callable[[], InboxPolicy] = InboxPolicy,
        redact: Callable[[InboxItem], InboxItem] = lambda item: item,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._log = log
        self._policy = policy
        self._redact = redact
        self._clock = clock
        self._asked: dict[str, Asked] = {}
        self._timer: Timer | None = None
        self._version = -1
        # The caller's own list, even an empty one: it may grow later.
        self.approvers: list[Approver] = []
        if approvers is not None:
            self.approvers = approvers
        self.attended = 0

    @property
    def interactive(self) -> bool:
        """Return whether someone in this process answers."""
        return bool(self.approvers) or self.attended > 0

    @property
    def reachable(self) -> bool:
        """Return whether anyone may answer in time, here or elsewhere."""
        return self.interactive or self._policy().headless == "wait"

    async def ask(
        self,
        item: InboxItem,
        asker: Asker,
        *,
        call_id: str | None = None,
        covered: Callable[[], bool] | None = None,
        granted: Callable[[InboxAnswer], Awaitable[None]] | None = None,
    ) -> InboxAnswer:
        """Return the answer, from any source. Equal items that a run has waiting are one. `covered`
        says whether what was granted since answers it; `granted` is called with the answer
        before the run goes on with it. Cancelling withdraws the item, unless another call of
        the run waits for it as well. Raise StateError when the log cannot be written."""
        mark = fingerprint([item.kind, item.title if item.kind == "quote" else subject(item)])
        if self._same(asker, mark) is None:
            old = None
            if asker.leftovers:
                now = self._clock.now()
                old = await self._log.transact(lambda connection: adopt(connection, asker.place.run_id, mark, now))
            if old is not None and old.answer is not None:
                return await self._late(replace(item, id=old.id), old.answer, asker, call_id, granted)
            if old is None and not self.reachable:
                return InboxAnswer(item.default, NOBODY, "policy", self._clock.now())
            if self._same(asker, mark) is None:
                return await self._wait(self._open(item, old, mark, asker, call_id, covered, granted), call_id)
        return await self._join(asker, mark, call_id)

    async def question(
        self,
        text: str,
        options: tuple[str, ...] = (),
        *,
        asker: Asker,
        call_id: str | None = None,
        detail: str = "",
        default: str = "",
        more: Mapping[str, Any] | None = None,
    ) -> InboxAnswer:
        """Ask a person something: one of `options`, or anything. Where nobody answers the
        choice is `default`, and `by` says `policy` or `expiry`. `more` is what faces show beside
        the options: `notes` on each, `several` where more than one may be chosen, `skip` and `decline` for
        the words that an empty answer and a refusal stand for."""
        item = InboxItem(
            id=new_item_id(),
            kind="question",
            run_id=asker.place.run_id,
            root_id=asker.place.root_id,
            agent=asker.agent,
            description=asker.description,
            title=text,
            detail=detail,
            payload={"question": text, "options": list(options), **(more or {})},
            risk="low",
            options=options,
            default=default,
        )
        return await self.ask(item, asker, call_id=call_id)

    async def answer(self, item: InboxItem, given: InboxAnswer) -> InboxItem:
        """Answer an item from this process, of whichever process its run is. Raise as
        `retinue.log.inbox.answer`."""
        given = replace(given, at=given.at or self._clock.now())
        result = await self._log.transact(lambda connection: give(connection, item, given))
        self._resolve(result)
        return result

    async def rejudge(self) -> None:
        """Allow the waiting items that something just granted covers."""
        for asked in list(self._asked.values()):
            if asked.covered is not None and not asked.done.done() and asked.covered():
                with suppress(AnsweredError):
                    await self.answer(asked.item, InboxAnswer("allow", by="an earlier answer"))

    async def run_ended(self, asker: Asker) -> None:
        """Withdraw what an earlier attempt of the run asked and this one did not ask again."""
        now = self._clock.now()
        await self._log.transact(lambda connection: withdraw(connection, asker.place.run_id, now))

    # One item

    def _same(self, asker: Asker, mark: str) -> Asked | None:
        for asked in self._asked.values():
            if asked.mark == mark and asked.asker is asker and not asked.done.done():
                return asked
        return None

    async def _late(
        self,
        item: InboxItem,
        answer: InboxAnswer,
        asker: Asker,
        call_id: str | None,
        granted: Callable[[InboxAnswer], Awaitable[None]] | None,
    ) -> InboxAnswer:
        """Record an answer that came while no process ran the run. It was taken from the inbox just now."""
        if granted is not None:
            await granted(answer)
        asker.record(InboxOpened(item.id, item.kind, item.title, call_id))
        asker.record(InboxClosed(item.id, "answered", answer.choice, answer.by, answer.message, call_id))
        await self._log.flush()
        return answer

    def _open(
        self,
        item: InboxItem,
        old: InboxItem | None,
        mark: str,
        asker: Asker,
        call_id: str | None,
        covered: Callable[[], bool] | None,
        granted: Callable[[InboxAnswer], Awaitable[None]] | None,
    ) -> Asked:
        now, policy = self._clock.now(), self._policy()
        expires = None if self.interactive else now + policy.expiry_seconds
        item = replace(item, created_at=now, expires_at=expires)
        if old is not None:
            item = replace(item, id=old.id, created_at=old.created_at, expires_at=old.expires_at)
        done: asyncio.Future[InboxItem] = asyncio.get_running_loop().create_future()
        asked = Asked(item, mark, asker, call_id, done, covered, granted, adopted=old is not None)
        self._asked[item.id] = asked
        asked.task = asyncio.create_task(self._attend(asked), name=f"inbox {item.id}")
        return asked

    async def _join(self, asker: Asker, mark: str, call_id: str | None) -> InboxAnswer:
        """Wait for the answer that another call of the run waits for. The log also says that nothing of
        this call has run."""
        asked = self._same(asker, mark)
        assert asked is not None
        item = asked.item
        asker.record(InboxOpened(item.id, item.kind, item.title, call_id))
        try:
            answer = await self._wait(asked, call_id)
        except BaseException:
            with suppress(StateError):
                asker.record(InboxClosed(item.id, "withdrawn", call_id=call_id))
            raise
        state: InboxState = "expired" if answer.by == "expiry" else "answered"
        asker.record(InboxClosed(item.id, state, answer.choice, answer.by, answer.message, call_id))
        await self._log.flush()
        return answer

    async def _wait(self, asked: Asked, call_id: str | None) -> InboxAnswer:
        assert asked.task is not None
        asked.users += 1
        try:
            with asked.asker.controls.waiting(call_id):
                async with asked.asker.resting():
                    # Another call may wait for the same item: cancelling this one must not end the question.
                    return await asyncio.shield(asked.task)
        finally:
            asked.users -= 1
            if not asked.users and not asked.task.done():
                asked.task.cancel()
                await asyncio.wait({asked.task})

    async def _attend(self, asked: Asked) -> InboxAnswer:
        """Put one item into the inbox, wait for its answer, and take it."""
        item, asker = asked.item, asked.asker
        timer: Timer | None = None
        try:
            asker.record(InboxOpened(item.id, item.kind, item.title, asked.call_id))
            if not asked.adopted:
                stored = self._redact(item)
                await self._log.transact(lambda connection: put(connection, stored, asked.mark))
            for approver in self.approvers:
                asked.errands.append(asyncio.create_task(self._consult(approver, asked)))
            if item.expires_at is not None:
                left = max(item.expires_at - self._clock.now(), 0.0)
                timer = self._clock.call_later(
                    left, lambda: asked.errands.append(asyncio.create_task(self._expire_item(asked)))
                )
            self._watch()
            result = await asked.done
        except asyncio.CancelledError:
            # The item must be withdrawn even when the run is being stopped.
            await asyncio.shield(self._withdraw_item(asked))
            raise
        finally:
            self._asked.pop(item.id, None)
            if timer is not None:
                timer.cancel()
            await cancel_errands(asked.errands)
        return await self._take_answer(asked, result)

    async def _take_answer(self, asked: Asked, result: InboxItem) -> InboxAnswer:
        answer = result.answer or InboxAnswer(asked.item.default, by=result.state)
        if asked.granted is not None:
            await asked.granted(answer)
        self._close(asked, InboxClosed(result.id, result.state, answer.choice, answer.by, answer.message))
        await self._log.transact(lambda connection: take(connection, result.id))
        return answer

    async def _withdraw_item(self, asked: Asked) -> None:
        nothing = InboxAnswer("", by="run", at=self._clock.now())
        # The writers of runs report a log that cannot be written.
        with suppress(RetinueError):
            self._close(asked, InboxClosed(asked.item.id, "withdrawn"))
            await self._log.transact(lambda connection: settle(connection, asked.item.id, "withdrawn", nothing))

    def _close(self, asked: Asked, body: InboxClosed) -> None:
        asked.asker.record(replace(body, call_id=asked.call_id))

    async def _consult(self, approver: Approver, asked: Asked) -> None:
        item = asked.item
        try:
            given = await approver(item)
        except Exception as error:  # noqa: BLE001 - a guard that breaks has not agreed
            given = InboxAnswer(
                item.default, f"Who was to answer failed ({type(error).__name__}: {error}).", "approver"
            )
        if given is not None:
            await self._give_answer(item, given)

    async def _give_answer(self, item: InboxItem, given: InboxAnswer) -> None:
        try:
            await self.answer(item, given)
        except UsageError as error:
            with suppress(RetinueError):
                await self.answer(item, replace(given, choice=item.default or "deny", message=str(error)))
        except (AnsweredError, StateError) as error:
            asked = self._asked.get(item.id)
            if isinstance(error, StateError) and asked is not None and not asked.done.done():
                asked.done.set_exception(error)

    # What happens elsewhere

    def _resolve(self, result: InboxItem) -> None:
        asked = self._asked.get(result.id)
        if asked is not None and not asked.done.done():
            asked.done.set_result(result)

    async def _expire_item(self, asked: Asked) -> None:
        item = asked.item
        given = InboxAnswer(item.default, "Nobody answered in time.", "expiry", self._clock.now())
        try:
            self._resolve(await self._log.transact(lambda connection: settle(connection, item.id, "expired", given)))
        except StateError as error:
            if not asked.done.done():
                asked.done.set_exception(error)

    def _watch(self) -> None:
        if self._timer is None:
            self._version = -1
            self._timer = self._clock.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Ask the log whether it has changed, and only then what became of the items."""
        self._timer = None
        if not self._asked:
            return
        with suppress(StateError):
            version = self._log.reader.version()
            # Other processes write the log all the time; asking for its version costs microseconds.
            if version != self._version:
                self._version = version
                for result in closed(self._log.reader, list(self._asked)):
                    self._resolve(result)
        self._timer = self._clock.call_later(LOOK_SECONDS, self._look)
