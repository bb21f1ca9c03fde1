"""`retinue runs export`, `runs diff` and `runs fork`: past runs exported, compared and forked."""

from __future__ import annotations

import argparse
from pathlib import Path

from retinue.app.lookup import project_of
from retinue.app.output import print_json
from retinue.app.recordings import compare_recordings, export_run, send_trace
from retinue.app.session_options import read_task
from retinue.app.text import optional
from retinue.core.controls import visible
from retinue.core.run_state import RunState
from retinue.errors import UsageError
from retinue.frontends.cli.console.comparison_report import comparison_lines
from retinue.frontends.cli.project import add_cwd, add_run, add_where, count, folder, locate, say, write_json
from retinue.frontends.cli.run import add_continuation, open_retinue, output_of, resume_run, run_guarded


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
    """Write a past run, with every run below it, to a cassette: one event a line, without secrets,
    with `$CWD` in place of its folder. `retinue test` and `retinue replay` play cassettes. Or send
    it as an OpenTelemetry trace, in which repeated exports have the same spans.

        retinue runs export 3f2a9c1d --cassette review.cassette.jsonl
        OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 retinue runs export 3f2a9c1d --otel
    """
    state, row = locate(args)
    if args.otel:
        return _send_trace(args, state, row)
    if args.content or args.json:
        raise UsageError("--content and --json go with --otel.", remedy="Leave them out for a cassette.")
    data = export_run(state, row)
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
    parser.add_argument("left", metavar="A", help="a run (its id, a prefix of it, @name) or a cassette file")
    parser.add_argument("right", metavar="B", help="the run or cassette to compare it with")
    add_where(parser)


def execute_diff(args: argparse.Namespace) -> int:
    """Compare two runs: calls, results, files, cost and answer, including all runs below them.
    Exits with 1 if they differ.

        retinue runs diff 3f2a9c1d 8b1e0c77
        retinue runs diff 3f2a9c1d review.cassette.jsonl --json
    """
    report = compare_recordings(args.left, args.right, folder(args.cwd))
    if args.json:
        write_json(report)
    else:
        print("\n".join(comparison_lines(report, (args.left, args.right))))
    return int(not report.same)


def _send_trace(args: argparse.Namespace, state: Path, row: RunState) -> int:
    sent, runs = send_trace(state, row, content=args.content)
    if args.json:
        write_json(sent)
    else:
        say(f"{sent.spans} spans of {runs} runs went to {sent.endpoint} as trace {sent.trace_id}.")
    return 0


def configure_fork(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--at", type=count, required=True, metavar="SEQ", help="the last event that the fork keeps")
    parser.add_argument(
        "--edit", metavar="TEXT", help="a message that replaces the one there, or is said next: text, @file or -"
    )
    parser.add_argument("--keep-files", action="store_true", help="leave the files as they are now")
    add_continuation(parser)


def execute_fork(args: argparse.Namespace) -> int:
    """Start a new run from an earlier event of a run, with a change; the old run is not affected.

    At a message of a person, --edit replaces it; elsewhere it is said next. Files that the old run
    has changed since are restored if there are checkpoints and nobody else has changed them.

        retinue runs show 3f2a9c1d --json         (lists the events with their numbers)
        retinue runs fork 3f2a9c1d --at 12 --edit "Only look in src/"
        retinue runs fork 3f2a9c1d --at 12 --model opus --keep-files
    """

    async def work() -> int:
        state, row = locate(args)
        edit = None if args.edit is None else read_task(args.edit, "edit")
        async with open_retinue(args, project_of(state, row)) as retinue:
            fork = await retinue.fork(row.id, args.at, edit=edit, keep_files=args.keep_files)
            say(f"Forked from {row.id[:8]} at event {fork.at} as {fork.run_id}.")
            for file in fork.files:
                say(visible(f"  {file.fate}: {file.path}{optional(' ({})', file.detail)}"))
            return await resume_run(retinue, fork.run_id, fork.prompt, args)

    return run_guarded(work, output_of(args))
