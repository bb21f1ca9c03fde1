"""A request to run an agent, its placement on this machine or in a cluster, and its options in the first event of the
run. A request is made at the borders, checked once, and then passed on unchanged.
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
    """The options of a run in the log, with which it is resumed. Logs of older versions lack some of them; a default
    means that the option was not set."""

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
    """The options that a person chose; None in old logs, which means all of them."""
    schema: Mapping[str, Any] | None = None
    permission_mode: PermissionMode | None = None
    readonly: bool = False
    isolation: Literal["worktree"] | None = None
    ceiling: Any = None
    """Read by `Ceiling.read`, which grants nothing for an invalid value."""
    bounds: Any = None
    """Read by `bounds_from_record`."""
    placement: Mapping[str, Any] | None = None
    system: Any = None
    """The system prompt, or the part of it that is not its parent's."""
    commit: str | None = None
    """The commit at which the first run of a tree began."""
    asked: Mapping[str, str] = {}
    """Who asked for the run (`by`), if it came from a remote front end."""
    fork: Mapping[str, Any] | None = None
    """The run from which this one was forked, and at which event."""


NO_OPTIONS = RunOptions()


HERE, CLUSTER = "local", "cluster"
PRIORITY, LAST_PRIORITY = 5, 9
"""The default priority of a run, and the last one; 0 is the first."""


class ClusterPlacement(Struct, frozen=True):
    """A place in the cluster: any worker that has all of `labels`. Waiting runs start in the order of `priority`."""

    labels: tuple[str, ...] = ()
    priority: int = PRIORITY

    @classmethod
    def read(cls, text: str) -> ClusterPlacement | None:
        """Return the placement of `cluster`, `cluster:gpu,linux` or `cluster:gpu,priority=1`; None for `local`. Raise
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
    """The requirements of a run for a worker. `allow` are the rights that its operator must allow senders. Runs of one
    `tenant` share the limit that a worker has for each tenant. `remote` is the git repository that transfers the
    files."""

    provider: Word = ""
    labels: Words = ()
    allow: Words = ()
    version: Word = ""
    priority: Annotated[int, Meta(ge=0, le=LAST_PRIORITY)] = PRIORITY
    tenant: Word = ""
    remote: RemoteUrl = ""


class Attempt(Struct, frozen=True):
    """One attempt of a run, for a worker. The number grows with each worker that continues the run."""

    project: ProjectName
    run_id: RunId
    number: AttemptNumber
    needs: RunNeeds = RunNeeds()

    @property
    def id(self) -> str:
        return f"{self.project}/{self.run_id}/{self.number}"


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker as others see it. `heartbeat` is the time since its last sign of life, in seconds. `tenant_limit` is the
    number of concurrent runs of one tenant, `global_limit` that of all workers of its queue. `remotes` are git
    repositories, or beginnings of their URLs, that its operator allows. `held` are accounts at providers, with the
    seconds for which they must wait."""

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
        """Return the reasons why this worker cannot serve a run, as parts of a sentence."""
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
        """Return whether its operator allows it to fetch from and push to a git repository."""
        folders = (start if start.endswith(("/", ":")) else f"{start}/" for start in self.remotes)
        return remote in self.remotes or remote.startswith(tuple(folders))


def explain_waiting(needs: RunNeeds, workers: list[WorkerView]) -> str | None:
    """Return the sentence that explains why no worker can serve a run; None if one can."""
    if not workers:
        return "No worker is running. Start one: retinue worker"
    reasons = []
    for worker in workers:
        lacks = worker.lacks(needs)
        if not lacks:
            return None
        reasons.append(f"worker {worker.id[:8]} on {worker.host} {' and '.join(lacks)}")
    further = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return f"No worker can serve this run: {'; '.join(reasons[:5])}{further}."


def placement_options(placement: ClusterPlacement, root: str) -> Mapping[str, Any]:
    """Return the placement of a run for its first event."""
    return {"on": CLUSTER, "labels": placement.labels, "root": root}


Pinned = Literal["model", "thinking", "limits"]
EVERYTHING: frozenset[Pinned] = frozenset({"model", "thinking", "limits"})


class Ceiling(Struct, frozen=True):
    """The rights that a run cannot have because a run above it does not have them."""

    readonly: bool = False
    """It may change nothing."""
    denied: tuple[str, ...] = ()
    """Tools that the files of agents above it deny by name."""
    servers: tuple[str, ...] | None = None
    """The only configured MCP servers it may use; None for all."""

    def as_dict(self) -> dict[str, Any]:
        """Return this ceiling for the log."""
        return {"readonly": self.readonly, "denied": self.denied, "servers": self.servers}

    @classmethod
    def read(cls, data: object) -> Ceiling:
        """Read a ceiling from the log. An invalid value means a read-only run."""
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
    """A request to run an agent."""

    spec: AgentSpec
    task: str
    cwd: Path
    continues: bool = False
    """True for a resumption without a prompt: `task` is the default one, which nobody wrote."""
    images: tuple[Image, ...] = ()
    """The images that a person attached to the task. The log keeps them with the message."""
    model: str | None = None
    """The model that the caller asked for: `provider/model`, or a part of its name."""
    thinking: str | None = None
    limits: Mapping[str, float | None] = {}
    """The limits of the caller, by the field names of `Limits`; a value of None means no limit."""
    pinned: frozenset[Pinned] = frozenset()
    """The options above that a person chose. They override the agent's file, and the outcome has a note about it. The
    options that a model chose apply only if the file does not set them."""
    budget: Budget | None = None
    """A budget of the run with its descendants. Its file and the settings may set others: the tightest one applies."""
    schema: Mapping[str, Any] | None = None
    accept: Callable[[Any], object] | None = None
    """A further check of a result that matches the schema. It raises ValueError with the reason. It applies in this
    process only: the log keeps the schema."""
    permission_mode: PermissionMode | None = None
    parent_id: str | None = None
    root_id: str | None = None
    depth: int = 0
    context: Literal["fresh", "inherit"] = "fresh"
    isolation: Literal["worktree"] | None = None
    placement: ClusterPlacement | None = None
    """The workers that may serve it; None: it executes in this process."""
    ceiling: Ceiling = NO_CEILING
    """The rights that the runs above it deny it."""
    asked: Mapping[str, str] = {}
    """Who asked for the run (`by`), if it came from a remote front end, and further data of that front end."""
