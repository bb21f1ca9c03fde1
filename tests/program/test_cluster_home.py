"""What of the sender's home and of a run's own files reaches workers, and comes back."""

import json
import re

import pytest

from tests.program.cluster_scene import Gate, result, steps
from tests.program.model_server import Reply

pytest.importorskip("dbos")
pytestmark = pytest.mark.slow
SECRET = "sk-ant-api03-" + "Zk9" * 30


def system_of(request):
    return json.dumps(request.body["system"])


def start_on_cluster(scene, agent, task):
    return scene.project.start("run", agent, task, "--on", "cluster", "--json", env=scene.variables)


def test_skills_and_memory_of_the_home_travel_and_notes_come_back(scene, serve):
    skills = scene.project.home / ".retinue" / "skills" / "greet"
    skills.mkdir(parents=True)
    (skills / "SKILL.md").write_text("---\ndescription: Greets as GREETING-42 wants\n---\nSay hello.\n")
    (skills / "login.txt").write_text(f"key: {SECRET}\n")
    memory = scene.project.home / ".retinue" / "agent-memory" / "noter"
    memory.mkdir(parents=True)
    (memory / "MEMORY.md").write_text("- the door is blue\n")
    agents = scene.project.cwd / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "noter.md").write_text(
        "---\ndescription: notes\nmemory: user\n---\nYou take notes. Write down what you are told to write down.\n"
    )
    gate = Gate(2)

    def answer(request):
        folder = re.search(r"/[^\s`\"\\]*/agent-memory/noter", system_of(request))[0]
        if request.turn == 0:
            return Reply("", [("read", {"path": f"{folder}/MEMORY.md"})])
        if request.turn == 1:
            text = "- the door is blue\n- the roof is green\n"
            return Reply("", [("write", {"path": f"{folder}/MEMORY.md", "content": text})])
        gate.answer(request)
        return Reply("noted")

    server = serve(answer)
    first = scene.worker()
    scene.ready(1)
    process = start_on_cluster(scene, "noter", "Note the roof")
    assert gate.reached.wait(60), first.said
    second = scene.worker()
    scene.ready(2)
    first.kill()
    gate.open.set()
    found = result(process)
    assert "GREETING-42" in system_of(server.requests[0])
    assert "the door is blue" in system_of(server.requests[0])
    # The machine that took over has what was noted on the first one.
    assert "the roof is green" in system_of(server.requests[-1])
    assert (memory / "MEMORY.md").read_text() == "- the door is blue\n- the roof is green\n"
    assert [path.name for path in memory.iterdir()] == ["MEMORY.md"]
    assert any("agent-memory/noter/MEMORY.md" in note for note in found["notes"])
    # Of the skill everything but the secret was sent, and the run says so.
    events = scene.events(scene.only_run()["id"])
    assert any("login.txt (it holds a secret)" in event.get("text", "") for event in events)
    for worker in (first, second):
        kept = [path for path in (worker.home / ".retinue").rglob("*") if path.is_file()]
        assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
        assert not (worker.home / ".retinue" / "agent-memory").exists()


def test_saved_outputs_can_be_read_after_a_takeover_and_by_the_sender(scene, serve):
    gate = Gate(1)

    def answer(request):
        if request.turn == 0:
            return Reply("", [("bash", {"command": "seq 1 60000"})])
        if request.turn == 1:
            gate.answer(request)
            said = json.dumps(request.body["messages"][-1])
            folder = re.search(r"are here now: (\S+?)\.?\"", said)
            if folder is None:
                return Reply("this is the worker that was killed")
            name = re.search(r"/outputs/[^/]+/(bash-\w+\.txt)", json.dumps(request.body["messages"]))
            return Reply("", [("read", {"path": f"{folder[1]}/{name[1]}", "offset": 41000, "limit": 2})])
        return Reply("read it")

    server = serve(answer)
    first, process = scene.run_to(gate, "Count")
    scene.replace(first, gate)
    found = result(process)
    assert "41001" in json.dumps(server.requests[-1].results[-1])
    (note,) = [note for note in found["notes"] if note.startswith("Complete outputs of its tools: ")]
    (output,) = (scene.project.home / ".retinue").rglob(f"outputs/{scene.only_run()['id']}/bash-*.txt")
    assert note.endswith(f"outputs/{output.parent.name}")
    assert output.read_text().split()[-1] == "60000"


def test_outputs_of_agents_below_a_run_come_with_it_also_after_a_takeover(scene, serve):
    gate = Gate(1)

    def answer(request):
        if "COUNT" in json.dumps(request.body["messages"][0]):
            return Reply("", [("bash", {"command": "seq 1 60000"})]) if request.turn == 0 else Reply("counted")
        if request.turn == 0:
            task = {"description": "d", "prompt": "COUNT", "subagent_type": "general-purpose"}
            return Reply("", [("Agent", task | {"run_in_background": False})])
        gate.answer(request)
        return Reply("done")

    serve(answer)
    first, process = scene.run_to(gate, "Let someone count")
    scene.replace(first, gate)
    found = result(process)
    (child,) = [row for row in scene.json("runs", "list", "--json", "--all")["runs"] if row["task"] == "COUNT"]
    (output,) = (scene.project.home / ".retinue").rglob(f"outputs/{child['id']}/bash-*.txt")
    assert output.read_text().split()[-1] == "60000"
    assert any("of agents below it" in note and note.endswith("/outputs") for note in found["notes"])


def test_consent_travels_as_hashes_to_workers_that_allow_hooks(scene, serve, tmp_path):
    serve(steps)
    ran = tmp_path / "ran"
    settings = scene.project.cwd / ".retinue" / "settings.json"
    settings.parent.mkdir()
    hook = {"matcher": "bash", "hooks": [{"type": "command", "command": f"echo x >> {ran}"}]}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [hook]}}))
    scene.worker("--allow", "hooks,servers")
    scene.ready(1)
    result(scene.run("Do all steps", "--json"))
    # The operator would allow it, and nobody has consented to this content.
    assert not ran.exists()
    said = scene.project.retinue("trust", "add", env=scene.variables)
    assert said.returncode == 0, said.stdout + said.stderr
    result(scene.run("Do all steps", "--json"))
    assert ran.read_text().split() == ["x"] * 4
