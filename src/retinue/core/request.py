"""A request to run an agent: what a caller wants, where it works (here, or on a worker of a cluster), and what was
decided about it, as the first event of the run keeps it. A request is built at the borders, checked once, then passed
down unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from retinue.core.foreign import (
    AttemptNumber,
    Count,
    ProjectName,
    QueueName,
    RemoteUrl,
    RunId,
    Seconds,
    Word,
    Words,
    WorkerId,
)
from retinue.core.messages import Image
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.usage import Budget
from retinue.errors import UsageError


class RunOptions(Struct, frozen=True, kw_only=True):
    """A resume is faithful because of these. Logs of older versions lack some of them; a default means that nothing
    was said."""

    name: str | None = None
    description: str = ""
    background: bool = False
    call_id: str | None = None
    transcript: str | None = None
    model: str | None = None
    thinking: str | None = None
    limits: Mapping[str, int | float | None] = {}
    budget: Mapping[str, int | float] | None = None
    pinned: tuple[Literal["model", "thinking", "limits"], ...] | None = None
    """What a person chose; None in old logs, where all of it counts as chosen."""
    schema: Mapping[str, Any] | None = None
    permission_mode: PermissionMode | None = None
    readonly: bool = False
    isolation: Literal["worktree"] | None = None
    ceiling: Any = None
    """As `Ceiling.read` takes it, which grants nothing for a value that it cannot read."""
    bounds: Any = None
    """As `bounds_from_record` takes them."""
    placement: Mapping[str, Any] | None = None
    system: Any = None
    """The system prompt, or what of it is not its parent's."""
    commit: str | None = None
    """The commit at which the first run of a tree began."""
    asked: Mapping[str, str] = {}
    """Who asked for the run (`by`), where a remote front end did."""
    fork: Mapping[str, Any] | None = None
    """The run that this one is a fork of, and where it left it."""


NO_OPTIONS = RunOptions()


HERE, CLUSTER = "local", "cluster"
PRIORITY, LAST_PRIORITY = 5, 9
"""Of a run that does not say, and of one that waits for all others; 0 comes first."""


class ClusterPlacement(Struct, frozen=True):
    """A run that any worker may take which has all of `labels`. Of those that wait, the lowest priority is first."""

    labels: tuple[str, ...] = ()
    priority: int = PRIORITY

    @classmethod
    def read(cls, text: str) -> ClusterPlacement | None:
        """Return what `local`, `cluster`, `cluster:gpu,linux` or `cluster:gpu,priority=1` means; None for here. Raise
        UsageError."""
        word, _, labels = text.strip().partition(":")
        if word == HERE and not labels:
            return None
        if word != CLUSTER:
            remedy = "Use local, cluster or cluster:LABEL,LABEL."
            raise UsageError(f"There is no place '{text}' for runs.", remedy=remedy)
        words = split_labels(labels)
        priorities = [label for label in words if label.startswith(_PRIORITY)]
        if not priorities:
            return cls(words)
        number = priorities[0].removeprefix(_PRIORITY)
        if len(priorities) > 1 or number not in map(str, range(LAST_PRIORITY + 1)):
            message = f"'{', '.join(priorities)}' is no priority."
            raise UsageError(message, remedy="Use one number from 0, first, to 9, last.")
        return cls(tuple(label for label in words if label not in priorities), int(number))


_PRIORITY = "priority="


def split_labels(text: str) -> tuple[str, ...]:
    """Return the labels of `gpu, linux`, sorted."""
    return tuple(sorted({word.strip() for word in text.split(",") if word.strip()}))


class RunNeeds(Struct, frozen=True):
    """What a worker must have to serve a run, and when it is its turn. `allow` is what its operator must let senders
    bring. Runs of one `tenant` share what a worker has for each. `remote` is the git repository that its
    files travel through."""

    provider: Word = ""
    labels: Words = ()
    allow: Words = ()
    version: Word = ""
    priority: Annotated[int, Meta(ge=0, le=LAST_PRIORITY)] = PRIORITY
    tenant: Word = ""
    remote: RemoteUrl = ""


class Attempt(Struct, frozen=True):
    """One attempt of a run, for a worker. The number grows with each worker that is asked to go on with it."""

    project: ProjectName
    run_id: RunId
    number: AttemptNumber
    needs: RunNeeds = RunNeeds()

    @property
    def id(self) -> str:
        return f"{self.project}/{self.run_id}/{self.number}"


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker as others see it. `heartbeat` is how many seconds ago it said that it lives; `tenant_limit` how many
    runs of one tenant it serves at once, `global_limit` how many runs those like it serve together. `remotes` are
    git repositories, or beginnings of their URLs, that its operator lets it use. `held` are accounts at providers
    that must wait for so many seconds."""

    id: WorkerId
    host: Word
    pid: Count
    labels: Words = ()
    providers: Words = ()
    allow: Words = ()
    remotes: Annotated[tuple[RemoteUrl, ...], Meta(max_length=256)] = ()
    sandbox: Word = ""
    version: Word = ""
    queue: QueueName = ""
    concurrency: Count = 1
    tenant_limit: Count | None = None
    global_limit: Count | None = None
    draining: bool = False
    held: Annotated[dict[Word, Seconds], Meta(max_length=256)] = {}
    heartbeat: float = 0.0
    runs: tuple[RunId, ...] = ()

    def lacks(self, needs: RunNeeds) -> list[str]:
        """Return why this worker cannot serve a run, as parts of a sentence; empty when it can."""
        missing = [label for label in needs.labels if label not in self.labels]
        refused = [right for right in needs.allow if right not in self.allow]
        reasons = {
            "is draining": self.draining,
            f"runs Retinue {self.version}, and this is {needs.version}": needs.version not in ("", self.version),
            f"lacks the label {', '.join(missing)}": missing,
            f"has no key of {needs.provider}": needs.provider and needs.provider not in self.providers,
            f"does not allow {', '.join(refused)} of senders": refused,
            f"may not use the git remote {needs.remote} (its option --remote)": needs.remote
            and not self.may_use(needs.remote),
        }
        return [reason for reason, holds in reasons.items() if holds]

    def may_use(self, remote: str) -> bool:
        """Return whether its operator lets it fetch from and push to a git repository."""
        folders = (start if start.endswith(("/", ":")) else f"{start}/" for start in self.remotes)
        return remote in self.remotes or remote.startswith(tuple(folders))


def explain_waiting(needs: RunNeeds, workers: list[WorkerView]) -> str | None:
    """Return why no worker can serve a run, as a sentence; None when one can."""
    if not workers:
        return "No worker is running. Start one: retinue worker"
    reasons = []
    for worker in workers:
        lacks = worker.lacks(needs)
        if not lacks:
            return None
        reasons.append(f"worker {worker.id[:8]} on {worker.host} {' and '.join(lacks)}")
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return f"No worker can serve this run: {'; '.join(reasons[:5])}{more}."


def placement_options(placement: ClusterPlacement, root: str) -> Mapping[str, Any]:
    """Return what the first event of a run says of its place."""
    return {"on": CLUSTER, "labels": placement.labels, "root": root}


Pinned = Literal["model", "thinking", "limits"]
EVERYTHING: frozenset[Pinned] = frozenset({"model", "thinking", "limits"})


class Ceiling(Struct, frozen=True):
    """The rights that a run cannot have because a run above it lacks them."""

    readonly: bool = False
    """It may change nothing."""
    denied: tuple[str, ...] = ()
    """Tools that the files of agents above it deny by name, as they write them."""
    servers: tuple[str, ...] | None = None
    """The only configured MCP servers it may use; None for all."""

    def as_dict(self) -> dict[str, Any]:
        """Return this ceiling as the log keeps it."""
        return {"readonly": self.readonly, "denied": self.denied, "servers": self.servers}

    @classmethod
    def read(cls, data: object) -> Ceiling:
        """Read a ceiling from the log. A value that cannot be read grants no right to change anything."""
        if not isinstance(data, Mapping):
            return cls(readonly=True)
        denied, servers = data.get("denied"), data.get("servers")
        return cls(
            readonly=bool(data.get("readonly", True)),
            denied=_texts(denied) or (),
            servers=_texts(servers),
        )


def _texts(value: object) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else None


NO_CEILING = Ceiling()


class RunRequest(Struct, frozen=True, kw_only=True):
    spec: AgentSpec
    task: str
    cwd: Path
    images: tuple[Image, ...] = ()
    """What a person attached to the task, for models that see images. The log keeps them with the message."""
    model: str | None = None
    """`provider/model`, or a part of its name, as the caller asked."""
    thinking: str | None = None
    limits: Mapping[str, float | None] = {}
    """What the caller said, by the field names of `Limits`; None there means no limit."""
    pinned: frozenset[Pinned] = frozenset()
    """Which of the above a person chose: it goes before what the file says, and the outcome
    says so. What a model chose only fills what the file leaves open."""
    budget: Budget | None = None
    """What the run and all below it may spend, beside what its file and the settings say: the
    tightest counts."""
    schema: Mapping[str, Any] | None = None
    accept: Callable[[Any], object] | None = None
    """Called with a result that matches the schema; raises ValueError with what is wrong with it all the same. Holds in
    this process only: the log keeps the schema."""
    permission_mode: PermissionMode | None = None
    parent_id: str | None = None
    root_id: str | None = None
    depth: int = 0
    context: Literal["fresh", "inherit"] = "fresh"
    isolation: Literal["worktree"] | None = None
    placement: ClusterPlacement | None = None
    """The workers that may serve it; None: it works in this process."""
    ceiling: Ceiling = NO_CEILING
    """What the runs above it do not let it have."""
    asked: Mapping[str, str] = {}
    """Who asked for the run (`by`), where a remote front end did, and what else it wants to find again."""
