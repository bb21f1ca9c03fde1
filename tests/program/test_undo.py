"""What a run did, seen and undone from the command line; through kill -9, rollback and children."""

import json
import os
import signal

import pytest

from tests.program.model_server import Reply, Request

BYPASS = ("--permission-mode", "bypassPermissions")


def steps(*replies: Reply):
    """The replies in order, the last one for ever."""

    def answer(request: Request) -> Reply:
        return replies[min(request.turn, len(replies) - 1)]

    return answer


def run_id(project) -> str:
    return project.json("runs", "list", "--json")["runs"][0]["id"]


WORK = (
    Reply("", [("read", {"path": "f0.txt"})]),
    Reply("", [("edit", {"path": "f0.txt", "edits": [{"old": "alpha 0", "new": "ALPHA"}]})]),
    Reply("", [("bash", {"command": "rm f1.txt; echo new > g.txt; exit 3"})]),
)


def test_effects_and_undo_of_a_run(project, serve):
    serve(steps(*WORK, Reply("Edited `f0.txt`. Removed f1.txt. Created `nowhere.py`. All tests pass.")))
    assert project.retinue("run", "general-purpose", "work", *BYPASS).returncode == 0
    run = run_id(project)

    text = project.retinue("runs", "effects", run)
    assert text.returncode == 0, text.stderr
    for line in ("  read   f0.txt", "  write  ~ f0.txt", "  write  - f1.txt", "  write  + g.txt", "→ exit 3"):
        assert line in text.stdout
    turns = project.json("runs", "effects", run, "--json")["runs"][0]["turns"]
    shell = turns[2]["calls"][0]
    assert (shell["exit_code"], [each["status"] for each in shell["writes"]]) == (3, ["deleted", "created"])
    outcome = project.json("runs", "show", run, "--json")["outcome"]
    done = "3 files changed (f0.txt, f1.txt, g.txt); commands: `rm f1.txt; echo new > g.txt; exit 3` exit 3; no checks"
    assert outcome["notes"] == [f"Record: {done}."]

    (project.cwd / "g.txt").write_text("mine now\n")
    planned = project.retinue("runs", "undo", run, "--dry-run")
    assert planned.returncode == 1
    assert (project.cwd / "f0.txt").read_text().startswith("ALPHA")
    done = project.retinue("runs", "undo", run, "--json")
    assert done.returncode == 1
    fates = {os.path.basename(each["path"]): each["fate"] for each in json.loads(done.stdout)["files"]}
    assert fates == {"f0.txt": "restored", "f1.txt": "restored", "g.txt": "kept"}
    assert (project.cwd / "f0.txt").read_text() == "alpha 0\nbeta\n"
    assert (project.cwd / "g.txt").read_text() == "mine now\n"
    assert "undone by person: 2 files put back, 1 kept" in project.retinue("runs", "effects", run).stdout
    events = project.json("runs", "show", run, "--json")["events"]
    assert events[-1]["type"] == "run.undone"
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert project.retinue("runs", "undo", run, "--force").returncode == 0
    assert not (project.cwd / "g.txt").exists()


def test_an_undone_run_can_be_resumed(project, serve):
    serve(steps(*WORK, Reply("done")))
    project.retinue("run", "general-purpose", "work", *BYPASS)
    run = run_id(project)
    assert project.retinue("runs", "undo", run).returncode == 0
    again = project.retinue("runs", "resume", run, "--json")
    assert again.returncode == 0, again.stderr
    seen = json.dumps(project.server.requests[-1].body["messages"])
    assert "Your changes to these files were undone: " in seen


def test_undo_from_a_turn_on_and_of_turns_that_are_not(project, serve):
    serve(steps(*WORK, Reply("done")))
    project.retinue("run", "general-purpose", "work", *BYPASS)
    run = run_id(project)
    wrong = project.retinue("runs", "undo", run, "--turn", "9")
    assert wrong.returncode == 2
    assert "has no turn 9" in wrong.stderr
    assert project.retinue("runs", "undo", run, "--turn", "3").returncode == 0
    assert (project.cwd / "f0.txt").read_text().startswith("ALPHA")
    assert (project.cwd / "f1.txt").exists()


def test_kill_9_in_a_command_names_the_unknown_effect_and_can_be_undone(project, serve):
    command = "rm f1.txt; echo new > g.txt; touch started; sleep 60"
    serve(steps(Reply("", [("bash", {"command": command})]), Reply("done")))
    process = project.start("run", "general-purpose", "work", *BYPASS)
    try:
        while not (project.cwd / "started").exists():
            assert process.poll() is None, process.stderr.read()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    run = run_id(project)
    shown = project.retinue("runs", "effects", run).stdout
    assert "UNKNOWN EFFECT bash rm f1.txt" in shown
    for line in ("  write  - f1.txt", "  write  + g.txt"):
        assert line in shown
    done = project.retinue("runs", "undo", run)
    assert done.returncode == 0, done.stdout
    assert (project.cwd / "f1.txt").read_text() == "alpha 1\nbeta\n"
    assert not (project.cwd / "g.txt").exists()
    assert not (project.cwd / "started").exists()


def test_a_live_run_is_not_undone(project, serve):
    serve(steps(Reply("", [("bash", {"command": "touch started; sleep 60"})])))
    process = project.start("run", "general-purpose", "work", *BYPASS)
    try:
        while not (project.cwd / "started").exists():
            assert process.poll() is None, process.stderr.read()
        refused = project.retinue("runs", "undo", run_id(project))
        assert refused.returncode == 1
        assert "still running" in refused.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@pytest.mark.parametrize("fails", [True, False])
def test_rollback_on_failure_undoes_a_run_that_failed_and_no_other(project, serve, fails):
    agents = project.cwd / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "careful.md").write_text("---\nname: careful\nrollback: on-failure\n---\nWork.\n")
    last = Reply("bad request", status=400) if fails else Reply("done")
    serve(steps(*WORK, last))
    done = project.retinue("run", "careful", "work", *BYPASS, "--json")
    assert done.returncode == (1 if fails else 0)
    assert (project.cwd / "f1.txt").exists() is fails
    assert (project.cwd / "g.txt").exists() is not fails
    assert (project.cwd / "f0.txt").read_text().startswith("alpha" if fails else "ALPHA")
    document = project.json("runs", "show", run_id(project), "--json")
    types = [event["type"] for event in document["events"]]
    assert ("run.undone" in types) is fails
    assert any("3 of 3 files" in note for note in document["outcome"]["notes"]) is fails


def test_a_parent_is_told_what_its_child_changed_and_what_to_read_again(project, serve):
    def answer(request: Request) -> Reply:
        first = json.dumps(request.body["messages"][0])
        if "child task" in first and "main task" not in first:
            return steps(
                Reply("", [("read", {"path": "f0.txt"})]),
                Reply("", [("edit", {"path": "f0.txt", "edits": [{"old": "alpha 0", "new": "A"}]})]),
                Reply("Changed `f0.txt`."),
            )(request)
        call = {
            "description": "d",
            "prompt": "child task",
            "subagent_type": "general-purpose",
            "run_in_background": False,
        }
        return steps(
            Reply("", [("read", {"path": "f0.txt"})]),
            Reply("", [("Agent", call)]),
            Reply("", [("edit", {"path": "f0.txt", "edits": [{"old": "alpha 0", "new": "B"}]})]),
            Reply("done"),
        )(request)

    serve(answer)
    assert project.retinue("-p", "main task", *BYPASS).returncode == 0
    results = json.dumps([request.results for request in project.server.requests])
    assert "You had read f0.txt before: read again before you edit." in results
    assert "f0.txt was changed by general-purpose (run " in results
    assert (project.cwd / "f0.txt").read_text() == "A\nbeta\n"
    main = next(row["id"] for row in project.json("runs", "list", "--json")["runs"] if row["depth"] == 0)
    assert project.retinue("runs", "undo", main).returncode == 0
    assert (project.cwd / "f0.txt").read_text() == "A\nbeta\n"
    assert project.retinue("runs", "undo", main, "--tree").returncode == 0
    assert (project.cwd / "f0.txt").read_text() == "alpha 0\nbeta\n"


PATCH = """*** Begin Patch
*** Update File: f0.txt
*** Move to: moved/f0.txt
@@
-alpha 0
+ALPHA
*** Delete File: f1.txt
*** End Patch"""
GPT = {"RETINUE_MODEL": "anthropic/gpt-5.1"}


def test_files_that_a_patch_moved_and_deleted_come_back_with_undo(project, serve):
    serve(steps(Reply("", [("apply_patch", {"input": PATCH})]), Reply("done")))
    before = {name: (project.cwd / name).read_text() for name in ("f0.txt", "f1.txt")}
    assert project.retinue("run", "general-purpose", "work", *BYPASS, env=GPT).returncode == 0
    assert (project.cwd / "moved" / "f0.txt").read_text().startswith("ALPHA")
    assert not any((project.cwd / name).exists() for name in before)
    shown = project.retinue("runs", "effects", run_id(project)).stdout
    for line in ("  write  + moved/f0.txt", "  write  - f0.txt", "  write  - f1.txt"):
        assert line in shown
    assert project.retinue("runs", "undo", run_id(project)).returncode == 0
    assert {name: (project.cwd / name).read_text() for name in before} == before
    assert not (project.cwd / "moved").exists()


@pytest.mark.parametrize(
    ("mode", "rules", "path", "why"),
    [
        ("default", {}, "f1.txt", "Denied"),
        ("acceptEdits", {"deny": ["Edit(f1.txt)"]}, "f1.txt", "Denied"),
        ("bypassPermissions", {}, ".retinue/settings.json", "Denied"),
        ("plan", {}, "f1.txt", "is not among your tools"),
    ],
)
def test_a_patch_deletes_and_moves_only_what_the_run_may_write(project, serve, mode, rules, path, why):
    for folder, settings in ((project.home, {"permissions": rules}), (project.cwd, {})):
        (folder / ".retinue").mkdir(exist_ok=True)
        (folder / ".retinue" / "settings.json").write_text(json.dumps(settings))
    said = []

    def answer(request: Request) -> Reply:
        said.extend(json.dumps(each["content"]) for each in request.results[-1:])
        patches = (f"*** Delete File: {path}", f"*** Update File: {path}\n*** Move to: elsewhere.txt")
        if request.turn < len(patches):
            patch = f"*** Begin Patch\n{patches[request.turn]}\n*** End Patch"
            return Reply("", [("apply_patch", {"input": patch})])
        return Reply("done")

    serve(answer)
    project.mode = mode
    assert project.retinue("run", "general-purpose", "work", env=GPT).returncode == 0
    assert (project.cwd / path).exists()
    assert len(said) == 2 and all(why in each for each in said), said
