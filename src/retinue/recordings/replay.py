"""Replay: a cassette is played again and compared exactly.

The first run has its recorded definition, task and limits, and the model gives the recorded answers. With recorded
tools nothing is executed: each call gets its recorded result inside the permission gate, so that a replay asks the same
questions and is refused the same calls. Tools that start agents or only write to the log really run. With live tools
all calls run in a temporary copy of the project at the recorded commit, and their results show what has changed since.
The new run is exported like the old one, and both are compared.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from retinue.cluster import open_project
from retinue.core.events import MessageAdded, RunCreated, ToolEnded
from retinue.core.messages import Image
from retinue.core.request import EVERYTHING, RunRequest
from retinue.core.spec import AgentSpec
from retinue.core.tool import Tool, ToolContext, ToolOutput, Wrap, failed
from retinue.core.usage import Budget
from retinue.recordings.cassette import Cassette, CassetteError, RecordedRun, export_cassette, parse_cassette
from retinue.recordings.compare import Comparison, compare, outcome_of_run
from retinue.recordings.portable import MachineFolders, localize
from retinue.recordings.recorded_model import RecordedModels
from retinue.recordings.recorded_people import answer_inbox, recorded_answers
from retinue.recordings.workspace import FixtureError, RepositoryFixture, clear_leftovers, copy_fixture
from retinue.runs.capability import Capability, RunPart
from retinue.runs.supervisor import Supervisor
from retinue.settings.places import home, repository_root

if TYPE_CHECKING:
    from retinue.runs.run import Run


_ALWAYS_LIVE_TOOLS = frozenset(
    {"todo", "ask_user", "ask_parent", "exit_plan", "get_subagent_result", "list_subagents", "clear_subagents"}
)


class RecordedToolsCapability(Capability):
    """Replaces tools by their recorded results in all runs of a project that plays `models`."""

    def __init__(self, models: RecordedModels) -> None:
        self._models = models

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        def replace_tool(tool: Tool) -> Tool:
            if "spawn" in tool.spec.effects or tool.spec.name in _ALWAYS_LIVE_TOOLS:
                return tool
            return _RecordedTool(tool, node.id, self._models)

        def wrap(inner: Wrap) -> Wrap:
            return lambda tools: tuple(map(replace_tool, inner(tools)))

        return RunPart(wrap=wrap)


class _RecordedTool:
    def __init__(self, tool: Tool, run_id: str, models: RecordedModels) -> None:
        self.spec = tool.spec
        self._run_id = run_id
        self._models = models

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        recorded = self._models.recorded(self._run_id)
        for body in recorded.bodies if recorded is not None else ():
            if isinstance(body, ToolEnded) and body.call_id == call_id:
                ended = self._models.localized(body)
                return ToolOutput(ended.result.content, is_error=ended.result.is_error, effect=ended.effect)
        return failed("The recording has no result of this call.")


ToolMode = Literal["recorded", "live"]
_REPLAY_SECONDS = 600.0


async def play_again(
    cassette: Cassette, cwd: Path, tools: ToolMode, environment: Mapping[str, str]
) -> tuple[Comparison, tuple[str, ...]]:
    """Play a cassette. Return how the new run differs from the recorded one, and notes on what could not be compared.
    The project is in `cwd`. Raise FixtureError for live tools without the recorded commit, and the errors of a
    launch."""
    await asyncio.to_thread(clear_leftovers)
    with tempfile.TemporaryDirectory(prefix="retinue-replay-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve()
        notes = await asyncio.to_thread(_prepare, cassette, cwd, folder / "work", tools, environment)
        again, problems = await _play(cassette, folder, tools, environment)
    ended = outcome_of_run(cassette.first)
    if ended is not None and ended.ended == "stopped":
        notes.append("the recorded run was stopped, which a replay does not repeat")
    return compare(cassette, again), (*notes, *problems)


def _prepare(cassette: Cassette, cwd: Path, work: Path, tools: ToolMode, environment: Mapping[str, str]) -> list[str]:
    """Create the working folder, and return notes about it."""
    commit = cassette.head.commit
    if commit is None and tools == "live":
        reason = "The recording does not say at which commit it began, so its tools cannot work again."
        raise FixtureError(reason, remedy="Replay it with --tools recorded.")
    if commit is not None and (tools == "live" or repository_root(cwd) is not None):
        try:
            copy_fixture(RepositoryFixture(".", commit), cwd, work, environment, commit)
            return []
        except FixtureError:
            if tools == "live":
                raise
    work.mkdir(parents=True)
    return ["the project is not here at the recorded commit: the replay works in an empty folder"]


async def _play(
    cassette: Cassette, folder: Path, tools: ToolMode, environment: Mapping[str, str]
) -> tuple[Cassette, list[str]]:
    """Return the recording of the new run, and the requests that the old recording could not answer."""
    work, state = folder / "work", folder / "state"
    folders = MachineFolders(str(work), str(state), str(home(environment)))
    models = RecordedModels(cassette, folders)
    innermost = (RecordedToolsCapability(models),) if tools == "recorded" else ()
    project = open_project(work, environment=environment, state=state, innermost=innermost)
    project.model_source = models
    answer_inbox(project, recorded_answers(cassette))
    async with Supervisor(project) as supervisor:
        request = request_of(localize(cassette.first.created, folders), work)
        request = replace(request, images=attached_images(cassette.first))
        node = await supervisor.start(request, background=False)
        await node.wait()
        await supervisor.wait_all()
        await project.log.flush()
        reader = project.log.reader
        data = export_cassette(reader, reader.run(node.id), home(environment), project.redactor)
    return parse_cassette(data, "the replay"), models.problems


def attached_images(run: RecordedRun) -> tuple[Image, ...]:
    """Return the images that a person attached to the task of a recorded run, as the cassette has them."""
    for event in run.events:
        if isinstance(event.body, MessageAdded) and event.body.message.origin == "task":
            return tuple(content for content in event.body.message.content if isinstance(content, Image))
    return ()


def request_of(created: RunCreated, work: Path) -> RunRequest:
    """Return the request of a recorded run. Raise CassetteError for a definition of another version."""
    options = created.options
    try:
        spec = msgspec.convert(created.spec, AgentSpec)
    except ValueError as error:
        reason = f"The recorded agent was written by a version that this one cannot read ({error})."
        raise CassetteError(reason, remedy="Export the run again.") from error
    return RunRequest(
        # The copy of the project has no consent. The recorded run used only rights that had consent.
        spec=replace(spec, path=None),
        task=created.task,
        cwd=work,
        thinking=options.thinking,
        limits={"seconds": _REPLAY_SECONDS, **options.limits},
        budget=Budget.read(options.budget) if options.budget else None,
        pinned=EVERYTHING - {"model"},
        schema=options.schema,
        permission_mode=options.permission_mode,
        depth=created.depth,
    )
