"""What the routes of the table do: each takes a request and returns the document of its route.

`/metrics` has sums and counts from the log of a project, in the text format of Prometheus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace
from starlette.responses import Response

from retinue.app import (
    agent_files,
    agents,
    changes,
    details,
    history,
    live_views,
    models,
    prompt_preview,
    reports,
    schedules,
    views,
)
from retinue.app.doctor import DoctorReport, diagnose
from retinue.app.feed import Feed, ForkOrder, SpawnOrder
from retinue.app.projects import Projects
from retinue.app.snapshot import RunList, RunTree
from retinue.core.delegation import LIVE
from retinue.core.encode import dump
from retinue.core.run_state import RunState
from retinue.errors import RetinueError
from retinue.faces.server import ag_ui, chat, params
from retinue.faces.server.credentials import Credentials
from retinue.faces.server.problem import TYPE, RequestError, problem_of
from retinue.faces.server.sse import ByteStream, EventStream
from retinue.log import activity
from retinue.log.activity import Spending

BY = "web"
"""Who asks, unless the client says so with the header X-Retinue-By."""
_LONGEST_KEY = 200


class ApiCall(Struct, frozen=True):
    """One request that may be answered. `headers` have lower-case names."""

    projects: Projects
    params: Any
    body: Any
    headers: Mapping[str, str]
    closing: Any
    """An event that is set when the server ends: streams end then."""
    credentials: Credentials

    @property
    def by(self) -> str:
        said = self.headers.get("x-retinue-by", "")
        if said.isascii() and said.isprintable() and 0 < len(said) <= 40:
            return said
        return BY


async def open_session(call: ApiCall) -> params.SignIn:
    feed = call.projects.current
    key = call.credentials.page_key(call.headers["host"].lower())
    return params.SignIn(str(feed.cwd), feed.folder.name, key, call.credentials.renewal_secret)


async def get_projects(call: ApiCall) -> views.ProjectList:
    return views.ProjectList(await call.projects.views())


async def get_agents(call: ApiCall) -> agents.AgentList:
    retinue = await (await call.projects.feed(call.params.project)).retinue()
    return agents.list_agents(retinue.agents)


async def get_agent(call: ApiCall) -> agents.AgentDetail:
    retinue = await (await call.projects.feed(call.params.project)).retinue()
    return agents.describe_agent(retinue.agents, call.params.name)


async def get_lint(call: ApiCall) -> agent_files.LintList:
    feed = await call.projects.feed(call.params.project)
    project = (await feed.retinue()).supervisor.project
    return await asyncio.to_thread(agent_files.lint_agents, feed.cwd, project=lambda: project)


async def get_agent_prompt(call: ApiCall) -> prompt_preview.PromptPreview:
    feed = await call.projects.feed(call.params.project)
    return await prompt_preview.preview_prompt((await feed.retinue()).supervisor.project, call.params.name)


async def get_models(call: ApiCall) -> models.OpenAIModelList:
    retinue = await (await call.projects.feed(call.params.project)).retinue()
    return await models.list_for_openai(retinue.supervisor.settings, retinue.agents)


async def get_model(call: ApiCall) -> models.OpenAIModel:
    retinue = await (await call.projects.feed(call.params.project)).retinue()
    return models.find_for_openai(retinue.agents, call.params.name)


async def get_runs(call: ApiCall) -> RunList:
    wanted: params.RunFilter = call.params
    feed = await call.projects.feed(wanted.project)
    filters: dict[str, Any] = {"agent": wanted.agent, "depth": wanted.depth}
    for name, given in (("parent_id", wanted.parent), ("root_id", wanted.root), ("before", wanted.before)):
        if given is not None:
            # A run that is not there is an error, not an empty list.
            filters[name] = (await feed.find(given)).id
    if wanted.state is not None:
        filters["states"] = {wanted.state}
    found = await feed.snapshot(limit=wanted.limit, **filters)
    more = found.runs[-1].id if len(found.runs) == wanted.limit else None
    return replace(found, next=more)


async def post_run(call: ApiCall) -> RunState:
    body: params.SpawnBody = call.body
    key = call.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _LONGEST_KEY:
        raise RequestError(422, "INVALID", f"An Idempotency-Key has 1 to {_LONGEST_KEY} characters.")
    feed = await call.projects.feed(body.project)
    order = SpawnOrder(
        task=body.task,
        agent=body.agent,
        model=body.model,
        budget=body.budget,  # type: ignore[arg-type]  # checked where it is read
        isolation=body.isolation,
        schema=body.schema,
        name=body.name,
    )
    row, _ = await feed.spawn(order, by=call.by, key=key)
    return row


async def get_run(call: ApiCall) -> views.RunDetail:
    feed, row = await call.projects.of_run(call.params.id)
    return await details.describe_run(feed, row)


async def get_tree(call: ApiCall) -> RunTree:
    feed, row = await call.projects.of_run(call.params.id)
    return await feed.tree(row.id)


async def get_transcript(call: ApiCall) -> views.TranscriptView:
    feed, row = await call.projects.of_run(call.params.id)
    return await details.read_transcript(feed, row, after=call.params.after, limit=call.params.limit)


async def get_history(call: ApiCall) -> history.HistoryPage:
    wanted: params.HistoryFilter = call.params
    if wanted.after is not None and wanted.before is not None:
        raise RequestError(422, "INVALID", "`after` and `before` are for pages in two directions.", "Give one of them.")
    feed, row = await call.projects.of_run(wanted.id)
    return await history.read_history(
        feed, row, after=wanted.after, before=wanted.before, tree=wanted.tree, limit=wanted.limit
    )


async def get_timeline(call: ApiCall) -> history.TimelineView:
    feed, row = await call.projects.of_run(call.params.id)
    return await history.draw_timeline(feed, row)


async def get_effects(call: ApiCall) -> changes.EffectList:
    feed, row = await call.projects.of_run(call.params.id)
    return await changes.list_effects(feed, row, tree=call.params.tree)


async def get_diff(call: ApiCall) -> changes.DiffList:
    feed, row = await call.projects.of_run(call.params.id)
    return await changes.list_changes(feed, row, tree=call.params.tree)


async def post_steer(call: ApiCall) -> views.CommandView:
    feed, row = await call.projects.of_run(call.params.id)
    said = await feed.say(row.id, call.body.message, by=call.by)
    return views.CommandView(said.run_id, said.text)


async def post_stop(call: ApiCall) -> views.CommandView:
    feed, row = await call.projects.of_run(call.params.id)
    said = await feed.stop(row.id, by=call.by, tree=call.body.tree)
    return views.CommandView(said.run_id, said.text)


async def post_resume(call: ApiCall) -> RunState:
    feed, row = await call.projects.of_run(call.params.id)
    return await feed.resume(row.id, call.body.prompt, by=call.by, model=call.body.model)


async def post_fork(call: ApiCall) -> RunState:
    feed, row = await call.projects.of_run(call.params.id)
    body: params.ForkBody = call.body
    order = ForkOrder(at=body.at, edit=body.edit, model=body.model, keep_files=body.keep_files)
    return await feed.fork(row.id, order, by=call.by)


async def post_background(call: ApiCall) -> views.CommandView:
    feed, row = await call.projects.of_run(call.params.id)
    said = await feed.to_background(row.id, by=call.by)
    return views.CommandView(said.run_id, said.text)


async def get_inbox(call: ApiCall) -> views.InboxList:
    feed = await call.projects.feed(call.params.project)
    found = await feed.inbox(everything=call.params.all, limit=call.params.limit)
    return views.InboxList([views.inbox_view(each) for each in found])


async def post_answer(call: ApiCall) -> views.InboxView:
    feed, item = await call.projects.of_item(call.params.id)
    return views.inbox_view(await feed.answer(item.id, call.body.answer, call.body.message, by=call.by))


async def get_schedules(call: ApiCall) -> schedules.JobList:
    feed = await call.projects.feed(call.params.project)
    jobs: schedules.JobList = await feed.read(schedules.list_jobs)
    return jobs


async def get_cost(call: ApiCall) -> reports.CostReport:
    feed = await call.projects.feed(call.params.project)
    return await asyncio.to_thread(reports.read_cost, feed.folder, call.params.by, call.params.since)


async def get_search(call: ApiCall) -> views.SearchList:
    return await details.search_log(await call.projects.feed(call.params.project), call.params.q, call.params.limit)


async def get_metrics(call: ApiCall) -> Response:
    feed = await call.projects.feed(call.params.project)
    return Response(await metrics_text(feed), media_type=MEDIA_TYPE)


async def get_doctor(call: ApiCall) -> DoctorReport:
    return await asyncio.to_thread(diagnose, (await call.projects.feed(call.params.project)).cwd)


async def get_events(call: ApiCall) -> EventStream:
    feed = await call.projects.feed(call.params.project)
    return EventStream(feed.events(after=_last_event(call, call.params.after)), call.closing)


async def get_run_events(call: ApiCall) -> EventStream:
    feed, row = await call.projects.of_run(call.params.id)
    after = _last_event(call, call.params.after)
    return EventStream(feed.events(after=after, run_id=row.id, tree=call.params.tree), call.closing)


async def get_words(call: ApiCall) -> live_views.Words:
    return live_views.list_words()


async def get_changes(call: ApiCall) -> EventStream:
    feed = await call.projects.feed(call.params.project)
    return EventStream(live_views.follow_project(feed, _last_event(call, call.params.after)), call.closing)


async def get_story(call: ApiCall) -> EventStream:
    feed, row = await call.projects.of_run(call.params.id)
    return EventStream(live_views.follow_story(feed, row, call.params.limit), call.closing)


async def get_moment(call: ApiCall) -> live_views.MomentView:
    feed, row = await call.projects.of_run(call.params.id)
    return await live_views.look_back(feed, row, call.params.place, call.params.run)


async def post_chat(call: ApiCall) -> chat.ChatCompletion | ByteStream | Response:
    feed, body = call.projects.current, call.body
    try:
        if not body.stream:
            return await chat.complete(feed, body)
        run_id = await chat.start_run(feed, body)
    except (RequestError, RetinueError) as error:
        return _chat_problem(error)
    return ByteStream(chat.stream_completion(feed, body, run_id), call.closing)


def _chat_problem(error: Exception) -> Response:
    """Return a problem that is also an error as OpenAI's clients read it."""
    found = problem_of(error)
    message = f"{found.detail} {found.remedy}".rstrip()
    theirs = {"message": message, "type": "invalid_request_error", "code": found.code, "param": None}
    return Response(dump({**asdict(found), "error": theirs}), found.status, media_type=TYPE)


async def post_ag_ui(call: ApiCall) -> ByteStream:
    feed, given = call.projects.current, call.body
    thread = await ag_ui.start_thread(feed, call.params.agent, given)
    return ByteStream(ag_ui.stream_thread(feed, given, thread), call.closing)


def _last_event(call: ApiCall, after: int | None) -> int | None:
    """Return the number from which a client goes on: what it says when it comes back goes before the address."""
    said = call.headers.get("last-event-id")
    if said is None:
        return after
    if not (said.isascii() and said.isdigit() and len(said) < 17):
        raise RequestError(422, "INVALID", "Last-Event-ID is no number of an event.")
    return int(said)


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """One metric with its samples, each with its labels."""

    name: str
    kind: str
    help: str
    samples: list[tuple[dict[str, str], float]]


async def metrics_text(feed: Feed) -> str:
    """Return the metrics of a project. Names of agents and models are labels; ids and paths never are."""
    by_agent = await asyncio.to_thread(activity.spending, feed.folder, "agent")
    spent = await asyncio.to_thread(activity.spending, feed.folder, "model")
    live = await feed.read(lambda reader: reader.list_runs(states=LIVE))
    waiting = await feed.inbox()
    states: dict[str, float] = {}
    for row in live:
        states[row.state] = states.get(row.state, 0) + 1
    found = [
        _by("agent", "retinue_runs_total", "Runs that were started.", by_agent, "runs"),
        _by("agent", "retinue_turns_total", "Answers of models.", by_agent, "turns"),
        _by("agent", "retinue_tool_uses_total", "Calls of tools.", by_agent, "tool_uses"),
        Metric("retinue_tokens_total", "counter", "Tokens that were used.", list(_tokens(spent))),
        _by("model", "retinue_cost_usd_total", "Dollars that were spent, where prices are known.", spent, "cost_usd"),
        _by("model", "retinue_unpriced_runs_total", "Runs whose price is not known.", spent, "unpriced_runs"),
        Metric(
            "retinue_runs_live", "gauge", "Runs by state.", [({"state": key}, count) for key, count in states.items()]
        ),
        Metric("retinue_inbox_waiting", "gauge", "Questions that wait for a person.", [({}, len(waiting))]),
    ]
    return "".join(_text(each) for each in found)


def _by(label: str, name: str, help: str, lines: Iterable[Spending], attribute: str) -> Metric:
    samples = []
    for line in lines:
        value = getattr(line, attribute)
        if value is not None:
            samples.append(({label: line.key}, float(value)))
    return Metric(name, "counter", help, samples)


def _tokens(lines: Iterable[Spending]) -> Iterable[tuple[dict[str, str], float]]:
    for line in lines:
        for kind in ("input", "output", "cache_read", "cache_write"):
            yield {"model": line.key, "type": kind}, float(getattr(line, kind))


def _text(metric: Metric) -> str:
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    for labels, value in metric.samples:
        shown = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
        lines.append(f"{metric.name}{{{shown}}} {value:g}" if shown else f"{metric.name} {value:g}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
