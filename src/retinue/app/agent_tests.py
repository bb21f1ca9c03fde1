"""Tests of agents, judged by their actions: run offline or live, compared on the same cases, drafted from past runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.run_state import RunState
from retinue.errors import UsageError
from retinue.models.keys import environment
from retinue.recordings.case_file import SUFFIX, AgentTests, CaseFileError, find_test_files, read_test_file
from retinue.recordings.case_run import SuiteOptions as SuiteOptions
from retinue.recordings.case_run import Trial as Trial
from retinue.recordings.draft import draft_test as draft
from retinue.recordings.expect import UnmetExpectation as UnmetExpectation
from retinue.recordings.suite import AgentScore as AgentScore
from retinue.recordings.suite import CaseResult as CaseResult
from retinue.recordings.suite import Evaluation as Evaluation
from retinue.recordings.suite import IntervalEstimate as IntervalEstimate
from retinue.recordings.suite import Suite, choose_cases, evaluate, quote_suite
from retinue.recordings.suite import SuiteQuote as SuiteQuote

ChosenCases = list[tuple[AgentTests, int]]


class TrialView(Struct, frozen=True, kw_only=True):
    """One run of a case."""

    status: str
    seconds: float
    model: str | None
    usd: float | None
    turns: int
    notes: Sequence[str]
    unmet: Sequence[UnmetExpectation]


class CaseView(Struct, frozen=True, kw_only=True):
    """A case with all its runs."""

    file: str
    line: int | None
    agent: str
    case: str
    verdict: str
    policy: object
    wanted: int
    problem: str
    usd: float | None
    trials: list[TrialView]


class TestReport(Struct, frozen=True):
    """The results of cases. `problems` are test files that cannot be used."""

    counts: Mapping[str, int]
    problems: Sequence[str]
    cases: list[CaseView]


def find_tests(paths: Sequence[Path], expression: str) -> tuple[ChosenCases, list[str], int]:
    """Find the cases below `paths` that match `expression`. Return them, the problems of files that cannot be used, and
    the number of files that can."""
    files, problems = [], []
    for path in find_test_files(list(paths)):
        try:
            files.append(read_test_file(path))
        except CaseFileError as error:
            problems.append(str(error))
    return choose_cases(files, expression), problems, len(files)


async def quote_tests(chosen: ChosenCases, options: SuiteOptions) -> SuiteQuote:
    """Estimate the cost of live runs of these cases. Raise UsageError for a model whose price is unknown."""
    return await quote_suite(chosen, options, environment())


async def run_tests(chosen: ChosenCases, options: SuiteOptions, show: Callable[[CaseResult], None]) -> list[CaseResult]:
    """Run the cases. `show` is called with each result as soon as it is known."""
    return await Suite(options, environment(), show).run(chosen)


def report_tests(results: Sequence[CaseResult], problems: Sequence[str]) -> TestReport:
    """Return the results as one document."""
    counts: dict[str, int] = {}
    for result in results:
        counts[result.verdict] = counts.get(result.verdict, 0) + 1
    return TestReport(counts, problems, [_case(result) for result in results])


def _case(result: CaseResult) -> CaseView:
    return CaseView(
        file=str(result.tests.path),
        line=result.tests.line_of(result.number),
        agent=result.tests.agent,
        case=result.case.name,
        verdict=result.verdict,
        policy=result.case.policy,
        wanted=result.repeats,
        problem=result.problem,
        usd=result.usd,
        trials=[_trial(trial) for trial in result.trials],
    )


def _trial(trial: Trial) -> TrialView:
    return TrialView(
        status=trial.status,
        seconds=round(trial.seconds, 3),
        model=trial.model,
        usd=trial.usd,
        turns=trial.record.outcome.turns if trial.record is not None else 0,
        notes=trial.notes,
        unmet=trial.unmet,
    )


def draft_test(state: Path, row: RunState, agent: str, cwd: Path, target: Path | None) -> tuple[Path, Path]:
    """Write a test of an agent that expects what a past run did. Return its file and its cassette."""
    return draft(state, row, agent, cwd, target, environment())


def find_agent_tests(agent: str, cwd: Path, file: str | None) -> AgentTests:
    """Return the tests of an agent: those in `file`, or those found below `cwd`. Raise UsageError if there are none."""
    if file:
        return read_test_file(Path(file).expanduser())
    for path in find_test_files([cwd]):
        if path.name == f"{agent}{SUFFIX}":
            return read_test_file(path)
    raise UsageError(
        f"There is no {agent}{SUFFIX} in {cwd}.", remedy=f"Name it with --cases, or: retinue test new {agent}"
    )


async def compare_agents(
    tests: AgentTests,
    others: Sequence[Path],
    expression: str,
    options: SuiteOptions,
    quoted: Callable[[SuiteQuote], None],
    show: Callable[[str, CaseResult], None],
) -> Evaluation:
    """Run the cases that match `expression` with the agent of `tests` and with each of `others`. `quoted` is called
    with the expected cost. Raise UsageError if no case matches."""
    chosen = choose_cases([tests], expression)
    if not chosen:
        raise UsageError(f"No case matches '{expression}'.", remedy=f"See {tests.path}.")
    quoted(await quote_suite(chosen, options, environment()))
    numbers = [number for _, number in chosen]
    return await evaluate(tests, others, numbers, options, environment(), show)
