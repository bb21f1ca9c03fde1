"""Machines that execute runs of others over a shared database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.cluster import open_project
from retinue.cluster.carried_files import agents_of, receive_files
from retinue.cluster.cluster_tables import ClusterTables
from retinue.cluster.git_remote import check_url
from retinue.cluster.sender import own_remote
from retinue.cluster.workspace_store import WorkspaceStore
from retinue.cluster.workspaces import collect_branch
from retinue.core.foreign import OPERATOR_RIGHTS
from retinue.core.request import WorkerView
from retinue.errors import StateError, UsageError
from retinue.guard.git import GitError
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.log.postgres import make_project
from retinue.log.query import LogReader
from retinue.models.keys import environment
from retinue.models.providers import Providers
from retinue.settings.load import load_settings
from retinue.settings.places import database_of, database_url, has_password, retinue_home, use_database

if TYPE_CHECKING:
    from retinue.core.run_state import RunState

DAY_SECONDS = 86_400.0


class WorkerState(Struct, frozen=True, kw_only=True, rename="camel"):
    """A live worker, its capabilities, and its runs."""

    id: str
    host: str
    pid: int
    labels: Sequence[str]
    runs: Sequence[str]
    heartbeat: float
    providers: Sequence[str]
    allow: Sequence[str]
    remotes: Sequence[str]
    sandbox: str
    concurrency: int
    tenant_limit: int | None
    global_limit: int | None
    version: str
    draining: bool


class WorkerList(Struct, frozen=True):
    """The live workers."""

    workers: list[WorkerState]


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """Options of a worker. The logs of `projects` are created first."""

    labels: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    remotes: Sequence[str] = ()
    projects: Sequence[str] = ()
    concurrency: int = 4
    tenant_limit: int | None = None
    global_limit: int | None = None
    keep_days: float = 7.0
    grace: float = 20.0


def shared_database(url: str | None) -> str:
    """Return the given URL, or the user's own. Raise UsageError if there is none."""
    if url:
        if has_password(url):
            raise UsageError(
                "A password in the arguments of a program is shown to every user of the machine.",
                remedy="Set RETINUE_DATABASE instead, or put the password into ~/.pgpass (PGPASSFILE).",
            )
        use_database(url)
        return url
    own = database_url()
    if own is None:
        raise UsageError(
            "There is no database.", remedy="Name one: RETINUE_DATABASE=postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    return own


def list_workers(url: str) -> WorkerList:
    """Return the live workers."""
    tables = ClusterTables(url)
    try:
        return WorkerList([*map(_state, tables.workers())])
    finally:
        tables.close()


def _state(worker: WorkerView) -> WorkerState:
    values = {name: getattr(worker, name) for name in WorkerState.__struct_fields__}
    return WorkerState(**{**values, "heartbeat": round(worker.heartbeat, 3)})


def prepare_worker(url: str, options: WorkerOptions) -> None:
    """Check the options of a worker, and create the logs of its projects. Raise UsageError for invalid options."""
    if not set(options.allow) <= set(OPERATOR_RIGHTS):
        raise UsageError(
            f"--allow {','.join(options.allow)} is not known.", remedy=f"There are: {', '.join(OPERATOR_RIGHTS)}."
        )
    for remote in options.remotes:
        check_url(remote)
    if options.concurrency < 1:
        raise UsageError("A worker serves at least one run at a time.", remedy="--concurrency 1")
    if options.tenant_limit is not None and options.tenant_limit < 1:
        raise UsageError("A tenant has at least one run at a time.", remedy="--tenant-limit 1")
    if options.global_limit is not None and options.global_limit < options.concurrency:
        raise UsageError(
            f"All workers together have room for {options.global_limit} runs, and this one alone for "
            f"{options.concurrency}.",
            remedy=f"Use --concurrency {max(options.global_limit, 1)} or less.",
        )
    for name in options.projects:
        make_project(url, name)


async def serve_worker(
    url: str, options: WorkerOptions, draining: asyncio.Event, report: Callable[[str], None]
) -> None:
    """Execute runs until `draining` is set, then let running ones finish for a while."""
    from retinue.cluster.worker import Worker

    variables, home = environment(), retinue_home()
    # A worker has no project: the settings are the user's own.
    settings = load_settings(home if home.is_dir() else Path.home(), environment=variables).settings
    worker = Worker(
        url,
        home,
        variables,
        providers=[provider.id for provider in Providers(settings, variables).configured()],
        labels=options.labels,
        allow=options.allow,
        remotes=options.remotes,
        sandbox="on" if can_sandbox(settings) else "off",
        concurrency=options.concurrency,
        tenant_limit=options.tenant_limit,
        global_limit=options.global_limit,
        keep_seconds=options.keep_days * DAY_SECONDS,
        report=report,
    )
    await worker.run(draining, options.grace)


def fetch_branch(state: Path, row: RunState, cwd: Path, report: Callable[[str], None]) -> str:
    """Fetch the branch of a run on another machine into the repository at `cwd`. Return a description; `report` is
    called with a line for everything else that was fetched. Raise UsageError if there is nothing to fetch."""
    database = database_of(state)
    if database is None:
        raise UsageError("This project's log is a file: no run of it works elsewhere.", remedy="See: RETINUE_DATABASE")
    tables = ClusterTables(database.url)
    try:
        project = open_project(cwd, state=state)
        with LogReader.open(state) as reader:
            agents = agents_of(project, reader.tree(row))
        own = own_remote(project, project.cwd)
        store = WorkspaceStore(tables, database.project, row.id, lambda remote: remote == own)
        for note in receive_files(store, project, agents):
            report(note)
        stored = store.find("result") or store.find("increment")
        if stored is None:
            raise UsageError(
                f"Run {row.id} has no commits in the database.",
                remedy="It has changed nothing, or its branch was brought home and the copy removed later.",
            )
        name = stored.branch or f"retinue-agent-{row.id}"
        fetch = collect_branch(
            project.cwd, name, stored.commit, lambda git: store.fetch(git, stored), project.environment
        )
        if row.state == "ended":
            tables.mark_home(database.project, row.id)
        return fetch
    except GitError as error:
        raise StateError(f"The branch of run {row.id} could not be brought here: {error}") from error
    finally:
        tables.close()
