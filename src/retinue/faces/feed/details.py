"""What is asked about one run or one project: its conversation, effects, changes, agents, models, cost, health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from retinue.capabilities.audit.report import RunEffects
from retinue.core.events import AssistantEnded, RunCreated
from retinue.core.format import relative
from retinue.errors import StateError, UsageError
from retinue.faces.feed.feed import Feed
from retinue.faces.feed.views import (
    AgentDetail,
    AgentList,
    AgentView,
    CostList,
    DiffList,
    DoctorReport,
    DoctorRow,
    EffectList,
    FailedFileView,
    LintList,
    ModelList,
    ModelView,
    OpenAIModel,
    PromptPartView,
    PromptPreview,
    RunDetail,
    ScheduleList,
    ScheduleView,
    SearchList,
    ToolCost,
    TranscriptView,
    run_view,
)
from retinue.guard.redact import sanitise
from retinue.log import activity
from retinue.log.activity import By
from retinue.log.open_calls import describe_call
from retinue.log.overview import describe_activity, run_labels, run_tools, search, tree_budgets, tree_usage
from retinue.log.query import LogReader
from retinue.log.rows import RunRow
from retinue.log.schedules import ScheduledJob, jobs
from retinue.log.transcript import TranscriptLines
from retinue.loop.result import RunReport, display_items, result_object
from retinue.models.keys import environment as process_environment


async def describe_run(feed: Feed, row: RunRow) -> RunDetail:
    """Return one run whole."""

    def read(reader: LogReader) -> RunDetail:
        first = reader.created(row.id)
        asked = first.options.get("asked") if first is not None else None
        unknown = reader.last_turn(row.id).unknown if row.state == "interrupted" else ()
        doing = describe_activity(reader, [row]).get(row.id, "")
        return RunDetail(
            run_view(row, run_labels(reader, [row.id]).get(row.id), doing),
            first.task if first is not None else row.task,
            reader.outcome(row.id),
            reader.partial(row.id),
            asked.get("by") if asked else None,
            [describe_call(call) for call in unknown],
            str(first.spec.get("prompt") or "") if first is not None else "",
            run_tools(reader, row.id),
            first.options.get("budget") or {} if first is not None else {},
            tree_usage(reader, row.id),
        )

    found: RunDetail = await feed.read(read)
    return found


async def describe_result(feed: Feed, row: RunRow, *, verbose: bool = False) -> dict[str, Any]:
    """Return what programs read of a run: `content` and `details`, as `retinue run --json` prints them, with the
    record of what the run and those below it really did. Without `verbose` the single words and calls are left out.
    Raise StateError for a run that has not ended."""
    from retinue.faces.cli.runs_changes import run_effects

    def read(reader: LogReader) -> dict[str, Any]:
        outcome = reader.outcome(row.id)
        if outcome is None:
            raise StateError(f"Run {row.id} has not ended.", remedy="Wait for it, or resume it if it is interrupted.")
        types = ("run.created", "assistant.ended")
        events = [event.body for event in reader.stream(row.id, types=types, limit=None if verbose else 1)]
        report = RunReport(
            agent=row.agent,
            task=next((body.task for body in events if isinstance(body, RunCreated)), row.task),
            outcome=outcome,
            session_file=row.transcript,
            display_items=display_items(body.message for body in events if isinstance(body, AssistantEnded)),
        )
        environment = process_environment()
        made = result_object(report, run_id=row.id, sanitise=lambda text: sanitise(text, environment, feed.redact))
        below = [run_effects(reader, feed.folder, each) for each in reader.tree(row)]
        made["details"] |= {"status": outcome.ended, "record": _record(below, row.cwd)}
        return made

    found: dict[str, Any] = await feed.read(read)
    return found


def _record(runs: Iterable[RunEffects], cwd: str) -> dict[str, Any]:
    """Return what runs really touched, counted from effects and not from their words, each thing once."""
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    hosts: dict[str, None] = {}
    commands, denials, unknown = [], [], []
    for call in (call for run in runs for turn in run.turns for call in turn.calls):
        if call.denied is not None:
            denials.append(f"{call.tool}: {call.denied}")
            continue
        read |= dict.fromkeys(relative(path, cwd) for path in call.reads)
        written |= dict.fromkeys(relative(file.path, cwd) for file in call.writes)
        hosts |= dict.fromkeys(call.hosts)
        if call.status == "unknown":
            unknown.append(f"{call.tool}: {call.command}" if call.command is not None else call.tool)
        elif call.command is not None:
            commands.append({"command": call.command, "exitCode": call.exit_code})
    return {
        "filesRead": list(read),
        "filesWritten": list(written),
        "commands": commands,
        "hosts": list(hosts),
        "denials": denials,
        "unknownEffects": unknown,
    }


async def read_transcript(feed: Feed, row: RunRow, *, after: int, limit: int) -> TranscriptView:
    """Return the conversation from the event `after` on, of at most `limit` events."""

    def read(reader: LogReader) -> TranscriptView:
        events = reader.events(row.id, after, limit)
        lines = TranscriptLines()
        made: list[Any] = []
        for event in events:
            made += [orjson.loads(line) for line in lines.take(event)]
        more = events[-1].seq if len(events) == limit else None
        return TranscriptView(row.id, made, more)

    found: TranscriptView = await feed.read(read)
    return found


async def list_effects(feed: Feed, row: RunRow, *, tree: bool) -> EffectList:
    """Return what a run really did; with `tree` also those below it."""
    from retinue.faces.cli.runs_changes import run_effects

    def read(reader: LogReader) -> EffectList:
        rows = reader.tree(row) if tree else [row]
        return EffectList([run_effects(reader, feed.folder, each) for each in rows])

    found: EffectList = await feed.read(read)
    return found


async def list_changes(feed: Feed, row: RunRow, *, tree: bool) -> DiffList:
    """Return the files that a run has changed, with secrets taken out."""
    from retinue.capabilities.audit.changes import diff_of_runs

    def read(reader: LogReader) -> DiffList:
        rows = reader.tree(row) if tree else [row]
        outcome = reader.outcome(row.id)
        found = diff_of_runs(feed.folder, [each.id for each in rows])
        files = [replace(each, diff=feed.redact(each.diff)) for each in found]
        return DiffList(row.id, outcome.branch if outcome is not None else None, files)

    found: DiffList = await feed.read(read)
    return found


async def list_schedules(feed: Feed) -> ScheduleList:
    """Return the schedules of the project."""
    found: list[ScheduledJob] = await feed.read(jobs)
    views = []
    for job in found:
        views.append(
            ScheduleView(
                id=job.id,
                name=job.name,
                agent=job.agent,
                prompt=job.prompt,
                schedule=job.text,
                kind=job.kind,
                zone=job.zone,
                enabled=job.enabled,
                next_at=job.next_at,
                last_at=job.last_at,
                last_run=job.last_run,
                last_error=job.last_error,
                runs=job.runs,
                skipped=job.skipped,
            )
        )
    return ScheduleList(views)


async def add_up_cost(feed: Feed, by: By, since: float) -> CostList:
    """Return what runs that were active after `since` have used."""
    rows = await asyncio.to_thread(activity.spending, feed.folder, by, since)
    budgets = await feed.read(tree_budgets) if by == "tree" else {}
    return CostList(by, rows, activity.total(rows), budgets)


async def search_log(feed: Feed, words: str, limit: int) -> SearchList:
    """Return the newest events that hold `words`."""
    if not words.strip():
        raise UsageError("There is nothing to search for.", remedy="Say what, with `q`.")
    return SearchList(await feed.read(search, words, limit=limit))


async def list_agents(feed: Feed) -> AgentList:
    """Return every agent visible from the project."""
    from retinue.faces.cli.agents import row_data

    catalog = (await feed.retinue()).agents
    entries = sorted(catalog.entries, key=lambda each: (each.shadowed_by is not None, each.name.casefold()))
    agents = [msgspec.convert(row_data(entry), AgentView) for entry in entries]
    return AgentList(agents, [FailedFileView(each.path, each.reason, each.line) for each in catalog.failed])


async def lint_agents(feed: Feed) -> LintList:
    """Return what `retinue agents lint` finds."""
    from retinue.agents.lint.runner import lint_catalog
    from retinue.capabilities.mcp.servers import ServerLint
    from retinue.faces.cli.project import plugins

    project = (await feed.retinue()).supervisor.project

    def work() -> LintList:
        folders = plugins(feed.cwd, own=False)
        found = lint_catalog(feed.cwd, plugins=folders, check=ServerLint(lambda: project))
        return LintList(list(found.findings), found.files)

    return await asyncio.to_thread(work)


async def describe_agent(feed: Feed, name: str) -> AgentDetail:
    """Return one agent whole. Raise UnknownAgentError."""
    from retinue.agents.precedence import shadows
    from retinue.faces.cli.agents import agent_data

    catalog = (await feed.retinue()).agents
    entry = catalog.find(name)
    return msgspec.convert(agent_data(entry, shadows(catalog.entries, entry)), AgentDetail)


async def preview_prompt(feed: Feed, name: str) -> PromptPreview:
    """Return what the model of an agent would see. Raise UnknownAgentError, and LaunchError where a launch would."""
    from retinue.faces.cli.agents import preview_data, preview_named

    project = (await feed.retinue()).supervisor.project
    spec, found = await preview_named(project, name)
    data = preview_data(spec, found)
    parts = [PromptPartView(part["name"], part["tokens"], feed.redact(part["text"])) for part in data["parts"]]
    tools = [ToolCost(tool["name"], tool["tokens"], tool["description"]) for tool in data["tools"]]
    return PromptPreview(data["name"], parts, tools, data["tokens"]["prefix"], data["notes"])


async def list_models(feed: Feed) -> ModelList:
    """Return the language models that runs may use, and the agents as OpenAI's clients list them."""
    from retinue.models import inventory

    retinue = await feed.retinue()
    found = await inventory.list_models(retinue.supervisor.settings, process_environment())
    chosen = found.active.info.full_name if found.active is not None else None
    views = []
    for info in found.models:
        prices = info.prices
        views.append(
            ModelView(
                id=info.full_name,
                provider=info.provider,
                name=info.name or info.id,
                window=info.window,
                max_output=min(info.max_output, info.window),
                thinking=bool(info.thinking),
                input_price=prices.input if prices is not None else None,
                output_price=prices.output if prices is not None else None,
                default=info.full_name == chosen,
            )
        )
    now = int(time.time())
    agents = [OpenAIModel("main", now, "retinue")]
    agents += [OpenAIModel(entry.name, now, entry.source) for entry in retinue.agents.agents]
    return ModelList(models=views, data=agents, problem=str(found.problem) if found.problem is not None else None)


async def find_model(feed: Feed, name: str) -> OpenAIModel:
    """Return an agent as OpenAI's clients know a model. Raise UnknownAgentError."""
    now = int(time.time())
    if name == "main":
        return OpenAIModel("main", now, "retinue")
    entry = (await feed.retinue()).agents.find(name)
    return OpenAIModel(entry.name, now, entry.source)


async def examine_installation(feed: Feed) -> DoctorReport:
    """Return what `retinue doctor` finds."""
    from retinue.faces.cli.doctor import Installation, examine

    def work() -> DoctorReport:
        rows = []
        for found in examine(Installation(feed.cwd, process_environment())):
            rows.append(DoctorRow(found.category, found.name, found.grade, found.detail, found.remedy))
        return DoctorReport(all(row.status != "failure" for row in rows), rows)

    return await asyncio.to_thread(work)
