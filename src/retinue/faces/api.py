"""Retinue as a library.

    async with Retinue(cwd=".") as retinue:
        run = await retinue.spawn("Explore", "Find where requests are authenticated")
        async for event in run.events(): ...
        outcome = await run.wait()

A failed run does not raise: its outcome says how it ended. What cannot be started raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import Warned
from retinue.core.outcome import Outcome
from retinue.core.request import EVERYTHING, RunRequest
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.tool import Tool
from retinue.core.usage import Budget
from retinue.engine import open_project
from retinue.errors import StateError, UsageError
from retinue.runs.guard import RunGuards
from retinue.runs.handle import RunHandle
from retinue.runs.names import ToAgent, ToMain, Undelivered, route
from retinue.runs.person_prompt import Consent, PersonPrompt
from retinue.runs.record import recorded_mode
from retinue.runs.resume import find_run
from retinue.runs.supervisor import Supervisor

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog
    from retinue.capabilities.hooks.session import SessionHooks
    from retinue.capabilities.schedule.scheduler import Scheduler
    from retinue.faces.inbox import Approve, Inbox
    from retinue.log.rows import RunRow
    from retinue.runs.bus import EventBus
    from retinue.runs.node import RunNode
    from retinue.runs.rpc import Rpc
    from retinue.runs.supervisor import Supervisor


class MessageReceipt(Struct, frozen=True):
    """Which agent has a message, and how it got it. `run` is None when another process runs that agent."""

    action: Literal["prompted", "steered", "resumed", "started"]
    run_id: str
    agent: str
    run: Run | None


Run = RunHandle


class Retinue:
    """The agents of one project. Runs are tasks of this event loop and are recorded in the
    project's log; leaving the `async with` block stops what still runs."""

    def __init__(
        self,
        cwd: str | Path = ".",
        *,
        model: str | None = None,
        tools: Sequence[Tool] = (),
        agents: Mapping[str, Mapping[str, Any]] | str | None = None,
        environment: Mapping[str, str] | None = None,
        permission_mode: PermissionMode | None = None,
        approve: Approve | None = None,
        hooks: Sequence[tuple[str, Callable[[dict[str, Any]], Any]]] = (),
        trust: bool = False,
    ) -> None:
        """Open the agents of the project in `cwd`.

        `agents` are further definitions, as Claude Code's `--agents` takes them. `tools` are offered beside the
        built-in ones: make them with `retinue.tool`. `approve` is called with an `InboxItem` for everything that
        needs a person; without it `retinue.inbox` or the settings decide. `hooks` are pairs of an event and a
        function, as `retinue.hooks.on` takes them. `trust` lets what the project's own files bring (hooks, servers,
        rights) take effect without asking.
        """
        self._model = model
        self._permission_mode = permission_mode
        self._project = open_project(
            Path(cwd), environment=environment, agents_json=_json(agents), tools=tools, trust=trust
        )
        for event, function in hooks:
            self.hooks.on(event, function)
        self._supervisor = Supervisor(self._project)
        if approve is not None:
            from retinue.faces.inbox import approver

            self._project.approvers.append(approver(approve))

    @property
    def supervisor(self) -> Supervisor:
        """Return what runs the agents: for other faces, which steer and stop members of the tree."""
        return self._supervisor

    @property
    def model(self) -> str | None:
        """Return the model that runs get where nothing else names one, as it was given."""
        return self._model

    @property
    def permission_mode(self) -> PermissionMode | None:
        """Return the permission mode that runs get, as it was given; None where the settings decide."""
        return self._permission_mode

    @property
    def hooks(self) -> SessionHooks:
        """Return the hooks of this program: `retinue.hooks.on("PreToolUse", check, matcher="bash")`."""
        from retinue.capabilities.hooks.session import SessionHooks

        return self._project.part(SessionHooks)

    @property
    def agents(self) -> Catalog:
        """Return the agents as they are on disk now."""
        return self._project.catalog()

    @property
    def runs(self) -> list[RunRow]:
        """Return every run of this project in the log, newest first."""
        return self._project.log.reader.list_runs()

    @cached_property
    def inbox(self) -> Inbox:
        """Return what waits for a person, of all runs of this project: `items()`, `answer(id, choice)`,
        and `async for item in retinue.inbox`."""
        from retinue.faces.inbox import Inbox

        return Inbox(self._project)

    async def spawn(
        self,
        agent: str | AgentSpec,
        task: str,
        *,
        model: str | None = None,
        thinking: str | None = None,
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        schema: Mapping[str, Any] | None = None,
        cwd: str | Path | None = None,
        isolation: str | None = None,
        permission_mode: PermissionMode | None = None,
        background: bool = True,
        name: str | None = None,
        description: str = "",
        run_id: str | None = None,
        asked: Mapping[str, str] | None = None,
    ) -> Run:
        """Start `agent` on `task`; in the background it may have to wait for a slot.

        `limits` are this run's own (`max_turns`, `seconds`, …); `budget` is shared with all runs below it:
        `{"usd": 0.5, "spawns": 3}`. `name` is what it is called with `@`, `description` what people see of it. `run_id`
        must be new; `asked` is recorded with the run, such as `{"by": "web"}`. Raise UnknownAgentError,
        UnknownModelError, UsageError or LaunchError.
        """
        if isolation not in (None, "off", "worktree"):
            raise UsageError(f"There is no isolation '{isolation}'.", remedy="Use 'worktree', 'off' or None.")
        spec = self._project.catalog().find(agent).spec if isinstance(agent, str) else agent
        if not isinstance(spec, AgentSpec):
            raise UsageError("An agent is a name or an AgentSpec.", remedy="retinue.agents has those there are.")
        # An empty task is refused by the supervisor, whatever the agent's file would put before it.
        if isinstance(task, str) and task.strip():
            task = await self._project.with_initial_prompt(spec, task)
        pinned = EVERYTHING if model else EVERYTHING - {"model"}
        request = RunRequest(
            spec=spec,
            task=task,
            cwd=Path(cwd).resolve() if cwd else self._project.cwd,
            model=model or self._model,
            thinking=thinking,
            limits=limits or {},
            budget=_budget(budget),
            pinned=pinned,
            schema=schema if schema is not None else spec.output_schema,
            isolation="worktree" if isolation == "worktree" else None,
            permission_mode=permission_mode or self._permission_mode,
            depth=1,
            asked=asked or {},
        )
        started = await self._supervisor.start(
            request, background=background, name=name, description=description, run_id=run_id
        )
        return started.handle

    async def expand(
        self, text: str, *, ask: Consent | None = None, permission_mode: PermissionMode | None = None
    ) -> PersonPrompt:
        """Return what a person's words stand for: `/name arguments` at the start is the command or skill of that name,
        `@path` attaches a file. `ask` asks a person whether a command line of a command may run; without it such a
        command line needs a rule that allows it. Raise PromptBlockedError when one may not run."""
        return await self._project.expand_prompt(
            PersonPrompt(text, ask=ask, mode=permission_mode or self._permission_mode)
        )

    async def prompt(self, text: str | PersonPrompt, *, agent: str | None = None, **options: Any) -> Run:
        """Talk to the main agent, or to `agent` as the main agent. Words are expanded as `expand` does."""
        said = await self.expand(text) if isinstance(text, str) else text
        spec = self._project.catalog().find(agent).spec if agent else main_agent()
        run_id = options.pop("run_id", None)
        request = RunRequest(
            spec=spec,
            task=await self._project.with_initial_prompt(spec, said.render()),
            cwd=self._project.cwd,
            model=options.pop("model", None) or said.model or self._model,
            pinned=EVERYTHING,
            budget=_budget(options.pop("budget", None)),
            permission_mode=options.pop("permission_mode", None) or self._permission_mode,
            **options,
        )
        run = (await self._supervisor.start(request, run_id=run_id)).handle
        self.bring(said, run)
        return run

    def bring(self, said: PersonPrompt, run: Run) -> None:
        """Give a run the rules that a prompt brings, and say in it what could not be attached."""
        self._project.part(RunGuards).grant(run.id, said.grants)
        info = run.launch.model.info
        if not info.images and any(block.tag == "attached_image" for block in said.blocks):
            said.notes.append(f"{info.full_name} takes no images: it cannot see what you attached. Choose another one.")
        for note in said.notes:
            self._project.log.append(run.place, Warned("prompt", note))

    async def say(self, text: str, *, to: Run | str | None = None, **options: Any) -> MessageReceipt:
        """Deliver what a person types.

        `@name message` goes to that agent of the run `to` (its handle or id): a running one is steered, one that has
        ended goes on. Anything else is for the run `to` itself, or for a new main agent without one. Raise StateError
        when the agent that is meant cannot take it.
        """
        if isinstance(to, str):
            run_id = find_run(self._project.log.reader, to).id
        else:
            run_id = to.id if to is not None else ""
        main = self._supervisor.members.get(run_id)
        routed = await route(self._supervisor, main or run_id or None, text)
        match routed:
            case ToAgent(action, view):
                node = self._supervisor.members.get(view.id)
                here = node.handle if node is not None and node.live else None
                return MessageReceipt(action, view.id, view.agent, here)
            case Undelivered(reason):
                raise StateError(reason, remedy="Say it again when that agent has ended, or leave out the @name.")
            case ToMain(rest):
                return await self._say_to_main(main, run_id, rest, options)
            case _:
                assert_never(routed)

    async def _say_to_main(
        self, main: RunNode | None, run_id: str, text: str, options: Mapping[str, Any]
    ) -> MessageReceipt:
        if not run_id:
            run = await self.prompt(text, **options)
            return MessageReceipt("prompted", run.id, run.agent, run)
        meant = await self.expand(text)
        if main is not None and main.live and self._supervisor.steer(main, meant.render()):
            self.bring(meant, main.handle)
            return MessageReceipt("steered", main.id, main.handle.agent, main.handle)
        run = await self.resume(run_id, meant, **options)
        return MessageReceipt("resumed", run.id, run.agent, run)

    async def resume(
        self,
        run_id: str,
        prompt: str | PersonPrompt | None = None,
        *,
        model: str | None = None,
        thinking: str | None = None,
        permission_mode: PermissionMode | None = None,
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | Mapping[str, float] | None = None,
    ) -> Run:
        """Go on with a run of the log, from this process or any earlier one: by its id, the
        beginning of it, or `@name`. What `limits` and `budget` name replaces what it had."""
        found = find_run(self._project.log.reader, run_id)
        said = prompt if isinstance(prompt, PersonPrompt) else PersonPrompt(prompt or "")
        words = None if prompt is None else said.render()
        before = recorded_mode(self._project.log.reader, found.id)
        again = await self._supervisor.resume(
            found.id,
            words,
            model=model or said.model,
            thinking=thinking,
            mode=permission_mode,
            limits=limits,
            budget=_budget(budget),
        )
        self.bring(said, again.handle)
        if permission_mode is not None and again.depth == 0:
            from retinue.runs.plan_mode import announce_mode

            announce_mode(again, before)
        return again.handle

    async def change_mode(self, run: Run, mode: PermissionMode) -> None:
        """Give the main run `run` another permission mode, from its next call on. Raise StateError for a run
        that does not live here or has a parent."""
        node = self._supervisor.members.get(run.id)
        if node is None or not node.live or node.plan_mode is None:
            raise StateError(
                "The permission mode of this run cannot be changed.",
                remedy="Only a main run that works in this process has a mode that can be changed.",
            )
        await node.plan_mode.change(mode)

    @property
    def events(self) -> EventBus:
        """Return what happens to agents, by name, for programs: `retinue.events.on("subagents:completed", …)`."""
        return self._supervisor.bridge.bus

    @property
    def rpc(self) -> Rpc:
        """Return the calls for other programs: ping, spawn and stop with their envelopes."""
        return self._supervisor.bridge.rpc

    @property
    def schedules(self) -> Scheduler:
        """Return agents that start at a time: `await retinue.schedules.add("Explore", "…", "0 0 9 * * *")`.
        After `retinue.schedules.begin()` this process fires them."""
        schedules: Scheduler = self._supervisor.schedules
        return schedules

    async def wait_all(self) -> None:
        """Wait until no run lives or waits any more."""
        await self._supervisor.wait_all()

    def to_background(self, run: Run) -> bool:
        """Let the run that waits for `run` go on; it is told when `run` has ended. Return False when
        nobody waits for it."""
        node = self._supervisor.members.get(run.id)
        return node is not None and self._supervisor.detach(node)

    async def stop_tree(self, run: Run, reason: str = "Stopped by the user.") -> int:
        """Stop a run and everything below it, also background runs, wait until each has ended, and return their
        number. `run.stop()` stops one with its foreground agents."""
        return await self._supervisor.end_tree(self._supervisor.members[run.id], reason)

    async def stop_all(self, reason: str = "Stopped by the user.") -> int:
        return await self._supervisor.stop_all(reason)

    async def __aenter__(self) -> Retinue:
        await self._supervisor.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._supervisor.close()


def run(agent: str | AgentSpec, task: str, *, cwd: str | Path = ".", **options: Any) -> Outcome:
    """Run one agent and wait: for scripts without an event loop of their own."""

    async def work() -> Outcome:
        async with Retinue(cwd) as retinue:
            return await (await retinue.spawn(agent, task, **options)).wait()

    return asyncio.run(work())


def main_agent() -> AgentSpec:
    """Return the agent a person talks to when they name none."""
    from retinue.agents.parse import parse_file

    path = Path(__file__).parent.parent / "builtin" / "prompts" / "main.md"
    spec = parse_file(path, dialect="retinue", source="builtin").spec
    if spec is None:
        raise RuntimeError(f"{path} does not load")
    return replace(spec, path=None)


def _budget(given: Budget | Mapping[str, float] | None) -> Budget | None:
    if given is None or isinstance(given, Budget):
        return given
    return Budget.read(given)


def _json(agents: Mapping[str, Mapping[str, Any]] | str | None) -> str | None:
    if agents is None or isinstance(agents, str):
        return agents
    import orjson

    return orjson.dumps(agents).decode()
