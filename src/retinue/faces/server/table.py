"""Every route of the HTTP API, once. The application, the OpenAPI document and the reference page are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from retinue.core.delegation import State
from retinue.faces.feed import views
from retinue.log.activity import By

Method = Literal["GET", "POST"]
Text = Annotated[str, Meta(min_length=1, max_length=200_000)]
Word = Annotated[str, Meta(min_length=1, max_length=500)]
Page = Annotated[int, Meta(ge=1, le=1000)]
Number = Annotated[int, Meta(ge=0, le=2**53)]


class NoParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A route without parameters."""


class InProject(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    project: Word | None = None
    """Id of a project of GET /v1/projects; without it the served one."""


class OfRun(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: Word
    """Id of a run, its beginning, or @name."""


class OfTree(OfRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tree: bool = False
    """Also all runs that it has started, and theirs."""


class OfItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: Word
    """Id of an inbox item, or its beginning."""


class OfAgent(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Word


class RunFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state: State | None = None
    agent: Word | None = None
    parent: Word | None = None
    """Id of a run: only those that it has started."""
    root: Word | None = None
    """Id of a run: only those of its tree."""
    depth: Annotated[int, Meta(ge=0, le=100)] | None = None
    before: Word | None = None
    """Id of the last run of the page before."""
    limit: Page = 100


class TranscriptPage(OfRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Number = 0
    """Number of an event of the run: only what came after it."""
    limit: Page = 1000


class InboxFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    all: bool = False
    """Also what was answered, expired or withdrawn."""
    limit: Page = 100


class CostFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    by: By = "agent"
    since: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    """Unix time: only runs that were active after it."""


class SearchFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    q: Word
    """The words, as they stand in a task, a message, an answer, a call or a result."""
    limit: Page = 50


class EventFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Number | None = None
    """Only events above this number. The header Last-Event-ID goes before it. Without both, from now on."""


class RunEventFilter(OfTree, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Number = 0
    """Only events above this number. The header Last-Event-ID goes before it."""


class SpawnBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run to start. Without `agent` it is the main agent. `budget` is shared with all runs below it: `usd`,
    `tokens`, `turns`, `toolCalls`, `seconds`, `spawns`. `schema` is a JSON Schema for the result."""

    task: Text
    agent: Word | None = None
    model: Word | None = None
    budget: dict[str, float | int | None] | None = None
    isolation: Literal["worktree", "off"] | None = None
    schema: dict[str, Any] | None = None
    name: Word | None = None
    project: Word | None = None


class SteerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to say to the run. It reads it after its current tool calls."""

    message: Text


class StopBody(Struct, frozen=True, forbid_unknown_fields=True):
    """With `tree` all runs below it are stopped as well."""

    tree: bool = False


class ResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to say to the run when it goes on, and another model for it."""

    prompt: Text | None = None
    model: Word | None = None


class EmptyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing: an empty object."""


class AnswerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`answer` is one of the item's options, or words for a question. `message` reaches the agent with a denial."""

    answer: Text
    message: Annotated[str, Meta(max_length=10_000)] = ""


class Session(Struct, frozen=True):
    """The cookie is set. Requests with it that change something need the header `X-Retinue: 1`."""

    cwd: str
    project: str


class Stream:
    """Marks a route that answers with server-sent events instead of one document."""


class Route(Struct, frozen=True, kw_only=True):
    """`handler` is the function of that name in `handlers`. `errors` are statuses beside those that every route may
    answer with (400, 401, 403, 422, 429)."""

    method: Method
    path: str
    handler: str
    help: str
    result: Any
    params: type[Struct] = NoParams
    body: type[Struct] | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the request, each with its meaning."""


_KEY = {"Idempotency-Key": "The same key and body start one run, however often they are sent; another body: 409."}
_LAST = {"Last-Event-ID": "The number of the last event that the client has."}

ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/v1/session",
        handler="open_session",
        help="Exchange the token for a cookie: for the page.",
        result=Session,
        body=EmptyBody,
    ),
    Route(
        method="GET",
        path="/v1/projects",
        handler="get_projects",
        help="The projects of this user that have a log.",
        result=views.ProjectList,
    ),
    Route(
        method="GET",
        path="/v1/agents",
        handler="get_agents",
        help="Every agent visible from the project, and the files that could not be loaded.",
        result=views.AgentList,
        params=InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/agents/{name}",
        handler="get_agent",
        help="One agent: its definition and what became of each field of its file.",
        result=views.AgentDetail,
        params=OfAgent,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/models",
        handler="get_models",
        help="The language models that runs may use; and the agents, as clients of OpenAI's API list models.",
        result=views.ModelList,
        params=InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs",
        handler="get_runs",
        help="Runs of all processes, newest first.",
        result=views.RunList,
        params=RunFilter,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs",
        handler="post_run",
        help="Start a run in the process of the server.",
        result=views.RunView,
        body=SpawnBody,
        status=201,
        errors=(404, 409),
        headers=_KEY,
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}",
        handler="get_run",
        help="One run: how it stands, its whole task, how it ended.",
        result=views.RunDetail,
        params=OfRun,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/tree",
        handler="get_tree",
        help="A run and all below it.",
        result=views.RunTree,
        params=OfRun,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/transcript",
        handler="get_transcript",
        help="The conversation of a run.",
        result=views.Transcript,
        params=TranscriptPage,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/effects",
        handler="get_effects",
        help="What a run really did: files, commands, hosts, denials.",
        result=views.EffectList,
        params=OfTree,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/diff",
        handler="get_diff",
        help="The files that a run has changed, as unified diffs.",
        result=views.DiffList,
        params=OfTree,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/events",
        handler="get_run_events",
        help="The events of a run as they happen.",
        result=Stream,
        params=RunEventFilter,
        errors=(404, 409),
        headers=_LAST,
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/steer",
        handler="post_steer",
        help="Say something to a live run.",
        result=views.CommandView,
        params=OfRun,
        body=SteerBody,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/stop",
        handler="post_stop",
        help="Stop a run. It keeps what it has said and can be resumed.",
        result=views.CommandView,
        params=OfRun,
        body=StopBody,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/resume",
        handler="post_resume",
        help="Go on with an interrupted, stopped or ended run, in the process of the server.",
        result=views.RunView,
        params=OfRun,
        body=ResumeBody,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/background",
        handler="post_background",
        help="Let the run that waits for this one go on without it.",
        result=views.CommandView,
        params=OfRun,
        body=EmptyBody,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/inbox",
        handler="get_inbox",
        help="What waits for a person: approvals, questions and quotes.",
        result=views.InboxList,
        params=InboxFilter,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/inbox/{id}",
        handler="post_answer",
        help="Answer one item. Each is answered once: 409 says who was first.",
        result=views.InboxView,
        params=OfItem,
        body=AnswerBody,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/schedules",
        handler="get_schedules",
        help="Agents that start at a time.",
        result=views.ScheduleList,
        params=InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/cost",
        handler="get_cost",
        help="What runs have used, by agent, run, tree, day or model.",
        result=views.CostList,
        params=CostFilter,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/search",
        handler="get_search",
        help="Words in tasks, messages, answers, calls and results.",
        result=views.SearchList,
        params=SearchFilter,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/doctor",
        handler="get_doctor",
        help="What this installation can enforce, what is missing, and what to do.",
        result=views.DoctorReport,
        params=InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/events",
        handler="get_events",
        help="What happens in all runs of the project.",
        result=Stream,
        params=EventFilter,
        errors=(404, 409),
        headers=_LAST,
    ),
)
