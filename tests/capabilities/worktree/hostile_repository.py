"""Repositories whose own settings make git start a program: one trap for each place they can hide in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from retinue.testing.fixtures import Repository


@dataclass
class Trap:
    """`program` leaves `mark` behind when it is started."""

    repository: Repository
    program: Path
    mark: Path

    @property
    def path(self) -> Path:
        return self.repository.path

    def config(self, text: str, file: str = ".git/config") -> None:
        with (self.path / file).open("a") as opened:
            opened.write(text.replace("PROGRAM", str(self.program)))

    def plain_git(self, command: str) -> bool:
        """Whether the user's own git walks into it. The mark is gone afterwards."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.path.parent / "nobody")}
        environment |= {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        subprocess.run(["bash", "-c", command], cwd=self.path, env=environment, capture_output=True, check=False)
        started = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return started

    def touch(self) -> None:
        """Makes git look into the file again."""
        (self.path / "a.txt").write_text("b\n")


def _monitor(trap: Trap) -> None:
    trap.config("[core]\n\tfsmonitor = PROGRAM\n")


def _common_folder(trap: Trap) -> None:
    shutil.copytree(trap.path / ".git", trap.path.parent / "elsewhere")
    (trap.path / ".git/commondir").write_text("../../elsewhere\n")
    trap.config("[core]\n\tfsmonitor = PROGRAM\n", "../elsewhere/config")


def _worktree_settings(trap: Trap) -> None:
    trap.config("[extensions]\n\tworktreeConfig = true\n")
    trap.config('[filter "x"]\n\tclean = PROGRAM\n', ".git/config.worktree")
    trap.config("* filter=x\n", ".gitattributes")
    trap.touch()


def _include(trap: Trap) -> None:
    trap.config("[include]\n\tpath = ../../included\n")
    trap.config('[filter "x"]\n\tclean = PROGRAM\n', "../included")
    trap.config("* filter=x\n", ".gitattributes")
    trap.touch()


def _conditional_include(trap: Trap) -> None:
    trap.config('[includeIf "onbranch:main"]\n\tpath = ../../included\n')
    trap.config("[core]\n\tfsmonitor = PROGRAM\n", "../included")


def _gitlink(trap: Trap) -> None:
    (trap.path / "inner").mkdir()
    inner = Repository(trap.path / "inner")
    inner.git("init", "--quiet")
    inner.commit("inner", {"i.txt": "i\n"})
    trap.repository.git("add", "inner")
    trap.repository.commit("with inner")
    trap.config('[filter "x"]\n\tclean = PROGRAM\n', "inner/.git/config")
    (trap.path / "inner/.git/info/attributes").write_text("* filter=x\n")
    (trap.path / "inner/i.txt").write_text("j\n")


def _filter(key: str) -> Callable[[Trap], None]:
    def plant(trap: Trap) -> None:
        trap.config("* filter=odd=name\n", ".git/info/attributes")
        trap.config(f'[filter "odd=name"]\n\t{key} = PROGRAM\n')
        trap.touch()

    return plant


def _hooks(trap: Trap) -> None:
    for name in ("post-index-change", "post-checkout", "reference-transaction", "post-rewrite", "post-merge"):
        shutil.copy(trap.program, trap.path / ".git/hooks" / name)
    trap.touch()


def _hooks_elsewhere(trap: Trap) -> None:
    (trap.path / ".husky").mkdir()
    for name in ("post-index-change", "post-checkout", "reference-transaction"):
        shutil.copy(trap.program, trap.path / ".husky" / name)
    trap.config("[core]\n\thooksPath = .husky\n")
    trap.touch()


def _named_hooks(trap: Trap) -> None:
    """Hooks that stand in the settings, whatever core.hooksPath says."""
    for name in ("post-index-change", "post-checkout", "reference-transaction"):
        trap.config(f'[hook "my {name}"]\n\tevent = {name}\n\tcommand = PROGRAM\n')
    trap.touch()


def _promisor(how: str) -> Callable[[Trap], None]:
    def plant(trap: Trap) -> None:
        blob = trap.repository.git("rev-parse", "HEAD:a.txt")
        (trap.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
        trap.config("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = away\n")
        trap.config(f'[remote "away"]\n\tpromisor = true\n\tfetch = +refs/heads/*:refs/remotes/away/*\n{how}')
        trap.touch()

    return plant


def _signing(trap: Trap) -> None:
    trap.config("[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = PROGRAM\n")
    trap.touch()


def _differences(trap: Trap) -> None:
    trap.config('[diff]\n\texternal = PROGRAM\n[diff "x"]\n\ttextconv = PROGRAM\n')
    trap.config("* diff=x\n", ".git/info/attributes")
    trap.touch()


def _merge_driver(trap: Trap) -> None:
    trap.config('[merge "x"]\n\tdriver = PROGRAM\n')
    trap.config("* merge=x\n", ".git/info/attributes")
    trap.repository.git("checkout", "-q", "-b", "retinue-agent-1")
    trap.repository.commit("theirs", {"a.txt": "theirs\n"})
    trap.repository.git("checkout", "-q", "main")
    trap.repository.commit("ours", {"a.txt": "ours\n"})


def _remote(trap: Trap) -> None:
    """For worktrees that begin at what the remote has."""
    trap.config("[core]\n\tsshCommand = PROGRAM\n")
    trap.config('[remote "origin"]\n\turl = ssh://nowhere.invalid/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')


def _other_end(trap: Trap) -> None:
    trap.config(f'[remote "origin"]\n\turl = {trap.path}\n\tuploadpack = PROGRAM\n')


def _command_for_address(trap: Trap) -> None:
    trap.config('[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\turl = ext::PROGRAM\n')


TRAPS: dict[str, tuple[Callable[[Trap], None], str]] = {
    "a monitor": (_monitor, "git status"),
    "a monitor behind commondir": (_common_folder, "git status"),
    "config.worktree": (_worktree_settings, "git status"),
    "an include": (_include, "git status"),
    "an include of a branch": (_conditional_include, "git status"),
    "a repository that the index names": (_gitlink, "git status"),
    "a clean filter": (_filter("clean"), "git status"),
    "a smudge filter": (_filter("smudge"), "rm a.txt; git checkout a.txt"),
    "a process filter": (_filter("process"), "git status"),
    "hooks": (_hooks, "git add a.txt"),
    "hooks elsewhere": (_hooks_elsewhere, "git add a.txt"),
    "hooks in the settings": (_named_hooks, "git add a.txt"),
    "a promisor's upload-pack": (_promisor("\turl = .\n\tuploadpack = PROGRAM\n"), "git log -p"),
    "a promisor over ssh": (_promisor("\turl = ssh://a.invalid/b\n[core]\n\tsshCommand = PROGRAM\n"), "git log -p"),
    "signatures": (_signing, "git commit -am x"),
    "programs for differences": (_differences, "git diff"),
    "a merge driver": (_merge_driver, "git merge retinue-agent-1"),
    "an ssh command": (_remote, "git fetch"),
    "an upload-pack": (_other_end, "git fetch"),
    "an address that is a command": (_command_for_address, "git fetch"),
}


def plant(name: str, repository: Repository) -> tuple[Trap, str]:
    """The trap, set, and the command of a user that walks into it."""
    program, mark = repository.path.parent / "program", repository.path.parent / "started"
    program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    program.chmod(0o755)
    trap = Trap(repository, program, mark)
    setting, command = TRAPS[name]
    setting(trap)
    return trap, command
