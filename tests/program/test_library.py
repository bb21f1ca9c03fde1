"""The library against a real model server: watch, steer, stop, resume after a restart, listen, call."""

import asyncio
import gc
import json
import threading
from collections import Counter

import pytest

from retinue import Retinue
from retinue.errors import RetinueError, UsageError
from retinue.runs.delegate import Delegate
from tests.program.model_server import Reply, Request


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def answer(request: Request) -> Reply:
    if "please finish" in said(request):
        return Reply("finished as told")
    if "Work" in said(request)[:80]:
        return Reply(f"Step {request.turn}. ", [("bash", {"command": "sleep 0.1"})])
    return Reply("done")


def retinue_of(project) -> Retinue:
    return Retinue(project.cwd, environment=project.environment)


async def test_a_run_is_steered_and_listeners_hear_its_life(project, serve):
    serve(answer)
    retinue = retinue_of(project)
    heard = []
    for name in ("ready", "created", "started", "steered", "completed", "failed"):
        retinue.events.on(f"subagents:{name}", lambda data, name=name: heard.append((name, data)))
    async with retinue:
        run = await retinue.spawn("general-purpose", "Work", limits={"max_turns": None})
        async for event in run.events():
            if event.body.type == "tool.ended":
                assert await run.steer("please finish")
                break
        assert (await run.wait()).text == "finished as told"
        await retinue.wait_all()
    assert [name for name, _ in heard] == ["ready", "created", "started", "steered", "completed"]
    assert heard[-1][1]["result"] == "finished as told"


@pytest.mark.parametrize(("mode", "written"), [("acceptEdits", True), ("plan", False), (None, False)])
async def test_a_call_of_another_program_starts_a_run_in_the_mode_of_the_session(project, serve, mode, written):
    project.mode = ""
    write = [("write", {"path": "new.txt", "content": "x"})]
    serve(lambda request: Reply("done", write if request.turn == 0 else []))
    async with Retinue(project.cwd, environment=project.environment, permission_mode=mode) as retinue:
        reply = await retinue.rpc.call("spawn", {"type": "general-purpose", "prompt": "Write it."})
        assert reply["success"], reply
        await retinue.wait_all()
    assert (project.cwd / "new.txt").exists() is written


async def test_a_main_run_in_plan_mode_holds_for_calls_of_other_programs(project, serve):
    write = [("write", {"path": "new.txt", "content": "x"})]
    serve(lambda request: Reply("done", write if request.turn == 0 else []))
    async with Retinue(project.cwd, environment=project.environment, permission_mode="acceptEdits") as retinue:
        await (await retinue.prompt("Plan it.", permission_mode="plan")).wait()
        await retinue.rpc.call("spawn", {"type": "general-purpose", "prompt": "Write it."})
        await retinue.wait_all()
    assert not (project.cwd / "new.txt").exists()


async def test_a_stopped_run_is_resumed_by_another_session(project, serve):
    server = serve(answer)
    async with retinue_of(project) as retinue:
        run = await retinue.spawn("general-purpose", "Work")
        async for event in run.events():
            if event.body.type == "turn.ended":
                assert await run.stop()
                break
        outcome = await run.wait()
        assert (outcome.ended, outcome.stopped_by, outcome.partial) == ("stopped", "person", True)
    async with retinue_of(project) as retinue:
        again = await retinue.resume(run.id, "please finish")
        outcome = await again.wait()
        assert (outcome.ended, outcome.text) == ("completed", "finished as told")
        assert again.id == run.id
    first, last = server.requests[0].body, server.requests[-1].body
    assert (first["model"], first["system"], first["tools"]) == (last["model"], last["system"], last["tools"])


async def test_a_resume_may_ask_for_another_level_of_thinking(project, serve):
    server = serve(lambda request: Reply("done"))
    async with retinue_of(project) as retinue:
        run = await retinue.spawn("general-purpose", "look")
        await run.wait()
        await (await retinue.resume(run.id, "again", thinking="high")).wait()
    first, last = server.requests[0].body, server.requests[-1].body
    assert "thinking" not in first
    assert last["thinking"]["budget_tokens"] > 0


async def test_what_a_session_held_goes_with_it_and_waits_for_no_garbage_collector(project, serve):
    serve(answer)
    gc.collect()
    async with retinue_of(project) as retinue:
        for run in await asyncio.gather(*(retinue.spawn("general-purpose", "look") for _ in range(20))):
            assert (await run.wait()).text == "done"
    del retinue, run
    await asyncio.sleep(0)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        left = Counter(type(each).__qualname__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    held = ("Run", "Run", "Launch", "Outcome", "Audit", "AnthropicModel", "Connection", "HttpResponseParser")
    assert not {name: left[name] for name in held if left[name] > 2}


async def test_other_programs_call_by_envelope(project, serve):
    serve(answer)
    retinue = retinue_of(project)
    assert (await retinue.rpc.call("spawn", {"type": "Explore", "prompt": "x"}))["error"] == "No active session"
    async with retinue:
        assert await retinue.rpc.call("ping", {}) == {"success": True, "data": {"version": 2}}
        reply = await retinue.rpc.call("spawn", {"type": "Explore", "prompt": "look"})
        await retinue.wait_all()
        (row,) = retinue.runs
        assert (row.id, row.ended, row.agent) == (reply["data"]["id"], "completed", "Explore")


async def test_results_of_children_come_to_a_parent_that_is_resumed_in_another_session(project, serve):
    asked = threading.Event()

    def lead(request: Request) -> Reply:
        if "look at it" in said(request)[:80]:
            return Reply("the finding")
        if "back again" in said(request):
            return Reply("heard it" if "the finding" in said(request) else "heard nothing")
        if request.turn == 0:
            return Reply(calls=[("Agent", {"prompt": "look at it", "subagent_type": "Explore"})])
        asked.set()
        return Reply("waiting", hang=True)

    serve(lead)
    async with retinue_of(project) as retinue:
        run = await retinue.prompt("Review")
        while not asked.is_set():
            await asyncio.sleep(0.01)
        (child,) = Delegate(retinue._supervisor, run.id).children()
        await run.stop()
        await retinue.wait_all()
    async with retinue_of(project) as retinue:
        again = await retinue.resume(run.id, "back again")
        assert (await again.wait()).text == "heard it"
        told = [e.body.message for e in again.recorded() if e.body.type == "message.added"]
        assert sum(child.id in message.text for message in told if message.origin == "notification") == 1


async def test_a_named_run_is_taken_up_by_its_name_in_another_session(project, serve):
    serve(answer)
    async with retinue_of(project) as retinue:
        run = await retinue.spawn("general-purpose", "look", name="Scout", description="looks around")
        await run.wait()
    async with retinue_of(project) as retinue:
        again = await retinue.resume("@scout", "please finish")
        assert (again.id, (await again.wait()).text) == (run.id, "finished as told")
        with pytest.raises(RetinueError, match="@nobody"):
            await retinue.resume("@nobody", "go")


async def test_a_tree_is_stopped_whole_and_waited_for(project, serve):
    def lead(request: Request) -> Reply:
        if "Work" in said(request)[:80]:
            return answer(request)
        return Reply("", [("Agent", {"prompt": "Work"})]) if request.turn == 0 else Reply("waiting")

    serve(lead)
    async with retinue_of(project) as retinue:
        main = await retinue.prompt("Lead")
        async for event in main.events(tree=True):
            if event.run_id != main.id and event.body.type == "tool.started":
                break
        assert await retinue.stop_tree(main) == 2
        assert {row.ended for row in retinue.runs} == {"stopped"}
        assert await retinue.stop_tree(main) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"limits": {"max_spawns": 1}},
        {"limits": {"max_turns": "many"}},
        {"limits": {"max_turns": -1}},
        {"limits": {"max_turns": 1.5}},
        {"limits": {"seconds": float("nan")}},
        {"budget": {"usd": "much"}},
        {"budget": {"euro": 1}},
        {"thinking": "weird"},
        {"permission_mode": "weird"},
        {"schema": {"type": "nonsense"}},
        {"schema": [1]},
        {"isolation": "weird"},
        {"agent": None},
        {"task": None},
        {"task": "  "},
        {"model": "no-such-model"},
    ],
)
async def test_what_nobody_could_have_meant_is_refused_before_anything_starts(project, serve, wrong):
    server = serve(answer)
    given = {"agent": "general-purpose", "task": "look", **wrong}
    async with retinue_of(project) as retinue:
        with pytest.raises(RetinueError):
            await retinue.spawn(given.pop("agent"), given.pop("task"), **given)
        assert retinue.runs == []
    assert server.requests == []


async def test_a_resume_with_nonsense_leaves_the_run_as_it_was(project, serve):
    serve(answer)
    async with retinue_of(project) as retinue:
        run = await retinue.spawn("general-purpose", "look")
        await run.wait()
        for wrong in ({"limits": {"bogus": 1}}, {"budget": {"usd": -1}}, {"model": "no-such-model"}):
            with pytest.raises(UsageError):
                await retinue.resume(run.id, "more", **wrong)
        assert (await (await retinue.resume(run.id, "please finish")).wait()).text == "finished as told"


@pytest.mark.parametrize("run_id", ["../../precious", "a b", "-x", "x" * 65, "a\nb"])
async def test_an_id_that_is_no_file_name_is_refused(project, serve, run_id):
    serve(answer)
    async with retinue_of(project) as retinue:
        with pytest.raises(UsageError, match="64 letters"):
            await retinue.spawn("general-purpose", "Look", run_id=run_id)
        assert retinue.runs == []
