"""Every route of the HTTP API, once. The application, the OpenAPI document and the reference page are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from retinue.app import (
    agent_files,
    agents,
    changes,
    history,
    live_views,
    models,
    prompt_preview,
    reports,
    schedules,
    views,
)
from retinue.app.doctor import DoctorReport
from retinue.app.snapshot import RunList, RunTree
from retinue.core.run_state import RunState
from retinue.faces.server import params
from retinue.faces.server.ag_ui import AgentInput
from retinue.faces.server.chat import ChatBody, ChatCompletion
from retinue.faces.server.security import SESSION_PATH

Method = Literal["GET", "POST"]


class StreamResult:
    """Marks a route that answers with server-sent events instead of one document."""


class TextResult:
    """Marks a route that answers with plain text."""


class Route(Struct, frozen=True, kw_only=True):
    """`handler` is the function of that name in `handlers`. `errors` are statuses beside those that every route may
    answer with (400, 401, 403, 422, 429)."""

    method: Method
    path: str
    handler: str
    help: str
    result: Any
    params: type[Struct] = params.NoParams
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
        path=SESSION_PATH,
        handler="open_session",
        help="Sign a page in: exchange the token, or the code of a link (`Authorization: Code CODE`), for a key.",
        result=params.SignIn,
        body=params.EmptyBody,
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
        result=agents.AgentList,
        params=params.InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/agents/{name}",
        handler="get_agent",
        help="One agent: its definition and what became of each field of its file.",
        result=agents.AgentDetail,
        params=params.OfAgent,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/agents/{name}/prompt",
        handler="get_agent_prompt",
        help="What the model of an agent would see, with estimated tokens of every part.",
        result=prompt_preview.PromptPreview,
        params=params.OfAgent,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/lint",
        handler="get_lint",
        help="What is wrong with agent files: where, why, and what to do.",
        result=agent_files.LintList,
        params=params.InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/models",
        handler="get_models",
        help="The language models that runs may use; and the agents, as clients of OpenAI's API list models.",
        result=models.OpenAIModelList,
        params=params.InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/models/{name}",
        handler="get_model",
        help="One agent, as clients of OpenAI's API ask for a model.",
        result=models.OpenAIModel,
        params=params.OfAgent,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs",
        handler="get_runs",
        help="Runs of all processes, newest first.",
        result=RunList,
        params=params.RunFilter,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs",
        handler="post_run",
        help="Start a run in the process of the server.",
        result=RunState,
        body=params.SpawnBody,
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
        params=params.OfRun,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/tree",
        handler="get_tree",
        help="A run and all below it.",
        result=RunTree,
        params=params.OfRun,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/transcript",
        handler="get_transcript",
        help="The conversation of a run.",
        result=views.TranscriptView,
        params=params.TranscriptPage,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/history",
        handler="get_history",
        help="The events of a run that have happened, a page at a time.",
        result=history.HistoryPage,
        params=params.HistoryFilter,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/story",
        handler="get_story",
        help="The conversation of a run as entries in the words of all faces, and every change of them. Each message "
        "has `entries` that are new or changed, text that was `added` to an entry, and ids that were `removed`; the "
        "`first` one has all.",
        result=StreamResult,
        params=params.StoryFilter,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/moment",
        handler="get_moment",
        help="A run and all below it as they were after one of their events.",
        result=live_views.MomentView,
        params=params.MomentFilter,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/timeline",
        handler="get_timeline",
        help="When each run of a tree did what: requests, tools, waits for people, retries, limits.",
        result=history.TimelineView,
        params=params.OfRun,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/effects",
        handler="get_effects",
        help="What a run really did: files, commands, hosts, denials.",
        result=changes.EffectList,
        params=params.OfTree,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/diff",
        handler="get_diff",
        help="The files that a run has changed, as unified diffs.",
        result=changes.DiffList,
        params=params.OfTree,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}/events",
        handler="get_run_events",
        help="The events of a run as they happen.",
        result=StreamResult,
        params=params.RunEventFilter,
        errors=(404, 409),
        headers=_LAST,
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/steer",
        handler="post_steer",
        help="Say something to a live run.",
        result=views.CommandView,
        params=params.OfRun,
        body=params.SteerBody,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/stop",
        handler="post_stop",
        help="Stop a run. It keeps what it has said and can be resumed.",
        result=views.CommandView,
        params=params.OfRun,
        body=params.StopBody,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/resume",
        handler="post_resume",
        help="Go on with an interrupted, stopped or ended run, in the process of the server.",
        result=RunState,
        params=params.OfRun,
        body=params.ResumeBody,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/fork",
        handler="post_fork",
        help="Go on from a moment of a run as a new run, in the process of the server.",
        result=RunState,
        params=params.OfRun,
        body=params.ForkBody,
        status=201,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/runs/{id}/background",
        handler="post_background",
        help="Let the run that waits for this one go on without it.",
        result=views.CommandView,
        params=params.OfRun,
        body=params.EmptyBody,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/inbox",
        handler="get_inbox",
        help="What waits for a person: approvals, questions and quotes.",
        result=views.InboxList,
        params=params.InboxFilter,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/inbox/{id}",
        handler="post_answer",
        help="Answer one item. Each is answered once: 409 says who was first.",
        result=views.InboxView,
        params=params.OfItem,
        body=params.AnswerBody,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/schedules",
        handler="get_schedules",
        help="Agents that start at a time.",
        result=schedules.JobList,
        params=params.InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/cost",
        handler="get_cost",
        help="What runs have used, by agent, run, tree, day or model.",
        result=reports.CostReport,
        params=params.CostFilter,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/search",
        handler="get_search",
        help="Words in tasks, messages, answers, calls and results.",
        result=views.SearchList,
        params=params.SearchFilter,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/doctor",
        handler="get_doctor",
        help="What this installation can enforce, what is missing, and what to do.",
        result=DoctorReport,
        params=params.InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/metrics",
        handler="get_metrics",
        help="Sums and counts of the project for Prometheus, which sends the token as its `authorization`.",
        result=TextResult,
        params=params.InProject,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/words",
        handler="get_words",
        help="The words and signs with which every face shows states and answers.",
        result=live_views.Words,
    ),
    Route(
        method="GET",
        path="/v1/changes",
        handler="get_changes",
        help="The runs of a project as they are after each change, and news of the inbox.",
        result=StreamResult,
        params=params.EventFilter,
        headers=_LAST,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/events",
        handler="get_events",
        help="What happens in all runs of the project.",
        result=StreamResult,
        params=params.EventFilter,
        errors=(404, 409),
        headers=_LAST,
    ),
    Route(
        method="POST",
        path="/v1/chat/completions",
        handler="post_chat",
        help="An agent as OpenAI's chat completions have a model; with `stream` as server-sent events.",
        result=ChatCompletion,
        body=ChatBody,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/ag-ui/{agent}",
        handler="post_ag_ui",
        help="An agent for clients that speak AG-UI 1.0.",
        result=StreamResult,
        params=params.AgentPath,
        body=AgentInput,
        errors=(404, 409),
    ),
)
