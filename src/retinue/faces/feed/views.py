"""What remote faces show, as values: each is a document of the HTTP API, and its docstring the description there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from retinue.agents.lint.subject import Finding
from retinue.capabilities.audit.changes import FileDiff
from retinue.capabilities.audit.report import RunEffects
from retinue.core.delegation import State
from retinue.core.outcome import Ended, Outcome
from retinue.core.permission import InboxAnswer, InboxItem, InboxKind, InboxState, Risk
from retinue.core.usage import Usage
from retinue.faces.feed.projects import ProjectView
from retinue.faces.feed.snapshot import Snapshot
from retinue.log.activity import Spending
from retinue.log.inbox import InboxRow
from retinue.log.overview import RunLabel, SearchHit
from retinue.log.rows import RunRow


class RunView(Struct, frozen=True, kw_only=True):
    """One run. `state` is as seen now: `interrupted` means that its process is gone. `ended` says how it ended.
    `task` is the beginning of the task. Times are Unix seconds."""

    id: str
    parent_id: str | None
    root_id: str
    depth: int
    agent: str
    name: str | None
    description: str
    call_id: str | None
    """The call of its parent that started it."""
    background: bool
    """Whether its parent goes on meanwhile, instead of waiting for it. Of a run that is over: how it was started."""
    doing: str
    """What a live run is doing, in a few words."""
    task: str
    cwd: str
    model: str
    state: State
    ended: Ended | None
    error: str | None
    pid: int | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    updated_at: float
    turns: int
    tool_uses: int
    compactions: int
    usage: Usage


def run_view(row: RunRow, label: RunLabel | None = None, doing: str = "") -> RunView:
    """Return a run as clients see it."""
    label = label or RunLabel()
    fields = asdict(row)
    del fields["transcript"]
    return RunView(**asdict(label), doing=doing, **fields)


def snapshot_views(found: Snapshot) -> list[RunView]:
    """Return all runs of a snapshot as clients see them."""
    views = []
    for row in found.runs:
        views.append(run_view(row, found.labels.get(row.id), found.doing.get(row.id, "")))
    return views


class ProjectList(Struct, frozen=True):
    """The projects of this user that have a log, the served one first."""

    projects: list[ProjectView]


class RunList(Struct, frozen=True):
    """Runs, newest first. `cursor` is where the event stream goes on from here; `next` is the value of `before` for
    the next page."""

    cursor: int
    runs: list[RunView]
    next: str | None = None


class RunTree(Struct, frozen=True):
    """A run and all below it, parents before their children. `cursor` is where the event stream goes on."""

    cursor: int
    runs: list[RunView]


class RunDetail(Struct, frozen=True):
    """One run whole. `partial` is the text so far of an answer that is not complete. `asked_by` is the face that
    started it. `prompt` is that of its agent, `tools` are those it has. `budget` is shared with all runs below it, and
    `spent` is what they have used together."""

    run: RunView
    task: str
    outcome: Outcome | None
    partial: str
    asked_by: str | None
    unknown_effects: list[str]
    """Calls that had begun when the process died: nobody knows what they did."""
    prompt: str
    tools: list[str]
    budget: Mapping[str, float]
    spent: Usage


class TranscriptView(Struct, frozen=True):
    """The conversation as lines of the transcript file: `type`, `message`, `timestamp`. `next` is the value of
    `after` for more."""

    run_id: str
    lines: list[Mapping[str, Any]]
    next: int | None


class EffectList(Struct, frozen=True):
    """What runs really did, call by call: files, commands with exit codes, hosts, denials."""

    runs: list[RunEffects]


class DiffList(Struct, frozen=True):
    """The files that a run has changed. `branch` has its commits, where it worked in a worktree."""

    run_id: str
    branch: str | None
    files: list[FileDiff]


class InboxView(Struct, frozen=True, kw_only=True):
    """Something that waits for a person, or did. `payload` is the exact call or question and `detail` a diff for
    edits; `options` are the answers. `interrupted`: the run takes the answer when it is resumed."""

    id: str
    kind: InboxKind
    run_id: str
    root_id: str
    agent: str
    title: str
    description: str
    detail: str
    payload: Mapping[str, Any]
    risk: Risk
    reason: str
    rule: str | None
    options: tuple[str, ...]
    default: str
    created_at: float
    expires_at: float | None
    state: InboxState
    answer: InboxAnswer | None
    run_state: State | None = None
    interrupted: bool = False


def inbox_view(found: InboxRow | InboxItem) -> InboxView:
    """Return an item as clients see it."""
    if isinstance(found, InboxItem):
        return InboxView(**asdict(found))
    return InboxView(**asdict(found.item), run_state=found.run_state, interrupted=found.interrupted)


class InboxList(Struct, frozen=True):
    """What waits for a person, oldest first."""

    items: list[InboxView]


class CommandView(Struct, frozen=True):
    """What became of a command: `text` says what happens now."""

    run_id: str
    text: str


class ScheduleView(Struct, frozen=True, kw_only=True):
    """An agent that starts at a time. `next_at` is None when nothing is due any more."""

    id: str
    name: str
    agent: str
    prompt: str
    schedule: str
    kind: str
    zone: str
    enabled: bool
    next_at: float | None
    last_at: float | None
    last_run: str | None
    last_error: str | None
    runs: int
    skipped: int


class ScheduleList(Struct, frozen=True):
    """The schedules of a project."""

    schedules: list[ScheduleView]


class CostList(Struct, frozen=True):
    """What runs have used. A run without a known price is counted beside the sum, never as free. `budgets` has those
    of trees, by the id of their first run."""

    by: str
    rows: list[Spending]
    total: Spending
    budgets: Mapping[str, Mapping[str, float]]


class SearchList(Struct, frozen=True):
    """The newest events that hold the words."""

    hits: list[SearchHit]


class AgentView(Struct, frozen=True, kw_only=True):
    """One agent. `tools` is None where its file limits none; `shadowed_by` is the file that counts instead."""

    name: str
    description: str
    source: str
    dialect: str
    path: str
    tools: list[str] | None
    model: str | list[str] | None
    readonly: bool
    enabled: bool
    shadowed_by: str | None
    problems: list[Mapping[str, Any]]


class FailedFileView(Struct, frozen=True):
    """An agent file that could not be loaded."""

    path: str
    reason: str
    line: int | None


class AgentList(Struct, frozen=True):
    """Every agent visible from the project, and the files that could not be loaded."""

    agents: list[AgentView]
    failed: list[FailedFileView]


class LintList(Struct, frozen=True):
    """What is wrong with agent files of the project, the user and plugins, by file and line; `files` were looked at."""

    findings: list[Finding]
    files: int


class AgentDetail(Struct, frozen=True, kw_only=True):
    """One agent whole: its definition and what became of each field of its file."""

    name: str
    description: str
    source: str
    dialect: str
    path: str
    enabled: bool
    shadowed_by: str | None
    shadows: list[str]
    spec: Mapping[str, Any]
    fates: Mapping[str, Mapping[str, str]]
    problems: list[Mapping[str, Any]]


class PromptPartView(Struct, frozen=True):
    """A part of the system prompt, with the tokens it is estimated to have."""

    name: str
    tokens: int
    text: str


class ToolCost(Struct, frozen=True):
    """A tool that the agent is offered, with the tokens of its description."""

    name: str
    tokens: int
    description: str


class PromptPreview(Struct, frozen=True):
    """What the model of an agent would see before its task. `tokens` is what every request carries, estimated."""

    name: str
    parts: list[PromptPartView]
    tools: list[ToolCost]
    tokens: int
    notes: list[str]


class ModelView(Struct, frozen=True, kw_only=True):
    """A language model that could be used. Prices are USD per million tokens."""

    id: str
    provider: str
    name: str
    window: int
    max_output: int
    thinking: bool
    input_price: float | None
    output_price: float | None
    default: bool


class OpenAIModel(Struct, frozen=True):
    """An agent as clients of OpenAI's API list it: `id` is its name."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


class ModelList(Struct, frozen=True, kw_only=True):
    """Two lists in one document. `models` are the language models that runs may use. `object` and `data` are as
    OpenAI's `/v1/models` has them: there a model is an agent, for `/v1/chat/completions`."""

    models: list[ModelView]
    data: list[OpenAIModel]
    problem: str | None = None
    object: Literal["list"] = "list"


class DoctorRow(Struct, frozen=True):
    """`remedy` is there for every warning and failure."""

    category: str
    name: str
    status: str
    detail: str
    remedy: str


class DoctorReport(Struct, frozen=True):
    """What this installation can enforce, what is missing, and what to do."""

    ok: bool
    findings: list[DoctorRow]
