"""Which settings of a repository start programs while git only reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.guard.gitconfig import git_programs
from retinue.testing import temporary_repository


def found(folder: Path, text: str) -> tuple[str, ...]:
    with temporary_repository(path=folder) as repository:
        with (repository.path / ".git/config").open("a") as file:
            file.write(text)
        (repository.path / "deep/er").mkdir(parents=True)
        (repository.path / "evil").write_text("[core]\n\tfsmonitor = ./evil\n")
        (repository.path / "hop").write_text("[include]\npath = evil\n")
        programs = git_programs(repository.path / "deep/er")
        return programs.what if programs is not None else ()


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = ./evil\n",
        "[CORE] FsMonitor=./evil\n",
        '[core]\nfsmonitor = "./evil \\\n more"\n',
        "[diff]\n external = ./evil\n",
        '[diff "a.b c"]\ntextconv = ./evil\n',
        '[diff "x"]\n command = ./evil\n',
        '[filter "x"]\n\tclean = ./evil\n',
        '[filter "lfs"] process = git-lfs filter-process; ./evil\n',
        '[gpg "ssh"]\nprogram = ./evil\n',
        "[include]\npath = ../evil\n",
        "[include]\npath = ../evil # a comment\n",
        '[includeIf "onbranch:other"]\npath = "../evil" ; a comment\n',
        "[include]\npath = ../hop\n",
        "[filter.x]\nsmudge = ./evil\n",
        '[hook "x"]\n\tevent = post-index-change\n\tcommand = ./evil\n',
    ],
)
def test_what_starts_programs_is_found(tmp_path: Path, text: str) -> None:
    assert len(found(tmp_path / "r", text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[core]\n\tfsmonitor = true\n",
        "[core]\n\tfsmonitor\n",
        '[filter "lfs"]\n clean = git-lfs clean -- %f\n process = git-lfs filter-process\n',
        "[core]\n\thooksPath = .husky\n\tpager = less\n",
        '[remote "origin"]\n\turl = https://example.org/filter.x.clean\n',
        '[alias]\n\tfilter = "!echo"\n',
    ],
)
def test_what_starts_none_is_not(tmp_path: Path, text: str) -> None:
    assert found(tmp_path / "r", text) == ()


@pytest.mark.parametrize("where", [".git/hooks", ".husky"])
def test_the_hook_that_reading_sets_off_is_found(tmp_path: Path, where: str) -> None:
    with temporary_repository(path=tmp_path / "r") as repository:
        repository.git("config", "core.hooksPath", ".husky")
        (repository.path / where).mkdir(exist_ok=True)
        assert git_programs(repository.path) is None
        (repository.path / where / "post-index-change").write_text("#!/bin/sh\n")
        before = git_programs(repository.path)
        (repository.path / where / "post-index-change").write_text("#!/bin/sh\nevil\n")
        after = git_programs(repository.path)
    assert before is not None and after is not None and before.content != after.content


def test_a_linked_worktree_has_the_settings_of_its_repository(tmp_path: Path) -> None:
    with temporary_repository(path=tmp_path / "r") as repository:
        repository.git("worktree", "add", "-q", str(tmp_path / "w"))
        repository.git("config", "core.fsmonitor", "./evil")
    programs = git_programs(tmp_path / "w")
    assert programs is not None and programs.path.resolve() == (tmp_path / "r/.git/config").resolve()
    assert git_programs(tmp_path) is None
