"""Q: agents in worktrees, through the program: isolated while they work, on a branch when they are done."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.fixtures import Repository, temporary_repository
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

RUN = ("--permission-mode", "bypassPermissions", "--isolation", "worktree")


@pytest.fixture
def repository(project: Project) -> Repository:
    files = {"src/app.py": "print('hello')\n", "README.md": "A project.\n", ".gitignore": "*.log\n"}
    with temporary_repository(files, path=project.cwd) as made:
        return made


def script(*turns: list[tuple[str, Any]] | str):
    """A model that makes the calls of each turn, then says the last string."""

    def answer(request: Request) -> Reply:
        done = sum(
            isinstance(message["content"], list)
            and any(part.get("type") == "tool_result" for part in message["content"])
            for message in request.body["messages"]
        )
        turn = turns[min(done, len(turns) - 1)]
        return Reply(turn) if isinstance(turn, str) else Reply("", turn)

    return answer


def state(project: Project) -> Path:
    (folder,) = (project.home / ".retinue" / "projects").iterdir()
    return folder


def snapshot(repository: Repository) -> dict[str, Any]:
    """Content, index, HEAD, refs and configuration of the main checkout."""
    git = repository.path / ".git"
    files = {
        str(path.relative_to(repository.path)): path.read_bytes()
        for path in sorted(repository.path.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(repository.path).parts
    }
    refs = [line for line in repository.git("for-each-ref").splitlines() if "retinue" not in line]
    hooks = sorted(path.name for path in (git / "hooks").glob("*"))
    names = ("HEAD", "index", "config", "packed-refs", "ORIG_HEAD", "logs/HEAD")
    return {
        "files": files,
        "refs": refs,
        "hooks": hooks,
        "objects": sorted(str(path) for path in (git / "objects").rglob("*") if path.is_file()),
        **{name: (git / name).read_bytes() if (git / name).is_file() else None for name in names},
    }


def system(request: Request) -> str:
    parts = request.body["system"]
    return parts if isinstance(parts, str) else "".join(part["text"] for part in parts)


def text_of(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def test_the_copy_changes_the_checkout_does_not_and_the_branch_has_it(project, repository, serve):
    calls = [("write", {"path": "made.txt", "content": "made\n"}), ("bash", {"command": "git status --short; pwd"})]
    server = serve(script(calls, "It is done."))
    before = snapshot(repository)
    done = project.retinue("run", "general-purpose", "make it", *RUN)
    assert done.returncode == 0, done.stderr
    branch = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads/retinue-agent-*")
    assert done.stdout.strip().endswith(f"Changes saved to branch `{branch}`. Merge with: git merge {branch}")
    assert repository.git("show", f"{branch}:made.txt") == "made"
    after = snapshot(repository)
    assert {**after, "objects": None} == {**before, "objects": None}
    assert list((state(project) / "worktrees").iterdir()) == []
    status = text_of(server.requests[1].body["messages"][-1]["content"][1])
    assert "?? made.txt" in status and str(state(project) / "worktrees") in status
    (run,) = project.json("runs", "list", "--json")["runs"]
    shown = project.retinue("runs", "show", run["id"]).stdout
    assert f"Branch   {branch}" in shown and f"git merge {branch}" in shown
    assert run["cwd"] == str(project.cwd)


def test_edits_in_a_worktree_are_edits_of_a_working_directory(project, repository, serve):
    """It lies in a folder of ours that is protected, which must not make every edit a question."""
    how = ("--permission-mode", "acceptEdits", "--isolation", "worktree")
    calls = [
        ("write", {"path": "made.txt", "content": "made\n"}),
        ("bash", {"command": "touch touched.txt"}),
        ("write", {"path": ".retinue/settings.json", "content": "{}"}),
    ]
    serve(script(calls, "It is done."))
    (result,) = project.json("run", "general-purpose", "make it", "--json", *how)["details"]["results"]
    assert len(result["denials"]) == 1 and "protected .retinue" in result["denials"][0]
    names = repository.git("show", "--name-only", "--format=", result["branch"])
    assert {"made.txt", "touched.txt"} <= set(names.split()) and ".retinue" not in names


def test_rules_of_the_project_hold_in_the_worktree(project, repository, serve):
    settings = project.home / ".retinue" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"permissions": {"deny": [f"Read(/{project.cwd}/f1.txt)"]}}))
    server = serve(script([("read", {"path": "f1.txt"}), ("bash", {"command": "cat f1.txt"})], "ok"))
    (result,) = project.json("run", "general-purpose", "t", "--json", *RUN)["details"]["results"]
    assert len(result["denials"]) == 2
    assert "alpha 1" not in json.dumps(server.requests[-1].body["messages"])


def test_the_json_result_names_the_branch(project, repository, serve):
    serve(script([("write", {"path": "x", "content": "x"})], "ok"))
    result = project.json("run", "general-purpose", "t", "--json", *RUN)
    assert "retinue-agent-" in json.dumps(result["details"]["results"][0].get("branch"))


def test_the_notice_comes_last_and_names_both_places(project, repository, serve):
    server = serve(script("Nothing to do."))
    done = project.retinue("run", "general-purpose", "look", *RUN, "--cwd", str(project.cwd / "src"))
    assert done.returncode == 0, done.stderr
    text = system(server.requests[0])
    notice = text[text.index("# Worktree") :]
    assert str(project.cwd) in notice and str(state(project) / "worktrees") in notice
    assert text.index("# Environment") < text.index("# Worktree")
    (place,) = [line for line in text.splitlines() if "Working directory: " in line]
    assert f"Working directory: {state(project) / 'worktrees'}" in place and place.endswith("/src")
    assert text.rstrip().endswith(notice.rstrip())
    assert "saved to branch" not in done.stdout
    assert repository.git("for-each-ref", "refs/heads/retinue-agent-*") == ""


def test_where_no_worktree_can_be_made_there_is_no_run(project, serve):
    server = serve(script("never"))
    done = project.retinue("run", "general-purpose", "t", *RUN)
    assert done.returncode == 1 and "in no git repository" in done.stderr and "git init" in done.stderr
    assert server.requests == []
    assert project.json("runs", "list", "--json")["runs"] == []


def test_paths_of_the_main_checkout_are_refused_and_the_right_one_named(project, repository, serve):
    inside = project.cwd / "src" / "app.py"
    calls = [
        ("read", {"path": str(inside)}),
        ("write", {"path": str(inside), "content": "x"}),
        ("edit", {"path": str(inside), "edits": [{"old": "hello", "new": "x"}]}),
        ("grep", {"pattern": "hello", "path": str(project.cwd)}),
        ("ls", {"path": "../../../../../../project"}),
        ("write", {"path": str(project.home / "x"), "content": "x"}),
    ]
    server = serve(script(calls, "ok"))
    before = snapshot(repository)
    assert project.retinue("run", "general-purpose", "t", *RUN).returncode == 0
    results = [part for part in server.requests[1].body["messages"][-1]["content"] if part["type"] == "tool_result"]
    assert all(part.get("is_error") for part in results), results
    assert ["main checkout" in text_of(part) for part in results] == [True] * 5 + [False], str(results)
    assert f"{state(project) / 'worktrees'}" in text_of(results[0]) and "src/app.py" in text_of(results[0])
    assert snapshot(repository) == before and not (project.home / "x").exists()


def test_isolation_from_the_file_and_from_a_call(project, repository, serve):
    agents = project.cwd / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "lonely.md").write_text("---\ndescription: works alone\nisolation: worktree\n---\nYou work alone.\n")

    def answer(request: Request) -> Reply:
        said = json.dumps(request.body["messages"][0])
        results = request.results
        if "by call" in said:
            return Reply("", [("write", {"path": "call.txt", "content": "c"})]) if not results else Reply("called")
        if "by file" in said:
            return Reply("", [("write", {"path": "file.txt", "content": "f"})]) if not results else Reply("filed")
        if not results:
            call = {"prompt": "by call", "description": "d", "subagent_type": "general-purpose"}
            file = {"prompt": "by file", "description": "d", "subagent_type": "lonely"}
            return Reply(
                "",
                [
                    ("Agent", {**call, "isolation": "worktree", "run_in_background": False}),
                    ("Agent", {**file, "run_in_background": False}),
                ],
            )
        return Reply("both: " + " ".join(text_of(part) for part in results))

    server = serve(answer)
    done = project.retinue("-p", "delegate", "--permission-mode", "bypassPermissions")
    assert done.returncode == 0, done.stderr
    branches = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads/retinue-agent-*").split()
    assert sorted(
        name for branch in branches for name in repository.git("diff", "--name-only", f"main..{branch}").split()
    ) == ["call.txt", "file.txt"]
    assert all(f"git merge {branch}" in done.stdout for branch in branches)
    assert not (project.cwd / "call.txt").exists() and not (project.cwd / "file.txt").exists()
    (offered,) = [tool for tool in server.requests[0].body["tools"] if tool["name"] == "Agent"]
    assert offered["input_schema"]["properties"]["isolation"]["enum"] == ["off", "worktree"]


def test_children_of_an_isolated_run_work_in_its_worktree(project, repository, serve):
    agents = project.cwd / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "boss.md").write_text("---\ndescription: boss\ntools: Agent, bash, read, write\n---\nYou delegate.\n")
    repository.commit("agents")

    def answer(request: Request) -> Reply:
        said, results = json.dumps(request.body["messages"][0]), request.results
        if "child task" in said:
            calls = [
                ("write", {"path": "child.txt", "content": "c"}),
                ("bash", {"command": f"echo no > {project.cwd}/escape.txt"}),
            ]
            return Reply("", calls) if not results else Reply("child done")
        if "own task" in said:
            return Reply("", [("write", {"path": "own.txt", "content": "o"})]) if not results else Reply("own done")
        turn = len(results)
        base = {"description": "d", "subagent_type": "general-purpose", "run_in_background": False}
        if turn == 0:
            return Reply("", [("Agent", {**base, "prompt": "child task"})])
        if turn == 1:
            return Reply("", [("Agent", {**base, "prompt": "own task", "isolation": "worktree"})])
        if turn == 2:
            return Reply("", [("bash", {"command": "git merge -q $(git branch --list 'retinue-agent-*'); ls"})])
        return Reply("all: " + text_of(results[-1]))

    serve(answer)
    before = snapshot(repository)
    done = project.retinue("run", "boss", "delegate", *RUN)
    assert done.returncode == 0, done.stderr
    assert "child.txt" in done.stdout and "own.txt" in done.stdout
    main = done.stdout.rsplit("git merge ", 1)[1].strip()
    assert {"child.txt", "own.txt"} <= set(repository.git("ls-tree", "-r", "--name-only", main).split())
    assert snapshot(repository)["files"] == before["files"]
    assert list((state(project) / "worktrees").iterdir()) == []


def test_a_resumed_run_goes_on_from_its_branch(project, repository, serve):
    def answer(request: Request) -> Reply:
        turn = request.turn
        if "more" in json.dumps(request.body["messages"][-1]) and turn == 1:
            return Reply("", [("bash", {"command": "cat one.txt; echo two > two.txt"})])
        return Reply("", [("write", {"path": "one.txt", "content": "1\n"})]) if turn == 0 else Reply("ok")

    serve(answer)
    first = project.retinue("run", "general-purpose", "t", *RUN)
    assert first.returncode == 0, first.stderr
    (run,) = project.json("runs", "list", "--json")["runs"]
    again = project.retinue("runs", "resume", run["id"], "more")
    assert again.returncode == 0, again.stderr
    branch = f"retinue-agent-{run['id']}"
    assert repository.git("show", f"{branch}:one.txt") == "1"
    assert repository.git("show", f"{branch}:two.txt") == "two"
    assert repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads/retinue-agent-*") == branch


def test_without_a_sandbox_the_shell_is_withheld_and_it_is_said(project, repository, serve):
    settings = project.home / ".retinue"
    settings.mkdir()
    (settings / "settings.json").write_text(json.dumps({"sandbox": {"mode": "off"}}))
    server = serve(script("ok"))
    done = project.retinue("run", "general-purpose", "t", *RUN)
    assert done.returncode == 0, done.stderr
    assert "bash" not in [tool["name"] for tool in server.requests[0].body["tools"]]
    assert "bash was withheld" in done.stderr


def test_a_failed_run_leaves_its_work_on_a_branch_too(project, repository, serve):
    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply("", [("write", {"path": "half.txt", "content": "h"})])
        return Reply("no", status=401)

    serve(answer)
    done = project.retinue("run", "general-purpose", "t", *RUN)
    assert done.returncode == 1
    branch = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads/retinue-agent-*")
    assert repository.git("show", f"{branch}:half.txt") == "h"
    (run,) = project.json("runs", "list", "--json")["runs"]
    assert branch in project.retinue("runs", "show", run["id"]).stdout


def test_a_hook_may_refuse_a_worktree(project, repository, serve):
    settings = project.home / ".retinue"
    settings.mkdir()
    hook = {"type": "command", "command": "echo 'not today' >&2; exit 2"}
    (settings / "settings.json").write_text(json.dumps({"hooks": {"WorktreeCreate": [{"hooks": [hook]}]}}))
    server = serve(script("never"))
    done = project.retinue("run", "general-purpose", "t", *RUN)
    assert done.returncode == 1 and "not today" in done.stderr
    assert server.requests == [] and project.json("runs", "list", "--json")["runs"] == []
    assert list((state(project) / "worktrees").iterdir()) == []


def test_a_killed_run_goes_on_in_the_directory_it_had(project, repository, serve):
    reached = threading.Event()

    def answer(request: Request) -> Reply:
        turn = request.turn
        if turn == 0:
            return Reply("", [("bash", {"command": "echo 1 > one.txt; echo ignored > x.log"})])
        if turn == 1 and not reached.is_set():
            reached.set()
            return Reply("wait", hang=True)
        return Reply("", [("bash", {"command": "cat x.log; echo 2 > two.txt"})]) if turn == 1 else Reply("went on")

    server = serve(answer)
    process = project.start("run", "general-purpose", "t", *RUN)
    assert reached.wait(60)
    process.kill()
    process.communicate()
    (run,) = project.json("runs", "list", "--json")["runs"]
    (left,) = project.json("worktrees", "list", "--json")["worktrees"]
    assert (left["run"], left["status"]) == (run["id"], "left over")
    assert left["path"] in project.retinue("runs", "show", run["id"]).stdout
    assert project.json("worktrees", "clean", "--dry-run", "--json")["would_clean"][0]["run"] == run["id"]
    done = project.retinue("runs", "resume", run["id"])
    assert done.returncode == 0, done.stderr
    assert "ignored" in json.dumps(server.requests[-1].body["messages"])
    branch = f"retinue-agent-{run['id']}"
    assert repository.git("diff", "--name-only", f"main..{branch}").split() == ["one.txt", "two.txt"]
    assert project.json("worktrees", "list", "--json")["worktrees"] == []


def test_a_killed_run_that_was_cleaned_goes_on_from_its_branch(project, repository, serve):
    reached = threading.Event()

    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply("", [("write", {"path": "one.txt", "content": "1\n"})])
        if not reached.is_set():
            reached.set()
            return Reply("wait", hang=True)
        return Reply("", [("bash", {"command": "cat one.txt; echo 2 > two"})]) if request.turn == 1 else Reply("ok")

    serve(answer)
    process = project.start("run", "general-purpose", "t", *RUN)
    assert reached.wait(60)
    process.kill()
    process.communicate()
    (cleaned,) = project.json("worktrees", "clean", "--json")["cleaned"]
    (run,) = project.json("runs", "list", "--json")["runs"]
    assert cleaned["branch"] == f"retinue-agent-{run['id']}" and cleaned["kept"] is None
    assert cleaned["branch"] in project.retinue("runs", "show", run["id"]).stdout
    assert project.retinue("runs", "resume", run["id"]).returncode == 0
    assert repository.git("ls-tree", "--name-only", cleaned["branch"], "one.txt", "two").split() == ["one.txt", "two"]
    assert "already" not in project.retinue("integrate", "--all").stdout
    assert (project.cwd / "two").read_text() == "2\n"


@pytest.mark.parametrize(
    "command", ["echo more >> README.md", "echo new > new.txt", "rm README.md; echo new > new.txt"]
)
def test_undo_says_where_the_work_of_a_removed_worktree_is(project, repository, serve, command):
    serve(script([("bash", {"command": command})], "It is done."))
    (result,) = project.json("run", "general-purpose", "add to it", "--json", *RUN)["details"]["results"]
    (run,) = project.json("runs", "list", "--json")["runs"]
    undone = project.retinue("runs", "undo", run["id"], "--dry-run").stdout
    assert f"Retinue removed its worktree; the work is on branch {result['branch']}" in undone
    assert project.retinue("integrate", "--all").returncode == 0
    onto, commit = repository.git("branch", "--show-current"), repository.git("rev-parse", "--short=7", "HEAD")
    undo = project.retinue("runs", "undo", run["id"], "--force")
    assert undo.returncode == 1 and "--force" not in undo.stderr
    for line in undo.stdout.splitlines():
        assert line.startswith("KEPT") and f"the work was merged into {onto}: revert {commit} there" in line
    assert not list((project.home / ".retinue" / "projects").glob(f"*/worktrees/{run['id']}"))


def test_the_project_may_switch_worktrees_off(project, repository, serve):
    (project.home / ".retinue").mkdir()
    (project.home / ".retinue" / "settings.json").write_text(json.dumps({"worktreeIsolation": False}))
    server = serve(script("ok"))
    done = project.retinue("run", "general-purpose", "t", *RUN)
    assert done.returncode == 0 and "switched off" in done.stderr
    assert "# Worktree" not in system(server.requests[0])
