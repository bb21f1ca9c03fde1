"""Messages of a person to the main agent of a project and to the agents that it started."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.catalog import main_agent as main_agent
from retinue.core.events import Warned
from retinue.core.outcome import Value
from retinue.core.person_prompt import Consent, PersonPrompt, PromptBlock, explain_unknown, parse_call
from retinue.core.request import EVERYTHING, RunRequest
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.usage import Budget
from retinue.errors import StateError
from retinue.runs.guard import RunGuards
from retinue.runs.messages import route
from retinue.runs.record import recorded_mode
from retinue.runs.resume import find_run
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.app.output_type import OutputType, Schema
    from retinue.models.protocol import Model
    from retinue.recordings.fork import Fork
    from retinue.runs.project import Project
    from retinue.runs.supervisor import Supervisor


class MessageReceipt(Struct, frozen=True):
    """The agent that received a message, and the action taken. `run` is None if another process runs that agent."""

    action: Literal["prompted", "steered", "resumed", "started"]
    run_id: str
    agent: str
    run: Run[Any] | None
    handle: str = ""
    """The `@` name of the agent, if the message was addressed to it."""


class PersonLine(Struct, frozen=True):
    """A line that a person typed: a command of the front end with its arguments in `text`, an unknown command with the
    error in `text`, a shell command, a note for an instruction file, or a message for an agent."""

    kind: Literal["command", "unknown", "shell", "note", "words"]
    text: str
    name: str = ""


class SpawnOptions(TypedDict, total=False):
    """Options of one run. `Retinue.spawn` describes them."""

    model: str | Model | None
    thinking: str | None
    limits: Mapping[str, float | None] | None
    budget: Budget | Mapping[str, float] | None
    isolation: str | None
    permission_mode: PermissionMode | None
    append_system_prompt: str | None


class Dialogue:
    """The part of `Retinue` that delivers messages. `Retinue` opens the project."""

    _project: Project
    _supervisor: Supervisor
    _model: str | None
    _permission_mode: PermissionMode | None

    def _name_of(self, model: str | Model | None) -> str | None:
        if model is None or isinstance(model, str):
            return model
        return self._project.program_models.add(model)

    async def expand(
        self, text: str, *, ask: Consent | None = None, permission_mode: PermissionMode | None = None
    ) -> PersonPrompt:
        """Expand a message: `/name arguments` at its start is the command or skill of that name, `@path` attaches a
        file. `ask` asks a person whether a shell command in a command file may run; without it, such a shell command
        needs an allowing rule. Raise PromptBlockedError if one may not run."""
        return await self._project.expand_prompt(
            PersonPrompt(text, ask=ask, mode=permission_mode or self._permission_mode)
        )

    async def prompt(
        self,
        text: str | PersonPrompt,
        *,
        agent: str | None = None,
        model: str | Model | None = None,
        thinking: str | None = None,
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        permission_mode: PermissionMode | None = None,
        schema: Schema[Value] | None = None,
        append_system_prompt: str | None = None,
        attached: Sequence[PromptBlock] = (),
        run_id: str | None = None,
        asked: Mapping[str, str] | None = None,
    ) -> Run[Value]:
        """Start a conversation with the main agent, or with `agent` as the main agent. The text is expanded as `expand`
        does; `attached` is appended unchanged."""
        prompt = await self.expand(text) if isinstance(text, str) else text
        prompt.blocks += attached
        spec = self._project.catalog().find(agent).spec if agent else main_agent()
        request = RunRequest(
            spec=with_prompt(spec, append_system_prompt),
            task=await self._project.with_initial_prompt(spec, prompt.render()),
            cwd=self._project.cwd,
            images=tuple(prompt.images),
            model=self._name_of(model) or prompt.model or self._model,
            thinking=thinking,
            limits=limits or {},
            pinned=EVERYTHING,
            budget=budget_of(budget),
            permission_mode=permission_mode or self._permission_mode,
            asked=asked or {},
        )
        return await self._start(request, prompt, schema, run_id=run_id)

    async def _start(
        self,
        request: RunRequest,
        prompt: PersonPrompt | None,
        schema: Schema[Value] | None,
        *,
        run_id: str | None,
        background: bool = False,
        name: str | None = None,
        description: str = "",
    ) -> Run[Value]:
        """Start a run whose result has the type `schema`, and attach the prompt to it."""
        output = None if schema is None else output_type_of(schema)
        if output is not None:
            request = replace(request, schema=output.schema, accept=output.read)
        run = await self._supervisor.start(
            request, run_id=run_id, background=background, name=name, description=description
        )
        if output is not None and output.read is not None:
            run.read_value(output.read)
        if prompt is not None:
            self.bring(prompt, run)
        return run

    def bring(self, prompt: PersonPrompt, run: Run[Any]) -> None:
        """Grant a run the rules that a prompt brings, and record a warning for each attachment that failed."""
        self._project.part(RunGuards).grant(run.id, prompt.grants)
        info = run.launch.model.info
        if not info.images and any(block.tag == "attached_image" for block in prompt.blocks):
            prompt.notes.append(f"{info.full_name} accepts no images, so it cannot see yours. Choose another model.")
        for note in prompt.notes:
            self._project.log.append(run.place, Warned("prompt", note))

    async def say(
        self,
        text: str,
        *,
        to: Run[Any] | str | None = None,
        model: str | Model | None = None,
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        attached: Sequence[PromptBlock] = (),
    ) -> MessageReceipt:
        """Deliver a message that a person typed.

        `@name message` goes to that agent of the run `to` (its handle or id): a running agent is steered, one that has
        ended is resumed. Any other message goes to the run `to`, or without one to a new main agent. `attached` is
        appended unchanged. `model`, `limits` and `budget` apply to a run that is started or resumed. Raise StateError
        if the agent cannot receive the message.
        """
        if isinstance(to, str):
            run_id = find_run(self._project.log.reader, to).id
        else:
            run_id = to.id if to is not None else ""
        routed = await self.address(text, run_id or None, attached)
        if isinstance(routed, MessageReceipt):
            return routed
        prompt = await self.expand(routed)
        prompt.blocks += attached
        main = self._supervisor.members.get(run_id)
        if not run_id:
            run = await self.prompt(prompt, model=model, limits=limits, budget=budget)
            return MessageReceipt("prompted", run.id, run.agent, run)
        if main is not None and main.live and self._supervisor.steer(main, prompt.render(), prompt.images):
            self.bring(prompt, main)
            return MessageReceipt("steered", main.id, main.agent, main)
        run = await self.resume(run_id, prompt, model=model, limits=limits, budget=budget)
        return MessageReceipt("resumed", run.id, run.agent, run)

    async def address(
        self, text: str, main_id: str | None, attached: Sequence[PromptBlock] = ()
    ) -> MessageReceipt | str:
        """Deliver `@name message`, with what is `attached`, to that agent of the main run. Return the text if it is for
        the main run itself. Raise StateError if the agent cannot receive it."""
        behind = "".join(f"\n\n{block.render()}" for block in attached)
        routed = await route(self._supervisor, main_id, f"{text}{behind}")
        if isinstance(routed, str):
            return routed.removesuffix(behind)
        run = self._supervisor.members.get(routed.run.id)
        here = run if run is not None and run.live else None
        agent = routed.run.agent
        return MessageReceipt(routed.action, routed.run.id, agent, here, routed.run.name or agent)

    def read_line(self, text: str, own: Collection[str] = ()) -> PersonLine:
        """Classify a line by its first character. `own` are the commands of the front end."""
        called = parse_call(text)
        if called is not None:
            name, arguments = called
            if name in own:
                return PersonLine("command", arguments, name)
            problem = explain_unknown(name, self._project.prompt_commands(), own)
            return PersonLine("words", text) if problem is None else PersonLine("unknown", problem, name)
        if text.startswith("!") and text[1:].strip():
            return PersonLine("shell", text[1:].strip())
        if text.startswith("#") and "\n" not in text and text.strip("# "):
            return PersonLine("note", text.lstrip("#").strip())
        return PersonLine("words", text)

    async def resume(
        self,
        run_id: str,
        prompt: str | PersonPrompt | None = None,
        *,
        model: str | Model | None = None,
        thinking: str | None = None,
        permission_mode: PermissionMode | None = None,
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | Mapping[str, float] | None = None,
    ) -> Run[Any]:
        """Resume a run from the log, of this process or an earlier one: by its id, a prefix of it, or `@name`. `limits`
        and `budget` replace the earlier values that they name."""
        row = find_run(self._project.log.reader, run_id)
        person_prompt = prompt if isinstance(prompt, PersonPrompt) else PersonPrompt(prompt or "")
        text = None if prompt is None else person_prompt.render()
        mode_before = recorded_mode(self._project.log.reader, row.id)
        run = await self._supervisor.resume(
            row.id,
            text,
            images=person_prompt.images,
            model=self._name_of(model) or person_prompt.model,
            thinking=thinking,
            mode=permission_mode,
            limits=limits,
            budget=budget_of(budget),
        )
        self.bring(person_prompt, run)
        if permission_mode is not None and run.depth == 0:
            from retinue.runs.plan_mode import announce_mode

            announce_mode(run, mode_before)
        return run

    async def fork(
        self, run_id: str, at: int, *, edit: str | None = None, keep_files: bool = False, by: str = ""
    ) -> Fork:
        """Create a new run from the events of `run_id` up to event `at`; `resume` continues it.

        `edit` is said next, or replaces the message at `at`. Files that the old run has changed since are restored
        unless `keep_files`. Raise UsageError for a moment before the first message, and StateError while the old run is
        running.
        """
        from retinue.recordings.fork import fork_run

        return await fork_run(self._project, run_id, at, edit=edit, keep_files=keep_files, by=by)

    async def change_mode(self, run: Run[Any], mode: PermissionMode) -> None:
        """Change the permission mode of the main run `run`, from its next call on. Raise StateError for a run of
        another process and for one that has a parent."""
        node = self._supervisor.members.get(run.id)
        if node is None or not node.live or node.plan_mode is None:
            raise StateError(
                "The permission mode of this run cannot be changed.",
                remedy="Only a main run that works in this process has a mode that can be changed.",
            )
        await node.plan_mode.change(mode)


def output_type_of(schema: Any) -> OutputType[Any]:
    from retinue.app.output_type import output_type

    return output_type(schema)


def with_prompt(spec: AgentSpec, appendix: str | None) -> AgentSpec:
    """Return the agent with `appendix` appended to its prompt."""
    if not appendix:
        return spec
    return replace(spec, prompt=f"{spec.prompt}\n\n{appendix}".lstrip("\n"))


def budget_of(budget: Budget | Mapping[str, float] | None) -> Budget | None:
    if budget is None or isinstance(budget, Budget):
        return budget
    return Budget.read(budget)
