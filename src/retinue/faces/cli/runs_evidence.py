"""`retinue runs export`, `runs diff` and `runs fork`: past runs as files, side by side, and as the start of another."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import msgspec

from retinue.core.controls import visible
from retinue.core.delegation import LIVE
from retinue.errors import StateError, UsageError
from retinue.evidence.cassette import SUFFIX, Cassette, export_cassette, parse_cassette, read_cassette
from retinue.evidence.compare import compare
from retinue.evidence.fork import fork_run
from retinue.faces.cli.console.comparison_report import comparison_document, comparison_lines
from retinue.faces.cli.console.output import print_json
from retinue.faces.cli.project import add_cwd, add_run, add_where, count, locate, project_of, read_task, say, write_json
from retinue.faces.cli.run import (
    add_limits,
    add_output,
    add_trust,
    budget_of,
    guarded,
    limits_of,
    open_retinue,
    output_of,
)
from retinue.faces.feed.snapshot import take_tree
from retinue.faces.text import optional
from retinue.guard.redact import Redactor
from retinue.log.query import LogReader
from retinue.log.rows import RunRow
from retinue.models.keys import environment as process_environment
from retinue.settings.places import home


def configure_export(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--cassette", metavar="FILE", help="write the run and its whole tree to this file; - for stdout"
    )
    target.add_argument(
        "--otel", action="store_true", help="send its spans to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names"
    )
    parser.add_argument(
        "--content", action="store_true", help="with --otel: also tasks, answers, arguments and results"
    )
    parser.add_argument("--json", action="store_true", help="with --otel: print one JSON document")
    add_cwd(parser)


def execute_export(args: argparse.Namespace) -> int:
    """Write a past run, with every run below it, to a cassette: one event a line, without secrets, with `$CWD` in
    place of the folder it worked in. `retinue test` and `retinue replay` play it. Or send it as an OpenTelemetry
    trace: sending it again, or after it was sent while it worked, names the same spans.

    retinue runs export 3f2a9c1d --cassette review.cassette.jsonl
    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 retinue runs export 3f2a9c1d --otel
    """
    folder, row = locate(args)
    if args.otel:
        return _send_trace(args, folder, row)
    if args.content or args.json:
        raise UsageError("--content and --json go with --otel.", remedy="Leave them out for a cassette.")
    with LogReader.open(folder) as reader:
        if row.state in LIVE:
            raise StateError(f"Run {row.id} is still at work.", remedy="Export it when it has ended.")
        data = export_cassette(reader, row, home(), Redactor(process_environment()))
    if args.cassette == "-":
        print_json(data, end=b"")
        return 0
    target = Path(args.cassette).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{target} cannot be written: {reason}.", remedy="Name another file.") from error
    lines = data.count(b"\n") - 1
    say(f"{lines} events of {row.agent} ({row.id[:8]}) are in {target}.")
    return 0


def configure_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("left", metavar="A", help="a run (its id, the beginning of it, @name) or a cassette file")
    parser.add_argument("right", metavar="B", help="the run or cassette to compare it with")
    add_where(parser)


def execute_diff(args: argparse.Namespace) -> int:
    """Compare two runs side by side: calls, results, files, cost and answer, with all that they started. Exits with 1
    where they differ.

    retinue runs diff 3f2a9c1d 8b1e0c77
    retinue runs diff 3f2a9c1d review.cassette.jsonl --json
    """
    found = compare(_recording(args, args.left), _recording(args, args.right))
    if args.json:
        write_json(comparison_document(found))
    else:
        print("\n".join(comparison_lines(found, (args.left, args.right))))
    return int(not found.same)


def _recording(args: argparse.Namespace, name: str) -> Cassette:
    if name.endswith(SUFFIX) or Path(name).is_file():
        return read_cassette(Path(name))
    folder, row = locate(argparse.Namespace(run=name, cwd=args.cwd))
    with LogReader.open(folder) as reader:
        data = export_cassette(reader, row, home(), Redactor(process_environment()))
    return parse_cassette(data, name)


def _send_trace(args: argparse.Namespace, folder: Path, row: RunRow) -> int:
    from retinue.capabilities.telemetry.attach import send_past

    with LogReader.open(folder) as reader:
        runs = [each.id for each in take_tree(reader, row.id).runs]
        sent = asyncio.run(send_past(reader, runs, process_environment(), content=args.content))
    if sent.failure:
        raise StateError(
            f"The trace could not be sent to {sent.endpoint}: {sent.failure}.",
            remedy="Start the collector, or name another one with OTEL_EXPORTER_OTLP_ENDPOINT.",
        )
    if args.json:
        write_json(msgspec.to_builtins(sent))
    else:
        say(f"{sent.spans} spans of {len(runs)} runs went to {sent.endpoint} as trace {sent.trace_id}.")
    return 0


def configure_fork(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--at", type=count, required=True, metavar="SEQ", help="the last event that counts")
    parser.add_argument("--edit", metavar="TEXT", help="what is said there instead, or next: words, @file or -")
    parser.add_argument("--model", metavar="MODEL", help="go on with this model, of any provider")
    parser.add_argument("--keep-files", action="store_true", help="leave the files as they are now")
    add_output(parser)
    add_limits(parser)
    add_cwd(parser)
    add_trust(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error, only warnings")


def execute_fork(args: argparse.Namespace) -> int:
    """Go back to a moment of a run, change something, and go on from there as a new run; the old one stays as it is.

    At a message of a person --edit replaces it; elsewhere it is said next. Files that the old run has changed after
    that moment are put back where checkpoints have them and nobody else has changed them since.

        retinue runs show 3f2a9c1d --json         (lists the events with their numbers)
        retinue runs fork 3f2a9c1d --at 12 --edit "Only look in src/"
        retinue runs fork 3f2a9c1d --at 12 --model opus --keep-files
    """
    from retinue.faces.cli.console.foreground import drive

    output = output_of(args)

    async def work() -> int:
        state, row = locate(args)
        edit = None if args.edit is None else read_task(args.edit, "edit")
        async with open_retinue(args, project_of(state, row)) as retinue:
            project = retinue.supervisor.project
            fork = await fork_run(project, row.id, args.at, edit=edit, keep_files=args.keep_files)
            say(f"Forked from {row.id[:8]} at event {fork.at} as {fork.run_id}.")
            for each in fork.files:
                say(visible(f"  {each.fate}: {each.path}{optional(' ({})', each.detail)}"))
            limits, budget = limits_of(args) or None, budget_of(args)
            run = await retinue.resume(fork.run_id, fork.prompt, model=args.model, limits=limits, budget=budget)
            return await drive(retinue, run, output, quiet=args.quiet)

    return guarded(work, output)
