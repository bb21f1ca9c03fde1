"""The conversation with the main agent, without a terminal: what happens to what a person says.

    idle       nothing runs: the first words start the main agent, later ones take it up again
    working    it is at work: words wait in `queue` and are said before its next request
    holding    it has answered and only waits for its background agents: words are said at once

`@name words` goes to that agent in every state. Interrupting stops the main agent and its
foreground work, never a background agent. What the interrupted agent said so far stays; it goes on
when the person speaks again, or when it is woken because an agent of its own has ended.
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
class Delivery:
    """What became of words: `agent` is the handle of the agent that has them, where it is not
    the main one."""

    how: Literal["sent", "queued", "prompted", "steered", "resumed", "started"]
    agent: str = ""


class Conversation(Protocol):
    """What the app needs of a conversation, here or in another process."""

    main_id: str | None
    state: State

    @property
    def waiting(self) -> Sequence[str]: ...

    async def say(self, text: str) -> Delivery: ...
    def interrupt(self) -> bool: ...
    async def resend(self) -> bool: ...
    def unqueue(self) -> str: ...
    async def compact(self, wish: str = "") -> str: ...
    def observe(self, event: Event) -> None: ...
    async def pump(self) -> bool: ...


class Session:
    """One main run, through all its attempts. `changed` is called when the state or the queue did."""

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
        # A new attempt was asked for, and what comes before its first event belongs to the one before.
        self._awaited = False
        # What the main agent may do unasked; of a run that works, from its next call on.
        chosen = options.get("permission_mode") or retinue.permission_mode
        self.mode: PermissionMode = chosen or session_mode(retinue.supervisor.project)
        self._first_mode = self._run_mode = self.mode
        # The model of the next attempt, where a person chose another.
        self.model: str | None = None
        self.ask: Consent | None = None
        # The output of `!command`, which goes to the model with the next words.
        self.outputs: list[PromptBlock] = []
        self._telling = asyncio.Lock()
        self.run: Run | None = None
        self.main_id: str | None = None
        self.state: State = "idle"
        self.queue: list[PersonPrompt] = []

    @property
    def waiting(self) -> list[str]:
        """The words that wait until the main agent can hear them."""
        return [prompt.words for prompt in self.queue]

    async def say(self, text: str) -> Delivery:
        """Say something to the main agent, or to the agent that is meant. Raise RetinueError when it cannot start or
        cannot take it; the words are not lost then, the caller still has them."""
        routed = await self._retinue.address(text, self.main_id)
        if isinstance(routed, str):
            return await self._tell(routed)
        return Delivery(routed.action, routed.handle)

    def interrupt(self) -> bool:
        """Stop what the main agent does in the foreground. Return False when it does nothing."""
        return self.run is not None and self.state == "working" and self.run.stop_now("Interrupted by the user.")

    def break_off(self) -> bool:
        """The attempt cannot be recorded any more, and no event will end it. Return False when none is at work."""
        if self.state == "idle":
            return False
        self._become("idle")
        return True

    async def resend(self) -> bool:
        """Interrupt, and send what waits as the next turn; with nothing waiting only interrupt. On failure what
        waits is put back. Return False when nothing is at work."""
        run = self.run
        # Taken first: the end of the interrupted run would otherwise begin the next attempt with it.
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
        """Take back what waits, for the editor: the words, whose files are attached anew when they are sent."""
        text = "\n\n".join(self.waiting)
        for prompt in self.queue:
            self.outputs += [block for block in prompt.blocks if block.tag == "command_output"]
        self.queue.clear()
        self._changed()
        return text

    async def compact(self, wish: str = "") -> str:
        """Shorten the conversation before the next request; the summary keeps `wish`. Return when that will be."""
        if self.run is not None and not self.run.over and self.run.controls.compact(wish):
            return "The conversation will be shortened before the next request."
        if self.main_id is None:
            return "There is no conversation to shorten yet."
        self._compact = wish
        return "The conversation will be shortened when you next say something."

    async def change_mode(self, mode: PermissionMode) -> None:
        """Let another permission mode hold: for a main agent that works from its next call on, else from the next
        message on."""
        self.mode = mode
        if self.run is not None and not self.run.over and not self._beginning:
            await self._retinue.change_mode(self.run, mode)
            self._run_mode = mode
        self._changed()

    def open(self, run_id: str) -> None:
        """Go on with this run of the log when something is said next."""
        self._forget(run_id)
        reader = self._retinue.supervisor.project.log.reader
        self.mode = self._run_mode = recorded_mode(reader, run_id) or self._first_mode

    def clear(self) -> None:
        """Start a new conversation when something is said next. The old one stays in the log."""
        self._forget(None)

    def observe(self, event: Event) -> None:
        """Take every event of the main run, in order. Those of an earlier attempt that come late change nothing."""
        if self._awaited and not isinstance(event.body, RunResumed):
            return
        if self.run is not None and self.run.failure is not None:
            # What could not be written then is in the file now; the attempt is over all the same.
            return
        self._awaited = False
        state = self._phase.take(event.body)
        if isinstance(event.body, TurnEnded) and self.queue and self.run is not None:
            # Said between two turns, in order. The run may end just now; then the rest stays in the queue for the next
            # attempt.
            while self.queue and self.run.steer_now(self.queue[0].render(), self.queue[0].images):
                self.queue.pop(0)
            self._changed()
        elif state is not None:
            self._become(state)
        elif isinstance(event.body, ModeChanged) and self.run is not None:
            self.mode = self._run_mode = self.run.mode

    async def pump(self) -> bool:
        """After the main run ended, begin the next attempt with what still waits. Return False when nothing
        does, and after an interruption: then the person decides."""
        if self.state != "idle" or not self.queue or self._interrupted():
            return False
        waiting, self.queue = self.queue, []
        await self._begin_with(waiting)
        return True

    async def wake(self) -> bool:
        """Resume the idle main agent to tell it how agents of its own have ended, and nothing
        else. Return False when there is nothing to tell, or it is not idle."""
        if self.main_id is None or self.state != "idle" or self._beginning or self.queue:
            return False
        await self._retinue.supervisor.project.log.flush()
        if not self._retinue.supervisor.news_for(self.main_id):
            return False
        await self._begin(PersonPrompt(NEWS_PROMPT))
        return True

    async def take_up(self) -> bool:
        """Resume the main agent without words if its process was killed while it waited for a person, who has
        answered now. Return False when it was not killed, or is not idle."""
        if self.main_id is None or self.state != "idle" or self._beginning or self.queue:
            return False
        if self._retinue.supervisor.project.log.reader.run(self.main_id).state != "interrupted":
            return False
        await self._begin(None)
        return True

    async def _tell(self, words: str) -> Delivery:
        # One after the other: reading a file must not let later words go before these.
        async with self._telling:
            prompt = await self._retinue.expand(words, ask=self.ask, permission_mode=self.mode)
            outputs, self.outputs = self.outputs, []
            prompt.blocks += outputs
            try:
                return await self._deliver(prompt)
            except BaseException:
                self.outputs = outputs + self.outputs
                raise

    async def _deliver(self, prompt: PersonPrompt) -> Delivery:
        if self.state == "working" or self._beginning:
            self.queue.append(prompt)
            if self.run is not None:
                self._retinue.bring(prompt, self.run)
            self._changed()
            return Delivery("queued")
        if self.state == "holding" and self.run is not None and self.run.steer_now(prompt.render(), prompt.images):
            self._retinue.bring(prompt, self.run)
            return Delivery("sent")
        await self._begin(prompt)
        return Delivery("sent")

    async def _begin_with(self, waiting: list[PersonPrompt]) -> None:
        images = [image for prompt in waiting for image in prompt.images]
        try:
            await self._begin(PersonPrompt("\n\n".join(prompt.render() for prompt in waiting), images=images))
        except BaseException:
            self.queue = waiting + self.queue
            self._changed()
            raise

    async def _begin(self, prompt: PersonPrompt | None) -> None:
        """Begin a new attempt of the main run, or its first, which needs words."""
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
        """Return the mode for the next attempt where the person chose another one, else None: files decide."""
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
