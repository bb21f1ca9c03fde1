"""Suites of cases: their selection, the repetitions of each until its verdict is certain, and the total cost limit.

`evaluate` compares two agents on a live model: both run the same cases several times. Pass rates have Wilson intervals,
means of cost and turns have bootstrap intervals with a fixed seed. The difference of the pass rates is computed case by
case, because both agents had the same cases.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.usage import Usage
from retinue.errors import ConfigurationError, UsageError
from retinue.models.select import select_model
from retinue.recordings.case_file import AgentTests, Case, Policy, scenario_path
from retinue.recordings.case_run import RunCase, SuiteOptions, Trial
from retinue.recordings.cassette import CassetteError, read_cassette
from retinue.recordings.workspace import clear_leftovers
from retinue.settings.load import load_settings

USUALLY_PASS_SHARE = 0.8
"""The share of repetitions that must pass under the policy `usually`."""

Verdict = Literal["passed", "failed", "skipped", "tracked", "unusable"]


class CaseResult(Struct, frozen=True, kw_only=True):
    """A case with all its repetitions. The verdict `tracked` never fails: only the pass rate is reported. `unusable`
    means that a file of the case cannot be used, for the reason in `problem`."""

    tests: AgentTests
    number: int
    verdict: Verdict
    trials: tuple[Trial, ...] = ()
    repeats: int = 1
    problem: str = ""
    live: bool = False

    @property
    def case(self) -> Case:
        return self.tests.file.cases[self.number]

    @property
    def passes(self) -> int:
        return sum(trial.status == "passed" for trial in self.trials)

    @property
    def usd(self) -> float | None:
        """The cost of its runs; None if unknown."""
        usages = (trial.record.usage for trial in self.trials if trial.record is not None)
        return sum(usages, Usage()).cost_usd


class SuiteQuote(Struct, frozen=True):
    """The expected cost of live runs. `unknown` is the number of runs without an estimate."""

    runs: int
    usd: float
    unknown: int
    model: str

    def text(self, times: int = 1) -> str:
        """Return the estimate in words for `times` times as many runs."""
        priced = self.runs - self.unknown
        phrases = []
        if priced:
            phrases.append(f"about ${self.usd * times:.4f} for {priced * times} by their recordings and limits")
        if self.unknown:
            phrases.append(f"the cost of {self.unknown * times} is unknown")
        return ", ".join(phrases)


def choose_cases(files: Sequence[AgentTests], expression: str) -> list[tuple[AgentTests, int]]:
    """Return the cases whose agent and name match an expression such as `reviewer and not slow`."""
    return [
        (tests, number)
        for tests in files
        for number, case in enumerate(tests.file.cases)
        if _matches(expression.casefold(), f"{tests.agent} {case.name}".casefold())
    ]


def _matches(expression: str, text: str) -> bool:
    def is_true(term: str) -> bool:
        word = term.removeprefix("not ")
        return (word.strip() in text) is (word == term)

    return any(all(is_true(term.strip()) for term in choice.split(" and ")) for choice in expression.split(" or "))


async def quote_suite(
    chosen: Sequence[tuple[AgentTests, int]], options: SuiteOptions, environment: Mapping[str, str]
) -> SuiteQuote:
    """Estimate the cost of live runs of these cases from the cost of their recordings. Raise UsageError for a model
    whose price is unknown: no limit could stop it."""
    folder = chosen[0][0].path.parent
    settings = load_settings(folder, environment=environment).settings
    selection = await select_model(options.live, settings=settings, environment=environment)
    if selection.info.prices is None:
        raise UsageError(
            f"The price of {selection.info.full_name} is unknown, so --max-usd could not stop it.",
            remedy="Describe its price under `models` in the settings.",
        )
    runs, usd, unknown = 0, 0.0, 0
    for tests, number in chosen:
        case = tests.file.cases[number]
        count = options.repeat or case.repeat
        cost = _expected_cost(tests, case)
        runs += count
        unknown += count if cost is None else 0
        usd += count * (cost or 0.0)
    return SuiteQuote(runs, usd, unknown, selection.info.full_name)


def _expected_cost(tests: AgentTests, case: Case) -> float | None:
    path = scenario_path(tests, case)
    recorded = None
    if path.is_file():
        with suppress(CassetteError):
            recorded = read_cassette(path).head.usd
    return recorded or (None if case.limits is None else case.limits.usd)


class Suite:
    """Runs cases, several at a time. `on_result` receives each result."""

    def __init__(
        self,
        options: SuiteOptions,
        environment: Mapping[str, str],
        on_result: Callable[[CaseResult], None] = lambda result: None,
    ) -> None:
        self._options = options
        self._environment = environment
        self._on_result = on_result
        self._slots = asyncio.Semaphore(max(options.jobs, 1))
        self._spent = 0.0

    async def run(self, chosen: Sequence[tuple[AgentTests, int]]) -> list[CaseResult]:
        """Return the results in the order of the cases."""
        await asyncio.to_thread(clear_leftovers)
        return await asyncio.gather(*(self._run_case(tests, number) for tests, number in chosen))

    async def _run_case(self, tests: AgentTests, number: int) -> CaseResult:
        async with self._slots:
            try:
                result = await self._repeat(tests, number)
            except ConfigurationError as error:
                result = CaseResult(tests=tests, number=number, verdict="unusable", problem=str(error))
        self._on_result(result)
        return result

    async def _repeat(self, tests: AgentTests, number: int) -> CaseResult:
        case = tests.file.cases[number]
        live = self._options.live is not None
        repeats = (self._options.repeat or case.repeat) if live else 1
        trials: list[Trial] = []
        policy = case.policy if self._options.decide_early else "tracked"
        while not decided(policy, trials, repeats):
            trials.append(await self._try(tests, number))
        verdict = verdict_of(case.policy, trials, repeats)
        return CaseResult(tests=tests, number=number, verdict=verdict, trials=tuple(trials), repeats=repeats, live=live)

    async def _try(self, tests: AgentTests, number: int) -> Trial:
        options = self._options
        limit = options.max_usd
        if options.live is not None and limit is not None:
            remaining = limit - self._spent
            if remaining <= 0:
                name = tests.file.cases[number].name
                return Trial(case=name, status="skipped", notes=(f"the limit of ${limit:g} is reached",))
            options = replace(options, max_usd=remaining)
        trial = await RunCase(tests, number, options, self._environment).run()
        if options.live is not None:
            self._spent += trial.usd or 0.0
        return trial


def decided(policy: Policy, trials: Sequence[Trial], repeats: int) -> bool:
    """Return whether no repetition is left, or none could change the verdict."""
    if len(trials) >= repeats or any(trial.status == "skipped" for trial in trials):
        return True
    if policy == "tracked":
        return False
    needed = needed_passes(policy, repeats)
    passes = sum(trial.status == "passed" for trial in trials)
    failures = len(trials) - passes
    return failures > repeats - needed or (passes >= needed and policy == "usually")


def needed_passes(policy: Policy, repeats: int) -> int:
    """Return how many repetitions must pass."""
    if policy == "usually":
        return math.ceil(USUALLY_PASS_SHARE * repeats)
    return repeats


def verdict_of(policy: Policy, trials: Sequence[Trial], repeats: int) -> Verdict:
    ran = [trial for trial in trials if trial.status != "skipped"]
    if len(ran) < len(trials):
        failed_before = any(trial.status == "failed" for trial in ran)
        return "failed" if failed_before and policy == "always" else "skipped"
    if policy == "tracked":
        return "tracked"
    passes = sum(trial.status == "passed" for trial in ran)
    return "passed" if passes >= needed_passes(policy, repeats) else "failed"


# Comparison of agents

_Z_95_PERCENT = 1.96
_BOOTSTRAP_SAMPLES = 2000
_BOOTSTRAP_SEED = 20


class IntervalEstimate(Struct, frozen=True):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class AgentScore(Struct, frozen=True, kw_only=True):
    """The figures of one agent over all its runs. `usd` is None if a price is unknown or nothing ran."""

    agent: str
    runs: int
    passes: int
    rate: IntervalEstimate
    turns: IntervalEstimate | None
    usd: IntervalEstimate | None
    spent: float


class CaseScore(Struct, frozen=True):
    """The passes and runs of each agent in one case."""

    case: str
    passes: tuple[int, ...]
    runs: tuple[int, ...]


class Evaluation(Struct, frozen=True):
    """The figures of all agents. `difference` is the pass rate of the second agent minus that of the first, over the
    cases that both have run; None for a single agent."""

    agents: tuple[AgentScore, ...]
    cases: tuple[CaseScore, ...]
    difference: IntervalEstimate | None = None


async def evaluate(
    tests: AgentTests,
    others: Sequence[Path],
    chosen: Sequence[int],
    options: SuiteOptions,
    environment: Mapping[str, str],
    on_result: Callable[[str, CaseResult], None] = lambda name, result: None,
) -> Evaluation:
    """Run the chosen cases with the agent of the test file and with each of `others`. Each agent may spend an equal
    share of the cost limit."""
    names = [tests.agent, *(path.name for path in others)]
    # A fixed share for each: no agent may spend what another one left.
    share = None if options.max_usd is None else options.max_usd / len(names)
    results: list[list[CaseResult]] = []
    for name, file in zip(names, (None, *others), strict=True):
        agent_options = replace(options, agent_file=file, max_usd=share)
        suite = Suite(agent_options, environment, partial(on_result, name))
        results.append(await suite.run([(tests, number) for number in chosen]))
    scores = tuple(map(score, names, results))
    cases = tuple(map(_case_score, zip(*results, strict=True)))
    difference = paired_difference(cases) if len(others) == 1 else None
    return Evaluation(scores, cases, difference)


def score(name: str, results: Sequence[CaseResult]) -> AgentScore:
    """Return the figures of all runs of one agent."""
    records = [trial.record for result in results for trial in result.trials if trial.record is not None]
    passes = sum(result.passes for result in results)
    costs = [record.usage.cost_usd for record in records if record.usage.cost_usd is not None]
    return AgentScore(
        agent=name,
        runs=len(records),
        passes=passes,
        rate=wilson(passes, len(records)),
        turns=mean_interval([record.outcome.turns for record in records]) if records else None,
        usd=mean_interval(costs) if costs and len(costs) == len(records) else None,
        spent=sum(costs),
    )


def _case_score(results: Sequence[CaseResult]) -> CaseScore:
    runs = (sum(trial.record is not None for trial in result.trials) for result in results)
    return CaseScore(results[0].case.name, tuple(result.passes for result in results), tuple(runs))


def wilson(passes: int, runs: int) -> IntervalEstimate:
    """Return a pass rate with its Wilson score interval, which is 0 to 1 if nothing ran."""
    if runs == 0:
        return IntervalEstimate(0.0, 0.0, 1.0)
    rate = passes / runs
    scale = 1 + _Z_95_PERCENT**2 / runs
    centre = (rate + _Z_95_PERCENT**2 / (2 * runs)) / scale
    spread = _Z_95_PERCENT * math.sqrt(rate * (1 - rate) / runs + _Z_95_PERCENT**2 / (4 * runs**2)) / scale
    return IntervalEstimate(rate, max(centre - spread, 0.0), min(centre + spread, 1.0))


def mean_interval(values: Sequence[float]) -> IntervalEstimate:
    """Return a mean with its bootstrap interval. The same values always give the same interval."""
    generator = random.Random(_BOOTSTRAP_SEED)  # noqa: S311 - repeatable, not secret
    means = sorted(fmean(generator.choices(values, k=len(values))) for _ in range(_BOOTSTRAP_SAMPLES))
    return IntervalEstimate(
        fmean(values), means[int(0.025 * _BOOTSTRAP_SAMPLES)], means[int(0.975 * _BOOTSTRAP_SAMPLES) - 1]
    )


def paired_difference(cases: Sequence[CaseScore]) -> IntervalEstimate | None:
    """Return the mean difference of the pass rates, case by case; None if no case ran for both agents."""
    differences = []
    for case in cases:
        if all(case.runs):
            first, second = (passed / runs for passed, runs in zip(case.passes, case.runs, strict=True))
            differences.append(second - first)
    return mean_interval(differences) if differences else None
