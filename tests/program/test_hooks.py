"""Hooks and consent through the real program, a real model server and real hook scripts."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

FREELY = ("--permission-mode", "bypassPermissions")
MARKER = "RETINUE_HOOK_TEST"


def specific(event: str, **fields: Any) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **fields}})


def settings(path: Path, hooks: dict[str, Any], **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": hooks, **more}))


def own(project: Project, hooks: dict[str, Any], **more: Any) -> None:
    settings(project.home / ".retinue" / "settings.json", hooks, **more)


def command(line: str, matcher: str = "", **more: Any) -> list[dict[str, Any]]:
    return [{"matcher": matcher, "hooks": [{"type": "command", "command": line, **more}]}]


def once(name: str, arguments: dict[str, Any]) -> Any:
    """A model that calls one tool and then says what it got."""

    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply("", [(name, arguments)])
        return Reply("got: " + json.dumps(request.results[-1]["content"]))

    return answer


def run(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.retinue("-p", "do it", "--output-format", "json", *arguments)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_hook_denies_in_every_mode_and_the_model_hears_why(project: Project, serve: Any) -> None:
    serve(once("bash", {"command": "touch made"}))
    own(project, {"PreToolUse": command("cat > seen.json; echo 'not on my watch' >&2; exit 2", "Bash")})
    said = run(project, *FREELY)
    assert "not on my watch" in said["result"]
    assert not (project.cwd / "made").exists()
    seen = json.loads((project.cwd / "seen.json").read_text())
    assert (seen["tool_input"]["command"], seen["agent_id"], seen["cwd"]) == (
        "touch made",
        seen["run_id"],
        str(project.cwd),
    )
    assert Path(seen["transcript_path"]).is_file()


def test_an_input_that_a_hook_changes_is_the_one_that_runs(project: Project, serve: Any) -> None:
    serve(once("write", {"path": "a.txt", "content": "secret"}))
    changed = {"file_path": "b.txt", "content": "public"}
    settings(
        project.home / ".claude" / "settings.json",
        {"PreToolUse": command(f"echo '{specific('PreToolUse', updatedInput=changed)}'", "Write")},
    )
    run(project, *FREELY)
    assert not (project.cwd / "a.txt").exists()
    assert (project.cwd / "b.txt").read_text() == "public"


def test_what_a_hook_adds_to_a_result_reaches_the_model(project: Project, serve: Any) -> None:
    server = serve(once("read", {"path": "f1.txt"}))
    own(
        project,
        {
            "PostToolUse": command(f"echo '{specific('PostToolUse', additionalContext='mind the gap')}'", "Read"),
            "SessionStart": command("echo it is Monday"),
            "UserPromptSubmit": command("echo be brief"),
        },
    )
    said = run(project)
    assert "mind the gap" in said["result"]
    assert "alpha 1" in said["result"]
    first = json.dumps(server.requests[0].body["messages"][0])
    assert "it is Monday" in first
    assert "be brief" in first
    assert first.index("it is Monday") < first.index("do it")


def test_a_hook_that_asks_puts_it_in_the_inbox(project: Project, serve: Any) -> None:
    serve(once("bash", {"command": "touch made"}))
    ask = specific("PreToolUse", permissionDecision="ask", permissionDecisionReason="sure?")
    own(project, {"PreToolUse": command(f"echo '{ask}'", "Bash")}, permissions={"headless": "wait"})
    process = project.start("-p", "do it", "--output-format", "json", *FREELY)
    items: list[dict[str, Any]] = []
    while not items:
        assert process.poll() is None, process.communicate()
        items = project.json("inbox", "list", "--json").get("items", [])
    assert "sure?" in json.dumps(items[0])
    assert not (project.cwd / "made").exists()
    answered = project.retinue("inbox", "answer", items[0]["id"], "allow")
    assert answered.returncode == 0, answered.stderr
    process.communicate(timeout=60)
    assert (project.cwd / "made").exists()


def test_a_hook_that_allows_answers_what_the_mode_would_ask(project: Project, serve: Any) -> None:
    serve(once("bash", {"command": "touch made"}))
    own(project, {})
    run(project, "--permission-mode", "default")
    assert not (project.cwd / "made").exists(), "nobody is there to ask"
    own(
        project,
        {"PermissionRequest": command(f"echo '{specific('PermissionRequest', decision={'behavior': 'allow'})}'")},
    )
    run(project, "--permission-mode", "default")
    assert (project.cwd / "made").exists()


def test_a_hanging_hook_is_ended_and_blocks_with_its_reason(project: Project, serve: Any) -> None:
    serve(once("bash", {"command": "touch made"}))
    own(
        project,
        {"PreToolUse": command("setsid sleep 300 & sleep 300", "Bash", timeout=1, env={MARKER: str(project.cwd)})},
    )
    said = run(project, *FREELY)
    assert "did not answer within 1 seconds" in said["result"]
    assert "sleep 300" in said["result"]
    assert not (project.cwd / "made").exists()
    assert marked(str(project.cwd)) == []


def test_a_broken_guard_denies_unless_the_setting_says_otherwise(project: Project, serve: Any) -> None:
    serve(once("bash", {"command": "touch made"}))
    guard = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": "/no/such/guard", "args": []}]}]}
    own(project, guard)
    assert "/no/such/guard" in run(project, *FREELY)["result"]
    assert not (project.cwd / "made").exists()
    own(project, {**guard, "failOpen": True})
    run(project, *FREELY)
    assert (project.cwd / "made").exists()


def test_http_and_exec_handlers(project: Project, serve: Any) -> None:
    payloads: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            payloads.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            data = specific(
                "PreToolUse", permissionDecision="deny", permissionDecisionReason="the web says no"
            ).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
    serve(once("bash", {"command": "touch made"}))
    url = {"type": "http", "url": f"http://127.0.0.1:{web.server_port}/"}
    touch = {"type": "command", "command": "touch", "args": ["$(touch injected)"]}
    own(project, {"PreToolUse": [{"matcher": "Bash", "hooks": [url, touch]}]})
    said = run(project, *FREELY)
    web.shutdown()
    web.server_close()
    assert "the web says no" in said["result"]
    assert payloads[0]["tool_name"] == "bash"
    assert (project.cwd / "$(touch injected)").exists()
    assert not (project.cwd / "injected").exists()


def test_a_prompt_can_be_blocked_before_anything_is_recorded(project: Project, serve: Any) -> None:
    server = serve(once("read", {"path": "f1.txt"}))
    own(project, {"UserPromptSubmit": command("grep -q 'do it' && { echo 'not today' >&2; exit 2; }")})
    done = project.retinue("-p", "do it")
    assert done.returncode == 1
    assert "not today" in done.stderr
    assert server.requests == []
    assert project.json("runs", "list", "--json")["runs"] == []


def test_a_session_has_a_beginning_and_an_end(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("hello"))
    names = ("SessionStart", "UserPromptSubmit", "TurnStart", "ModelResponse", "TurnEnd", "Stop", "SessionEnd")
    own(project, {name: command(f"echo {name} >> order") for name in names})
    run(project)
    assert (project.cwd / "order").read_text().split() == list(names)


@pytest.mark.parametrize("flag", [(), ("--permission-mode", "plan")])
def test_a_hook_hears_the_mode_that_is_in_effect(project: Project, serve: Any, flag: tuple[str, ...]) -> None:
    serve(lambda request: Reply("hello"))
    own(project, {"Stop": command("cat > payload")}, permissions={"defaultMode": "acceptEdits"})
    project.mode = ""
    run(project, *flag)
    said = json.loads((project.cwd / "payload").read_text())
    assert said["permission_mode"] == (flag[1] if flag else "acceptEdits")


def test_the_end_of_a_main_run_can_be_put_off(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(f"answer {len(request.body['messages'])}"))
    line = 'test -e again || { touch again; echo "run the tests" >&2; exit 2; }'
    own(project, {"Stop": command(line)})
    run(project)
    assert len(server.requests) == 2
    assert "run the tests" in json.dumps(server.requests[1].body["messages"][-1])


def agent(project: Project, name: str, hooks: str = "", *, home: bool = False, more: str = "") -> Path:
    folder = (project.home if home else project.cwd) / ".claude" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(f"---\nname: {name}\ndescription: does it\n{more}{hooks}---\nYou are {name}.\n")
    return path


STOP = (
    'hooks:\n  Stop:\n    - hooks:\n        - {type: command, command: "echo x >> ends; echo once more >&2; exit 2"}\n'
)


def test_a_subagent_stop_hook_continues_eight_times_at_most(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    agent(project, "stubborn", STOP, home=True)
    done = project.retinue("run", "stubborn", "work", "--json")
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == 9
    assert (project.cwd / "ends").read_text().count("x") == 9
    assert "8 times in a row" in done.stdout + json.dumps(project.json("runs", "show", run_id(project), "--json"))


def spawn(agent: str, prompt: str, *, background: bool = False) -> tuple[str, dict[str, Any]]:
    call = {"subagent_type": agent, "prompt": prompt, "description": "d", "run_in_background": background}
    return "Agent", call


def run_id(project: Project) -> str:
    return str(project.json("runs", "list", "--json")["runs"][0]["id"])


def test_a_spawn_can_be_vetoed_for_models_and_people(project: Project, serve: Any) -> None:
    own(project, {"SubagentSpawn": command("echo 'no agents today' >&2; exit 2", "Explore")})
    serve(once(*spawn("Explore", "look")))
    said = run(project)
    assert "no agents today" in said["result"]
    done = project.retinue("run", "Explore", "look", "--json")
    assert done.returncode == 1
    refusal = json.loads(done.stdout)
    assert "no agents today" in refusal["details"]["error"]["message"]


def test_hooks_of_an_untrusted_project_do_nothing_until_someone_consents(project: Project, serve: Any) -> None:
    serve(once("bash", {"command": "touch made"}))
    file = project.cwd / ".claude" / "settings.json"
    settings(file, {"PreToolUse": command("echo theirs >&2; exit 2", "Bash")})
    untrusted = run(project, *FREELY)
    assert (project.cwd / "made").exists()
    assert "not trusted" in json.dumps(untrusted)
    (project.cwd / "made").unlink()

    assert "theirs" in run(project, *FREELY, "--trust")["result"]
    assert not (project.cwd / "made").exists()
    run(project, *FREELY)
    assert (project.cwd / "made").exists(), "--trust is for one process"
    (project.cwd / "made").unlink()

    assert project.json("trust", "--json")["files"][0]["state"] == "unknown"
    assert project.json("trust", "add", "--json")["files"][0]["state"] == "trusted"
    assert "theirs" in run(project, *FREELY)["result"]
    file.write_text(file.read_text().replace("theirs", "changed"))
    run(project, *FREELY)
    assert (project.cwd / "made").exists(), "changed content is not trusted any more"
    assert project.json("trust", "--json")["files"][0]["state"] == "unknown"


def test_an_agent_of_an_untrusted_project_runs_without_its_hooks_and_says_so(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    path = agent(project, "stubborn", STOP, more="permissionMode: bypassPermissions\n")
    project.retinue("run", "stubborn", "work")
    assert not (project.cwd / "ends").exists()
    shown = project.retinue("runs", "show", run_id(project)).stdout
    assert "is not trusted, so it runs without" in shown
    assert "permission mode bypassPermissions" in shown
    assert f"retinue trust add {path}" in shown
    assert project.retinue("trust", "add", str(path)).returncode == 0
    project.retinue("run", "stubborn", "work")
    assert (project.cwd / "ends").exists()
    path.write_text(path.read_text().replace("You are", "You were"))
    (project.cwd / "ends").unlink()
    project.retinue("run", "stubborn", "work")
    assert not (project.cwd / "ends").exists()


def test_agents_on_the_command_line_need_no_consent(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    made = {"quick": {"description": "d", "prompt": "p", "hooks": {"Stop": [{"command": "touch ended"}]}}}
    done = project.retinue("run", "quick", "work", "--agents", json.dumps(made))
    assert done.returncode == 0, done.stderr
    assert (project.cwd / "ended").exists()


async def test_functions_of_the_library(project: Project, serve: Any) -> None:
    serve(once("bash", {"command": "touch made"}))
    heard: list[str] = []

    async def guard(payload: dict[str, Any]) -> dict[str, Any]:
        heard.append(payload["agent_type"])
        return {"decision": "deny", "reason": "the program says no"}

    environment = {**project.environment}
    async with Retinue(
        project.cwd, environment=environment, hooks=[("SubagentStart", lambda p: {"additionalContext": "psst"})]
    ) as retinue:
        retinue.hooks.on("PreToolUse", guard, matcher="bash")
        outcome = await (await retinue.spawn("general-purpose", "do it")).wait()
        assert "the program says no" in outcome.text
        assert heard == ["general-purpose"]
        assert retinue.hooks.off(guard)
    assert not (project.cwd / "made").exists()
    assert project.server is not None
    assert "psst" in json.dumps(project.server.requests[0].body["messages"][0])


@pytest.mark.parametrize("seed", range(3))
async def test_hooks_of_one_agent_never_fire_for_another(project: Project, serve: Any, seed: int) -> None:
    """Random trees of agents, each with hooks of its own that write down who they heard."""
    import random

    chance = random.Random(seed)
    names = [f"agent-{number}" for number in range(4)]
    script = project.home / "hear.py"
    script.write_text(
        "import json, sys\n"
        "said = json.load(sys.stdin)\n"
        "line = ' '.join((sys.argv[1], said['agent_type'], said['hook_event_name']))\n"
        "open('heard', 'a').write(line + '\\n')\n"
    )
    for name in names:
        run_line = json.dumps(f"python3 {script} {name}")
        hooks = "hooks:\n" + "".join(
            f"  {event}:\n    - hooks: [{{type: command, command: {run_line}}}]\n" for event in ("Stop", "PreToolUse")
        )
        agent(project, name, hooks, home=True, more="tools: Read, Agent\n")

    def answer(request: Request) -> Reply:
        task = json.dumps(request.body["messages"][0])
        plan = json.loads(task.partition("PLAN")[2].partition("END")[0].replace('\\"', '"')) if "PLAN" in task else []
        if request.turn == 0:
            calls: list[tuple[str, Any]] = [("read", {"path": "f1.txt"})]
            for name, below in plan:
                prompt = f"PLAN{json.dumps(below)}END"
                calls.append(
                    ("Agent", {"subagent_type": name, "prompt": prompt, "description": "d", "run_in_background": False})
                )
            return Reply("", calls)
        return Reply("done")

    def plan(depth: int) -> list[Any]:
        return [[chance.choice(names), plan(depth - 1)] for _ in range(chance.randint(0, 2))] if depth else []

    serve(answer)
    wanted = plan(2) or [[names[0], []]]
    async with Retinue(project.cwd, environment=project.environment, permission_mode="bypassPermissions") as retinue:
        async with asyncio.timeout(60):
            await (await retinue.spawn("general-purpose", f"PLAN{json.dumps(wanted)}END")).wait()
            await retinue.wait_all()
    heard = [line.split() for line in (project.cwd / "heard").read_text().splitlines()]
    assert heard
    assert all(whose == who for whose, who, _ in heard)
    assert all(event != "Stop" for _, _, event in heard)

    def count(tree: list[Any]) -> int:
        return sum(1 + count(below) for _, below in tree)

    assert sum(event == "SubagentStop" for _, _, event in heard) == count(wanted)


def marked(value: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARKER}={value}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found
