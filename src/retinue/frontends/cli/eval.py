"""Compare two agents on the same cases with a live model, several times each: pass rate, cost and
turns with 95 % intervals. Live runs cost money: the expected cost is printed first, and --max-usd
is never exceeded.

    retinue eval reviewer --compare reviewer-2.md --live sonnet --max-usd 5 --repeat 5
    retinue eval reviewer --cases tests/reviewer.test.yaml -k error --live sonnet --max-usd 1

exit codes: 0 measured, 1 nothing could run, 2 a file or key cannot be used
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from retinue.app.agent_tests import (
    AgentScore,
    CaseResult,
    Evaluation,
    IntervalEstimate,
    SuiteOptions,
    SuiteQuote,
    compare_agents,
    find_agent_tests,
)
from retinue.app.text import plural
from retinue.core.controls import visible
from retinue.core.format import format_cost
from retinue.errors import UsageError
from retinue.frontends.cli.console.case_report import result_lines
from retinue.frontends.cli.project import add_where, folder, positive, say, write_json
from retinue.frontends.cli.test import positive_count

_DEFAULT_REPEATS = 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="the agent whose tests are run")
    parser.add_argument("--compare", metavar="OTHER.md", help="another agent file for the same cases")
    parser.add_argument("--cases", metavar="FILE", help="the test file (default: AGENT.test.yaml below this folder)")
    parser.add_argument("-k", metavar="EXPR", default="", help="only cases with these words: `error and not slow`")
    parser.add_argument("--live", metavar="MODEL", required=True, help="the model that is asked")
    parser.add_argument("--max-usd", type=positive, metavar="X", required=True, help="what all runs may cost")
    parser.add_argument(
        "--repeat",
        type=positive_count,
        metavar="N",
        default=_DEFAULT_REPEATS,
        help="runs of each case (%(default)s)",
    )
    parser.add_argument("-j", metavar="N", type=positive_count, default=2, help="cases at a time (2)")
    parser.add_argument("--trust", action="store_true", help="let the project's hooks, servers and checks take effect")
    add_where(parser, "the folder to look in (default: here)")


def execute(args: argparse.Namespace) -> int:
    tests = find_agent_tests(args.agent, folder(args.cwd), args.cases)
    others = [_other(args.compare)] if args.compare else []
    options = SuiteOptions(
        live=args.live,
        trust=args.trust,
        jobs=min(args.j, 16),
        repeat=args.repeat,
        max_usd=args.max_usd,
        decide_early=False,
    )

    def quoted(quote: SuiteQuote) -> None:
        times = 1 + len(others)
        runs = plural(quote.runs * times, "run")
        say(f"{runs} on {quote.model}: {quote.text(times)}; at most {format_cost(options.max_usd)}.")

    evaluation = asyncio.run(compare_agents(tests, others, args.k, options, quoted, _show))
    if args.json:
        write_json(evaluation)
    else:
        print("\n".join(evaluation_lines(evaluation)))
    return 0 if any(agent.runs for agent in evaluation.agents) else 1


def _other(value: str) -> Path:
    path = Path(value).expanduser()
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", remedy="Name the file of the other agent.")
    return path.resolve()


def _show(name: str, result: CaseResult) -> None:
    say(visible(f"{name}: {result_lines(result)[0]}"))
    if result.problem:
        say(visible(f"  {result.problem}"))


def evaluation_lines(evaluation: Evaluation) -> list[str]:
    """Return an evaluation as a table with one row for each agent and each case."""
    lines = [f"{'agent':<24} {'passed':>9}  {'rate':<20} {'turns':<18} cost of a run"]
    for agent in evaluation.agents:
        passed = f"{agent.passes}/{agent.runs}"
        lines.append(f"{agent.agent:<24} {passed:>9}  {_percent(agent.rate):<20} {_number(agent):<18} {_cost(agent)}")
    if evaluation.difference is not None:
        better = evaluation.difference
        certain = better.low > 0 or better.high < 0
        verdict = "the interval excludes 0" if certain else "the interval contains 0: no difference is shown"
        lines.append(f"difference of the second, case by case: {_points(better)}; {verdict}")
    lines.append("")
    for case in evaluation.cases:
        counts = "  ".join(f"{passed}/{runs}" for passed, runs in zip(case.passes, case.runs, strict=True))
        lines.append(f"{counts}  {case.case}")
    return [visible(line) for line in lines]


def _percent(rate: IntervalEstimate) -> str:
    return f"{rate.value:.0%} [{rate.low:.0%}, {rate.high:.0%}]"


def _points(difference: IntervalEstimate) -> str:
    return f"{difference.value:+.0%} [{difference.low:+.0%}, {difference.high:+.0%}]"


def _number(score: AgentScore) -> str:
    if score.turns is None:
        return "–"
    return f"{score.turns.value:.1f} [{score.turns.low:.1f}, {score.turns.high:.1f}]"


def _cost(score: AgentScore) -> str:
    if score.usd is None:
        return "unknown"
    return f"${score.usd.value:.4f} [${score.usd.low:.4f}, ${score.usd.high:.4f}]"
