"""The parameters in path and query, and the bodies, of all routes. The text below a field is its help."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from retinue.app.feed import Feed, LongText, ShortText, SpawnOrder
from retinue.app.reports import Grouping
from retinue.app.snapshot import RunList
from retinue.core.delegation import State

Page = Annotated[int, Meta(ge=1, le=1000)]
Number = Annotated[int, Meta(ge=0, le=2**53)]


class NoParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A route without parameters."""


class InProject(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    project: ShortText | None = None
    """Id of a project of GET /v1/projects; by default the served one."""


class OfRun(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: ShortText
    """Id of a run, a prefix of it, or @name."""


class OfTree(OfRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tree: bool = False
    """Include all runs below it."""


class OfItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: ShortText
    """Id of an inbox item, or a prefix of it."""


class OfAgent(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: ShortText


class RunFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state: State | None = None
    agent: ShortText | None = None
    parent: ShortText | None = None
    """Id of a run: only its children."""
    root: ShortText | None = None
    """Id of a run: only runs of its tree."""
    depth: Annotated[int, Meta(ge=0, le=100)] | None = None
    touched: ShortText | None = None
    """Path of a file: only runs that read or wrote it."""
    before: ShortText | None = None
    """Id of the last run of the previous page."""
    limit: Page = 100

    async def read(self, feed: Feed) -> RunList:
        """Return the page of runs. Raise UnknownRunError if a named run does not exist."""
        filters: dict[str, Any] = {"agent": self.agent, "depth": self.depth, "touched": self.touched}
        for name, run_id in (("parent_id", self.parent), ("root_id", self.root), ("before", self.before)):
            if run_id is not None:
                filters[name] = (await feed.find(run_id)).id
        if self.state is not None:
            filters["states"] = {self.state}
        page = await feed.snapshot(limit=self.limit, **filters)
        return replace(page, next=page.runs[-1].id if len(page.runs) == self.limit else None)


class TranscriptPage(OfRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Number = 0
    """Number of an event of the run: only later ones."""
    limit: Page = 1000


class HistoryFilter(OfTree, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Number | None = None
    """Number of an event: the page of events above it."""
    before: Number | None = None
    """Number of an event: the page of events below it. Without `after` and `before`, the newest events."""
    limit: Page = 500


class StoryFilter(OfRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 400
    """The number of newest events from which the story is built."""


class MomentFilter(OfRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    place: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    """Number of an event, counted in the tree from 1; by default the last one."""
    run: ShortText | None = None
    """Id of the run of the tree whose story is returned; by default the first one."""


class InboxFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    all: bool = False
    """Include answered, expired and withdrawn items."""
    limit: Page = 100


class CostFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    by: Grouping = "agent"
    since: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    """Unix time: only runs that were active after it."""


class SearchFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    q: ShortText
    """The words to find in tasks, messages, answers, calls and results."""
    limit: Page = 50


class EventFilter(InProject, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Number | None = None
    """Only events above this number. The header Last-Event-ID overrides it. By default, only new events."""


class RunEventFilter(OfTree, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Number = 0
    """Only events above this number. The header Last-Event-ID overrides it."""


class SpawnBody(SpawnOrder, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run to start in a project. Without `agent` it is the main agent. `budget` is shared with all runs below it:
    `usd`, `tokens`, `turns`, `toolCalls`, `seconds`, `spawns`. `schema` is a JSON Schema for the result."""

    project: ShortText | None = None


class SteerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the run, which reads it after its current tool calls."""

    message: LongText


class StopBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`tree` also stops all runs below it."""

    tree: bool = False


class ResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the resumed run, and another model for it."""

    prompt: LongText | None = None
    model: ShortText | None = None


class EmptyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


class AnswerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`answer` is one of the item's options, or text for a question. An empty one skips a question whose payload has
    `skip`. `message` is sent to the agent with a denial."""

    answer: Annotated[str, Meta(max_length=200_000)]
    message: Annotated[str, Meta(max_length=10_000)] = ""


class AgentPath(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    agent: ShortText
    """Name of an agent, or `main`."""


class SignIn(Struct, frozen=True):
    """`key` is sent as `Authorization: Bearer` and is valid for this host and port until the server ends. With
    `renewal_secret`, an open page derives its key for a server that was restarted after a crash."""

    cwd: str
    project: str
    key: str
    renewal_secret: str
