"""The library against a real model server: watch, steer, stop, resume after a restart, listen, call."""

import asyncio
import json
import threading

from retinue import Retinue
from retinue.supervisor.delegate import Delegate
from tests.runs.model_server import Reply, Request


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def answer(request: Request) -> Reply:
    if "please finish" in said(request):
        return Reply("finished as told")
    if "Work" in said(request)[:80]:
        return Reply(f"Step {request.turn}. ", [("bash", {"command": "sleep 0.1"})])
    return Reply("done")


def crew_of(project) -> Retinue:
    return Retinue(project.cwd, environment=project.environment)


async def test_a_run_is_steered_and_listeners_hear_its_life(project, serve):
    serve(answer)
    crew = crew_of(project)
    heard = []
    for name in ("ready", "created", "started", "steered", "completed", "failed"):
        crew.events.on(f"subagents:{name}", lambda data, name=name: heard.append((name, data)))
    async with crew:
        run = await crew.spawn("general-purpose", "Work", limits={"max_turns": None})
        async for event in run.events():
            if event.body.type == "tool.ended":
                assert await run.steer("please finish")
                break
        assert (await run.wait()).text == "finished as told"
        await crew.wait_all()
    assert [name for name, _ in heard] == ["ready", "created", "started", "steered", "completed"]
    assert heard[-1][1]["result"] == "finished as told"


async def test_a_stopped_run_is_resumed_by_another_session(project, serve):
    server = serve(answer)
    async with crew_of(project) as crew:
        run = await crew.spawn("general-purpose", "Work")
        async for event in run.events():
            if event.body.type == "turn.ended":
                assert await run.stop()
                break
        outcome = await run.wait()
        assert (outcome.ended, outcome.stopped_by, outcome.partial) == ("stopped", "person", True)
    async with crew_of(project) as crew:
        again = await crew.resume(run.id, "please finish")
        outcome = await again.wait()
        assert (outcome.ended, outcome.text) == ("completed", "finished as told")
        assert again.id == run.id
    first, last = server.requests[0].body, server.requests[-1].body
    assert (first["model"], first["system"], first["tools"]) == (last["model"], last["system"], last["tools"])


async def test_other_programs_call_by_envelope(project, serve):
    serve(answer)
    crew = crew_of(project)
    assert (await crew.rpc.call("spawn", {"type": "Explore", "prompt": "x"}))["error"] == "No active session"
    async with crew:
        assert await crew.rpc.call("ping", {}) == {"success": True, "data": {"version": 2}}
        reply = await crew.rpc.call("spawn", {"type": "Explore", "prompt": "look"})
        await crew.wait_all()
        (row,) = crew.runs
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
    async with crew_of(project) as crew:
        run = await crew.prompt("Review")
        while not asked.is_set():
            await asyncio.sleep(0.01)
        (child,) = Delegate(crew._supervisor, run.id).children()
        await run.stop()
        await crew.wait_all()
    async with crew_of(project) as crew:
        again = await crew.resume(run.id, "back again")
        assert (await again.wait()).text == "heard it"
        told = [e.body.message for e in again.recorded() if e.body.type == "message.added"]
        assert sum(child.id in message.text for message in told if message.origin == "notification") == 1
