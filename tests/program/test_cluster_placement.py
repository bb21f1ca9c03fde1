"""Every way to say that a run works on a cluster, and what its project may start there."""

import json
import sys
import threading
import time
from functools import partial

import pytest

from retinue import Retinue
from retinue.core.events import RunEnded, ToolEnded
from tests.program.cluster_scene import TURNS, Gate, result, steps
from tests.program.fate_scene import SERVER
from tests.program.model_server import Reply

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow
TOOL = "mcp__local__echo"


def write_agent(scene, name, *lines):
    file = scene.project.cwd / ".retinue" / "agents" / f"{name}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["---", "description: Works", *lines, "---", "You work.", ""]))


def placed(scene, worker):
    """Return the runs that a worker has served, by agent."""
    rows = scene.json("runs", "list", "--json", "--all")["runs"]
    return {row["agent"] for row in rows if worker.served(row["id"])}


def test_the_file_of_an_agent_says_where_it_works(scene, serve):
    serve(steps)
    write_agent(scene, "far", "placement: cluster:gpu")
    write_agent(scene, "near")
    plain, gpu = scene.worker(), scene.worker("--labels", "gpu")
    scene.ready(2)
    for agent in ("far", "near"):
        process = scene.project.start("run", agent, "Do all steps", "--json", env=scene.variables)
        found = result(process)
        assert found["output"].startswith("all steps done")
        assert ("branch" in found) == (agent == "far")
    assert (placed(scene, plain), placed(scene, gpu)) == (set(), {"far"})


def test_agents_that_the_main_agent_starts_in_the_background_work_where_the_settings_say(scene, serve):
    def answer(request):
        said = json.dumps(request.body["messages"])
        if "DO ALL STEPS" in json.dumps(request.body["messages"][0]):
            return steps(request)
        if request.turn == 0:
            task = {"description": "d", "prompt": "DO ALL STEPS", "subagent_type": "general-purpose"}
            return Reply("", [("Agent", task | {"run_in_background": True})])
        return Reply("HEARD" if "all steps done" in said else "I wait.")

    serve(answer)
    worker = scene.worker("--labels", "gpu")
    scene.ready(1)
    variables = scene.variables | {"RETINUE_PLACEMENT": "cluster:gpu"}
    done = scene.project.retinue("-p", "Start it and wait for it", env=variables)
    assert done.returncode == 0, done.stderr
    assert "HEARD" in done.stdout
    assert placed(scene, worker) == {"general-purpose"}


async def test_a_program_names_the_database_and_sends_a_run(scene, serve):
    serve(steps)
    worker = scene.worker("--labels", "gpu")
    scene.ready(1)
    environment = scene.project.environment | {"RETINUE_DATABASE_PROJECT": scene.name}
    async with Retinue(scene.project.cwd, environment=environment, database=scene.url) as retinue:
        run = await retinue.spawn("general-purpose", "Do all steps", placement="cluster:gpu")
        seen = [type(event.body) async for event in run.events()]
        outcome = await run.wait()
    assert outcome.text.startswith("all steps done")
    assert scene.file(outcome.branch, "done.txt").split() == ["0", "1", "2", "3"]
    assert worker.served(run.id)
    assert seen.count(ToolEnded) == TURNS
    assert seen[-1] is RunEnded


@pytest.mark.parametrize("allow", ["", "servers"])
def test_servers_of_a_project_start_only_where_the_operator_allows_it(scene, serve, allow):
    def answer(request):
        tools = [tool["name"] for tool in request.body["tools"]]
        if TOOL in tools and request.turn == 0:
            return Reply("", [(TOOL, {})])
        return Reply("with the server" if TOOL in tools else "without the server")

    serve(answer)
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (scene.project.cwd / ".mcp.json").write_text(json.dumps({"mcpServers": {"local": entry}}))
    said = scene.project.retinue("trust", "add", env=scene.variables)
    assert said.returncode == 0, said.stdout + said.stderr
    scene.worker(*(["--allow", allow] if allow else []))
    scene.ready(1)
    found = result(scene.run("Use the server", "--json"))
    assert found["output"] == ("with the server" if allow else "without the server")
    warnings = scene.warnings(scene.only_run()["id"])
    assert any("local" in text for text in warnings) == (not allow), warnings


def test_workers_with_the_same_options_share_a_global_limit(scene, serve):
    at_work, most, lock = 0, 0, threading.Lock()

    def answer(request):
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.5)
        with lock:
            at_work -= 1
        return Reply("done")

    serve(answer)
    for _ in range(2):
        scene.worker("--concurrency", "2", "--global-limit", "2")
    scene.ready(2)
    processes = [scene.run(f"Task {number}", "--json") for number in range(5)]
    for process in processes:
        assert result(process)["output"] == "done"
    assert most == 2
    assert [worker["globalLimit"] for worker in scene.list_workers()] == [2, 2]


def test_the_place_of_a_killed_worker_in_a_global_limit_is_free_again(scene, serve):
    gate = Gate(1)
    serve(gate.answer)
    options = ("--concurrency", "1", "--global-limit", "1", "--tenant-limit", "3")
    start = partial(scene.worker, *options)
    first, process = scene.run_to(gate, start=start)
    scene.replace(first, gate, start)
    assert scene.file(result(process)["branch"], "done.txt").split() == ["0", "1", "2", "3"]


def test_a_global_limit_below_the_room_of_one_worker_is_refused(project):
    done = project.retinue("worker", "--database", "postgresql://u@h/d", "--concurrency", "4", "--global-limit", "2")
    assert done.returncode == 2
    assert "--concurrency 2 or less" in done.stderr
