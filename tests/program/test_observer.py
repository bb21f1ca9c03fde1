"""Observers through the program: what they are told, what they may do, who hears their reports, also after kill -9."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

ADVICE = "An observer of an agent that you started has noticed this."


class Play:
    """Main starts `builder` on a task, which writes `files` files, one a turn. Each digest gets `observe`'s answer."""

    def __init__(
        self, project: Project, *, files: int = 2, observer: str = "auditor", background: bool = False
    ) -> None:
        self.files = files
        self.background = background
        self.digests: list[str] = []
        self.main: list[Request] = []
        self.built: list[Request] = []
        self.watching: list[Request] = []
        self.before_build: Callable[[int], None] = lambda turn: None
        self.before_main: Callable[[Request], None] = lambda request: None
        self.observe: Callable[[str], Reply] = lambda digest: Reply("nothing")
        agent(project, "builder", "tools: Read, Write", f"observer: {observer}", "observerMessage: MIND THE NAMES")
        agent(project, "auditor", "tools: Read, Write, Bash, Grep, Agent", "observer: auditor")

    def answer(self, request: Request) -> Reply:
        if "You observe another agent" in first_words(request):
            self.watching.append(request)
            said = last_words(request)
            if "<activity-digest" not in said:
                return Reply("noted")
            self.digests.append(said)
            return self.observe(said)
        if "BUILD IT" in first_words(request):
            self.built.append(request)
            self.before_build(request.turn)
            if request.turn < self.files:
                return Reply("", [("write", {"path": f"new{request.turn}.txt", "content": "x"})])
            return Reply("built")
        self.main.append(request)
        self.before_main(request)
        call = {"subagent_type": "builder", "prompt": "BUILD IT", "description": "build"}
        started = "tool_use" in json.dumps(request.body["messages"])
        if not started:
            return Reply("", [("Agent", {**call, "run_in_background": self.background})])
        return Reply("main is done")


def agent(project: Project, name: str, *lines: str) -> None:
    folder = project.home / ".claude" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(["---", f"name: {name}", f"description: {name}s things", *lines, "---", "Do it well.", ""])
    (folder / f"{name}.md").write_text(text)


def words(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def first_words(request: Request) -> str:
    return words(request.body["messages"][0])


def last_words(request: Request) -> str:
    return words(request.body["messages"][-1])


def heard(request: Request) -> int:
    return sum(words(message).count("<observer-report>") for message in request.body["messages"])


def report(message: str, **more: str) -> Reply:
    return Reply("", [("ObserverReport", {"message": message, **more})])


def rows(project: Project) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.json("runs", "list", "--json", "--limit", "0")["runs"]
    return found


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_an_observer_hears_what_an_agent_did_and_its_report_reaches_the_parent_once(
    project: Project, serve: Any
) -> None:
    play = Play(project)
    serve(play.answer)
    play.observe = lambda digest: (
        report("new1 is <badly> named", severity="warning") if "new1" in digest else Reply("ok")
    )
    done = project.retinue("-p", "go")
    assert done.returncode == 0, done.stderr
    assert "- write(path='new0.txt', content='x')\n  changed new0.txt" in "".join(play.digests)
    assert "It has ended: completed." in play.digests[-1]
    assert all(digest.endswith("</activity-digest>\n\nMIND THE NAMES") for digest in play.digests)
    told = last_words(play.main[-1])
    assert "auditor, which observes builder (" in told
    assert "reports a warning: new1 is &lt;badly&gt; named" in told
    assert ADVICE in told
    assert heard(play.main[-1]) == 1
    assert all(heard(request) == 0 for request in play.built)
    assert done.stderr.count("new1 is <badly> named") == 1
    assert "▸ auditor" in done.stderr


def test_an_observer_has_the_tools_that_read_whatever_its_file_says_and_nobody_observes_it(
    project: Project, serve: Any
) -> None:
    play = Play(project)
    serve(play.answer)
    play.observe = lambda digest: Reply("", [("write", {"path": "mine.txt", "content": "x"})])
    assert project.retinue("-p", "go").returncode == 0
    tools = [tool["name"] for tool in play.watching[0].body["tools"]]
    assert tools == ["read", "grep", "ObserverReport"]
    assert not (project.cwd / "mine.txt").exists()
    assert [row["agent"] for row in rows(project)].count("auditor") == 1


def test_a_file_may_list_the_tool_that_reports_and_nothing_else(project: Project, serve: Any) -> None:
    play = Play(project)
    serve(play.answer)
    agent(project, "auditor", "tools: ObserverReport")
    done = project.retinue("-p", "go")
    assert done.returncode == 0, done.stderr
    assert [tool["name"] for tool in play.watching[0].body["tools"]] == ["ObserverReport"]
    assert "ObserverReport" not in done.stderr
    assert "unknown-tool" not in project.retinue("agents", "lint", str(project.home / ".claude/agents")).stdout


def test_the_list_of_runs_marks_the_observer_below_the_run_that_it_observes(project: Project, serve: Any) -> None:
    serve(Play(project).answer)
    project.retinue("-p", "go")
    listed = project.retinue("runs", "list").stdout.splitlines()
    assert "    auditor @auditor (observes builder)" in listed[2]
    fates = [line.split() for line in project.retinue("agents", "show", "builder").stdout.splitlines()]
    assert ["observer", "honoured"] in fates


def test_of_an_agent_that_a_person_runs_the_person_hears_the_report_and_the_agent_does_not(
    project: Project, serve: Any
) -> None:
    play = Play(project)
    serve(play.answer)
    play.observe = lambda digest: report("look here") if "new0" in digest else Reply("ok")
    done = project.retinue("run", "builder", "BUILD IT")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("auditor, which observes builder (") == 1
    assert "reports: look here" in done.stderr
    assert all(heard(request) == 0 for request in play.built)
    play.observe = lambda digest: Reply("ok")
    project.retinue("runs", "resume", rows(project)[1]["id"], "BUILD IT again")
    assert heard(play.built[-1]) == 0


def test_what_an_agent_does_while_its_observer_works_comes_in_one_digest(project: Project, serve: Any) -> None:
    play = Play(project, files=5)
    serve(play.answer)
    finished = threading.Event()

    def build(turn: int) -> None:
        if turn == 1:
            until(lambda: play.digests)
        if turn == 5:
            finished.set()

    def observe(digest: str) -> Reply:
        finished.wait(60)
        return Reply("ok")

    play.before_build, play.observe = build, observe
    assert project.retinue("-p", "go").returncode == 0
    assert "new0.txt" in play.digests[0] and "new1.txt" not in play.digests[0]
    later = "".join(play.digests[1:])
    assert len(play.digests) <= 3
    assert [later.count(f"path='new{number}.txt'") for number in range(1, 5)] == [1, 1, 1, 1]
    assert rows(project)[-1]["ended"] == "completed"


def test_an_observer_that_fails_is_one_note_and_the_run_succeeds(project: Project, serve: Any) -> None:
    play = Play(project)
    serve(play.answer)
    play.observe = lambda digest: Reply(status=400)
    done = project.retinue("-p", "BUILD IT", "--agent", "builder", "--output-format", "json")
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "completed"
    (note,) = [note for note in outcome["notes"] if "The observer" in note]
    assert note.startswith("The observer auditor (") and note.endswith("watches no more: it has ended (error).")


def test_names_of_observers_that_cannot_be_used_are_said_and_stop_nothing(project: Project, serve: Any) -> None:
    play = Play(project, observer="nobody, auditor, x, y, z")
    serve(play.answer)
    agent(project, "x", "enabled: false")
    done = project.retinue("-p", "BUILD IT", "--agent", "builder", "--output-format", "json")
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "completed"
    notes = "\n".join(outcome["notes"])
    assert "'observer': 5 agents are named, and at most 4 watch a run; the first ones do." in notes
    assert "The observer 'nobody' does not watch it: " in notes
    assert "The observer 'x' does not watch it: " in notes
    assert "The observer 'z'" not in notes
    assert play.digests


def test_an_agent_that_is_stopped_takes_its_observer_with_it(project: Project, serve: Any) -> None:
    play = Play(project, background=True)
    serve(play.answer)
    over = threading.Event()
    play.observe = lambda digest: (over.wait(60), Reply("ok"))[1]
    play.before_build = lambda turn: over.wait(60) if turn == 1 else None
    process = project.start("-p", "go")
    until(lambda: play.digests)
    builder = next(row for row in rows(project) if row["agent"] == "builder")
    assert project.retinue("runs", "stop", builder["id"]).returncode == 0
    states = until(lambda: {row["agent"]: row["ended"] for row in rows(project) if row["ended"]}.keys() >= {"auditor"})
    assert states
    over.set()
    process.communicate(timeout=60)
    ends = {row["agent"]: row["ended"] for row in rows(project)}
    assert ends == {"main": "completed", "builder": "stopped", "auditor": "stopped"}


def test_after_kill_9_the_same_observer_goes_on_where_it_was(project: Project, serve: Any) -> None:
    play = Play(project, files=4)
    serve(play.answer)
    hold = threading.Event()
    play.before_build = lambda turn: hold.wait(60) if turn == 2 and not hold.is_set() else None
    process = project.start("run", "builder", "BUILD IT")
    until(lambda: "new1.txt" in "".join(play.digests))
    until(lambda: [row for row in rows(project) if row["agent"] == "auditor" and row["turns"] == len(play.digests)])
    process.send_signal(signal.SIGKILL)
    process.communicate()
    hold.set()
    builder = next(row for row in rows(project) if row["agent"] == "builder")
    done = project.retinue("runs", "resume", builder["id"])
    assert done.returncode == 0, done.stderr
    after = rows(project)
    assert sorted((row["agent"], row["ended"]) for row in after) == [("auditor", "completed"), ("builder", "completed")]
    every = "".join(play.digests)
    assert [every.count(f"path='new{number}.txt'") for number in range(4)] == [1, 1, 1, 1]
    assert "It has ended: completed." in play.digests[-1]


def test_a_report_that_the_parent_had_not_heard_at_kill_9_is_told_once_after_the_resume(
    project: Project, serve: Any
) -> None:
    play = Play(project, background=True)
    serve(play.answer)
    hold = threading.Event()
    play.observe = lambda digest: report("look here") if "new0" in digest else Reply("ok")
    play.before_main = lambda request: hold.wait(60) if request.turn == 1 else None
    process = project.start("-p", "go")

    def reported() -> bool:
        events: list[dict[str, Any]] = []
        for row in rows(project):
            if row["agent"] == "main":
                events = project.json("runs", "show", row["id"], "--json")["events"]
        return any(event["type"] == "run.warned" and "look here" in event["text"] for event in events)

    until(reported)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    hold.set()
    play.main.clear()
    main = next(row for row in rows(project) if row["agent"] == "main")
    for _ in range(2):
        done = project.retinue("-p", "go on", "--resume", main["id"])
        assert done.returncode == 0, done.stderr
    assert heard(play.main[-1]) == 1
    assert "Agent &quot;observes" not in json.dumps(play.main[-1].body)
    assert "observes builder</summary>" not in json.dumps(play.main[-1].body)
