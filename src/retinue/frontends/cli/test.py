"""`retinue test` and `retinue test new`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from retinue.app.agent_tests import (
    CaseResult,
    ChosenCases,
    SuiteOptions,
    draft_test,
    find_tests,
    quote_tests,
    report_tests,
    run_tests,
)
from retinue.app.lookup import newest_run
from retinue.app.output import put
from retinue.core.controls import visible
from retinue.core.format import format_cost
from retinue.errors import RetinueError, UsageError
from retinue.frontends.cli.console import case_report
from retinue.frontends.cli.project import add_cwd, add_json, folder, locate, positive, say, write_json

_MAX_JOBS = 32


def positive_count(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) <= 10_000:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not '{value}'")
    return int(value)


def configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="test files or folders (default: here)")
    parser.add_argument("-k", metavar="EXPR", default="", help="only cases with these words: `reviewer and not slow`")
    parser.add_argument(
        "-j", metavar="N", type=positive_count, default=min(os.cpu_count() or 1, 4), help="cases at a time"
    )
    parser.add_argument("--live", metavar="MODEL", help="ask this model instead of playing recordings; costs money")
    parser.add_argument("--max-usd", type=positive, metavar="X", help="what all live runs may cost; needed for --live")
    parser.add_argument("--repeat", type=positive_count, metavar="N", help="repetitions of each case (live only)")
    parser.add_argument("--record", action="store_true", help="write the cassettes of what runs live")
    parser.add_argument("--update", action="store_true", help="write golden files and cassettes anew from this run")
    parser.add_argument("--junit", metavar="FILE", help="write a JUnit document to this file")
    parser.add_argument("--github", action="store_true", help="mark failed cases in a GitHub workflow")
    parser.add_argument("--trust", action="store_true", help="let the project's hooks, servers and checks take effect")
    add_json(parser)
    add_cwd(parser, "the folder to look in (default: here)")


def execute_run(args: argparse.Namespace) -> int:
    """Run the tests beside agent files (NAME.test.yaml): each case in a temporary copy of its
    fixture, with recorded model answers in order, judged by the actions of the agent. Without
    --live no provider is called.

        retinue test
        retinue test .claude/agents/reviewer.test.yaml -k "unchecked error"
        retinue test --live sonnet --max-usd 2 --repeat 5
        retinue test new reviewer 3f2a9c1d          (draft a test from a past run)

    exit codes: 0 all passed, 1 a case failed, 2 a file or key cannot be used
    """
    _check_options(args)
    base = folder(args.cwd)
    began = time.monotonic()
    chosen, problems, files = find_tests([base / path for path in args.paths] or [base], args.k)
    for problem in problems:
        say(visible(problem))
    options = SuiteOptions(
        live=args.live,
        trust=args.trust,
        record=args.record,
        update=args.update,
        jobs=min(args.j, _MAX_JOBS),
        repeat=args.repeat,
        max_usd=args.max_usd,
    )
    if not chosen and not problems:
        text = f"No case matches '{args.k}'." if files else f"There are no test files (NAME.test.yaml) in {base}."
        raise UsageError(text, remedy="Draft one from a past run: retinue test new AGENT RUN")
    results = asyncio.run(_run(chosen, options, args)) if chosen else []
    _report(results, problems, args, base, time.monotonic() - began)
    if problems or any(result.verdict == "unusable" for result in results):
        return 2
    return int(any(result.verdict == "failed" for result in results))


def _check_options(args: argparse.Namespace) -> None:
    if args.live is not None and args.max_usd is None:
        raise UsageError("--live costs money and has no limit.", remedy="Say what it may cost: --max-usd 2")
    if args.live is None:
        for name in ("record", "repeat", "max_usd"):
            if getattr(args, name):
                raise UsageError(f"--{name.replace('_', '-')} needs a model that is asked.", remedy="Add --live MODEL.")
    if args.live is not None and args.update:
        raise UsageError("--update stores the results of an offline run.", remedy="Use --record for a live run.")


async def _run(chosen: ChosenCases, options: SuiteOptions, args: argparse.Namespace) -> list[CaseResult]:
    if options.live is not None:
        quote = await quote_tests(chosen, options)
        say(f"{quote.runs} runs on {quote.model}: {quote.text()}; at most {format_cost(options.max_usd)}.")

    def show(result: CaseResult) -> None:
        if not args.json:
            put(visible("\n".join(case_report.result_lines(result))) + "\n")
        elif sys.stderr.isatty():
            say(visible(case_report.result_lines(result)[0]))

    return await run_tests(chosen, options, show)


def _report(
    results: list[CaseResult], problems: list[str], args: argparse.Namespace, base: Path, seconds: float
) -> None:
    if args.json:
        write_json(report_tests(results, problems))
    else:
        put(case_report.summary_line(results, seconds) + "\n")
    if args.junit:
        _write(Path(args.junit), case_report.junit(results, problems))
    if args.github:
        lines = case_report.workflow_commands(results, base)
        # With --json, stdout holds one document; GitHub reads commands from both streams.
        for line in lines:
            say(line) if args.json else put(line + "\n")
        target = os.environ.get("GITHUB_STEP_SUMMARY")
        if target:
            with Path(target).open("a", encoding="utf-8") as stream:
                stream.write(case_report.step_summary(results, seconds))


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error


def configure_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="AGENT", help="the agent to test")
    parser.add_argument("run", nargs="?", metavar="ID", help="the run to draft from (default: its newest one here)")
    parser.add_argument("--output", "-o", metavar="FILE", help="the test file (default: beside the agent's file)")
    add_cwd(parser)


def execute_new(args: argparse.Namespace) -> int:
    """Draft a test of an agent from a past run: its cassette, and a NAME.test.yaml beside the
    agent's file that expects the actions of the run. Review the expectations and keep those that
    matter.

        retinue test new reviewer                (from its newest run)
        retinue test new reviewer 3f2a9c1d
    """
    base = folder(args.cwd)
    if args.run is None:
        args.run = _newest_run(args)
    state, row = locate(args)
    target = Path(args.output) if args.output else None
    try:
        path, cassette = draft_test(state, row, args.name, base, target)
    except OSError as error:
        raise RetinueError(f"The test cannot be written: {error.strerror or error}.") from error
    say(f"Written: {path} and {cassette}. Run it: retinue test {path}")
    return 0


def _newest_run(args: argparse.Namespace) -> str:
    row = newest_run(folder(args.cwd), agent=args.name, states={"ended"})
    if row is None:
        raise UsageError(
            f"No run of {args.name} has ended in this project.", remedy=f"Run it: retinue run {args.name} …"
        )
    return row.id
