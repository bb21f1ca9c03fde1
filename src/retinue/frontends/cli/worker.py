"""`retinue worker` and `retinue workers`: machines that execute runs of others."""

from __future__ import annotations

import argparse
import asyncio

from retinue.app.process import on_end
from retinue.app.workers import (
    WorkerOptions,
    WorkerState,
    fetch_branch,
    list_workers,
    prepare_worker,
    serve_worker,
    shared_database,
)
from retinue.core.foreign import OPERATOR_RIGHTS
from retinue.core.request import split_labels
from retinue.frontends.cli.project import add_cwd, folder, locate, positive, say, write_json


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        metavar="URL",
        help="postgresql://… without a password (default: RETINUE_DATABASE)",
    )


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
        help="a git repository, or a prefix of its URL, that may transport files of runs; repeatable",
    )
    parser.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="NAME",
        help="create the log of this project, for senders whose database role may not; repeatable",
    )
    parser.add_argument(
        "--grace",
        type=positive,
        default=20.0,
        metavar="SECONDS",
        help="the time for runs to finish after SIGTERM (default: 20)",
    )
    parser.add_argument(
        "--keep-days",
        type=positive,
        default=7.0,
        metavar="DAYS",
        help="how long files of ended runs are kept after their branch was fetched (default: 7)",
    )


def execute_serve(args: argparse.Namespace) -> int:
    """Execute runs that other machines offer in a shared database, until SIGTERM or Ctrl-C.

        retinue worker --labels gpu --concurrency 8

    The database is that of RETINUE_DATABASE. Runs use the keys and the sandbox of this machine, and
    a copy of their project from git. On a signal, the worker accepts no more runs, lets running
    ones finish for a while, and hands over the others.
    """
    url = shared_database(args.database)
    options = WorkerOptions(
        labels=split_labels(args.labels),
        allow=split_labels(args.allow),
        remotes=args.remote,
        projects=args.project,
        concurrency=args.concurrency,
        tenant_limit=args.tenant_limit,
        global_limit=args.global_limit,
        keep_days=args.keep_days,
        grace=args.grace,
    )
    prepare_worker(url, options)
    return asyncio.run(_serve(url, options))


async def _serve(url: str, options: WorkerOptions) -> int:
    draining = asyncio.Event()
    with on_end(draining.set):
        await serve_worker(url, options, draining, say)
    say("worker ended")
    return 0


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute_list(args: argparse.Namespace) -> int:
    """List the live workers with their capabilities and runs."""
    workers = list_workers(shared_database(args.database))
    if args.json:
        write_json(workers)
        return 0
    if not workers.workers:
        print("No worker is running. Start one: retinue worker")
    for worker in workers.workers:
        print(_line(worker))
    return 0


def configure_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="its id, a prefix of it, or @name: retinue runs list")
    add_cwd(parser, "the checkout that gets the branch (default: here)")


def execute_fetch(args: argparse.Namespace) -> int:
    """Fetch the branch of a run on another machine into this repository.

    The process that sent the run normally receives it, with whole tool outputs and the notes in its
    agent's memory. Use this command if that process, or its machine, is gone. For a running run,
    the state after its last writing turn is fetched.
    """
    state, row = locate(args)
    print(fetch_branch(state, row, folder(args.cwd), say))
    return 0


def _line(worker: WorkerState) -> str:
    parts = [worker.id[:8], f"{worker.host} process {worker.pid}", f"{len(worker.runs)}/{worker.concurrency} runs"]
    parts.append(", ".join(worker.labels) or "no labels")
    parts.append(", ".join(worker.providers) or "no keys")
    if worker.draining:
        parts.append("draining")
    return "  ".join([*parts, *(run_id[:8] for run_id in worker.runs)])
