"""Guarantee 7: the spend of a tree exceeds its budget by at most one request in flight per agent."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.usage import Usage
from retinue.runs.budget import Account, Budget

LIMIT = st.none() | st.integers(0, 2_000)
STEP = st.tuples(st.sampled_from(["spawn", "ask", "answer", "answer", "end"]), st.integers(0, 99), st.integers(0, 400))


@dataclass(eq=False)
class Agent:
    account: Account
    limits: tuple[int | None, int | None]
    parent: Agent | None
    in_flight: int | None = None
    spent: int = 0
    """By itself and everyone below it."""
    over: int = 0
    """What was in flight below it when its limit was reached, and may therefore come on top."""
    children: list[Agent] = field(default_factory=list)

    @property
    def line(self) -> list[Agent]:
        return [self, *(self.parent.line if self.parent else [])]

    def below(self) -> list[Agent]:
        return [self, *(each for child in self.children for each in child.below())]


def budget(limits: tuple[int | None, int | None]) -> Budget:
    tokens, cents = limits
    return Budget(tokens=tokens, usd=None if cents is None else cents / 100)


class Tree:
    def __init__(self, limits: tuple[int | None, int | None]) -> None:
        self.agents = [Agent(Account(budget(limits)), limits, None)]
        self.live = list(self.agents)

    def spawn(self, agent: Agent, limits: tuple[int | None, int | None]) -> None:
        if agent.account.refuse_spawn() is None:
            child = Agent(Account(budget(limits), agent.account), limits, agent)
            agent.children.append(child)
            self.agents.append(child)
            self.live.append(child)

    def ask(self, agent: Agent, cost: int) -> None:
        if agent.in_flight is not None:
            return
        verdict = agent.account.verdict()
        if verdict is None or verdict.wrap_up:
            agent.in_flight = cost
            for each in agent.line:
                assert each.limits[0] is None or each.spent < each.limits[0], "asked with nothing left"

    def answer(self, agent: Agent) -> None:
        if agent.in_flight is None:
            return
        cost, agent.in_flight = agent.in_flight, None
        agent.account.charge(Usage(input=cost, cost_usd=cost / 100), turns=1)
        for each in agent.line:
            before, each.spent = each.spent, each.spent + cost
            limit = each.limits[0]
            if limit is not None and before < limit <= each.spent:
                each.over = cost + sum(other.in_flight or 0 for other in each.below())

    def end(self, agent: Agent) -> None:
        """A run ends after everyone below it."""
        for each in reversed(agent.below()):
            if each in self.live and each is not self.agents[0]:
                self.answer(each)
                each.account.close()
                self.live.remove(each)

    def check(self) -> None:
        for agent in self.agents:
            assert agent.account.usage.total_tokens == agent.spent, "every ancestor knows"
            limit = agent.limits[0]
            if limit is not None:
                assert agent.spent <= limit + agent.over
            left = agent.account.remaining()
            for above in agent.line[1:]:
                if above.limits[0] is not None:
                    assert left.tokens is not None and left.tokens <= max(above.limits[0] - above.spent, 0)


@settings(max_examples=400, deadline=None)
@given(
    st.tuples(LIMIT, LIMIT),
    st.lists(st.tuples(STEP, st.tuples(LIMIT, LIMIT)), max_size=80),
)
def test_guarantee_7(
    limits: tuple[int | None, int | None],
    steps: list[tuple[tuple[str, int, int], tuple[int | None, int | None]]],
) -> None:
    tree = Tree(limits)
    for (step, who, amount), own in steps:
        agent = tree.live[who % len(tree.live)]
        match step:
            case "spawn":
                tree.spawn(agent, own)
            case "ask":
                tree.ask(agent, amount)
            case "answer":
                tree.answer(agent)
            case "end":
                tree.end(agent)
        tree.check()
    for child in tree.agents[0].children:
        tree.end(child)
    tree.answer(tree.agents[0])
    tree.check()
    root = tree.agents[0]
    if limits[0] is not None:
        assert root.account.remaining().tokens == max(limits[0] - root.spent, 0), "everything unspent came back"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 10, allow_nan=False), max_size=60), st.integers(1, 8))
def test_dollars_are_conserved_to_the_last_digit(costs: list[float], children: int) -> None:
    root = Account(Budget(usd=1_000.0))
    accounts = [Account(Budget(usd=1_000.0 / children), root) for _ in range(children)]
    for number, cost in enumerate(costs):
        accounts[number % children].charge(Usage(output=1, cost_usd=cost))
    for account in accounts:
        account.close()
    spent = sum(round(cost * 10**12) for cost in costs)
    assert root.remaining().usd == max(1_000 * 10**12 - spent, 0) / 10**12
