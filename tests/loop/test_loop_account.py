"""A run that pays from an account: one wrap-up turn while something is left, then the end (B13)."""

from msgspec.structs import replace

from retinue.core.events import Compacted, LimitReached, MessageAdded
from retinue.core.messages import ToolMessage
from retinue.core.usage import Limits, Usage
from retinue.loop import Compaction
from retinue.runs.budget import Account, Budget
from retinue.testing import (
    SCRIPTED,
    Call,
    Expect,
    FakeClock,
    FakeTool,
    Say,
    ScriptedModel,
    Spend,
    Turn,
    check_prefix,
    drive,
)

TOOL = FakeTool("look", lambda **_: "seen")


def busy(turns, tokens=100, cost=0.1):
    spend = Spend(Usage(input=tokens, cost_usd=cost))
    return [Turn(f"part {number}", Call("look"), spend) for number in range(turns)]


def last(text="all I know", tokens=100):
    return Turn(Expect("nearly spent"), text, Spend(Usage(input=tokens, cost_usd=0.1)))


def limits(run):
    return [(limit.limit, limit.action) for limit in run.of(LimitReached)]


def wrap_ups(run):
    return [added.message.text for added in run.of(MessageAdded) if added.message.origin == "wrap-up"]


async def test_near_the_ceiling_a_run_is_asked_once_to_wrap_up():
    account = Account(Budget(tokens=500))
    with ScriptedModel(*busy(4), last()) as model:
        run = await drive(model, tools=[TOOL], account=account)
    assert (run.outcome.ended, run.outcome.limit, run.outcome.text) == ("steered", "tokens", "all I know")
    assert limits(run) == [("tokens", "wrap-up")]
    assert account.usage.total_tokens == 500
    assert wrap_ups(run) == [
        "The budget is nearly spent: 100 of 500 tokens are left. Stop working now: make no further tool calls, but "
        "give your final answer from what you already know. Say plainly what is unfinished. The budget allows no turn "
        "after this one."
    ]
    check_prefix(model.requests)


async def test_a_run_that_goes_on_after_its_wrap_up_turn_is_over_budget():
    account = Account(Budget(usd=0.55))
    with ScriptedModel(*busy(6)) as model:
        run = await drive(model, tools=[TOOL], account=account)
    outcome = run.outcome
    assert (outcome.ended, outcome.limit, outcome.failure.kind) == ("over-budget", "cost", "budget")
    assert (outcome.text, outcome.partial) == ("part 5", True)
    assert limits(run) == [("cost", "wrap-up"), ("cost", "end")]
    assert len(wrap_ups(run)) == 1


async def test_with_nothing_left_there_is_no_request_at_all():
    for budget in (Budget(tokens=0), Budget(usd=0.0), Budget(turns=0), Budget(seconds=0.0)):
        with ScriptedModel() as model:
            run = await drive(model, account=Account(budget))
        assert (run.outcome.ended, run.outcome.turns) == ("over-budget", 0)


async def test_a_budget_that_one_request_overdraws_ends_the_run_without_a_wrap_up():
    with ScriptedModel(*busy(1, tokens=5_000)) as model:
        run = await drive(model, tools=[TOOL], account=Account(Budget(tokens=500)))
    assert (run.outcome.ended, limits(run)) == ("over-budget", [("tokens", "end")])
    assert "5000 of 500 tokens" in run.outcome.failure.message


async def test_an_answer_that_is_there_is_not_thrown_away_for_the_account():
    run = await drive(
        ScriptedModel(Turn("done", Spend(Usage(output=9_000)))), tools=[TOOL], account=Account(Budget(tokens=500))
    )
    assert (run.outcome.ended, run.outcome.text) == ("completed", "done")


async def test_the_last_turn_of_a_turn_budget_is_the_wrap_up():
    run = await drive(ScriptedModel(*busy(2), last()), tools=[TOOL], account=Account(Budget(turns=3)))
    assert (run.outcome.ended, run.outcome.limit, run.outcome.turns) == ("steered", "turns", 3)
    run = await drive(ScriptedModel(*busy(3)), tools=[TOOL], account=Account(Budget(turns=3)))
    assert (run.outcome.ended, run.outcome.limit, run.outcome.turns) == ("over-budget", "turns", 3)


async def test_tool_calls_beyond_the_budget_are_refused_and_then_wrapped_up():
    turns = [Turn(Call("look"), Call("look")), Turn(Call("look"), Call("look")), Turn(Expect("is spent"), "the end")]
    account = Account(Budget(tool_calls=3))
    run = await drive(ScriptedModel(*turns), tools=[TOOL], account=account, limits=Limits(max_tool_calls=50))
    assert (run.outcome.ended, run.outcome.limit, run.outcome.tool_uses) == ("steered", "tool_calls", 3)
    results = [m for m in run.messages if isinstance(m, ToolMessage)][-1].results
    assert [result.is_error for result in results] == [False, True]
    assert account.remaining().tool_calls == 0 and len(wrap_ups(run)) == 1


async def test_a_wrap_up_of_another_limit_is_not_repeated_by_the_account():
    account = Account(Budget(tokens=450))
    run = await drive(ScriptedModel(*busy(5)), tools=[TOOL], account=account, limits=Limits(max_turns=2))
    assert run.outcome.ended == "over-budget"
    assert limits(run) == [("turns", "wrap-up"), ("tokens", "end")] and len(wrap_ups(run)) == 1


async def test_a_child_that_hits_its_parents_ceiling_stops_too():
    parent = Account(Budget(tokens=500))
    child = Account(Budget(tokens=400), parent)
    parent.charge(Usage(input=450), turns=1)
    run = await drive(ScriptedModel(*busy(1)), tools=[TOOL], account=child)
    assert run.outcome.ended == "over-budget"
    assert parent.usage.total_tokens == 550


async def test_what_a_compaction_costs_is_charged():
    account = Account(Budget(tokens=10**6))
    chatter = [Turn(Say("word " * 1_500), Call("look", {"n": n})) for n in range(5)]
    model = ScriptedModel(
        *chatter, Turn("a summary", Spend(Usage(input=700))), "done", info=replace(SCRIPTED, window=10_000)
    )
    run = await drive(model, tools=[TOOL], account=account, compaction=Compaction(keep_turns=1))
    assert [compacted.method for compacted in run.of(Compacted)] == ["summarised"]
    assert account.usage == run.outcome.usage and account.usage.total_tokens >= 700
    assert account.remaining().tokens == 10**6 - account.usage.total_tokens


async def test_time_left_for_less_than_a_usual_turn_is_time_to_wrap_up():
    clock = FakeClock()
    account = Account(Budget(seconds=100.0), clock=clock)

    async def slow(**_):
        return "seen"

    def pass_time(body):
        if type(body).__name__ == "TurnStarted":
            clock._passed += 40.0

    run = await drive(
        ScriptedModel(*busy(2), last()), tools=[FakeTool("look", slow)], account=account, watch=pass_time, clock=clock
    )
    assert (run.outcome.ended, run.outcome.limit) == ("steered", "time")
