"""git that nobody was asked about, inside the walls: it works where a user works, and shows nothing that rules hide."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.guard.sandbox.kernel import can_confine
from retinue.guard.sandbox.policy import masks_work
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

pytestmark = pytest.mark.skipif(not can_confine() or not masks_work(), reason="this host has no walls")

Play = Callable[..., list[str]]


@pytest.fixture
def play(project: Project, serve) -> Play:  # type: ignore[no-untyped-def]
    """`play(command, …)` lets an agent run commands and returns what it was told."""

    def run(*commands: str, arguments: tuple[str, ...] = (), mode: str = "default", deny: str = "") -> list[str]:
        def answer(request: Request) -> Reply:
            if request.turn < len(commands):
                return Reply(calls=[("bash", {"command": commands[request.turn]})])
            return Reply(text="done")

        server = serve(answer)
        project.mode = mode
        if deny:
            settings = project.home / ".retinue/settings.json"
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text(json.dumps({"permissions": {"deny": [deny]}}))
        done = project.retinue("run", "general-purpose", "go", *arguments)
        assert done.returncode == 0, done.stderr
        return [_text(result) for result in server.requests[-1].results]

    return run


def _text(result: dict) -> str:  # type: ignore[type-arg]
    content = result["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def git(folder: Path, *arguments: str) -> str:
    base = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    words = [*base, "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(project: Project) -> Path:
    git(project.cwd, "init")
    git(project.cwd, "add", ".")
    git(project.cwd, "commit", "-m", "first words")
    return project.cwd


def test_in_a_worktree_of_its_own_an_agent_sees_the_history_unasked(repository: Path, play: Play) -> None:
    told = play(
        "git log --oneline", "git status --short", "git show HEAD:f0.txt", arguments=("--isolation", "worktree")
    )
    assert "first words" in told[0] and "fatal" not in told[1] and "alpha 0" in told[2]


def test_a_worktree_does_not_show_another_repository_that_a_file_of_the_project_names(
    repository: Path, play: Play, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("hunter2\n")
    git(private, "init")
    git(private, "add", ".")
    git(private, "commit", "-m", "private")
    (repository / ".git/objects/info/alternates").write_text(f"{private}/.git/objects\n")
    head = git(private, "rev-parse", "HEAD").strip()
    show = f"git show {head}:key"
    for arguments in ((), ("--isolation", "worktree")):
        assert "hunter2" not in play(show, arguments=arguments)[0]


def test_in_a_linked_worktree_with_relative_paths_git_works(project: Project, repository: Path, play: Play) -> None:
    linked = repository.parent / "linked"
    git(repository, "worktree", "add", str(linked))
    (linked / ".git").write_text("gitdir: ../project/.git/worktrees/linked\n")
    (repository / ".git/worktrees/linked/gitdir").write_text("../../../../linked/.git\n")
    project.cwd = linked
    assert "first words" in play("git log --oneline")[0]


def test_in_a_submodule_git_works_but_a_forged_one_shows_nothing(
    project: Project, repository: Path, play: Play
) -> None:
    above = repository.parent / "above"
    above.mkdir()
    git(above, "init")
    git(above, "submodule", "add", str(repository), "inner")
    project.cwd = above / "inner"
    assert "first words" in play("git log --oneline")[0]
    forged = repository.parent / "forged"
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {above}/.git/modules/inner\n")
    project.cwd = forged
    assert "first words" not in play("git log --oneline")[0]


def test_in_a_folder_of_a_repository_git_is_told_why_it_sees_none(
    project: Project, repository: Path, play: Play
) -> None:
    project.cwd = repository / "sub"
    project.cwd.mkdir()
    (told,) = play("git log --oneline")
    assert "first words" not in told
    assert "stopped by the walls" in told and str(repository) in told and "sandbox.shown" in told


HIDDEN = [
    "git cat-file -p BLOB",
    "GIT_OBJECT_DIRECTORY=OBJECTS git cat-file -p BLOB",
    "git log -p -g",
    "git stash show -p",
]


@pytest.mark.parametrize("way", ["reset", "added", "stash"])
@pytest.mark.parametrize("isolated", [True, False])
def test_a_denied_file_is_not_read_from_what_git_still_keeps_of_it(
    repository: Path, play: Play, way: str, isolated: bool
) -> None:
    secret = repository / ".env"
    secret.write_text("KEY=hunter2\n")
    git(repository, "add", ".env")
    blob = git(repository, "rev-parse", ":.env").strip()
    if way == "reset":
        git(repository, "commit", "-m", "oops")
        git(repository, "reset", "HEAD~1")
    elif way == "stash":
        git(repository, "stash")
        secret.write_text("KEY=hunter3\n")
    else:
        git(repository, "reset", ".env")
    objects = str(repository / ".git/objects")
    commands = [text.replace("BLOB", blob).replace("OBJECTS", objects) for text in HIDDEN]
    arguments = ("--isolation", "worktree") if isolated else ()
    told = play(*commands, mode="bypassPermissions", deny="Read(.env)", arguments=arguments)
    assert not [text for text in told if "hunter2" in text]
