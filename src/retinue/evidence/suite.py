"""Many cases: which are chosen, how often each is run, when its verdict is certain, and what all of them may cost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.errors import ConfigurationError, UsageError
from retinue.evidence.case_file import AgentTests, Case, Policy
from retinue.evidence.case_run import RunCase, Trial, TrialOptions, scenario_path
from retinue.evidence.cassette import CassetteError, read_cassette
from retinue.evidence.leftovers import clear_leftovers
from retinue.models.select import select_model
from retinue.settings.load import load_settings

USUALLY = 0.8
"""The share of repetitions of a case with the policy `usually` that must pass."""

Verdict = Literal["passed", "failed", "skipped", "tracked", "unusable"]


class CaseResult(Struct, frozen=True, kw_only=True):
    """A case with all its repetitions. `tracked` never fails: its pass rate is only reported. `unusable`: a file of it
    cannot be used, as `problem` says."""

    tests: AgentTests
    number: int
    verdict: Verdict
    trials: tuple[Trial, ...] = ()
    wanted: int = 1
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
        """What its runs cost; None where that is not known."""
        total = 0.0
        for trial in self.trials:
            if trial.record is not None and trial.usd is None:
                return None
            total += trial.usd or 0.0
        return total


class SuiteOptions(Struct, frozen=True, kw_only=True):
    """`max_usd` bounds all live runs together; `repeat` goes before what the file says. Without `decide_early` all
    repetitions are run, also when the verdict is certain."""

    trial: TrialOptions = TrialOptions()
    jobs: int = 2
    repeat: int | None = None
    chosen: str = ""
    max_usd: float | None = None
    decide_early: bool = True


class SuiteQuote(Struct, frozen=True):
    """What live runs are expected to cost. `unknown` counts those of which nothing is known."""

    runs: int
    usd: float
    unknown: int
    model: str

    def text(self, times: int = 1) -> str:
        """Return what is expected, in words, for so many times these runs."""
        known = self.runs - self.unknown
        parts = []
        if known:
            parts.append(f"about ${self.usd * times:.4f} for {known * times} by their recordings and limits")
        if self.unknown:
            parts.append(f"nothing is known of the cost of {self.unknown * times}")
        return ", ".join(parts)


def choose_cases(files: Sequence[AgentTests], expression: str) -> list[tuple[AgentTests, int]]:
    """Return the cases whose agent and name match: words joined by `and`, `or` and `not`."""
    found = []
    for tests in files:
        for number, case in enumerate(tests.file.cases):
            if matches(expression, f"{tests.agent} {case.name}"):
                found.append((tests, number))
    return found


def matches(expression: str, name: str) -> bool:
    """Return whether a name has the words of an expression such as `reviewer and not slow`."""
    text = name.casefold()
    for choice in expression.casefold().split(" or "):
        if all(_holds(part.strip(), text) for part in choice.split(" and ")):
            return True
    return False


def _holds(part: str, text: str) -> bool:
    if part.startswith("not "):
        return part.removeprefix("not ").strip() not in text
    return part in text


async def quote_suite(
    chosen: Sequence[tuple[AgentTests, int]], options: SuiteOptions, environment: Mapping[str, str]
) -> SuiteQuote:
    """Return what live runs of these cases would cost, by what their recordings cost. Raise UsageError for a model
    whose price is not known: no limit could hold it."""
    folder = chosen[0][0].path.parent
    settings = load_settings(folder, environment=environment).settings
    selection = await select_model(options.trial.live, settings=settings, environment=environment)
    if selection.info.prices is None:
        raise UsageError(
            f"The price of {selection.info.full_name} is not known, so --max-usd could not stop it.",
            remedy="Describe its price under `models` in the settings.",
        )
    runs, usd, unknown = 0, 0.0, 0
    for tests, number in chosen:
        case = tests.file.cases[number]
        count = options.repeat or case.repeat
        each = _expected_cost(tests, case)
        runs += count
        unknown += count if each is None else 0
        usd += count * (each or 0.0)
    return SuiteQuote(runs, usd, unknown, selection.info.full_name)


def _expected_cost(tests: AgentTests, case: Case) -> float | None:
    path = scenario_path(tests, case)
    if path.is_file():
        try:
            recorded = read_cassette(path).head.usd
        except CassetteError:
            recorded = None
        if recorded:
            return recorded
    limits = case.limits or tests.file.limits
    return None if limits is None else limits.usd


class Suite:
    """Runs cases, several at a time. `on_result` hears of each that is over."""

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
        live = self._options.trial.live is not None
        wanted = 1
        if live:
            wanted = self._options.repeat or case.repeat
        trials: list[Trial] = []
        policy = case.policy if self._options.decide_early else "tracked"
        while not decided(policy, trials, wanted):
            trials.append(await self._try(tests, number))
        verdict = verdict_of(case.policy, trials, wanted)
        return CaseResult(tests=tests, number=number, verdict=verdict, trials=tuple(trials), wanted=wanted, live=live)

    async def _try(self, tests: AgentTests, number: int) -> Trial:
        options = self._options.trial
        limit = self._options.max_usd
        if options.live is not None and limit is not None:
            rest = limit - self._spent
            if rest <= 0:
                name = tests.file.cases[number].name
                return Trial(case=name, status="skipped", notes=(f"the limit of ${limit:g} is reached",))
            options = replace(options, usd=rest)
        trial = await RunCase(tests, number, options, self._environment).run()
        if options.live is not None:
            self._spent += trial.usd or 0.0
        return trial


def decided(policy: Policy, trials: Sequence[Trial], wanted: int) -> bool:
    """Return whether more repetitions could not change the verdict, or none are left."""
    if len(trials) >= wanted or any(trial.status == "skipped" for trial in trials):
        return True
    if policy == "tracked":
        return False
    needed = needed_passes(policy, wanted)
    passes = sum(trial.status == "passed" for trial in trials)
    failures = len(trials) - passes
    return failures > wanted - needed or (passes >= needed and policy == "usually")


def needed_passes(policy: Policy, wanted: int) -> int:
    """Return how many repetitions must pass."""
    if policy == "usually":
        return math.ceil(USUALLY * wanted)
    return wanted


def verdict_of(policy: Policy, trials: Sequence[Trial], wanted: int) -> Verdict:
    ran = [trial for trial in trials if trial.status != "skipped"]
    if len(ran) < len(trials):
        failed_before = any(trial.status == "failed" for trial in ran)
        return "failed" if failed_before and policy == "always" else "skipped"
    if policy == "tracked":
        return "tracked"
    passes = sum(trial.status == "passed" for trial in ran)
    return "passed" if passes >= needed_passes(policy, wanted) else "failed"
