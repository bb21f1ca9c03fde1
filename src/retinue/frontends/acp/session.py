"""One conversation of an editor: a main run through all its attempts, and the updates about its tree.

A prompt starts the run, resumes it, or steers it while it works, in which case the run reads it after its current
calls. Each prompt is answered when the run has ended. The agents of a session run in this process and are stopped with
it. A run of another process is followed and steered, but never taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.app.feed import ConflictError, Feed
from retinue.app.history import past_events
from retinue.app.model_choice import ModelWindows
from retinue.app.models import list_models
from retinue.app.modes import session_mode
from retinue.app.session import recorded_mode
from retinue.app.stream import FeedFrame, event_frame
from retinue.core.delegation import LIVE
from retinue.errors import AnsweredError, RetinueError
from retinue.frontends.acp import updates
from retinue.frontends.acp.commands import answer_command, listed_commands
from retinue.frontends.acp.options import SessionChoices
from retinue.frontends.acp.prompt import EditorPrompt, PromptTurn, PromptTurns, read_prompt
from retinue.frontends.acp.questions import EDITOR_NAME, EditorQuestions
from retinue.frontends.acp.rpc import INTERNAL_ERROR, RpcConnection, RpcError
from retinue.frontends.acp.tree import SessionUpdate, TreeTranslator
from retinue.frontends.acp.updates import ClientFeatures, StopWord, Update

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue, Run
    from retinue.core.person_prompt import PersonPrompt

MODELS_SECONDS = 1.0
"""How long a new session waits for the list of models. A later list is sent as an update."""
_TICK_SECONDS = 1.0


class AcpSession:
    """Use from one event loop. Call `open` first and `close` last."""

    def __init__(self, run_id: str, feed: Feed, connection: RpcConnection, features: ClientFeatures) -> None:
        self.id = run_id
        self.feed = feed
        self.has_run = False
        """Whether the run is in the log."""
        self._connection = connection
        self._features = features
        self._windows = ModelWindows()
        self.story = TreeTranslator(run_id, features, self._window)
        self.questions = EditorQuestions(feed, connection, self.story, features, self.send_update)
        self._retinue: Retinue | None = None
        self._speaking = asyncio.Lock()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._turns = PromptTurns()
        self._tasks: list[asyncio.Task[None]] = []
        self._wish: str | None = None
        self._commands: list[dict[str, Any]] = []

    # Start and end

    async def open(self) -> None:
        """Open the project of the session in this process. Raise RetinueError if that fails."""
        self._retinue = await self.feed.retinue()
        project = self._retinue.supervisor.project
        self.choices = SessionChoices(session_mode(project))
        entries = self._retinue.agents.agents
        self.choices.agents = [(entry.name, entry.spec.description[:200]) for entry in entries]

    async def describe(self) -> dict[str, Any]:
        """Return the modes and options of the session for the answer to `session/new`."""
        listing = asyncio.create_task(self._list_models())
        self._tasks.append(listing)
        await asyncio.wait({listing}, timeout=MODELS_SECONDS)
        if not listing.done():
            listing.add_done_callback(lambda done: self.send_options())
        return {"modes": self.choices.modes(), "configOptions": self.choices.options()}

    async def load(self, *, sends_history: bool) -> None:
        """Continue the run from the log; with `sends_history` send its past to the client. Raise UnknownRunError."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self.questions.close()
        self.story = TreeTranslator(self.id, self._features, self._window)
        self.questions = EditorQuestions(self.feed, self._connection, self.story, self._features, self.send_update)
        snapshot = await self.feed.tree(self.id)
        self.story.replays = True
        async for page in past_events(self.feed.folder, self.id, snapshot.cursor):
            for event in page:
                self._send_all(self.story.take(event_frame(event)), sends_history=sends_history)
            await self._connection.drain()
        self.story.replays = False
        live = {row.id for row in snapshot.runs if row.state in LIVE}
        for run_id in self.story.lost(live):
            # Sent before its end, because a client may ignore updates of an ended session.
            for frame in await self.feed.partial_frames(run_id):
                self._send_all(self.story.take(frame), sends_history=sends_history)
        self._send_all(self.story.settle(live), sends_history=sends_history)
        self.has_run = self.choices.agent_is_fixed = True
        row = snapshot.runs[0]
        self.choices.agent = row.agent if row.agent != "main" else None
        self.choices.model = row.model or None
        mode = await self.feed.read(recorded_mode, self.id)
        self.choices.mode = mode or self.choices.mode
        self._follow(snapshot.cursor)
        await self.questions.look()

    async def close(self) -> None:
        """Stop the runs of this process. Runs of other processes continue."""
        for task in (*self._tasks, *self._deliveries):
            task.cancel()
        self.questions.close()
        await self.feed.close()
        self._turns.cancel_all()

    # Requests of the client

    async def prompt(self, blocks: Sequence[Any]) -> StopWord:
        """Send a prompt to the agent, and return why the agent stopped. Raise RpcError if it failed."""
        turn = PromptTurn(asyncio.get_running_loop().create_future())
        # Created before the first await, so that an immediate cancel finds it.
        delivery = asyncio.create_task(self._deliver(blocks, turn))
        self._deliveries.add(delivery)
        try:
            await asyncio.wait({delivery})
        finally:
            self._deliveries.discard(delivery)
            delivery.cancel()
        if delivery.cancelled():
            return "cancelled"
        delivery.result()
        self.send_commands()
        return await turn.done

    async def cancel(self) -> None:
        """Stop all runs of this conversation in this process, including background agents. Runs of another process
        continue. All prompts end."""
        works_elsewhere = await self._works_elsewhere()
        for delivery in self._deliveries:
            delivery.cancel()
        self._turns.cancel()
        if works_elsewhere:
            text = "It works in another process and continues there. To stop it: /stop\n"
            self.send_update(self.id, updates.message_chunk("agent_message_chunk", text))
            self._turns.end("cancelled")
        elif self._retinue is not None:
            await self._retinue.stop_all("Cancelled in the editor.")

    async def cancel_child(self, run_id: str) -> None:
        """Stop one agent of the conversation and all runs below it."""
        await self.feed.stop(run_id, by="person", tree=True)

    async def set_mode(self, mode: object) -> None:
        """Change the permission mode: immediately for a run in this process, otherwise from the next prompt on."""
        chosen = self.choices.choose_mode(mode)
        node = self._node()
        if node is not None and self._retinue is not None:
            await self._retinue.change_mode(node, chosen)
            self.choices.new_mode = None
        self.send_update(self.id, updates.mode_changed(chosen))
        self.send_options()

    async def set_option(self, option: object, value: object) -> list[dict[str, Any]]:
        """Set an option, and return all of them."""
        if option == "mode":
            await self.set_mode(value)
        else:
            self.choices.choose(option, value)
        return self.choices.options()

    async def compact(self, wish: str) -> str:
        """Compact the conversation before the next request. Return when that will happen."""
        node = self._node()
        if node is not None and node.controls.compact(wish):
            return "The conversation will be compacted before the next request."
        if not self.has_run:
            return "There is no conversation to compact yet."
        self._wish = wish
        return "The conversation will be compacted with your next message."

    # Updates for the client

    def send_update(self, session_id: str, update: Update) -> None:
        """Send one update."""
        self._connection.notify("session/update", {"sessionId": session_id, "update": update})

    def send_commands(self) -> None:
        """Send the list of commands if it has changed."""
        if self._retinue is None:
            return
        commands = listed_commands(list(self._retinue.supervisor.project.prompt_commands().values()))
        if commands != self._commands:
            self._commands = commands
            self.send_update(self.id, updates.commands_changed(commands))

    def send_options(self) -> None:
        self.send_update(self.id, updates.options_changed(self.choices.options()))

    def _send_all(self, session_updates: list[SessionUpdate], *, sends_history: bool = True) -> None:
        if sends_history:
            for session_id, update in session_updates:
                self.send_update(session_id, update)

    def _follow(self, after: int) -> None:
        self._tasks.append(asyncio.create_task(self._listen(after), name=f"events of {self.id}"))
        if not self._features.subagents:
            self._tasks.append(asyncio.create_task(self._tick(), name=f"summaries of {self.id}"))

    async def _listen(self, after: int) -> None:
        try:
            async for frames in self.feed.follow(after=after, run_id=self.id, tree=True):
                for frame in frames:
                    self._take(frame)
                if any(frame.type.startswith("inbox.") for frame in frames):
                    await self.questions.look()
                    self._end_for_words()
                await self._connection.drain()
        except RetinueError as error:
            self._turns.fail(RpcError(INTERNAL_ERROR, str(error)))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if self.story.has_live_cards():
                self._send_all(self.story.tick())

    def _take(self, frame: FeedFrame) -> None:
        self._send_all(self.story.take(frame))
        if self.story.mode is not None:
            self.choices.mode, self.story.mode = self.story.mode, None
            self.send_options()
        if frame.type == "run.ended":
            all_over = not any(run.state.live for run in self.story.runs.values())
            run = self.story.runs.get(frame.run_id)
            if run is not None and run.state.outcome is not None:
                is_main = frame.run_id == self.id
                self._turns.take_end(frame.number or 0, run.state.outcome, is_main=is_main, all_over=all_over)
        elif frame.type == "run.interrupted":
            self._send_all(self.story.interrupt(frame.run_id))
            if frame.run_id == self.id:
                detail = msgspec.json.decode(frame.data)["detail"]
                message = f"The conversation was interrupted. {detail} Your next message resumes it here."
                self._turns.fail(RpcError(INTERNAL_ERROR, message))

    # Delivery

    async def _deliver(self, blocks: Sequence[Any], turn: PromptTurn) -> None:
        """Deliver a prompt to the agent, or answer it here. The turn ends when the agent has."""
        outputs = self.feed.folder / "outputs" / self.id
        prompt = await asyncio.to_thread(read_prompt, blocks, self.feed.cwd, outputs)
        answer = await answer_command(self, prompt.words)
        if answer is not None:
            self.send_update(self.id, updates.message_chunk("agent_message_chunk", f"{answer}\n"))
            turn.done.set_result("end_turn")
            return
        async with self._speaking:
            if await self._answers_question(prompt, turn):
                return
            retinue = await self.feed.retinue()
            words = await retinue.address(prompt.words, self.id, prompt.blocks) if self.has_run else prompt.words
            if not isinstance(words, str):
                self.send_update(
                    self.id, updates.message_chunk("agent_message_chunk", f"→ @{words.handle} ({words.action})\n")
                )
                turn.done.set_result("end_turn")
                return
            meant = await retinue.expand(words, ask=self.questions.consent, permission_mode=self.choices.mode)
            meant.blocks += prompt.blocks
            meant.images += prompt.images
            text = meant.render()
            self.story.own_words.append(text)
            try:
                self._turns.expect(turn, await self._hand_over(retinue, meant, text))
            except BaseException:
                if text in self.story.own_words:
                    self.story.own_words.remove(text)
                raise

    async def _hand_over(self, retinue: Retinue, meant: PersonPrompt, text: str) -> int:
        """Start, steer or resume the run with a prompt. Return the newest event before that."""
        choices, before = self.choices, await self._newest_event()
        if not self.has_run:
            run = await retinue.prompt(
                meant,
                agent=choices.agent,
                run_id=self.id,
                model=choices.model,
                thinking=choices.thinking,
                permission_mode=choices.new_mode,
                asked={"by": EDITOR_NAME},
            )
            self.has_run = choices.agent_is_fixed = True
            self._follow(0)
        else:
            node = self._node()
            if node is not None and retinue.supervisor.steer(node, text, meant.images):
                retinue.bring(meant, node)
                return before
            if await self._said_elsewhere(text):
                return before
            # The run may have ended meanwhile, but this prompt waits for the next end.
            before = await self._newest_event()
            run = await retinue.resume(
                self.id, meant, model=choices.model, thinking=choices.thinking, permission_mode=choices.new_mode
            )
        choices.new_mode = None
        if self._wish is not None and run.controls.compact(self._wish):
            self._wish = None
        return before

    async def _said_elsewhere(self, text: str) -> bool:
        """Say something to the run where another process works on it. Return False when it has ended there."""
        if not await self._works_elsewhere():
            return False
        try:
            await self.feed.say(self.id, text, by=EDITOR_NAME)
        except ConflictError:
            if await self._works_elsewhere():
                raise
            return False
        return True

    async def _answers_question(self, prompt: EditorPrompt, turn: PromptTurn) -> bool:
        """Take the words as the answer to a question that this client can answer in no other way."""
        while self.questions.in_words:
            item = self.questions.in_words.pop(0)
            before = await self._newest_event()
            with suppress(AnsweredError):
                await self.feed.answer(item.id, prompt.words, by=EDITOR_NAME)
                self._turns.expect(turn, before)
                return True
        return False

    async def _newest_event(self) -> int:
        """Return the number of the newest event, with everything that this process has written so far."""
        if not self.has_run:
            return 0
        if self._retinue is not None:
            await self._retinue.supervisor.project.log.flush()
        return await self.feed.newest_event()

    def _end_for_words(self) -> None:
        """End the turn for a question that only the next prompt can answer; the run waits meanwhile."""
        if self.questions.in_words:
            self._turns.end("end_turn")

    # The run

    def _node(self) -> Run | None:
        """Return the main run while it works in this process."""
        node = self._retinue.supervisor.members.get(self.id) if self._retinue is not None else None
        return node if node is not None and node.live else None

    async def _works_elsewhere(self) -> bool:
        if not self.has_run:
            return False
        return self._node() is None and (await self.feed.find(self.id)).state in LIVE

    async def _list_models(self) -> None:
        self.choices.models = (await list_models((await self.feed.retinue()).supervisor.settings)).models

    def _window(self, model: str) -> int | None:
        if self._retinue is None:
            return None
        return self._windows.find(model, self._retinue.supervisor.project)
