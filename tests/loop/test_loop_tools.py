"""Tool calls of a turn: order, overlap, refusals, defects."""

import asyncio

import pytest

from retinue.core.events import ToolEnded, ToolProgress, ToolsEnded, ToolStarted, Warned
from retinue.core.messages import ToolMessage
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.tool import ToolSpec, ok
from retinue.testing import Call, Expect, FakeTool, Retry, Say, ScriptedModel, Stop, Think, Turn, check_prefix, drive


def results(run):
    return [result for message in run.messages if isinstance(message, ToolMessage) for result in message.results]


async def test_a_turn_streams_calls_and_answers():
    with ScriptedModel(
        Turn(Think("hm"), Say("Let me look.", chunks=3), Call("read", {"path": "a"})),
        Turn(Expect("content of a"), "It is 42."),
    ) as model:
        run = await drive(model, "what is it?", tools=[FakeTool("read", lambda path: f"content of {path}")])
    assert [body.type for body in run.bodies] == [
        "message.added",
        "turn.started",
        "thinking.delta",
        "text.delta",
        "text.delta",
        "text.delta",
        "assistant.ended",
        "tool.started",
        "tool.ended",
        "tools.ended",
        "turn.ended",
        "turn.started",
        "text.delta",
        "assistant.ended",
        "turn.ended",
        "run.ended",
    ]
    assert (run.outcome.ended, run.outcome.text, run.outcome.turns, run.outcome.tool_uses) == (
        "completed",
        "It is 42.",
        2,
        1,
    )
    check_prefix(model.requests)


async def test_results_are_in_call_order_whatever_finishes_first():
    gates = {name: asyncio.Event() for name in "abc"}
    finished = []

    async def slow(name):
        if name != "c":
            await gates[name].wait()
        finished.append(name)
        gates[{"c": "b", "b": "a", "a": "a"}[name]].set()
        return name

    model = ScriptedModel(Turn(*[Call("slow", {"name": name}) for name in "abc"]), "ok")
    run = await drive(model, tools=[FakeTool("slow", slow)])
    assert finished == ["c", "b", "a"]
    assert [ended.result.text for ended in run.of(ToolEnded)] == ["c", "b", "a"]
    assert [result.text for result in results(run)] == ["a", "b", "c"]


async def test_exclusive_calls_run_alone_and_in_order():
    running, overlaps = set(), []

    def tool(name, exclusive):
        async def work(n):
            running.add((name, n))
            overlaps.append(frozenset(running))
            for _ in range(5):
                await asyncio.sleep(0)
            running.remove((name, n))
            return f"{name}{n}"

        return FakeTool(name, work, exclusive=exclusive)

    calls = [("read", 1), ("read", 2), ("bash", 3), ("bash", 4), ("read", 5), ("read", 6)]
    model = ScriptedModel(Turn(*[Call(name, {"n": n}) for name, n in calls]), "ok")
    run = await drive(model, tools=[tool("read", False), tool("bash", True)])
    for together in overlaps:
        assert len(together) == 1 or all(name == "read" for name, _ in together)
        assert not ({("read", 2)} <= together and {("read", 5)} <= together)
    assert frozenset({("read", 1), ("read", 2)}) in overlaps
    assert [result.text for result in results(run)] == ["read1", "read2", "bash3", "bash4", "read5", "read6"]


async def test_at_most_so_many_calls_run_at_once():
    most = now = 0

    async def work():
        nonlocal most, now
        now += 1
        most = max(most, now)
        for _ in range(3):
            await asyncio.sleep(0)
        now -= 1
        return "x"

    model = ScriptedModel(Turn(*[Call("work") for _ in range(40)]), "ok")
    run = await drive(model, tools=[FakeTool("work", work)], parallel_calls=4)
    assert most == 4
    assert len(results(run)) == 40


async def test_the_start_of_a_call_is_yielded_before_the_tool_is_touched():
    touched = []

    async def work(n):
        touched.append(n)
        return "x"

    def watch(body):
        if isinstance(body, ToolStarted):
            assert body.call.arguments["n"] not in touched

    model = ScriptedModel(Turn(*[Call("work", {"n": n}) for n in range(5)]), "ok")
    await drive(model, tools=[FakeTool("work", work)], watch=watch)
    assert touched == [0, 1, 2, 3, 4]


async def test_an_unknown_tool_is_answered_with_the_tools_there_are():
    model = ScriptedModel(Turn(Call("Raed", {"path": "a"})), "ok")
    run = await drive(model, tools=[FakeTool("read", lambda path: path), FakeTool("grep", str)])
    [result] = results(run)
    assert result.is_error and "'Raed'" in result.text and "read, grep" in result.text
    assert run.outcome.ended == "completed"


@pytest.mark.parametrize("raw", ['{"path": "a', "[1]", "", "nonsense", '{"a"}'])
async def test_arguments_that_are_no_json_object_are_never_run(raw):
    ran = []
    model = ScriptedModel(Turn(Call("read", broken=raw)), "ok")
    run = await drive(model, tools=[FakeTool("read", lambda **_: ran.append(1) or "x")])
    [result] = results(run)
    assert result.is_error and "JSON" in result.text and not ran


async def test_a_call_cut_off_at_the_output_limit_is_told_so_and_the_run_goes_on():
    model = ScriptedModel(Turn("writing", Call("write", broken='{"text": "abc'), Stop("length")), "ok")
    run = await drive(model, tools=[FakeTool("write", str)])
    assert "output limit" in results(run)[0].text
    assert run.outcome.ended == "completed"


async def test_arguments_that_break_the_schema_are_named_exactly():
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "mode": {"enum": ["r", "w"]}},
        "required": ["path"],
        "additionalProperties": False,
    }
    ran = []
    tool = FakeTool("read", lambda **given: ran.append(given) or "x", schema)
    model = ScriptedModel(
        Turn(
            Call("read", {"path": 3}),
            Call("read", {}),
            Call("read", {"path": "a", "mode": "x"}),
            Call("read", {"path": "a", "pth": 1}),
            Call("read", {"path": "a", "mode": "w"}),
        ),
        "ok",
    )
    run = await drive(model, tools=[tool])
    texts = [result.text for result in results(run)]
    assert "path must be a string, not an integer" in texts[0]
    assert "path is required and missing" in texts[1]
    assert "mode must be one of 'r', 'w'" in texts[2]
    assert "pth is not a parameter (known: path, mode)" in texts[3]
    assert ran == [{"path": "a", "mode": "w"}]


class Odd:
    """A tool that breaks every promise: it is not even a coroutine."""

    spec = ToolSpec("odd", "odd", {"type": "object"})

    def __init__(self, give):
        self.run = lambda *_: give()


@pytest.mark.parametrize("give", [lambda: 1 / 0, lambda: None, lambda: asyncio.sleep(0, "text")])
async def test_a_defective_tool_is_an_error_result_and_a_warning(give):
    model = ScriptedModel(Turn(Call("odd")), Turn(Expect("failed inside"), "ok"))
    run = await drive(model, tools=[Odd(give)])
    assert results(run)[0].is_error
    assert [warned.code for warned in run.of(Warned)] == ["internal"]
    assert run.outcome.ended == "completed"


async def test_a_tool_that_cancels_itself_does_not_cancel_the_run():
    def give():
        raise asyncio.CancelledError

    model = ScriptedModel(Turn(Call("odd")), "ok")
    run = await drive(model, tools=[Odd(give)])
    assert results(run)[0].is_error
    assert run.outcome.ended == "completed"


async def test_call_ids_are_made_unique_within_a_message_and_across_turns():
    model = ScriptedModel(
        Turn(Call("t", id="same"), Call("t", id="same"), Call("t", id="")), Turn(Call("t", id="same")), "ok"
    )
    run = await drive(model, tools=[FakeTool("t", lambda: "x")])
    ids = [started.call.id for started in run.of(ToolStarted)]
    assert len(set(ids)) == 4 and ids[0] == "same"
    assert [result.call_id for result in results(run)] == ids


async def test_arguments_that_json_cannot_hold_count_as_broken():
    deep = {}
    for _ in range(2_000):
        deep = {"a": deep}
    model = ScriptedModel(Turn(Call("t", deep), Call("t", {"x": "\ud800"})), "ok")
    run = await drive(model, tools=[FakeTool("t", lambda **_: "ran")])
    assert [result.is_error for result in results(run)] == [True, True]


async def test_progress_is_shown_while_the_tool_runs_and_also_reaches_the_context():
    heard = []

    class Chatty:
        spec = ToolSpec("chatty", "chatty", {"type": "object"})

        async def run(self, call_id, arguments, context):
            assert context.tool_timeout == 600.0
            for piece in "one ", "two":
                context.progress(call_id, piece)
            await asyncio.sleep(0)
            context.progress("someone else", "x")
            context.progress(call_id, "three")
            return ok("done")

    from retinue.core.tool import ToolContext
    from retinue.testing.runs import job

    work = job(tools=[Chatty()])
    work.context.progress = lambda call_id, text: heard.append(text)
    run = await drive(ScriptedModel(Turn(Call("chatty")), "ok"), work)
    assert "".join(progress.text for progress in run.of(ToolProgress)) == "one twothree"
    assert heard == ["one ", "two", "x", "three"]
    assert isinstance(work.context, ToolContext)


async def test_what_was_shown_before_a_retry_is_kept_in_the_event():
    model = ScriptedModel(Turn("Half an ans", Retry("overloaded", 1.0), "Whole."))
    run = await drive(model)
    [retrying] = [body for body in run.bodies if body.type == "model.retrying"]
    assert retrying.partial == "Half an ans"
    assert run.outcome.text == "Whole."


async def test_evidence_is_counted_from_effects():
    effects = iter(
        [
            ToolEffect(reads=("a.py", "b.py")),
            ToolEffect(writes=(TouchedPath("c.py"),), reads=("a.py",)),
            ToolEffect(command="ls", exit_code=0, hosts=("example.org",)),
            ToolEffect("failed", denied="not allowed here"),
        ]
    )
    model = ScriptedModel(Turn(*[Call("t") for _ in range(4)]), "ok")
    run = await drive(model, tools=[FakeTool("t", lambda: ok("x", next(effects)))])
    evidence = run.outcome.evidence
    assert evidence.files_read == ("a.py", "b.py")
    assert evidence.files_written == ("c.py",)
    assert evidence.commands == ("ls",) and evidence.hosts == ("example.org",)
    assert evidence.denials == ("t {}: not allowed here",)


async def test_evidence_is_bounded_and_says_what_it_left_out():
    many = ToolEffect(reads=tuple(f"{n}.py" for n in range(500)), command="x" * 10_000)
    model = ScriptedModel(Turn(Call("t")), "ok")
    run = await drive(model, tools=[FakeTool("t", lambda: ok("x", many))])
    assert len(run.outcome.evidence.files_read) == 201
    assert run.outcome.evidence.files_read[-1] == "… and 300 more"
    assert len(run.outcome.evidence.commands[0]) == 500


async def test_two_tools_of_one_name_are_refused_before_the_run():
    from retinue.errors import LaunchError

    with pytest.raises(LaunchError, match="read"):
        await drive(ScriptedModel(), tools=[FakeTool("read", str), FakeTool("read", str)])
    with pytest.raises(LaunchError, match="submit_result"):
        await drive(ScriptedModel(), tools=[FakeTool("submit_result", str)], schema={"type": "object"})


async def test_tool_results_enter_the_conversation_as_one_message():
    model = ScriptedModel(Turn(Call("t"), Call("t")), "ok")
    run = await drive(model, tools=[FakeTool("t", lambda: "x")])
    [ended] = run.of(ToolsEnded)
    assert model.requests[1].messages[-1] == ended.message


async def test_a_tool_in_a_thread_of_its_own_may_report_progress():
    class Threaded:
        spec = ToolSpec("threaded", "threaded", {"type": "object"})

        async def run(self, call_id, arguments, context):
            await asyncio.to_thread(lambda: [context.progress(call_id, f"{n} ") for n in range(50)])
            await asyncio.sleep(0)
            return ok("done")

    run = await drive(ScriptedModel(Turn(Call("threaded")), "ok"), tools=[Threaded()])
    assert "".join(progress.text for progress in run.of(ToolProgress)) == "".join(f"{n} " for n in range(50))


async def test_a_flood_of_progress_keeps_its_end():
    class Flood:
        spec = ToolSpec("flood", "flood", {"type": "object"})

        async def run(self, call_id, arguments, context):
            for n in range(3_000):
                context.progress(call_id, f"{n:099} ")
            return ok("done")

    run = await drive(ScriptedModel(Turn(Call("flood")), "ok"), tools=[Flood()])
    shown = "".join(progress.text for progress in run.of(ToolProgress))
    assert len(shown) == 64_000 and shown.endswith("2999 ")


async def test_of_very_many_tools_only_some_are_named_to_a_model_that_guesses():
    tools = [FakeTool(f"tool{n}", str) for n in range(200)]
    run = await drive(ScriptedModel(Turn(Call("x" * 5_000)), "ok"), tools=tools)
    assert results(run)[0].text.endswith("tool59 and 140 more.") and len(results(run)[0].text) < 1_000
