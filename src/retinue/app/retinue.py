"""Retinue as a library.

    async with Retinue(cwd=".") as retinue:
        run = await retinue.spawn("Explore", "Find where requests are authenticated")
        async for event in run.events(): ...
        outcome = await run.wait()

A failed run does not raise; its outcome states how it ended. A run that cannot be started raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from retinue.app.dialogue import Dialogue, SpawnOptions, budget_of, with_prompt
from retinue.cluster import open_project
from retinue.core.outcome import Outcome, Value
from retinue.core.person_prompt import PersonPrompt
from retinue.core.request import EVERYTHING, ClusterPlacement, RunRequest
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.tool import Tool
from retinue.core.usage import Budget
from retinue.errors import StateError, UsageError
from retinue.models.keys import environment as process_environment
from retinue.runs.project import Project as Project
from retinue.runs.run import Run as Run
from retinue.runs.supervisor import Supervisor as Supervisor
from retinue.settings.places import DATABASE_VARIABLE

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog
    from retinue.app.inbox import Approve, Inbox
    from retinue.app.output_type import Schema
    from retinue.app.session_options import SessionOptions
    from retinue.app.single_run import MapProgress
    from retinue.capabilities.hooks import SessionHooks
    from retinue.capabilities.schedule.scheduler import Scheduler
    from retinue.core.run_state import RunState
    from retinue.models.protocol import Model
    from retinue.runs.bus import EventBus
    from retinue.runs.rpc import Rpc
    from retinue.runs.supervisor import Supervisor


class Retinue(Dialogue):
    """The agents of one project. Runs are tasks of this event loop and are recorded in the project's log. Leaving the
    `async with` block stops the running ones."""

    def __init__(
        self,
        cwd: str | Path = ".",
        *,
        model: str | Model | None = None,
        tools: Sequence[Tool] = (),
        agents: Mapping[str, Mapping[str, Any]] | str | None = None,
        environment: Mapping[str, str] | None = None,
        permission_mode: PermissionMode | None = None,
        allowed_tools: Sequence[str] = (),
        disallowed_tools: Sequence[str] = (),
        add_dirs: Sequence[str | Path] = (),
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        settings: Mapping[str, Any] | None = None,
        approve: Approve | None = None,
        hooks: Sequence[tuple[str, Callable[[dict[str, Any]], Any]]] = (),
        trust: bool = False,
        database: str | None = None,
    ) -> None:
        """Open the agents of the project in `cwd`.

        `model` is for runs that name none. An object with the protocol of `retinue.models.protocol`, such as a
        `ScriptedModel`, is for every run that `spawn` gives no other, whatever the agents' files say. `tools` are
        offered beside the built-in ones: make them with `retinue.tool`. `agents` are further definitions, as Claude
        Code's `--agents` takes them. `allowed_tools` and `disallowed_tools` are permission rules, `add_dirs` further
        folders to work in, `mcp_servers` servers as in `.mcp.json`; `settings` go before those of files. `approve` is
        called with an `InboxItem` for everything that needs a person; without it `retinue.inbox` or the settings
        decide. `hooks` are pairs of an event and a function, as `retinue.hooks.on` takes them. `trust` lets what the
        project's own files bring (hooks, servers, rights) take effect without asking. `database` is the URL of the
        PostgreSQL database that machines share, as RETINUE_DATABASE names it.
        """
        if database is not None:
            environment = {**(environment or process_environment()), DATABASE_VARIABLE: database}
        self._permission_mode = permission_mode
        self._project = open_project(
            Path(cwd), environment=environment, agents_json=_json(agents), tools=tools, trust=trust
        )
        self._model = self._name_of(model)
        if model is not None and not isinstance(model, str):
            self._project.program_models.default = self._model
        if allowed_tools or disallowed_tools or add_dirs or mcp_servers or settings:
            from retinue.app.session_options import SessionOptions

            self.set_options(
                SessionOptions(
                    allowed_tools=allowed_tools,
                    disallowed_tools=disallowed_tools,
                    add_dirs=add_dirs,
                    mcp_servers=mcp_servers or {},
                    settings=settings or {},
                )
            )
        for event, function in hooks:
            self.hooks.on(event, function)
        self._supervisor = Supervisor(self._project)
        self._supervisor.permission_mode = permission_mode
        if approve is not None:
            from retinue.app.inbox import approver

            self._project.approvers.append(approver(approve))

    def __dir__(self) -> list[str]:
        # For completion at a prompt or in a notebook.
        internal = ("bring", "set_options", "supervisor")
        return [name for name in super().__dir__() if name not in internal and not name.startswith("_Retinue")]

    def set_options(self, options: SessionOptions) -> None:
        """Apply `options` to this session. Raise UsageError or ConfigurationError for invalid ones."""
        from retinue.app.session_options import apply_options

        apply_options(options, self._project)

    @property
    def supervisor(self) -> Supervisor:
        """Return the supervisor of the runs, for front ends that steer and stop members of the tree."""
        return self._supervisor

    @property
    def model(self) -> str | None:
        """Return the default model of runs, as it was passed."""
        return self._model

    @property
    def permission_mode(self) -> PermissionMode | None:
        """Return the permission mode of runs, as it was passed; None if the settings decide."""
        return self._permission_mode

    @property
    def hooks(self) -> SessionHooks:
        """Return the hooks of this program: `retinue.hooks.on("PreToolUse", check, matcher="bash")`."""
        from retinue.capabilities.hooks import SessionHooks

        return self._project.part(SessionHooks)

    @property
    def agents(self) -> Catalog:
        """Return the agents as they are on disk now."""
        return self._project.catalog()

    @property
    def runs(self) -> list[RunState]:
        """Return every run of this project in the log, newest first."""
        return self._project.log.reader.list_runs()

    @cached_property
    def inbox(self) -> Inbox:
        """Return the inbox of all runs of this project: `items()`, `answer(id, choice)`, and `async for item in
        retinue.inbox`."""
        from retinue.app.inbox import Inbox

        return Inbox(self._project)

    async def spawn(
        self,
        agent: str | AgentSpec,
        task: str | PersonPrompt,
        *,
        model: str | Model | None = None,
        thinking: str | None = None,
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        schema: Schema[Value] | None = None,
        cwd: str | Path | None = None,
        isolation: str | None = None,
        permission_mode: PermissionMode | None = None,
        append_system_prompt: str | None = None,
        placement: str | None = None,
        background: bool = True,
        name: str | None = None,
        description: str = "",
        run_id: str | None = None,
        asked: Mapping[str, str] | None = None,
    ) -> Run[Value]:
        """Start `agent` on `task`, which is text or a result of `expand`. A background run may have to wait for a slot.

        `schema` is the type of the result (a pydantic model, dataclass, TypedDict, or a list of one) or a JSON Schema:
        the outcome's `value` has that type, and the text is its JSON. `placement` is `local`, `cluster` or
        `cluster:gpu,linux`, which means any worker with these labels.

        `limits` apply to this run (`max_turns`, `seconds`, …); `budget` is shared with all runs below it: `{"usd": 0.5,
        "spawns": 3}`. `name` is its `@` name, `description` is shown to people. `run_id` must be new. `asked` is
        recorded with the run, such as `{"by": "web"}`. Raise UnknownAgentError, UnknownModelError, UsageError or
        LaunchError.
        """
        if isolation not in (None, "off", "worktree"):
            raise UsageError(f"There is no isolation '{isolation}'.", remedy="Use 'worktree', 'off' or None.")
        spec = self._project.catalog().find(agent).spec if isinstance(agent, str) else agent
        if not isinstance(spec, AgentSpec):
            raise UsageError("An agent is a name or an AgentSpec.", remedy="retinue.agents has those there are.")
        # The supervisor refuses an empty task, even if the agent's file adds text before it.
        prompt = task if isinstance(task, PersonPrompt) else None
        if isinstance(task, PersonPrompt):
            task = task.render()
        if isinstance(task, str) and task.strip():
            task = await self._project.with_initial_prompt(spec, task)
        request = RunRequest(
            spec=with_prompt(spec, append_system_prompt),
            task=task,
            cwd=Path(cwd).resolve() if cwd else self._project.cwd,
            images=() if prompt is None else tuple(prompt.images),
            model=self._name_of(model) or self._model,
            thinking=thinking,
            limits=limits or {},
            budget=budget_of(budget),
            pinned=EVERYTHING if model else EVERYTHING - {"model"},
            schema=spec.output_schema,
            isolation="worktree" if isolation == "worktree" else None,
            permission_mode=permission_mode or self._permission_mode,
            placement=None if placement is None else ClusterPlacement.read(placement),
            depth=1,
            asked=asked or {},
        )
        return await self._start(
            request, prompt, schema, background=background, name=name, description=description, run_id=run_id
        )

    async def map(
        self,
        agent: str | AgentSpec,
        tasks: Sequence[str],
        *,
        limit: int = 4,
        progress: Callable[[MapProgress], object] | bool = False,
        schema: Schema[Value] | None = None,
        **options: Unpack[SpawnOptions],
    ) -> list[Outcome[Value]]:
        """Run `agent` on each of `tasks`, `limit` at a time, and return their outcomes in the order of the tasks.

        `progress` is called with a `MapProgress` whenever a run ends; True prints a line on standard error. `limits`
        and `budget` apply to each run. The other options are those of `spawn`. If a task cannot be started, raise as
        `spawn` does and stop the running runs.
        """
        from retinue.app.single_run import map_tasks

        async def start(task: str) -> Run[Value]:
            return await self.spawn(agent, task, schema=schema, **options)

        return await map_tasks(tasks, start, limit=limit, progress=progress)

    @property
    def events(self) -> EventBus:
        """Return the events of agents by name, for programs: `retinue.events.on("subagents:completed", …)`."""
        return self._supervisor.bridge.bus

    @property
    def rpc(self) -> Rpc:
        """Return the calls for other programs: ping, spawn and stop, with their envelopes."""
        return self._supervisor.bridge.rpc

    @property
    def schedules(self) -> Scheduler:
        """Return the scheduled jobs: `await retinue.schedules.add("Explore", "…", "0 0 9 * * *")`. After
        `retinue.schedules.begin()` this process starts them when they are due."""
        from retinue.capabilities.schedule import scheduler_of

        return scheduler_of(self._supervisor)

    async def wait_all(self) -> None:
        """Wait until no run is running or queued."""
        await self._supervisor.wait_all()

    def to_background(self, run: Run[Any]) -> bool:
        """Let the parent of `run` continue; it is notified when `run` ends. Return False if no run waits for it."""
        node = self._supervisor.members.get(run.id)
        return node is not None and self._supervisor.detach(node)

    async def stop_tree(self, run: Run[Any], reason: str = "Stopped by the user.") -> int:
        """Stop a run and everything below it, including background runs, wait until each has ended, and return their
        number. `run.stop()` stops a run with its foreground agents."""
        return await self._supervisor.end_tree(self._supervisor.members[run.id], reason)

    async def stop_all(self, reason: str = "Stopped by the user.") -> int:
        return await self._supervisor.stop_all(reason)

    async def __aenter__(self) -> Retinue:
        await self._supervisor.__aenter__()
        return self

    async def __aexit__(self, kind: object = None, error: BaseException | None = None, *_: object) -> None:
        try:
            await self._supervisor.close()
        except StateError:
            # The first error is more useful than the failure to close the log.
            if not isinstance(error, StateError):
                raise


def _json(agents: Mapping[str, Mapping[str, Any]] | str | None) -> str | None:
    if agents is None or isinstance(agents, str):
        return agents
    import orjson

    return orjson.dumps(agents).decode()
