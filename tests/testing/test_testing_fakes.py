"""The fakes themselves: they complain loudly, and repeat themselves exactly."""

import asyncio
from collections import Counter

import pytest

from retinue.core.events import Retrying, TextDelta, ThinkingDelta
from retinue.core.messages import user
from retinue.core.usage import Usage
from retinue.testing import (
    Call,
    ChaosModel,
    Do,
    Expect,
    Fail,
    FakeClock,
    FakeTool,
    Finished,
    Hang,
    ModelRequest,
    Rates,
    Retry,
    Say,
    ScriptedModel,
    ScriptError,
    Spend,
    Stop,
    Think,
    ToolCallStarted,
    Turn,
    Wait,
    check_grammar,
    check_history,
    check_prefix,
    drive,
    script,
    settle,
    temporary_repository,
)

REQUEST = ModelRequest(system="s", messages=(user("hello"),))


async def parts(model, request=REQUEST):
    return [part async for part in model.stream(request)]


async def test_a_turn_streams_its_parts_and_ends_with_the_whole_message():
    usage = Usage(1, 2)
    model = ScriptedModel(Turn(Think("hm", "sig"), Say("abcde", chunks=2), Call("read", {"p": 1}), Spend(usage)))
    *stream, finished = await parts(model)
    assert stream == [ThinkingDelta("hm"), TextDelta("abc"), TextDelta("de"), ToolCallStarted("read")]
    assert isinstance(finished, Finished)
    message = finished.message
    assert (message.text, message.stop, message.usage) == ("abcde", "tool_use", usage)
    assert message.tool_calls[0].id == "call-1"


async def test_an_unexpected_request_raises_and_is_remembered():
    model = ScriptedModel("only one")
    await parts(model)
    with pytest.raises(ScriptError, match=r"request 2 was not expected.*hello"):
        await parts(model)
    with pytest.raises(ScriptError, match="request 2"):
        model.assert_exhausted()


async def test_an_unexpected_request_in_a_run_fails_the_with_block():
    with pytest.raises(ScriptError, match="request 2"), ScriptedModel(Turn(Call("nope"))) as model:
        await drive(model)


async def test_turns_that_were_never_asked_for_fail_the_with_block():
    with pytest.raises(ScriptError, match="1 of 2"), ScriptedModel("a", "b") as model:
        await parts(model)


async def test_an_error_inside_the_block_is_not_hidden():
    with pytest.raises(ZeroDivisionError), ScriptedModel("a"):
        1 / 0  # noqa: B018


async def test_expectations_look_at_the_request():
    with pytest.raises(ScriptError, match="should say 'bye'"):
        await parts(ScriptedModel(Turn(Expect("bye"), "x")))
    with pytest.raises(ScriptError, match="not what was expected"):
        await parts(ScriptedModel(Turn(Expect(lambda request: request.tools != ()), "x")))
    assert (await parts(ScriptedModel(Turn(Expect("hell"), Expect(lambda r: None), "x"))))[-1].message.text == "x"


async def test_waits_hangs_and_actions_happen_in_the_middle():
    gate, seen = asyncio.Event(), []
    model = ScriptedModel(Turn("a", Wait(gate), Do(lambda: seen.append("done")), "b"), Turn(Hang()))
    task = asyncio.create_task(parts(model))
    await settle()
    assert not task.done() and not seen
    gate.set()
    assert len(await task) == 3 and seen == ["done"]
    hanging = asyncio.create_task(parts(model))
    await settle()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_failures_retries_and_stops():
    [retrying] = [p for p in await parts(ScriptedModel(Turn("void", Retry("server"), "x"))) if isinstance(p, Retrying)]
    assert retrying.failure.kind == "server"
    message = (await parts(ScriptedModel(Turn("half", Call("t"), Fail("dropped", "cut"), "never said"))))[-1].message
    assert (message.stop, message.text, message.tool_calls, message.failure.kind) == ("error", "half", (), "dropped")
    assert (await parts(ScriptedModel(Turn("x", Stop("length")))))[-1].message.stop == "length"


def test_scripts_as_lines():
    turns = script(
        """
think: hm
say: one
  and more
call: read {"path": "a"}
call: bare
call: broken {"path"
usage: {"input": 3}
---
fail: rate_limit slow down
---
expect: x
stop: length
hang:
"""
    )
    assert turns == [
        Turn(
            Think("hm"),
            Say("one\nand more"),
            Call("read", {"path": "a"}),
            Call("bare"),
            Call("broken", broken='{"path"'),
            Spend(Usage(input=3)),
        ),
        Turn(Fail("rate_limit", "slow down")),
        Turn(Expect("x"), Stop("length"), Hang()),
    ]


@pytest.mark.parametrize("line", ["shout: x", "fail: nonsense", "usage: {", 'usage: {"x": 1}', "stop: now", "what"])
def test_a_script_that_cannot_be_read_names_the_line(line):
    with pytest.raises(ValueError, match="line 2"):
        script(f"say: fine\n{line}")


async def chaos(seed, rates):
    turns = [Turn(Say("some text here", chunks=5), Call("t"), Call("t")) for _ in range(60)]
    model = ChaosModel(ScriptedModel(*turns), seed, rates)
    seen = [await parts(model) for _ in range(60)]
    return model, seen


async def test_chaos_repeats_itself_for_the_same_seed():
    first, seen = await chaos(7, Rates.everything(0.1))
    second, again = await chaos(7, Rates.everything(0.1))
    third, other = await chaos(8, Rates.everything(0.1))
    assert seen == again and first.faults == second.faults
    assert seen != other and third.faults != first.faults


async def test_chaos_does_everything_it_says():
    model, seen = await chaos(1, Rates.everything(0.11))
    assert set(model.faults) == {
        "rate_limit",
        "overloaded",
        "server",
        "dropped",
        "garbage",
        "duplicate",
        "empty",
        "no_end",
        "none",
    }
    ends = Counter(type(stream[-1]).__name__ if stream else "nothing" for stream in seen)
    assert ends["Finished"] == 60 - model.faults["no_end"]
    kinds = Counter(
        stream[-1].message.failure.kind
        for stream in seen
        if isinstance(stream[-1], Finished) and stream[-1].message.failure
    )
    assert kinds == {kind: model.faults[kind] for kind in ("rate_limit", "overloaded", "server", "dropped")}


async def test_chaos_that_is_switched_off_changes_nothing():
    model, seen = await chaos(1, Rates())
    assert set(model.faults) == {"none"} and len(seen) == 60


async def test_chaos_can_hang_and_be_cancelled():
    model = ChaosModel(ScriptedModel("x"), 1, Rates(hang=1.0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await parts(model)
    assert model.info.provider == "scripted"
    await model.close()


async def test_time_moves_only_when_told_and_in_order():
    clock, seen = FakeClock(now=1000.0), []
    clock.call_later(5, lambda: seen.append((clock.monotonic(), "five")))
    clock.call_later(2, lambda: seen.append((clock.monotonic(), "two")))
    clock.call_later(3, lambda: seen.append((clock.monotonic(), "never"))).cancel()
    sleeper = asyncio.create_task(clock.sleep(4))
    await settle()
    assert clock.pending == 3
    await clock.advance(4.5)
    assert seen == [(2.0, "two")] and sleeper.done()
    await clock.jump(100)
    assert seen[-1] == (104.5, "five"), "late, as after a sleep of the host"
    assert clock.now() == 1104.5 and clock.pending == 0


async def test_what_a_callback_starts_happens_within_the_same_advance():
    clock, seen = FakeClock(), []

    async def chain():
        for n in range(3):
            await clock.sleep(1)
            seen.append((n, clock.monotonic()))

    task = asyncio.create_task(chain())
    await clock.advance(10)
    assert seen == [(0, 1.0), (1, 2.0), (2, 3.0)] and task.done()


def test_the_repository_is_real_and_ignores_the_users_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[commit]\n\tgpgsign = true\n")
    with temporary_repository({"src/a.py": "x = 1\n"}) as repository:
        assert repository.git("branch", "--show-current") == "main"
        assert repository.git("ls-files") == "src/a.py"
        second = repository.commit("second", {"b.txt": "b"})
        assert repository.git("rev-parse", "HEAD") == second
        assert repository.git("status", "--porcelain") == ""
        with pytest.raises(RuntimeError, match="git nonsense failed"):
            repository.git("nonsense")
        path = repository.path
    assert not path.exists()


async def test_the_checks_find_what_is_wrong():
    model = ScriptedModel(Turn("a", Call("t"), Call("t")), "done")
    run = await drive(model, tools=[FakeTool("t", lambda: "x")])
    check_grammar(run.bodies)
    for index in range(len(run.bodies)):
        damaged = run.bodies[:index] + run.bodies[index + 1 :]
        kind = run.bodies[index].type
        if kind not in ("message.added", "text.delta"):
            with pytest.raises(AssertionError):
                check_grammar(damaged)
    with pytest.raises(AssertionError):
        check_history(run.messages[:2])
    with pytest.raises(AssertionError):
        check_history(run.messages[2:])
    check_prefix(model.requests)
    with pytest.raises(AssertionError, match="broke 1 times"):
        check_prefix(list(reversed(model.requests)))


async def test_drive_notices_a_task_that_is_left_behind():
    async def sneaky():
        asyncio.get_running_loop().create_task(asyncio.sleep(0.01))
        return "x"

    with pytest.raises(AssertionError, match="left 1 task"):
        await drive(ScriptedModel(Turn(Call("sneaky")), "done"), tools=[FakeTool("sneaky", sneaky)])
