"""`retinue worker` and `retinue workers`: machines that serve runs of others."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from retinue.core.placement import WorkerView, split_labels
from retinue.core.provenance import OPERATOR_RIGHTS
from retinue.errors import StateError, UsageError
from retinue.faces.cli.project import add_cwd, folder, locate, positive, say, write_json


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        metavar="URL",
        help="postgresql://… without a password (default: RETINUE_DATABASE)",
    )


def database_of(args: argparse.Namespace) -> str:
    """Return the URL that was given, or the user's own. Raise UsageError without one."""
    from retinue.settings.database import database_url, has_password, use_database

    if args.database:
        if has_password(args.database):
            raise UsageError(
                "A password in the arguments of a program is shown to every user of the machine.",
                remedy="Set RETINUE_DATABASE instead, or put the password into ~/.pgpass (PGPASSFILE).",
            )
        use_database(args.database)
        return str(args.database)
    url = database_url()
    if url is None:
        raise UsageError(
            "There is no database.", remedy="Name one: RETINUE_DATABASE=postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    return url


def configure_serve(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument("--labels", metavar="A,B", default="", help="what this machine has, for runs that ask for it")
    parser.add_argument("--concurrency", type=int, default=4, metavar="N", help="runs at once (default: %(default)s)")
    parser.add_argument("--tenant-limit", type=int, metavar="N", help="runs of one tenant at once (default: no limit)")
    parser.add_argument(
        "--global-limit",
        type=int,
        metavar="N",
        help="runs at once of all workers with the same options and keys together (default: no limit)",
    )
    parser.add_argument(
        "--allow",
        metavar="A,B",
        default="",
        help=f"what senders may bring: {', '.join(OPERATOR_RIGHTS)} (default: nothing)",
    )
    parser.add_argument(
        "--remote",
        action="append",
        default=[],
        metavar="URL",
        help="a git repository, or the beginning of its URL, that files of runs may travel through; repeatable",
    )
    parser.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="NAME",
        help="make the log of this project, for senders whose role in the database may not; repeatable",
    )
    parser.add_argument(
        "--grace", type=positive, default=20.0, metavar="SECONDS", help="for runs to finish after SIGTERM (default: 20)"
    )
    parser.add_argument(
        "--keep-days",
        type=positive,
        default=7.0,
        metavar="DAYS",
        help="how long files of ended runs stay after their branch was brought home (default: 7)",
    )


def execute_serve(args: argparse.Namespace) -> int:
    """Serve runs that other machines offer in a shared database, until SIGTERM or Ctrl-C.

        retinue worker --labels gpu --concurrency 8

    The database is the one that RETINUE_DATABASE names. It uses the keys and the sandbox of this machine; a run gets
    a copy of its project as git has it. Asked to end, it takes no more runs, lets those at work finish for a while, and
    hands the others over.
    """
    from retinue.engine.git_remote import check_url
    from retinue.log.postgres import make_project

    url = database_of(args)
    allow = split_labels(args.allow)
    if not set(allow) <= set(OPERATOR_RIGHTS):
        raise UsageError(f"--allow {args.allow} is not known.", remedy=f"There are: {', '.join(OPERATOR_RIGHTS)}.")
    for remote in args.remote:
        check_url(remote)
    if args.concurrency < 1:
        raise UsageError("A worker serves at least one run at a time.", remedy="--concurrency 1")
    if args.tenant_limit is not None and args.tenant_limit < 1:
        raise UsageError("A tenant has at least one run at a time.", remedy="--tenant-limit 1")
    if args.global_limit is not None and args.global_limit < args.concurrency:
        raise UsageError(
            f"All workers together have room for {args.global_limit} runs, and this one alone for {args.concurrency}.",
            remedy=f"Use --concurrency {max(args.global_limit, 1)} or less.",
        )
    for name in args.project:
        make_project(url, name)
    return asyncio.run(_serve(args, url, allow))


async def _serve(args: argparse.Namespace, url: str, allow: tuple[str, ...]) -> int:
    from retinue.engine.retention import DAY_SECONDS
    from retinue.engine.worker import Worker
    from retinue.guard.sandbox.kernel import can_sandbox
    from retinue.models.keys import environment
    from retinue.models.providers import Providers
    from retinue.settings.load import load_settings
    from retinue.settings.places import retinue_home

    env, home = environment(), retinue_home()
    # A worker has no project: the settings are the user's own.
    settings = load_settings(home if home.is_dir() else Path.home(), environment=env).settings
    worker = Worker(
        url,
        home,
        env,
        providers=[provider.id for provider in Providers(settings, env).configured()],
        labels=split_labels(args.labels),
        allow=allow,
        remotes=args.remote,
        sandbox="on" if can_sandbox(settings) else "off",
        concurrency=args.concurrency,
        tenant_limit=args.tenant_limit,
        global_limit=args.global_limit,
        keep_seconds=args.keep_days * DAY_SECONDS,
        say=say,
    )
    draining = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, draining.set)
    await worker.run(draining, args.grace)
    say("worker ended")
    return 0


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute_list(args: argparse.Namespace) -> int:
    """Workers that live, what each can do, and the runs it has."""
    from retinue.engine.cluster_tables import ClusterTables

    tables = ClusterTables(database_of(args))
    workers = tables.workers()
    tables.close()
    if args.json:
        write_json({"workers": [_data(worker) for worker in workers]})
        return 0
    if not workers:
        print("No worker is running. Start one: retinue worker")
    for worker in workers:
        print(_line(worker))
    return 0


def configure_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="its id, the beginning of it, or @name: retinue runs list")
    add_cwd(parser, "the checkout that gets the branch (default: here)")


def execute_fetch(args: argparse.Namespace) -> int:
    """Bring the branch of a run on another machine into this repository.

    It comes by itself to the process that sent the run, and with it whole outputs of tools and what the run noted in
    the memory of its agent. This is for when that process, or its machine, was gone. A run that is still at work
    gives what it had after its last turn that wrote.
    """
    from retinue.engine import open_project
    from retinue.engine.carried_home import agents_of
    from retinue.engine.cluster_tables import ClusterTables
    from retinue.engine.returns import bring_files
    from retinue.engine.sender import own_remote
    from retinue.engine.workspace_store import WorkspaceStore
    from retinue.engine.workspaces import collect_branch
    from retinue.guard.git import GitError
    from retinue.log.query import LogReader
    from retinue.settings.database import database_of as database_in

    state, row = locate(args)
    database = database_in(state)
    if database is None:
        raise UsageError("This project's log is a file: no run of it works elsewhere.", remedy="See: RETINUE_DATABASE")
    tables = ClusterTables(database.url)
    try:
        project = open_project(folder(args.cwd), state=state)
        cwd = project.cwd
        with LogReader.open(state) as reader:
            agents = agents_of(project, reader.tree(row))
        for note in bring_files(tables, database.project, row.id, project, agents):
            say(note)
        store = WorkspaceStore(tables, database.project, row.id, lambda remote: remote == own_remote(project, cwd))
        stored = store.find("result") or store.find("increment")
        if stored is None:
            raise UsageError(
                f"Run {row.id} has no commits in the database.",
                remedy="It has changed nothing, or its branch was brought home and the copy removed later.",
            )
        name = stored.branch or f"retinue-agent-{row.id}"
        print(collect_branch(cwd, name, stored.commit, lambda git: store.bring(git, stored), project.environment))
        if row.state == "ended":
            tables.mark_home(database.project, row.id)
    except GitError as error:
        raise StateError(f"The branch of run {row.id} could not be brought here: {error}") from error
    finally:
        tables.close()
    return 0


def _data(worker: WorkerView) -> dict[str, object]:
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "labels": list(worker.labels),
        "runs": list(worker.runs),
        "heartbeat": round(worker.heartbeat, 3),
        "providers": list(worker.providers),
        "allow": list(worker.allow),
        "remotes": list(worker.remotes),
        "sandbox": worker.sandbox,
        "concurrency": worker.concurrency,
        "tenantLimit": worker.tenant_limit,
        "globalLimit": worker.global_limit,
        "version": worker.version,
        "draining": worker.draining,
    }


def _line(worker: WorkerView) -> str:
    parts = [worker.id[:8], f"{worker.host} process {worker.pid}", f"{len(worker.runs)}/{worker.concurrency} runs"]
    parts.append(", ".join(worker.labels) or "no labels")
    parts.append(", ".join(worker.providers) or "no keys")
    if worker.draining:
        parts.append("draining")
    return "  ".join([*parts, *(run_id[:8] for run_id in worker.runs)])
