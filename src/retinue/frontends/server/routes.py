"""Every route of the HTTP API: a function with its method and path, its parameters, its body and its document.

The application, the OpenAPI document and the reference page are generated from `ROUTES`. The docstring of a route is
its help; the types of its argument and its result define its parameters, its body and its document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, get_type_hints

from msgspec import Struct, field
from msgspec.structs import asdict
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
from retinue.app.feed import Feed, ForkOrder
from retinue.app.projects import Projects
from retinue.app.snapshot import RunList, RunTree
from retinue.core.encode import dump
from retinue.core.run_state import RunState
from retinue.errors import RetinueError
from retinue.frontends.server import ag_ui, chat, params
from retinue.frontends.server.credentials import Credentials
from retinue.frontends.server.metrics import MEDIA_TYPE, metrics_text
from retinue.frontends.server.params import InProject, OfRun
from retinue.frontends.server.problem import PROBLEM_MEDIA_TYPE, RequestError, problem_of
from retinue.frontends.server.security import SESSION_PATH
from retinue.frontends.server.sse import ByteStream, EventStream

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue

WEB_NAME = "web"
"""The caller's name, unless the client sends the header X-Retinue-By."""
MAX_KEY_CHARACTERS = 200
_IDEMPOTENCY_HEADER = {
    "Idempotency-Key": "The same key and body start one run, however often they are sent; another body: 409."
}
_LAST_EVENT_HEADER = {"Last-Event-ID": "The number of the last event that the client has."}

Method = Literal["GET", "POST"]
Params = TypeVar("Params", covariant=True)
Body = TypeVar("Body", covariant=True)


class ApiCall(Struct, Generic[Params, Body], frozen=True):
    """One accepted request. `headers` have lower-case names."""

    projects: Projects
    params: Params
    body: Body
    headers: Mapping[str, str]
    closing: Any
    """An event that is set when the server ends, and with it all streams."""
    credentials: Credentials

    @property
    def by(self) -> str:
        name = self.headers.get("x-retinue-by", "")
        if name.isascii() and name.isprintable() and 0 < len(name) <= 40:
            return name
        return WEB_NAME

    async def feed(self: ApiCall[InProject, Any]) -> Feed:
        """Return the project that the request names."""
        return await self.projects.feed(self.params.project)

    async def retinue(self: ApiCall[InProject, Any]) -> Retinue:
        """Return that project, opened in this process."""
        return await (await self.feed()).retinue()

    async def run(self: ApiCall[OfRun, Any]) -> tuple[Feed, RunState]:
        """Return the run that the request names, and its project."""
        return await self.projects.of_run(self.params.id)

    def last_event(self, after: int | None) -> int | None:
        """Return the number of the client's last event. The header of a reconnecting client overrides the query."""
        number = self.headers.get("last-event-id")
        if number is None:
            return after
        if not (number.isascii() and number.isdigit() and len(number) < 17):
            raise RequestError(422, "INVALID", "Last-Event-ID must be the number of an event.")
        return int(number)


class Route(Struct, frozen=True, kw_only=True):
    """`errors` are statuses in addition to those of every route (400, 401, 403, 422, 429)."""

    method: Method
    path: str
    handle: Callable[[ApiCall[Any, Any]], Awaitable[Any]]
    params: type[Struct]
    body: type[Struct] | None
    document: type[Struct] | None
    """None for a route that returns plain text or server-sent events (`streams`)."""
    streams: bool
    status: int = 200
    errors: tuple[int, ...] = (404, 409)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Additional headers of the request, each with its meaning."""

    @property
    def name(self) -> str:
        return self.handle.__name__

    @property
    def help(self) -> str:
        return " ".join((self.handle.__doc__ or "").split())


Handler = TypeVar("Handler", bound=Callable[[Any], Awaitable[Any]])
ROUTES: list[Route] = []


def route(method: Method, path: str, **options: Any) -> Callable[[Handler], Handler]:
    """Add the decorated function to `ROUTES`. `options` are `status`, `errors` and `headers`."""

    def add(handle: Handler) -> Handler:
        hints = get_type_hints(handle)
        takes, body = get_args(hints["call"])
        result = next(iter(get_args(hints["return"])), hints["return"])
        ROUTES.append(
            Route(
                method=method,
                path=path,
                handle=handle,
                params=takes,
                body=body if issubclass(body, Struct) else None,
                document=result if issubclass(result, Struct) else None,
                streams=issubclass(result, ByteStream),
                **options,
            )
        )
        return handle

    return add


@route("POST", SESSION_PATH, errors=())
async def open_session(call: ApiCall[params.NoParams, params.EmptyBody]) -> params.SignIn:
    """Sign a page in: exchange the token, or the code of a link (`Authorization: Code CODE`), for a key."""
    feed = call.projects.current
    key = call.credentials.page_key(call.headers["host"].lower())
    return params.SignIn(str(feed.cwd), feed.folder.name, key, call.credentials.renewal_secret)


@route("GET", "/v1/projects", errors=())
async def get_projects(call: ApiCall[params.NoParams, None]) -> views.ProjectList:
    """The projects of this user that have a log."""
    return views.ProjectList(await call.projects.views())


@route("GET", "/v1/agents")
async def get_agents(call: ApiCall[params.InProject, None]) -> agents.AgentList:
    """Every agent visible from the project, and the files that could not be loaded."""
    return agents.list_agents((await call.retinue()).agents)


@route("GET", "/v1/agents/{name}")
async def get_agent(call: ApiCall[params.OfAgent, None]) -> agents.AgentDetail:
    """One agent: its definition and the handling of each field of its file."""
    return agents.describe_agent((await call.retinue()).agents, call.params.name)


@route("GET", "/v1/agents/{name}/prompt")
async def get_agent_prompt(call: ApiCall[params.OfAgent, None]) -> prompt_preview.PromptPreview:
    """The prompt that the model of an agent would receive, with estimated tokens of every part."""
    return await prompt_preview.preview_prompt((await call.retinue()).supervisor.project, call.params.name)


@route("GET", "/v1/lint")
async def get_lint(call: ApiCall[params.InProject, None]) -> agent_files.LintList:
    """The problems in agent files: position, reason and remedy."""
    project = (await call.retinue()).supervisor.project
    return await asyncio.to_thread(agent_files.lint_agents, project.cwd, project=lambda: project)


@route("GET", "/v1/models")
async def get_models(call: ApiCall[params.InProject, None]) -> models.OpenAIModelList:
    """The language models that runs may use; and the agents, in the form of OpenAI's list of models."""
    retinue = await call.retinue()
    return await models.list_for_openai(retinue.supervisor.settings, retinue.agents)


@route("GET", "/v1/models/{name}")
async def get_model(call: ApiCall[params.OfAgent, None]) -> models.OpenAIModel:
    """One agent, in the form of OpenAI's models."""
    return models.find_for_openai((await call.retinue()).agents, call.params.name)


@route("GET", "/v1/runs")
async def get_runs(call: ApiCall[params.RunFilter, None]) -> RunList:
    """Runs of all processes, newest first."""
    return await call.params.read(await call.feed())


@route("POST", "/v1/runs", status=201, headers=_IDEMPOTENCY_HEADER)
async def post_run(call: ApiCall[params.NoParams, params.SpawnBody]) -> RunState:
    """Start a run in the process of the server."""
    body = call.body
    key = call.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= MAX_KEY_CHARACTERS:
        raise RequestError(422, "INVALID", f"An Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} characters.")
    feed = await call.projects.feed(body.project)
    row, _ = await feed.spawn(body, by=call.by, key=key)
    return row


@route("GET", "/v1/runs/{id}")
async def get_run(call: ApiCall[params.OfRun, None]) -> views.RunDetail:
    """One run in detail: its state, its complete task, its outcome."""
    feed, row = await call.run()
    return await details.describe_run(feed, row)


@route("GET", "/v1/runs/{id}/tree")
async def get_tree(call: ApiCall[params.OfRun, None]) -> RunTree:
    """A run and all runs below it."""
    feed, row = await call.run()
    return await feed.tree(row.id)


@route("GET", "/v1/runs/{id}/transcript")
async def get_transcript(call: ApiCall[params.TranscriptPage, None]) -> views.TranscriptView:
    """The conversation of a run."""
    feed, row = await call.run()
    return await details.read_transcript(feed, row, after=call.params.after, limit=call.params.limit)


@route("GET", "/v1/runs/{id}/history")
async def get_history(call: ApiCall[params.HistoryFilter, None]) -> history.HistoryPage:
    """The past events of a run, a page at a time."""
    query = call.params
    if query.after is not None and query.before is not None:
        raise RequestError(422, "INVALID", "`after` and `before` are for pages in two directions.", "Give one of them.")
    feed, row = await call.run()
    return await history.read_history(
        feed, row, after=query.after, before=query.before, tree=query.tree, limit=query.limit
    )


@route("GET", "/v1/runs/{id}/story")
async def get_story(call: ApiCall[params.StoryFilter, None]) -> EventStream:
    """The conversation of a run as entries in the words of all front ends, and every change of them. Each message has
    `entries` that are new or changed, text that was `added` to an entry, and ids that were `removed`; the `first` one
    has all entries."""
    feed, row = await call.run()
    return EventStream(live_views.follow_story(feed, row, call.params.limit), call.closing)


@route("GET", "/v1/runs/{id}/moment")
async def get_moment(call: ApiCall[params.MomentFilter, None]) -> live_views.MomentView:
    """A run and all runs below it as they were after one of their events."""
    feed, row = await call.run()
    return await live_views.view_moment(feed, row, call.params.place, call.params.run)


@route("GET", "/v1/runs/{id}/timeline")
async def get_timeline(call: ApiCall[params.OfRun, None]) -> history.TimelineView:
    """The activity of each run of a tree over time: requests, tools, waits for people, retries, limits."""
    feed, row = await call.run()
    return await history.draw_timeline(feed, row)


@route("GET", "/v1/runs/{id}/effects")
async def get_effects(call: ApiCall[params.OfTree, None]) -> changes.EffectList:
    """The recorded effects of a run: files, commands, hosts, denials."""
    feed, row = await call.run()
    return await changes.list_effects(feed, row, tree=call.params.tree)


@route("GET", "/v1/runs/{id}/diff")
async def get_diff(call: ApiCall[params.OfTree, None]) -> changes.DiffList:
    """The files that a run has changed, as unified diffs."""
    feed, row = await call.run()
    return await changes.list_changes(feed, row, tree=call.params.tree)


@route("GET", "/v1/runs/{id}/events", headers=_LAST_EVENT_HEADER)
async def get_run_events(call: ApiCall[params.RunEventFilter, None]) -> EventStream:
    """The events of a run as they happen."""
    feed, row = await call.run()
    after = call.last_event(call.params.after)
    return EventStream(feed.events(after=after, run_id=row.id, tree=call.params.tree), call.closing)


@route("POST", "/v1/runs/{id}/steer")
async def post_steer(call: ApiCall[params.OfRun, params.SteerBody]) -> views.CommandView:
    """Send a message to a live run."""
    feed, row = await call.run()
    return views.command_view(await feed.say(row.id, call.body.message, by=call.by))


@route("POST", "/v1/runs/{id}/stop")
async def post_stop(call: ApiCall[params.OfRun, params.StopBody]) -> views.CommandView:
    """Stop a run. It keeps its answers so far and can be resumed."""
    feed, row = await call.run()
    return views.command_view(await feed.stop(row.id, by=call.by, tree=call.body.tree))


@route("POST", "/v1/runs/{id}/resume")
async def post_resume(call: ApiCall[params.OfRun, params.ResumeBody]) -> RunState:
    """Resume an interrupted, stopped or ended run in the process of the server."""
    feed, row = await call.run()
    return await feed.resume(row.id, call.body.prompt, by=call.by, model=call.body.model)


@route("POST", "/v1/runs/{id}/fork", status=201)
async def post_fork(call: ApiCall[params.OfRun, ForkOrder]) -> RunState:
    """Fork a run at one of its events: the fork is a new run, in the process of the server."""
    feed, row = await call.run()
    return await feed.fork(row.id, call.body, by=call.by)


@route("POST", "/v1/runs/{id}/background")
async def post_background(call: ApiCall[params.OfRun, params.EmptyBody]) -> views.CommandView:
    """Let the parent of this run continue without waiting for it."""
    feed, row = await call.run()
    return views.command_view(await feed.to_background(row.id, by=call.by))


@route("GET", "/v1/inbox")
async def get_inbox(call: ApiCall[params.InboxFilter, None]) -> views.InboxList:
    """The items that wait for a person: approvals, questions and quotes."""
    rows = await (await call.feed()).inbox(everything=call.params.all, limit=call.params.limit)
    return views.InboxList([*map(views.inbox_view, rows)])


@route("POST", "/v1/inbox/{id}")
async def post_answer(call: ApiCall[params.OfItem, params.AnswerBody]) -> views.InboxView:
    """Answer one item. Only the first answer is accepted; later ones get 409 with the name of who answered."""
    feed, item = await call.projects.of_item(call.params.id)
    return views.inbox_view(await feed.answer(item.id, call.body.answer, call.body.message, by=call.by))


@route("GET", "/v1/schedules")
async def get_schedules(call: ApiCall[params.InProject, None]) -> schedules.JobList:
    """The scheduled agents."""
    return await (await call.feed()).read(schedules.list_jobs)


@route("GET", "/v1/cost")
async def get_cost(call: ApiCall[params.CostFilter, None]) -> reports.CostReport:
    """The usage of runs, by agent, run, tree, day or model."""
    feed = await call.feed()
    return await asyncio.to_thread(reports.read_cost, feed.folder, call.params.by, call.params.since)


@route("GET", "/v1/search")
async def get_search(call: ApiCall[params.SearchFilter, None]) -> views.SearchList:
    """Search tasks, messages, answers, calls and results."""
    return await details.search_log(await call.feed(), call.params.q, call.params.limit)


@route("GET", "/v1/doctor")
async def get_doctor(call: ApiCall[params.InProject, None]) -> DoctorReport:
    """The results of the checks of this installation, with remedies."""
    return await asyncio.to_thread(diagnose, (await call.feed()).cwd)


@route("GET", "/metrics")
async def get_metrics(call: ApiCall[params.InProject, None]) -> Response:
    """Totals and counts of the project for Prometheus, which sends the token as its `authorization`."""
    return Response(await metrics_text(await call.feed()), media_type=MEDIA_TYPE)


@route("GET", "/v1/words", errors=())
async def get_words(call: ApiCall[params.NoParams, None]) -> live_views.Vocabulary:
    """The words and signs with which every front end shows states and answers."""
    return live_views.list_vocabulary()


@route("GET", "/v1/changes", headers=_LAST_EVENT_HEADER)
async def get_changes(call: ApiCall[params.EventFilter, None]) -> EventStream:
    """The runs of a project after each change, and changes of the inbox."""
    feed = await call.feed()
    return EventStream(live_views.follow_project(feed, call.last_event(call.params.after)), call.closing)


@route("GET", "/v1/events", headers=_LAST_EVENT_HEADER)
async def get_events(call: ApiCall[params.EventFilter, None]) -> EventStream:
    """The events of all runs of the project."""
    feed = await call.feed()
    return EventStream(feed.events(after=call.last_event(call.params.after)), call.closing)


@route("POST", "/v1/chat/completions")
async def post_chat(call: ApiCall[params.NoParams, chat.ChatBody]) -> chat.ChatCompletion | ByteStream | Response:
    """An agent in the form of OpenAI's chat completions; with `stream` as server-sent events."""
    feed, body = call.projects.current, call.body
    try:
        if not body.stream:
            return await chat.complete(feed, body)
        run_id = await chat.start_run(feed, body)
    except (RequestError, RetinueError) as error:
        return _chat_problem(error)
    return ByteStream(chat.stream_completion(feed, body, run_id), call.closing)


def _chat_problem(error: Exception) -> Response:
    """Return a problem document that is also an error for OpenAI's clients."""
    problem = problem_of(error)
    message = f"{problem.detail} {problem.remedy}".rstrip()
    theirs = {"message": message, "type": "invalid_request_error", "code": problem.code, "param": None}
    return Response(dump({**asdict(problem), "error": theirs}), problem.status, media_type=PROBLEM_MEDIA_TYPE)


@route("POST", "/ag-ui/{agent}")
async def post_ag_ui(call: ApiCall[params.AgentPath, ag_ui.AgentInput]) -> ByteStream:
    """An agent for clients that speak AG-UI 1.0."""
    feed, body = call.projects.current, call.body
    thread = await ag_ui.start_thread(feed, call.params.agent, body)
    return ByteStream(ag_ui.stream_thread(feed, body, thread), call.closing)
