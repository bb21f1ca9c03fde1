"""Carries out what other processes ask of the runs of this one.

While runs live, the log is asked five times a second whether it has changed, and once a second
the settings are; that costs a few microseconds, and nothing at all when no run lives. A command is
taken in one transaction, so it is carried out once; its answer says what happens now, or why nothing
does.

A run stays in memory while it lives, while anything below it lives, until its parent has been told of its completion,
and for ten minutes after it ended. Later requests find it in the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from retinue.core.clock import Timer
from retinue.core.events import STEERED, Warned
from retinue.errors import StateError

if TYPE_CHECKING:
    from retinue.log.commands import CommandAnswer, Ear, RunCommand
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor

LOOK_SECONDS = 0.2
KEEP_SECONDS = 600.0
SWEEP_SECONDS = 60.0
SETTINGS_EVERY = 5
"""So many looks go by before someone asks whether a settings file has changed, too."""


class Commands:
    """Of one supervisor. `watch` when a run begins; it looks until none lives."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._timer: Timer | None = None
        self._ear: Ear | None = None
        self._serving: asyncio.Task[None] | None = None
        self._looks = 0

    def watch(self) -> None:
        if self._timer is None:
            self._timer = self._supervisor.clock.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._serving is not None:
            self._serving.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._supervisor.busy:
            return
        if self._ear is None:
            # Loaded late: a short run ends before anyone looks.
            from retinue.log.commands import Ear

            log = self._supervisor.project.log
            self._ear = Ear(log.reader, log.owner)
        if self._serving is None and self._ear.hears():
            self._serving = asyncio.create_task(self._serve(self._ear), name="commands of other processes")
            self._serving.add_done_callback(self._served)
        self._looks += 1
        if self._looks % SETTINGS_EVERY == 0:
            # What another process has set holds here too, such as how many may work at once.
            self._supervisor.notice_settings()
        self.watch()

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving = None
        if not task.cancelled():
            # A log that cannot be written is reported by those who write runs.
            task.exception()

    async def _serve(self, ear: Ear) -> None:
        from retinue.log.commands import answer, take

        log = self._supervisor.project.log
        try:
            taken = await log.transact(lambda connection: take(connection, log.owner))
            answers = [(each.number, self.obey(each.command)) for each in taken]
            if answers:
                await log.transact(lambda connection: answer(connection, answers))
        except StateError:
            ear.again()
            raise

    def obey(self, command: RunCommand) -> CommandAnswer:
        """What becomes of one command, at once."""
        from retinue.log.commands import CommandAnswer

        node = self._supervisor.members.get(command.run_id)
        if node is None or not node.live:
            status = node.status if node is not None else "gone"
            return CommandAnswer(
                command.run_id, False, f"Not delivered: the run has ended ({status}). {_resume(command)}"
            )
        try:
            done, text = self._do(node, command)
        except Exception as error:  # noqa: BLE001 - whoever asked must hear of it
            return CommandAnswer(command.run_id, False, f"Retinue failed: {type(error).__name__}: {error}")
        if not done:
            text = f"Not delivered: the run is just ending. {_resume(command)}"
        return CommandAnswer(command.run_id, done, text)

    def _do(self, node: Run, command: RunCommand) -> tuple[bool, str]:
        supervisor, kind = self._supervisor, command.kind
        match kind:
            case "steer":
                when = "when it starts" if node.status == "queued" else "after its current tool calls"
                return self._steer(node, command), f"Delivered: it reads this {when}."
            case "stop":
                return supervisor.stop(node, _stop_reason(command)), "It is stopping."
            case "stop-tree":
                count = supervisor.stop_tree(node, _stop_reason(command))
                others = f", and {count - 1} below it" if count > 1 else ""
                return count > 0, f"It is stopping{others}."
            case "compact":
                return node.controls.compact(command.text), "It shortens its conversation before its next request."
            case "background":
                if supervisor.detach(node):
                    return True, "It goes on in the background."
                return True, "Nobody waits for it: there is nothing to move."
            case _:
                assert_never(kind)

    def _steer(self, node: Run, command: RunCommand) -> bool:
        delivered = self._supervisor.steer(node, command.text)
        if delivered and command.by:
            self._supervisor.project.log.append(node.place, Warned(STEERED, f"Steered by {command.by}."))
        return delivered


def _stop_reason(command: RunCommand) -> str:
    return f"Stopped by {command.text or 'the user'}."


def _resume(command: RunCommand) -> str:
    return f"Go on with it: retinue runs resume {command.run_id}"


class Sweeper:
    """Of one supervisor. `watch` when a run has ended; it looks until there is nothing to forget."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._timer: Timer | None = None

    def watch(self) -> None:
        if self._timer is None:
            self._timer = self._supervisor.clock.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        before = self._supervisor.clock.now() - KEEP_SECONDS
        # Children before their parents.
        for node in reversed(list(self._supervisor.members.values())):
            if node.state.ended_at is not None and node.state.ended_at <= before and _is_done_with(node):
                self._supervisor.forget(node)
        if any(not node.live for node in self._supervisor.members.values()):
            self.watch()


def _is_done_with(node: Run) -> bool:
    if any(child.live for child in node.descendants()):
        return False
    parent = node.parent
    return parent is None or not parent.live or not node.state.background or node.consumed or node.announced
