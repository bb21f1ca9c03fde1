"""Where runs ask people: one service per process, for approvals, questions and quotes alike.

A question is in the inbox of the log before anyone is asked, and is answered there, by a
terminal, a program or any other process; the first answer counts. The run that asked waits here
with its clocks stopped. When it goes on, the answer and the fact that it was taken are in the
log first. A run that is stopped meanwhile withdraws what it asked.

Where nobody can answer, the policy does: `deny`, or wait in the inbox until the item expires.
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
from retinue.guard.gate import NOBODY, Asker, new_item_id
from retinue.log.inbox import adopt, closed, fingerprint, give, put, settle, take, withdraw

if TYPE_CHECKING:
    from retinue.log.store import Log

LOOK_SECONDS = 0.2

Approver = Callable[[InboxItem], Awaitable[InboxAnswer | None]]
"""Puts an item before someone. None leaves it to others; being cancelled means that someone else
has answered."""


class InboxPolicy(Struct, frozen=True):
    """What happens while no person can answer, and how long an item waits for one."""

    headless: Literal["deny", "wait"] = "deny"
    expiry_seconds: float = 3600.0


class Asked(Struct, eq=False):
    """An item that waits in this process. `users` are the calls that wait for it."""

    item: InboxItem
    mark: str
    asker: Asker
    call_id: str | None
    done: asyncio.Future[InboxItem]
    covered: Callable[[], bool] | None = None
    granted: Callable[[InboxAnswer], Awaitable[None]] | None = None
    task: asyncio.Task[InboxAnswer] | None = None
    users: int = 0
    adopted: bool = False
    errands: list[asyncio.Task[None]] = field(default_factory=list)

    def record_opened(self) -> None:
        self.asker.record(InboxOpened(self.item.id, self.item.kind, self.item.title, self.call_id))

    def record_closed(self, state: InboxState, answer: InboxAnswer | None = None) -> None:
        result = answer or InboxAnswer("")
        self.asker.record(InboxClosed(self.item.id, state, result.choice, result.by, result.message, self.call_id))


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
        # Two calls with one content ask the same thing, whatever their ids are.
        content = {name: value for name, value in item.payload.items() if name != "call_id"}
        mark = fingerprint([item.kind, item.title if item.kind == "quote" else content])
        done: asyncio.Future[InboxItem] = asyncio.get_running_loop().create_future()
        asked = Asked(item, mark, asker, call_id, done, covered, granted)
        if self._same(asked) is None:
            old = None
            if asker.leftovers:
                now = self._clock.now()
                old = await self._log.transact(lambda connection: adopt(connection, asker.place.run_id, mark, now))
            if old is not None and old.answer is not None:
                asked.item = replace(item, id=old.id)
                return await self._take_late_answer(asked, old.answer)
            if old is None and not self.reachable:
                return InboxAnswer(item.default, NOBODY, "policy", self._clock.now())
            if self._same(asked) is None:
                self._open(asked, old)
                return await self._wait(asked, call_id)
        return await self._join(asked)

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
        choice is `default`, and `by` says `policy` or `expiry`. `more` is what front ends show beside
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

    def _same(self, asked: Asked) -> Asked | None:
        """Return the same question of the same run that waits already."""
        for other in self._asked.values():
            if other.mark == asked.mark and other.asker is asked.asker and not other.done.done():
                return other
        return None

    async def _take_late_answer(self, asked: Asked, answer: InboxAnswer) -> InboxAnswer:
        """Record an answer that came while no process ran the run. It was taken from the inbox just now."""
        if asked.granted is not None:
            await asked.granted(answer)
        asked.record_opened()
        asked.record_closed("answered", answer)
        await self._log.flush()
        return answer

    def _open(self, asked: Asked, old: InboxItem | None) -> None:
        now, policy = self._clock.now(), self._policy()
        expires = None if self.interactive else now + policy.expiry_seconds
        asked.item = replace(asked.item, created_at=now, expires_at=expires)
        if old is not None:
            asked.adopted = True
            asked.item = replace(asked.item, id=old.id, created_at=old.created_at, expires_at=old.expires_at)
        self._asked[asked.item.id] = asked
        asked.task = asyncio.create_task(self._attend(asked), name=f"inbox {asked.item.id}")

    async def _join(self, asked: Asked) -> InboxAnswer:
        """Wait for the answer that another call of the run waits for. The log also says that nothing of
        this call has run."""
        other = self._same(asked)
        assert other is not None
        asked.item = other.item
        asked.record_opened()
        try:
            answer = await self._wait(other, asked.call_id)
        except BaseException:
            with suppress(StateError):
                asked.record_closed("withdrawn")
            raise
        asked.record_closed("expired" if answer.by == "expiry" else "answered", answer)
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
        item = asked.item
        timer: Timer | None = None
        try:
            asked.record_opened()
            if not asked.adopted:
                stored = self._redact(item)
                await self._log.transact(lambda connection: put(connection, stored, asked.mark))
            for approver in self.approvers:
                asked.errands.append(asyncio.create_task(self._consult(approver, asked)))
            if item.expires_at is not None:
                seconds = max(item.expires_at - self._clock.now(), 0.0)
                timer = self._clock.call_later(
                    seconds, lambda: asked.errands.append(asyncio.create_task(self._expire_item(asked)))
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
            # A terminal takes its question back, and says so.
            for errand in asked.errands:
                errand.cancel()
            await asyncio.gather(*asked.errands, return_exceptions=True)
        return await self._take_answer(asked, result)

    async def _take_answer(self, asked: Asked, result: InboxItem) -> InboxAnswer:
        answer = result.answer or InboxAnswer(asked.item.default, by=result.state)
        if asked.granted is not None:
            await asked.granted(answer)
        asked.record_closed(result.state, answer)
        await self._log.transact(lambda connection: take(connection, result.id))
        return answer

    async def _withdraw_item(self, asked: Asked) -> None:
        nothing = InboxAnswer("", by="run", at=self._clock.now())
        # The writers of runs report a log that cannot be written.
        with suppress(RetinueError):
            asked.record_closed("withdrawn")
            await self._log.transact(lambda connection: settle(connection, asked.item.id, "withdrawn", nothing))

    async def _consult(self, approver: Approver, asked: Asked) -> None:
        item = asked.item
        try:
            answer = await approver(item)
        except Exception as error:  # noqa: BLE001 - a guard that breaks has not agreed
            answer = InboxAnswer(
                item.default, f"Who was to answer failed ({type(error).__name__}: {error}).", "approver"
            )
        if answer is not None:
            await self._give_answer(item, answer)

    async def _give_answer(self, item: InboxItem, answer: InboxAnswer) -> None:
        try:
            await self.answer(item, answer)
        except UsageError as error:
            with suppress(RetinueError):
                await self.answer(item, replace(answer, choice=item.default or "deny", message=str(error)))
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
        answer = InboxAnswer(item.default, "Nobody answered in time.", "expiry", self._clock.now())
        try:
            self._resolve(await self._log.transact(lambda connection: settle(connection, item.id, "expired", answer)))
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
