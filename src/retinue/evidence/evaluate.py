"""Which of two agents is better, asked of a live model: the same cases for both, several times, with intervals.

Pass rates have Wilson intervals, means of cost and turns have bootstrap intervals of fixed seed, and the difference of
the pass rates is taken case by case, because both agents had the same cases. Small numbers give wide intervals: that
is what they are for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from retinue.evidence.case_file import AgentTests
from retinue.evidence.case_run import Trial
from retinue.evidence.suite import CaseResult, Suite, SuiteOptions

_Z = 1.96
_SAMPLES = 2000
_SEED = 20


class IntervalEstimate(Struct, frozen=True):
    """A value with its interval of 95 %."""

    value: float
    low: float
    high: float


class AgentScore(Struct, frozen=True, kw_only=True):
    """One agent over all its runs. `usd` is None where a price is not known, or nothing ran."""

    agent: str
    runs: int
    passes: int
    rate: IntervalEstimate
    turns: IntervalEstimate | None
    usd: IntervalEstimate | None
    spent: float


class CaseScore(Struct, frozen=True):
    """One case: how often each agent passed it, out of how many runs."""

    case: str
    passes: tuple[int, ...]
    runs: tuple[int, ...]


class Evaluation(Struct, frozen=True):
    """`difference` is the pass rate of the second agent minus that of the first, over the cases that both have run;
    None for one agent alone."""

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
) -> tuple[Evaluation, list[CaseResult]]:
    """Run the chosen cases with the agent of the test file and with each of `others`, and return what came of it. Each
    agent may spend its share of the price limit."""
    names = [tests.agent, *(path.name for path in others)]
    files: list[Path | None] = [None, *others]
    # Half of the price limit for each of two: the second must not get what the first has left.
    share = None if options.max_usd is None else options.max_usd / len(names)
    results: list[list[CaseResult]] = []
    for name, file in zip(names, files, strict=True):
        trial = replace(options.trial, agent_file=file)
        suite = Suite(replace(options, trial=trial, max_usd=share), environment, partial(on_result, name))
        results.append(await suite.run([(tests, number) for number in chosen]))
    scores = tuple(score(name, found) for name, found in zip(names, results, strict=True))
    cases = tuple(_case_score(each) for each in zip(*results, strict=True))
    difference = paired_difference(cases) if len(others) == 1 else None
    return Evaluation(scores, cases, difference), [result for each in results for result in each]


def score(name: str, results: Sequence[CaseResult]) -> AgentScore:
    """Return what the runs of one agent come to."""
    trials: list[Trial] = []
    for result in results:
        trials += [trial for trial in result.trials if trial.record is not None]
    passes = sum(trial.status == "passed" for trial in trials)
    turns = [float(trial.record.outcome.turns) for trial in trials if trial.record is not None]
    costs = [trial.usd for trial in trials]
    known = [cost for cost in costs if cost is not None]
    return AgentScore(
        agent=name,
        runs=len(trials),
        passes=passes,
        rate=wilson(passes, len(trials)),
        turns=mean_interval(turns) if turns else None,
        usd=mean_interval(known) if known and len(known) == len(costs) else None,
        spent=sum(known),
    )


def _case_score(results: Sequence[CaseResult]) -> CaseScore:
    ran = [[trial for trial in result.trials if trial.record is not None] for result in results]
    passes = tuple(sum(trial.status == "passed" for trial in trials) for trials in ran)
    return CaseScore(results[0].case.name, passes, tuple(len(trials) for trials in ran))


def wilson(passes: int, runs: int) -> IntervalEstimate:
    """Return a pass rate with its Wilson score interval; from 0 to 1 where nothing ran."""
    if runs == 0:
        return IntervalEstimate(0.0, 0.0, 1.0)
    rate = passes / runs
    scale = 1 + _Z**2 / runs
    centre = (rate + _Z**2 / (2 * runs)) / scale
    spread = _Z * math.sqrt(rate * (1 - rate) / runs + _Z**2 / (4 * runs**2)) / scale
    return IntervalEstimate(rate, max(centre - spread, 0.0), min(centre + spread, 1.0))


def mean_interval(values: Sequence[float]) -> IntervalEstimate:
    """Return a mean with its bootstrap interval; the same values always give the same interval."""
    chance = random.Random(_SEED)  # noqa: S311 - repeatable, not secret
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(_SAMPLES))
    return IntervalEstimate(fmean(values), means[int(0.025 * _SAMPLES)], means[int(0.975 * _SAMPLES) - 1])


def paired_difference(cases: Sequence[CaseScore]) -> IntervalEstimate | None:
    """Return the mean difference of the pass rates, case by case; None where no case has run for both."""
    differences = []
    for case in cases:
        if all(case.runs):
            first, second = (passed / runs for passed, runs in zip(case.passes, case.runs, strict=True))
            differences.append(second - first)
    return mean_interval(differences) if differences else None
