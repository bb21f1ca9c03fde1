"""Lets runs ask people: one service per process, for approvals, questions and quotes.

An item is in the inbox of the log before a person sees it. A terminal, a program or any other process answers it
there, and the first answer takes effect. The run that asked waits here with its clocks stopped. Before it continues,
the log has the answer and the fact that it was taken. A run that is stopped withdraws its items.

If no person can answer, the policy decides: `deny`, or wait in the inbox until the item expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.core.events import InboxClosed, InboxOpened
from retinue.core.permission import InboxAnswer, InboxItem, InboxState
from retinue.errors import AnsweredError, RetinueError, StateError, UsageError
from retinue.guard.gate import NO_PERSON_REASON, Asker, new_item_id
from retinue.log.inbox import adopt, closed, fingerprint, give, put, settle, take, withdraw

if TYPE_CHECKING:
    from retinue.log.store import Log

POLL_SECONDS = 0.2

Approver = Callable[[InboxItem], Awaitable[InboxAnswer | None]]
"""Shows an item to a person. None leaves the answer to others. It is cancelled when another person has answered."""


class InboxPolicy(Struct, frozen=True):
    """The policy for items that no person can answer now, and how long an item waits."""

    headless: Literal["deny", "wait"] = "deny"
    expiry_seconds: float = 3600.0


class PendingItem(Struct, eq=False):
    """An item that waits in this process. `waiting_calls` is the number of calls that wait for its answer."""

    item: InboxItem
    content_hash: str
    asker: Asker
    call_id: str | None
    done: asyncio.Future[InboxItem]
    covered: Callable[[], bool] | None = None
    granted: Callable[[InboxAnswer], Awaitable[None]] | None = None
    task: asyncio.Task[InboxAnswer] | None = None
    waiting_calls: int = 0
    adopted: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def record_opened(self) -> None:
        self.asker.record(InboxOpened(self.item.id, self.item.kind, self.item.title, self.call_id))

    def record_closed(self, state: InboxState, answer: InboxAnswer | None = None) -> None:
        result = answer or InboxAnswer("")
        self.asker.record(InboxClosed(self.item.id, state, result.choice, result.by, result.message, self.call_id))


class InboxService:
    """Use it from one event loop. All `approvers` are asked at once, in addition to the inbox. `attended` is the
    number of inbox views that are open in this process."""

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
        self._pending: dict[str, PendingItem] = {}
        self._timer: Timer | None = None
        self._version = -1
        # The caller's list itself, even if it is empty, because it may grow later.
        self.approvers: list[Approver] = []
        if approvers is not None:
            self.approvers = approvers
        self.attended = 0

    @property
    def interactive(self) -> bool:
        """Return whether a person or program in this process answers."""
        return bool(self.approvers) or self.attended > 0

    @property
    def reachable(self) -> bool:
        """Return whether a person may answer in time, in this process or another one."""
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
        """Return the answer, from any source. Equal waiting items of a run are one item.

        `covered` returns whether a permission that was granted meanwhile answers it. `granted` is called with the
        answer before the run continues. Cancelling withdraws the item, unless another call of the run waits for it.
        Raise StateError if the log cannot be written."""
        # Calls with equal content ask the same question, whatever their ids are.
        content = {name: value for name, value in item.payload.items() if name != "call_id"}
        content_hash = fingerprint([item.kind, item.title if item.kind == "quote" else content])
        done: asyncio.Future[InboxItem] = asyncio.get_running_loop().create_future()
        pending = PendingItem(item, content_hash, asker, call_id, done, covered, granted)
        if self._find_same(pending) is None:
            old = None
            if asker.leftovers:
                now = self._clock.now()
                old = await self._log.transact(
                    lambda connection: adopt(connection, asker.place.run_id, content_hash, now)
                )
            if old is not None and old.answer is not None:
                pending.item = replace(item, id=old.id)
                return await self._take_late_answer(pending, old.answer)
            if old is None and not self.reachable:
                return InboxAnswer(item.default, NO_PERSON_REASON, "policy", self._clock.now())
            if self._find_same(pending) is None:
                self._open(pending, old)
                return await self._wait(pending, call_id)
        return await self._join(pending)

    async def question(
        self,
        text: str,
        options: tuple[str, ...] = (),
        *,
        asker: Asker,
        call_id: str | None = None,
        detail: str = "",
        default: str = "",
        hints: Mapping[str, Any] | None = None,
    ) -> InboxAnswer:
        """Ask a person to choose one of `options`, or to answer freely. Without an answer the choice is `default`, and
        `by` is `policy` or `expiry`.

        `hints` are for front ends: `notes` on each option, `several` if more than one may be chosen, `skip` and
        `decline` for the words that an empty answer and a refusal stand for."""
        item = InboxItem(
            id=new_item_id(),
            kind="question",
            run_id=asker.place.run_id,
            root_id=asker.place.root_id,
            agent=asker.agent,
            description=asker.description,
            title=text,
            detail=detail,
            payload={"question": text, "options": list(options), **(hints or {})},
            risk="low",
            options=options,
            default=default,
        )
        return await self.ask(item, asker, call_id=call_id)

    async def answer(self, item: InboxItem, answer: InboxAnswer) -> InboxItem:
        """Answer an item of a run in this or any other process. Raise the errors of `retinue.log.inbox.give`."""
        answer = replace(answer, at=answer.at or self._clock.now())
        result = await self._log.transact(lambda connection: give(connection, item, answer))
        self._resolve(result)
        return result

    async def rejudge(self) -> None:
        """Allow the waiting items that a new permission covers."""
        for pending in list(self._pending.values()):
            if pending.covered is not None and not pending.done.done() and pending.covered():
                with suppress(AnsweredError):
                    await self.answer(pending.item, InboxAnswer("allow", by="an earlier answer"))

    async def run_ended(self, asker: Asker) -> None:
        """Withdraw the items of an earlier attempt of the run that this attempt did not ask again."""
        now = self._clock.now()
        await self._log.transact(lambda connection: withdraw(connection, asker.place.run_id, now))

    # One item

    def _find_same(self, pending: PendingItem) -> PendingItem | None:
        """Return an item of the same run with the same content that is already waiting."""
        for other in self._pending.values():
            if other.content_hash == pending.content_hash and other.asker is pending.asker and not other.done.done():
                return other
        return None

    async def _take_late_answer(self, pending: PendingItem, answer: InboxAnswer) -> InboxAnswer:
        """Record an answer that was given while no process ran the run."""
        if pending.granted is not None:
            await pending.granted(answer)
        pending.record_opened()
        pending.record_closed("answered", answer)
        await self._log.flush()
        return answer

    def _open(self, pending: PendingItem, old: InboxItem | None) -> None:
        now, policy = self._clock.now(), self._policy()
        expires = None if self.interactive else now + policy.expiry_seconds
        pending.item = replace(pending.item, created_at=now, expires_at=expires)
        if old is not None:
            pending.adopted = True
            pending.item = replace(pending.item, id=old.id, created_at=old.created_at, expires_at=old.expires_at)
        self._pending[pending.item.id] = pending
        pending.task = asyncio.create_task(self._process_item(pending), name=f"inbox {pending.item.id}")

    async def _join(self, pending: PendingItem) -> InboxAnswer:
        """Wait for the answer that another call of the run waits for. The log also records that this call has not
        run."""
        other = self._find_same(pending)
        assert other is not None
        pending.item = other.item
        pending.record_opened()
        try:
            answer = await self._wait(other, pending.call_id)
        except BaseException:
            with suppress(StateError):
                pending.record_closed("withdrawn")
            raise
        pending.record_closed("expired" if answer.by == "expiry" else "answered", answer)
        await self._log.flush()
        return answer

    async def _wait(self, pending: PendingItem, call_id: str | None) -> InboxAnswer:
        assert pending.task is not None
        pending.waiting_calls += 1
        try:
            with pending.asker.controls.waiting(call_id):
                async with pending.asker.release_slot():
                    # Another call may wait for the same item, so cancelling this one must not withdraw it.
                    return await asyncio.shield(pending.task)
        finally:
            pending.waiting_calls -= 1
            if not pending.waiting_calls and not pending.task.done():
                pending.task.cancel()
                await asyncio.wait({pending.task})

    async def _process_item(self, pending: PendingItem) -> InboxAnswer:
        """Put an item into the inbox, wait for its answer, and take it."""
        item = pending.item
        timer: Timer | None = None
        try:
            pending.record_opened()
            if not pending.adopted:
                stored = self._redact(item)
                await self._log.transact(lambda connection: put(connection, stored, pending.content_hash))
            for approver in self.approvers:
                pending.tasks.append(asyncio.create_task(self._ask_approver(approver, pending)))
            if item.expires_at is not None:
                seconds = max(item.expires_at - self._clock.now(), 0.0)
                timer = self._clock.call_later(
                    seconds, lambda: pending.tasks.append(asyncio.create_task(self._expire_item(pending)))
                )
            self._start_polling()
            result = await pending.done
        except asyncio.CancelledError:
            # The item must be withdrawn even if the run is being stopped.
            await asyncio.shield(self._withdraw_item(pending))
            raise
        finally:
            self._pending.pop(item.id, None)
            if timer is not None:
                timer.cancel()
            # The tasks are awaited because a terminal then removes its question and prints so.
            for task in pending.tasks:
                task.cancel()
            await asyncio.gather(*pending.tasks, return_exceptions=True)
        return await self._take_answer(pending, result)

    async def _take_answer(self, pending: PendingItem, result: InboxItem) -> InboxAnswer:
        answer = result.answer or InboxAnswer(pending.item.default, by=result.state)
        if pending.granted is not None:
            await pending.granted(answer)
        pending.record_closed(result.state, answer)
        await self._log.transact(lambda connection: take(connection, result.id))
        return answer

    async def _withdraw_item(self, pending: PendingItem) -> None:
        nothing = InboxAnswer("", by="run", at=self._clock.now())
        # The writers of runs report a log that cannot be written.
        with suppress(RetinueError):
            pending.record_closed("withdrawn")
            await self._log.transact(lambda connection: settle(connection, pending.item.id, "withdrawn", nothing))

    async def _ask_approver(self, approver: Approver, pending: PendingItem) -> None:
        item = pending.item
        try:
            answer = await approver(item)
        except Exception as error:  # noqa: BLE001 - a broken guard has not agreed
            answer = InboxAnswer(item.default, f"The approver failed ({type(error).__name__}: {error}).", "approver")
        if answer is not None:
            await self._give_answer(item, answer)

    async def _give_answer(self, item: InboxItem, answer: InboxAnswer) -> None:
        try:
            await self.answer(item, answer)
        except UsageError as error:
            with suppress(RetinueError):
                await self.answer(item, replace(answer, choice=item.default or "deny", message=str(error)))
        except (AnsweredError, StateError) as error:
            pending = self._pending.get(item.id)
            if isinstance(error, StateError) and pending is not None and not pending.done.done():
                pending.done.set_exception(error)

    # Answers of other processes

    def _resolve(self, result: InboxItem) -> None:
        pending = self._pending.get(result.id)
        if pending is not None and not pending.done.done():
            pending.done.set_result(result)

    async def _expire_item(self, pending: PendingItem) -> None:
        item = pending.item
        answer = InboxAnswer(item.default, "Nobody answered in time.", "expiry", self._clock.now())
        try:
            self._resolve(await self._log.transact(lambda connection: settle(connection, item.id, "expired", answer)))
        except StateError as error:
            if not pending.done.done():
                pending.done.set_exception(error)

    def _start_polling(self) -> None:
        if self._timer is None:
            self._version = -1
            self._timer = self._clock.call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        """Look into the log if it has changed, and resolve the items that were closed."""
        self._timer = None
        if not self._pending:
            return
        with suppress(StateError):
            version = self._log.reader.version()
            # Reading the version takes microseconds; other processes write the log all the time.
            if version != self._version:
                self._version = version
                for result in closed(self._log.reader, list(self._pending)):
                    self._resolve(result)
        self._timer = self._clock.call_later(POLL_SECONDS, self._poll)
