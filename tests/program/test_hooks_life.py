"""When hooks are told of what, in the life of runs: starts and ends in pairs, once, for everyone."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.errors import LaunchError, RetinueError
from retinue.frontends.cli.console.questions import ask_for_trust
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_hooks import agent, run_id, settings, spawn


class Ear:
    """Writes down every event it is registered for."""

    def __init__(self, retinue: Retinue, *events: str) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        for event in events:
            retinue.hooks.on(event, self._hear)

    async def _hear(self, payload: dict[str, Any]) -> Any:
        self.heard.append(payload)
        answer = self.answers.get(payload["hook_event_name"])
        value = answer(payload) if answer else None
        return await value if isinstance(value, Awaitable) else value

    def names(self) -> list[tuple[str, str]]:
        return [(each["hook_event_name"], each["agent_type"]) for each in self.heard]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.heard if each["hook_event_name"] == event]


def retinue_of(project: Project, **options: Any) -> Retinue:
    return Retinue(project.cwd, environment=project.environment, permission_mode="bypassPermissions", **options)


def first(request: Request) -> str:
    return json.dumps(request.body["messages"][0])


async def test_starts_and_ends_of_background_agents_come_in_pairs(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if "delegate" not in first(request):
            return Reply("found it")
        return (
            Reply("", [spawn("Explore", f"look {n}", background=True) for n in (1, 2)])
            if not request.turn
            else Reply("ok")
        )

    serve(answer)
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "SubagentStart", "SubagentStop", "Stop", "SessionStart", "SessionEnd", "Notification")
        run = await retinue.prompt("delegate")
        assert (await run.wait()).ok
        await retinue.wait_all()
    started = sorted(each["agent_id"] for each in ear.of("SubagentStart"))
    ended = sorted(each["agent_id"] for each in ear.of("SubagentStop"))
    assert len(started) == 2
    assert started == ended
    assert {each["status"] for each in ear.of("SubagentStop")} == {"done"}
    assert {each["parent_id"] for each in ear.of("SubagentStop")} == {run.id}
    assert {each["session_id"] for each in ear.heard} == {run.id}
    assert all(each["last_assistant_message"] == "found it" for each in ear.of("SubagentStop"))
    assert len(ear.of("Notification")) >= 1
    names = [name for name, _ in ear.names()]
    assert names[0] == "SessionStart"
    assert names[-1] == "SessionEnd"
    assert names.count("Stop") == 1, "a run that waits for its agents does not end yet"
    assert names.index("Stop") > max(index for index, name in enumerate(names) if name == "SubagentStop")


async def test_an_agent_that_fails_or_is_stopped_has_an_end_too(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        return Reply(status=401) if "fail" in first(request) else Reply("x", hang=True)

    serve(answer)
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "SubagentStart", "SubagentStop", "StopFailure")
        assert (await (await retinue.spawn("Explore", "fail")).wait()).ended == "error"
        run = await retinue.spawn("Explore", "hang")
        async for event in run.events():
            if event.body.type == "turn.started":
                break
        assert await run.stop()
        await run.wait()
    failed, stopped = ["SubagentStart", "StopFailure", "SubagentStop"], ["SubagentStart", "SubagentStop"]
    assert [name for name, _ in ear.names()] == [*failed, *stopped]
    assert ear.of("StopFailure")[0]["error_type"] == "authentication_failed"
    assert [each["status"] for each in ear.of("SubagentStop")] == ["error", "aborted"]


async def test_a_hook_can_stop_everything(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("", [("read", {"path": "f1.txt"})]) if request.turn < 5 else Reply("done"))
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "PostToolUse")
        ear.answers["PostToolUse"] = lambda payload: {"continue": False, "stopReason": "that is enough"}
        outcome = await (await retinue.spawn("general-purpose", "read")).wait()
    assert outcome.ended == "stopped"
    assert outcome.failure is not None
    assert "that is enough" in outcome.failure.message
    assert len(ear.heard) == 1


async def test_a_structured_result_can_be_sent_back(project: Project, serve: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def answer(request: Request) -> Reply:
        name = next(tool["name"] for tool in request.body["tools"] if "n" in tool["input_schema"].get("properties", {}))
        return Reply("", [(name, {"n": request.turn})])

    serve(answer)
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "SubagentStop")
        ear.answers["SubagentStop"] = lambda p: (
            None if p["stop_hook_active"] else {"decision": "block", "reason": "check"}
        )
        outcome = await (await retinue.spawn("general-purpose", "count", schema=schema)).wait()
    assert (outcome.ended, outcome.value) == ("completed", {"n": 1})
    assert len(ear.heard) == 2


async def test_a_person_can_stop_a_run_whose_stop_hook_hangs(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    asked = asyncio.Event()

    async def hang(payload: dict[str, Any]) -> None:
        asked.set()
        if payload["ended"] == "completed":
            await asyncio.Event().wait()

    async with asyncio.timeout(60), retinue_of(project, hooks=[("SubagentStop", hang)]) as retinue:
        run = await retinue.spawn("general-purpose", "work")
        await asked.wait()
        assert await run.stop()
        outcome = await run.wait()
    assert outcome.ended == "stopped"
    assert outcome.text == "done"


async def test_a_hook_cannot_lift_the_turn_limit(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "SubagentStop")
        ear.answers["SubagentStop"] = lambda payload: {"decision": "block", "reason": "more"}
        outcome = await (await retinue.spawn("general-purpose", "work", limits={"max_turns": 1})).wait()
    assert (outcome.ended, outcome.text) == ("steered", "done")
    assert len(server.requests) == 2
    assert [(each["status"], each["stop_hook_active"]) for each in ear.heard] == [("done", False), ("done", True)]


async def test_shortening_can_be_refused_when_a_person_wants_it(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("", [("read", {"path": "f1.txt"})]) if request.turn < 3 else Reply("done"))
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "PreCompact", "PostToolUse")
        ear.answers["PreCompact"] = lambda payload: {"decision": "block", "reason": "not now"}
        run = await retinue.spawn("general-purpose", "read")
        ear.answers["PostToolUse"] = lambda payload: run.controls.compact() and None
        assert (await run.wait()).ok
        warned = [event.body.text for event in run.recorded() if event.body.type == "run.warned"]
    assert ear.of("PreCompact")[0]["trigger"] == "manual"
    assert any("not now" in text for text in warned)


async def test_a_changed_prompt_of_a_spawn_is_the_one_that_is_given(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "SubagentSpawn")
        ear.answers["SubagentSpawn"] = lambda p: {
            "decision": "allow",
            "modifiedInput": {"prompt": p["prompt"] + " quickly"},
        }
        await (await retinue.spawn("Explore", "look")).wait()
    assert "look quickly" in json.dumps(server.requests[0].body["messages"])
    assert ear.heard[0]["profile"] == "Explore"


async def test_hooks_hear_of_worktrees_and_may_refuse_them(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=project.cwd, check=True)
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        ear = Ear(retinue, "WorktreeCreate", "WorktreeRemove")
        assert (await (await retinue.spawn("general-purpose", "work", isolation="worktree")).wait()).ok
        assert [name for name, _ in ear.names()] == ["WorktreeCreate", "WorktreeRemove"]
        ear.answers["WorktreeCreate"] = lambda payload: {"decision": "block", "reason": "no copies"}
        with pytest.raises(LaunchError, match="no copies"):
            await retinue.spawn("general-purpose", "work", isolation="worktree")
        assert len(retinue.runs) == 1
    listed = subprocess.run([*git, "worktree", "list"], cwd=project.cwd, check=True, capture_output=True, text=True)
    assert len(listed.stdout.splitlines()) == 1


async def test_codingcodes_points_through_the_same_bus(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("", [("read", {"path": "f1.txt"})]) if not request.turn else Reply("done"))
    points = ["tool.execute.before", "tool.execute.after", "llm.request.before", "llm.response.after"]
    points += ["agent.turn.start", "agent.turn.end", "agent.subagent.spawn.before", "agent.subagent.spawn.after"]
    points += ["agent.subagent.complete", "agent.turn.stop", "tool.approval.pre"]
    entries = "".join(
        f"  - {{name: {p}, point: {p}, type: observer, command: sh, args: [-c, 'echo {p} >> points']}}\n"
        for p in points
    )
    (project.home / ".codingcode").mkdir()
    (project.home / ".codingcode" / "hooks.yaml").write_text(f"hooks:\n{entries}")
    async with retinue_of(project) as retinue:
        run = await retinue.spawn("Explore", "look")
        assert (await run.wait()).ok
        assert [event.body.text for event in run.recorded() if event.body.type == "run.warned"] == []
    assert set((project.cwd / "points").read_text().split()) == set(points)


async def test_observers_that_break_are_only_warned_of(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("", [("read", {"path": "f1.txt"})]) if not request.turn else Reply("done"))
    settings(project.home / ".retinue" / "settings.json", {"PostToolUse": [{"command": "echo broken >&2; exit 1"}]})
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        run = await retinue.spawn("Explore", "look")
        assert (await run.wait()).ok
        warned = [event.body.text for event in run.recorded() if event.body.type == "run.warned"]
    assert any("broken" in text and "PostToolUse hook" in text for text in warned)


async def test_what_breaks_before_a_run_has_begun_is_recorded_after_its_beginning(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    settings(project.home / ".retinue" / "settings.json", {"SessionStart": [{"command": "echo broken >&2; exit 1"}]})
    async with asyncio.timeout(60), retinue_of(project) as retinue:
        run = await retinue.prompt("hello")
        assert (await run.wait()).ok
        bodies = [event.body for event in run.recorded()]
    assert [body.type for body in bodies[:3]] == ["run.created", "run.started", "run.warned"]
    assert "broken" in bodies[2].text


def test_a_run_resumed_after_consent_has_its_hooks(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    hooks = 'hooks:\n  Stop:\n    - command: "touch ended"\n'
    path = agent(project, "careful", hooks)
    project.retinue("run", "careful", "work")
    assert not (project.cwd / "ended").exists()
    assert project.retinue("trust", "add", str(path)).returncode == 0
    done = project.retinue("runs", "resume", run_id(project), "again")
    assert done.returncode == 0, done.stderr
    assert (project.cwd / "ended").exists()


def test_a_resume_does_not_bring_back_what_was_revoked(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    path = agent(project, "careful", 'hooks:\n  Stop:\n    - command: "touch ended"\n')
    project.retinue("trust", "add", str(path))
    project.retinue("run", "careful", "work")
    (project.cwd / "ended").unlink()
    assert project.json("trust", "remove", "--json")["files"][0]["state"] == "unknown"
    nothing = project.retinue("trust", "remove", ".retinue/agents/nobody.md")
    assert (nothing.returncode, "No consent was given to" in nothing.stderr) == (2, True)
    project.retinue("runs", "resume", run_id(project), "again")
    assert not (project.cwd / "ended").exists()
    project.retinue("runs", "resume", run_id(project), "again", "--trust")
    assert (project.cwd / "ended").exists()


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "state", "for_now"),
    [("y\n", "trusted", False), ("n\n", "refused", False), ("o\n", "unknown", True), ("what\ny\n", "trusted", False)],
)
def test_a_terminal_asks_once_and_lists_everything(
    project: Project, monkeypatch: Any, typed: str, state: str, for_now: bool
) -> None:
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    settings(project.cwd / ".claude" / "settings.json", {"PreToolUse": [{"command": "./their-guard --all"}]})
    agent(project, "wild", more="permissionMode: bypassPermissions\n")
    out = Tty()
    assert ask_for_trust(project.cwd, Tty(typed), out) is for_now
    assert "./their-guard --all" in out.getvalue()
    assert "permission mode bypassPermissions" in out.getvalue()
    states = {Path(file["path"]).name: file["state"] for file in project.json("trust", "--json")["files"]}
    assert states == {"settings.json": state, "wild.md": state}
    again = Tty()
    ask_for_trust(project.cwd, Tty("n\n"), again)
    assert bool(again.getvalue()) == (state == "unknown")


def test_nobody_is_asked_in_a_pipe_and_the_end_of_input_is_no_consent(project: Project, monkeypatch: Any) -> None:
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    settings(project.cwd / ".claude" / "settings.json", {"PreToolUse": [{"command": "./x"}]})
    out = io.StringIO()
    assert ask_for_trust(project.cwd, io.StringIO("y\n"), out) is False
    assert out.getvalue() == ""
    assert ask_for_trust(project.cwd, Tty(""), Tty()) is False
    assert project.json("trust", "--json")["files"][0]["state"] == "unknown"


async def test_a_change_of_the_model_is_told_before_and_after_and_can_be_refused(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("fine"))
    async with retinue_of(project) as retinue:
        ear = Ear(retinue, "PreModelSwitch", "PostModelSwitch")
        run = await retinue.spawn("general-purpose", "hello")
        await run.wait()
        again = await retinue.resume(run.id, "same model")
        await again.wait()
        assert ear.heard == []
        other = await retinue.resume(run.id, "another", model="anthropic/claude-opus-4-5")
        await other.wait()
        assert [each["hook_event_name"] for each in ear.heard] == ["PreModelSwitch", "PostModelSwitch"]
        for each in ear.heard:
            assert (each["from_model"], each["to_model"]) == (
                "anthropic/claude-sonnet-4-5",
                "anthropic/claude-opus-4-5",
            )
            assert (each["requested_model"], each["source"]) == ("anthropic/claude-opus-4-5", "user")
        ear.answers["PreModelSwitch"] = lambda _: {"decision": "block", "reason": "too dear"}
        with pytest.raises(RetinueError, match="too dear"):
            await retinue.resume(run.id, "back", model="anthropic/claude-sonnet-4-5")


def busy_but_for(*models: str) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        return Reply("fine") if request.body["model"] in models else Reply(status=529)

    return answer


def fallbacks(project: Project, *models: str) -> None:
    agent(project, "steady")
    folder = project.home / ".retinue"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"fallbackModels": models, "retry": {"maxAttempts": 1}}))


async def test_a_model_that_takes_over_is_told_before_and_after(project: Project, serve: Any) -> None:
    serve(busy_but_for("claude-haiku-4-5"))
    fallbacks(project, "anthropic/claude-haiku-4-5")
    async with retinue_of(project) as retinue:
        ear = Ear(retinue, "PreModelSwitch", "PostModelSwitch")
        outcome = await (await retinue.spawn("steady", "hello")).wait()
    assert (outcome.ended, outcome.text) == ("completed", "fine")
    assert [each["hook_event_name"] for each in ear.heard] == ["PreModelSwitch", "PostModelSwitch"]
    for each in ear.heard:
        assert each["from_model"] == each["requested_model"] == "anthropic/claude-sonnet-4-5"
        assert (each["to_model"], each["source"]) == ("anthropic/claude-haiku-4-5", "fallback")


async def test_a_refused_model_does_not_take_over_and_the_next_of_the_chain_is_asked(
    project: Project, serve: Any
) -> None:
    served = serve(busy_but_for("claude-haiku-4-5", "claude-opus-4-5"))
    fallbacks(project, "anthropic/claude-opus-4-5", "anthropic/claude-haiku-4-5")
    async with retinue_of(project) as retinue:
        ear = Ear(retinue, "PreModelSwitch", "PostModelSwitch")
        ear.answers["PreModelSwitch"] = lambda told: (
            {"decision": "block", "reason": "too dear"} if "opus" in told["to_model"] else None
        )
        outcome = await (await retinue.spawn("steady", "hello")).wait()
        assert (outcome.ended, outcome.text) == ("completed", "fine")
        assert any("claude-opus-4-5 may not take over" in note and "too dear" in note for note in outcome.notes)
        assert [each["to_model"] for each in ear.of("PostModelSwitch")] == ["anthropic/claude-haiku-4-5"]
        ear.answers["PreModelSwitch"] = lambda _: {"decision": "block", "reason": "stay"}
        failed = await (await retinue.spawn("steady", "again")).wait()
    assert failed.ended == "error"
    assert failed.failure is not None and failed.failure.kind == "overloaded"
    assert "claude-opus-4-5" not in [request.body["model"] for request in served.requests]
