"""No git of ours starts a program of a repository, wherever its settings hide."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from tests.capabilities.worktree.hostile_repository import TRAPS, Trap, plant
from tests.capabilities.worktree.worktree_scene import Scene

from retinue.app.project_files import _listed
from retinue.capabilities.audit.checkpoint import ScannedRoot
from retinue.capabilities.audit.shadow import Shadow
from retinue.capabilities.worktree.integrate import (
    BranchQueue,
    IntegrationPlan,
    check_target,
    integrate,
    list_pending,
    target_of,
)
from retinue.errors import LaunchError, UsageError
from retinue.frontends.tui.statusline import branch_of
from retinue.guard.git import Git, GitError
from retinue.guard.gitconfig import SETTINGS, git_programs, program_setting
from retinue.testing.fixtures import Repository, temporary_repository


@pytest.fixture
def trapped(request: pytest.FixtureRequest, scene: Scene) -> Trap:
    trap, command = plant(request.param, scene.repository)
    if request.param == "hooks in the settings" and git_version() < (2, 54):
        pytest.skip("this git knows no hooks in settings")
    assert trap.plain_git(command), "the trap does not even catch the user's own git"
    return trap


def git_version() -> tuple[int, ...]:
    said = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, said.split()[2].split(".")[:2]))


def look_around(scene: Scene) -> None:
    git = Git(scene.path, scene.environment)
    commands = ["status --porcelain -z", "ls-files -o -m -d", "log -p", "show HEAD", "diff", "for-each-ref", "fetch"]
    for command in commands:
        with contextlib.suppress(GitError):
            git(*command.split())


def work_in_a_worktree(scene: Scene, **options: object) -> None:
    with contextlib.suppress(LaunchError):
        worktree = scene.make(**options)
        scene.shell(worktree, "echo new > new.txt")
        scene.finish(worktree)


def merge_branches(scene: Scene) -> None:
    git = Git(scene.path, scene.environment)
    with contextlib.suppress(GitError, UsageError):
        onto = target_of(git, None)
        waiting = list_pending(git, onto, BranchQueue(scene.state))
        check_target(git, onto)
        integrate(IntegrationPlan(git=git, state=scene.state, onto=onto), waiting, lambda entry: None)


def take_checkpoints(scene: Scene) -> None:
    shadow = Shadow(scene.state / "checkpoints")
    workspace = ScannedRoot(shadow, scene.path, "run-1")
    first = workspace.snapshot()
    (scene.path / "new.txt").write_text("x")
    assert shadow.differences(first, workspace.snapshot())


@pytest.mark.parametrize("trapped", TRAPS, indirect=True)
def test_nothing_of_ours_starts_a_program_of_a_repository(trapped: Trap, scene: Scene) -> None:
    look_around(scene)
    assert not trapped.mark.exists(), "while looking around"
    work_in_a_worktree(scene)
    work_in_a_worktree(scene, base_ref="fresh", from_dirty=True)
    assert not trapped.mark.exists(), "in a worktree"
    merge_branches(scene)
    assert not trapped.mark.exists(), "while branches are merged"
    take_checkpoints(scene)
    assert not trapped.mark.exists(), "in a checkpoint"
    assert _listed(scene.path) and branch_of(scene.path) == "main"
    assert not trapped.mark.exists(), "in the terminal app"


@pytest.mark.parametrize("trapped", [name for name in TRAPS if name not in ("hooks", "hooks elsewhere")], indirect=True)
def test_consent_is_asked_for_every_one_of_them(trapped: Trap, scene: Scene) -> None:
    found = git_programs(scene.path, checkout=True)
    shown = " ".join(found.what) if found is not None else ""
    assert str(trapped.program) in shown or "protocol.ext.allow" in shown


def test_hooks_in_settings_stay_off_with_consent_and_for_any_git(scene: Scene) -> None:
    """A git before 2.54 does not know them: here what it would be told is looked at."""
    with (scene.path / ".git/config").open("a") as file:
        file.write('[hook "a.b c"]\n\tevent = post-checkout\n\tcommand = ./evil\n')
    for consented in (False, True):
        git = Git(scene.path, scene.environment, consented=consented)
        assert git.text("config", "hook.a.b c.enabled") == "false"
        assert git.text("config", "hook.a.b c.command") == "true"


FILTERED = ["a clean filter", "a smudge filter", "a process filter", "config.worktree", "an include",
            "an include of a branch", "a promisor's upload-pack", "a promisor over ssh", "a merge driver"]  # fmt: skip


@pytest.mark.parametrize("trapped", FILTERED, indirect=True)
def test_a_repository_that_needs_its_programs_gets_no_worktree_without_consent(trapped: Trap, scene: Scene) -> None:
    with pytest.raises(LaunchError, match=r"retinue trust add .*config") as caught:
        scene.make()
    assert "have no consent" in str(caught.value) and scene.left() == []


def large_files(scene: Scene, name: str = "large") -> None:
    """Filters as git-lfs has them: a pointer in the repository, the content in the checkout."""
    (scene.path / ".gitattributes").write_text(f"*.bin filter={name}\n")
    scene.git("config", f"filter.{name}.clean", "sed 's/^content /pointer /'")
    scene.git("config", f"filter.{name}.smudge", "sed 's/^pointer /content /'")
    scene.git("config", f"filter.{name}.required", "true")
    (scene.path / "one.bin").write_text("content one\n")
    scene.repository.commit("large files")


def test_with_consent_filters_run_in_both_directions(scene: Scene) -> None:
    large_files(scene)
    assert scene.show("HEAD:one.bin") == "pointer one"
    worktree = scene.make(consented=True)
    assert (worktree.work / "one.bin").read_text() == "content one\n"
    (worktree.work / "two.bin").write_text("content two\n")
    saved = scene.finish(worktree)
    assert scene.show(f"{saved.branch}:two.bin") == "pointer two"
    assert scene.show(f"{saved.branch}:one.bin") == "pointer one"


def test_a_filter_that_appears_while_the_agent_works_is_not_run_when_its_work_is_saved(scene: Scene) -> None:
    worktree = scene.make()
    trap, _ = plant("a clean filter", scene.repository)
    scene.shell(worktree, "echo new > new.txt")
    saved = scene.finish(worktree)
    assert scene.show(f"{saved.branch}:new.txt") == "new" and not trap.mark.exists()


def test_the_users_own_filter_runs_where_a_repository_names_another(scene: Scene, tmp_path: Path) -> None:
    """A setting of the repository is set to what the user's own files say, not to nothing."""
    trap, _ = plant("a clean filter", scene.repository)
    own = '[filter "odd=name"]\n\tclean = "touch OWN; cat"\n'.replace("OWN", str(tmp_path / "own"))
    Path(scene.environment["HOME"], ".gitconfig").write_text(own)
    Git(scene.path, scene.environment)("status", "--porcelain")
    assert (tmp_path / "own").exists() and not trap.mark.exists()


def test_a_folder_that_only_looks_like_a_repository_is_not_used_as_one(scene: Scene) -> None:
    """Its settings are ordinary files of the project, and came with a clone."""
    inner = scene.path / "sub"
    for name in ("objects", "refs"):
        (inner / name).mkdir()
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    mark = scene.path.parent / "started"
    settings = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n"
    (inner / "config").write_text(f'{settings}\tfsmonitor = "touch {mark}; false"\n')
    assert Trap(Repository(inner), mark, mark).plain_git("git status")
    with contextlib.suppress(GitError):
        Git(inner, scene.environment)("status", "--porcelain")
    _listed(inner)
    assert not mark.exists()
    found = git_programs(inner)
    assert found is not None and "core.fsmonitor" in found.what[0]


def test_a_checkout_that_claims_another_folder_gets_no_worktree(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    scene.git("config", "core.worktree", str(tmp_path / "precious"))
    with pytest.raises(LaunchError):
        scene.make()
    assert os.listdir(tmp_path / "precious") == []


def test_a_submodule_has_its_settings_elsewhere_and_may_have_a_worktree(scene: Scene) -> None:
    with temporary_repository({"i.txt": "i\n"}) as inner:
        scene.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "inner")
    worktree = scene.make(cwd=scene.path / "inner")
    assert (worktree.work / "i.txt").read_text() == "i\n"
    scene.finish(worktree)


def test_a_consent_is_over_when_an_included_file_changes(scene: Scene) -> None:
    _trap, _ = plant("an include", scene.repository)
    before = git_programs(scene.path)
    with (scene.path.parent / "included").open("a") as file:
        file.write("[core]\n\tfsmonitor = true\n")
    after = git_programs(scene.path)
    assert before is not None and after is not None and before.content != after.content


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_repositories_in_the_index_are_found_in_each_of_its_formats(scene: Scene, version: str) -> None:
    _trap, _ = plant("a repository that the index names", scene.repository)
    scene.git("update-index", "--index-version", version)
    scene.repository.write({f"many/{number}": "x" for number in range(50)})
    scene.git("add", "-A", "-N" if version == "3" else "-A")
    assert git_programs(scene.path) is not None


def test_an_index_that_cannot_be_read_is_taken_for_a_program(scene: Scene) -> None:
    assert git_programs(scene.path) is None
    (scene.path / ".git/index").write_bytes(b"DIRC\0\0\0\2\0\0\0\5\0\0\xe0\0")
    assert git_programs(scene.path) is not None


def test_every_row_of_the_table_knows_a_value_that_starts_nothing() -> None:
    for row in SETTINGS:
        assert row.why and program_setting("user.name", row.off) is None
