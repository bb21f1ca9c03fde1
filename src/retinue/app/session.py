"""The conversation with the main agent, without a terminal: the delivery of a person's messages.

    idle       nothing runs: the first message starts the main agent, a later one resumes it
    working    it works: messages wait in `queue` and are delivered before its next request
    holding    it has answered and only waits for its background agents: messages are delivered at once

`@name message` goes to that agent in every state. An interrupt stops the main agent and its foreground work, but no
background agent. The interrupted agent keeps what it has said. It continues with the next message, or when one of its
agents ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from retinue.app.modes import session_mode
from retinue.app.progress import Phase, State
from retinue.app.retinue import Retinue
from retinue.core.events import Event, ModeChanged, RunResumed, TurnEnded
from retinue.core.person_prompt import PersonPrompt
from retinue.runs.record import NEWS_PROMPT
from retinue.runs.record import recorded_mode as recorded_mode
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.core.person_prompt import Consent, PromptBlock
    from retinue.core.spec import PermissionMode


@dataclass(frozen=True, slots=True)
class MessageDelivery:
    """How a message was delivered. `agent` is the handle of the agent that received it, if that is not the main one."""

    how: Literal["sent", "queued", "prompted", "steered", "resumed", "started"]
    agent: str = ""


class ActiveConversation(Protocol):
    """A conversation as the app uses it, in this process or another."""

    main_id: str | None
    state: State

    @property
    def waiting(self) -> Sequence[str]: ...

    async def say(self, text: str) -> MessageDelivery: ...
    def interrupt(self) -> bool: ...
    async def resend(self) -> bool: ...
    def unqueue(self) -> str: ...
    async def compact(self, wish: str = "") -> str: ...
    def observe(self, event: Event) -> None: ...
    async def pump(self) -> bool: ...


class Session:
    """One main run, through all its attempts. `changed` is called when the state or the queue changes."""

    def __init__(
        self,
        retinue: Retinue,
        *,
        agent: str | None = None,
        changed: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self._retinue = retinue
        self._agent = agent
        self._options = options
        self._changed = changed
        self._phase = Phase()
        self._compact: str | None = None
        self._beginning = False
        # A new attempt was requested; events before its first one belong to the previous attempt.
        self._awaited = False
        # The permission mode; for a running run, from its next call on.
        chosen = options.get("permission_mode") or retinue.permission_mode
        self.mode: PermissionMode = chosen or session_mode(retinue.supervisor.project)
        self._first_mode = self._run_mode = self.mode
        # The model of the next attempt, if a person chose another.
        self.model: str | None = None
        self.ask: Consent | None = None
        # Outputs of `!command`, sent to the model with the next message.
        self.outputs: list[PromptBlock] = []
        self._telling = asyncio.Lock()
        self.run: Run | None = None
        self.main_id: str | None = None
        self.state: State = "idle"
        self.queue: list[PersonPrompt] = []

    @property
    def waiting(self) -> list[str]:
        """The messages that wait for delivery to the main agent."""
        return [prompt.words for prompt in self.queue]

    async def say(self, text: str) -> MessageDelivery:
        """Send a message to the main agent, or to the agent that it addresses. Raise RetinueError if it cannot be
        delivered; the caller still has the message."""
        routed = await self._retinue.address(text, self.main_id)
        if isinstance(routed, str):
            return await self._tell(routed)
        return MessageDelivery(routed.action, routed.handle)

    def interrupt(self) -> bool:
        """Stop the foreground work of the main agent. Return False if there is none."""
        return self.run is not None and self.state == "working" and self.run.stop_now("Interrupted by the user.")

    def break_off(self) -> bool:
        """End an attempt that can no longer be recorded, so that no event will end it. Return False if none is
        running."""
        if self.state == "idle":
            return False
        self._become("idle")
        return True

    async def resend(self) -> bool:
        """Interrupt, and send the waiting messages as the next turn; if none wait, only interrupt. On failure they are
        queued again. Return False if nothing is running."""
        run = self.run
        # Emptied first, so that the end of the interrupted run does not start the next attempt with it.
        waiting, self.queue = self.queue, []
        if run is None or not self.interrupt():
            self.queue = waiting
            return False
        self._changed()
        await run.wait_settled()
        if waiting:
            await self._begin_with(waiting)
        return True

    def unqueue(self) -> str:
        """Return the waiting messages to the editor. Their files are attached again when they are sent."""
        text = "\n\n".join(self.waiting)
        for prompt in self.queue:
            self.outputs += [block for block in prompt.blocks if block.tag == "command_output"]
        self.queue.clear()
        self._changed()
        return text

    async def compact(self, wish: str = "") -> str:
        """Compact the conversation before the next request; the summary keeps `wish`. Return when that will happen."""
        if self.run is not None and not self.run.over and self.run.controls.compact(wish):
            return "The conversation will be compacted before the next request."
        if self.main_id is None:
            return "There is no conversation to compact yet."
        self._compact = wish
        return "The conversation will be compacted with your next message."

    async def change_mode(self, mode: PermissionMode) -> None:
        """Change the permission mode: of a running main agent from its next call on, otherwise from the next message
        on."""
        self.mode = mode
        if self.run is not None and not self.run.over and not self._beginning:
            await self._retinue.change_mode(self.run, mode)
            self._run_mode = mode
        self._changed()

    def open(self, run_id: str) -> None:
        """Continue this run of the log with the next message."""
        self._forget(run_id)
        reader = self._retinue.supervisor.project.log.reader
        self.mode = self._run_mode = recorded_mode(reader, run_id) or self._first_mode

    def clear(self) -> None:
        """Start a new conversation with the next message. The old one stays in the log."""
        self._forget(None)

    def observe(self, event: Event) -> None:
        """Take every event of the main run, in order. Late events of an earlier attempt are ignored."""
        if self._awaited and not isinstance(event.body, RunResumed):
            return
        if self.run is not None and self.run.failure is not None:
            # Late events are in the file now, but the attempt has ended.
            return
        self._awaited = False
        state = self._phase.take(event.body)
        if isinstance(event.body, TurnEnded) and self.queue and self.run is not None:
            # Delivered between two turns, in order. If the run ends now, the others stay queued for the next attempt.
            while self.queue and self.run.steer_now(self.queue[0].render(), self.queue[0].images):
                self.queue.pop(0)
            self._changed()
        elif state is not None:
            self._become(state)
        elif isinstance(event.body, ModeChanged) and self.run is not None:
            self.mode = self._run_mode = self.run.mode

    async def pump(self) -> bool:
        """After the main run ended, start the next attempt with the waiting messages. Return False if there are none,
        and after an interrupt, when the person decides."""
        if self.state != "idle" or not self.queue or self._interrupted():
            return False
        waiting, self.queue = self.queue, []
        await self._begin_with(waiting)
        return True

    async def wake(self) -> bool:
        """Resume the idle main agent to notify it of agents that ended. Return False if there is nothing to report, or
        it is not idle."""
        if self.main_id is None or self.state != "idle" or self._beginning or self.queue:
            return False
        await self._retinue.supervisor.project.log.flush()
        if not self._retinue.supervisor.news_for(self.main_id):
            return False
        await self._begin(PersonPrompt(NEWS_PROMPT))
        return True

    async def take_up(self) -> bool:
        """Resume the main agent without a message if its process died while it waited for a person, who has answered
        since. Return False if it did not die, or is not idle."""
        if self.main_id is None or self.state != "idle" or self._beginning or self.queue:
            return False
        if self._retinue.supervisor.project.log.reader.run(self.main_id).state != "interrupted":
            return False
        await self._begin(None)
        return True

    async def _tell(self, words: str) -> MessageDelivery:
        # One at a time, so that a slow file does not let later messages overtake this one.
        async with self._telling:
            prompt = await self._retinue.expand(words, ask=self.ask, permission_mode=self.mode)
            outputs, self.outputs = self.outputs, []
            prompt.blocks += outputs
            try:
                return await self._deliver(prompt)
            except BaseException:
                self.outputs = outputs + self.outputs
                raise

    async def _deliver(self, prompt: PersonPrompt) -> MessageDelivery:
        if self.state == "working" or self._beginning:
            self.queue.append(prompt)
            if self.run is not None:
                self._retinue.bring(prompt, self.run)
            self._changed()
            return MessageDelivery("queued")
        if self.state == "holding" and self.run is not None and self.run.steer_now(prompt.render(), prompt.images):
            self._retinue.bring(prompt, self.run)
            return MessageDelivery("sent")
        await self._begin(prompt)
        return MessageDelivery("sent")

    async def _begin_with(self, waiting: list[PersonPrompt]) -> None:
        images = [image for prompt in waiting for image in prompt.images]
        try:
            await self._begin(PersonPrompt("\n\n".join(prompt.render() for prompt in waiting), images=images))
        except BaseException:
            self.queue = waiting + self.queue
            self._changed()
            raise

    async def _begin(self, prompt: PersonPrompt | None) -> None:
        """Start the first attempt of the main run, which requires a message, or a new one."""
        self._beginning = True
        options = dict(self._options)
        if self.model:
            options["model"] = self.model
        try:
            if self.main_id is None:
                assert prompt is not None
                options["permission_mode"] = self._chosen_mode()
                run = await self._retinue.prompt(prompt, agent=self._agent, **options)
            else:
                self._awaited, mode = True, self._chosen_mode()
                run = await self._retinue.resume(self.main_id, prompt, model=self.model, permission_mode=mode)
            self.run = run
        except BaseException:
            self._awaited = False
            if self.run is None or self.run.over:
                self._become("idle")
            raise
        finally:
            self._beginning = False
        self.main_id, self.model = self.run.id, None
        self._run_mode = self.mode = self.run.mode
        if self._compact is not None and self.run.controls.compact(self._compact):
            self._compact = None
        self._become("working")

    def _chosen_mode(self) -> PermissionMode | None:
        """Return the mode that the person chose for the next attempt, or None to let files decide."""
        option: PermissionMode | None = self._options.get("permission_mode")
        held = self._run_mode
        if self.main_id is None:
            held = self._first_mode
        if self.mode != held:
            return self.mode
        return option if self.main_id is None else None

    def _interrupted(self) -> bool:
        if self.run is None or self.run.outcome is None:
            return False
        return self.run.outcome.ended == "stopped"

    def _forget(self, run_id: str | None) -> None:
        self.main_id, self.run, self.state = run_id, None, "idle"
        self._compact, self._awaited, self.model = None, False, None
        self.queue.clear()
        self._changed()

    def _become(self, state: State) -> None:
        self.state = state
        self._changed()
