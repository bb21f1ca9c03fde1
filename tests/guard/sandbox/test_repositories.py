# ruff: noqa: E501 - scripts read better on one line
"""What an agent leaves in a writable workspace does not run when the user next types `git status` (S10)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.inside.git_files import find_unknown_setting
from retinue.guard.sandbox.plan import protected_places, workspace
from retinue.guard.sandbox.policy import SandboxPolicy


@pytest.fixture(autouse=True)
def fresh() -> None:
    workspace.cache_clear()


@pytest.fixture
def box(scene: Scene, walls: str) -> Iterator[Box]:
    made = Box(workspace_policy(scene, walls), "run")
    yield made
    made.close()


def workspace_policy(scene: Scene, walls: str) -> SandboxPolicy:
    """As `sandbox.mode: workspace` makes it. The workspace has a nested repository, a submodule and a linked worktree."""
    git = ["git", "-C", str(scene.workspace), "-c", "user.name=T", "-c", "user.email=t@example.invalid"]
    git += ["-c", "protocol.file.allow=always"]
    nested = scene.workspace / "nested"
    subprocess.run(["git", "init", "-q", str(nested)], check=True)
    subprocess.run(["git", "-C", str(nested), *git[3:], "commit", "-q", "--allow-empty", "-m", "n"], check=True)
    library = scene.folder / "library"
    subprocess.run(["git", "init", "-q", str(library)], check=True)
    subprocess.run(["git", "-C", str(library), *git[3:], "commit", "-q", "--allow-empty", "-m", "l"], check=True)
    subprocess.run([*git, "submodule", "--quiet", "add", str(library), "module"], check=True, capture_output=True)
    subprocess.run([*git, "commit", "-qam", "module"], check=True)
    return SandboxPolicy(
        writable=(scene.workspace,),
        readonly=protected_places(scene.workspace),
        network="off",
        namespaces=readonly(scene, walls).policy.namespaces,
    )


MAKE = 'evil() { mkdir -p $1/objects $1/refs; echo "ref: refs/heads/main" > $1/HEAD; printf "[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \\"touch $N/ran; false\\"\\n" > $1/config; }; '
COMMIT = "git -c user.name=T -c user.email=t@example.invalid commit -qm x"

TRAPS = {
    "commondir": MAKE + "evil evil; echo ../evil > .git/commondir",
    "commondir-moved-in": MAKE + "evil evil; echo ../evil > c; mv c .git/commondir",
    "commondir-as-a-link": MAKE + "evil evil; echo ../evil > c; ln -s ../c .git/commondir",
    "nested-settings": "printf '[core]\\n fsmonitor = \"touch '$N'/ran; false\"\\n' >> nested/.git/config; git add nested",
    "nested-settings-replaced": MAKE + "evil e; mv nested/.git nested/g; rm -rf nested/.git; mv e nested/.git",
    "nested-commondir": MAKE + "evil evil; echo ../../evil > nested/.git/commondir; git add nested",
    "new-repository": MAKE + "evil new/.git; touch new/f; git add new",
    "new-repository-as-gitlink": MAKE + f"git init -q new && cd new && {COMMIT} --allow-empty; cd ..; git add new; evil new/.git",
    "new-repository-by-a-file": MAKE + "mkdir new; evil hidden; echo 'gitdir: ../hidden' > new/.git",
    "new-repository-by-a-link": MAKE + "mkdir new; evil hidden; ln -s ../hidden new/.git",
    "new-repository-in-the-scratch-folder": MAKE + "mkdir new; evil $TMPDIR/hidden; echo gitdir: $TMPDIR/hidden > new/.git",
    "new-repository-among-objects": MAKE + "mkdir new; evil .git/objects/hidden; echo gitdir: ../.git/objects/hidden > new/.git",
    "module-settings": "printf '[core]\\n fsmonitor = \"touch '$N'/ran; false\"\\n' >> .git/modules/module/config",
    "module-file-replaced": MAKE + "evil evil; echo 'gitdir: ../evil' > m; mv m module/.git; rm module/.git; echo 'gitdir: ../evil' > module/.git",
    "module-commondir": MAKE + "evil evil; echo $PWD/evil > .git/modules/module/commondir",
    "settings": "git config core.fsmonitor 'touch '$N'/ran; false'",
    "settings-of-the-worktree": "git config extensions.worktreeConfig true; printf '[core]\\n fsmonitor = \"touch '$N'/ran; false\"\\n' > .git/config.worktree",
    "hook": "printf '#!/bin/sh\\ntouch '$N'/ran\\n' > .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change",
    "nested-hook": "echo x > nested/f; git -C nested add f; sleep 0.1; touch nested/f; rm -rf nested/.git/hooks; mkdir nested/.git/hooks; printf '#!/bin/sh\\ntouch '$N'/ran\\n' > nested/.git/hooks/post-index-change; chmod +x nested/.git/hooks/post-index-change",
    "settings-that-lead-elsewhere": "git init -q new; printf '[include]\\n path = ../evil.cfg\\n' >> new/.git/config; printf '[core]\\n fsmonitor = \"touch '$N'/ran; false\"\\n' > new/evil.cfg",
    "settings-on-one-line": "git init -q new; printf '[core] fsmonitor = \"touch '$N'/ran; false\"\\n' >> new/.git/config",
    "settings-in-odd-writing": "git init -q new; printf '[CoRe]\\n\\tFsMonitor\\t=\"touch '$N'/ran; false\"\\n' >> new/.git/config",
    "bare-repository": MAKE + "evil bare; printf '\\tbare = false\\n\\tworktree = ..\\n' >> bare/config",
    "nested-in-a-moved-folder": MAKE + "mkdir -p deep/a; evil deep/a/.git; mv deep deeper",
    "finished-by-a-later-command": MAKE + "evil x; mkdir later; rm x/HEAD; mv x later/.git",
}  # fmt: skip


def next_git_status(scene: Scene) -> None:
    """The user looks at every folder of the workspace, outside of all walls."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(scene.home)}
    folders = [
        scene.workspace,
        *(path for path in scene.workspace.rglob("*") if path.is_dir() and path.name != "objects"),
    ]
    for folder in folders:
        if ".git" in folder.relative_to(scene.workspace).parts[:1]:
            continue
        for words in (["status"], ["diff"]):  # the control shows that these two meet every trap
            subprocess.run(["git", "-C", str(folder), *words], env=environment, capture_output=True)


@pytest.mark.parametrize("name", TRAPS)
async def test_the_next_git_status_runs_nothing_that_was_left(name: str, scene: Scene, box: Box, walls: str):
    if walls == "never" and name in (
        "nested-settings",
        "module-settings",
        "module-file-replaced",
        "settings",
        "hook",
        "nested-settings-replaced",
        "nested-hook",
    ):
        pytest.skip("without namespaces what exists cannot be protected; the doctor says so")
    output = await scene.shell(TRAPS[name], box)
    if name == "finished-by-a-later-command":
        output = await scene.shell("echo 'ref: refs/heads/main' > later/.git/HEAD", box)
    next_git_status(scene)
    assert not (scene.neighbour / "ran").exists(), output.text


@pytest.mark.parametrize(
    "name",
    [
        each
        for each in TRAPS
        if each not in ("nested-settings-replaced", "settings-of-the-worktree", "finished-by-a-later-command")
    ],
)
async def test_without_walls_it_would(name: str, scene: Scene):
    """The control."""
    workspace_policy(scene, "must")
    await scene.shell(TRAPS[name], None)
    (scene.folder / "loose").mkdir(exist_ok=True)
    next_git_status(scene)
    assert (scene.neighbour / "ran").exists()


async def test_what_was_left_is_named_with_its_reason(scene: Scene, box: Box):
    output = await scene.shell(TRAPS["new-repository"], box)
    path = scene.workspace / "new" / ".git" / "config"
    assert f"{path} has a setting that could start a program (core.fsmonitor)" in output.text
    assert "renamed to config.disabled-by-retinue" in output.text
    assert path.with_name("config.disabled-by-retinue").exists()


async def test_a_command_that_is_killed_with_its_launcher_leaves_nothing_after_the_run(scene: Scene, box: Box):
    script = f"trap '' TERM; {TRAPS['new-repository']}; sleep 60 & sleep 61; sleep 62"
    await scene.shell(script, box, seconds=1.5)
    box.close()
    next_git_status(scene)
    assert not (scene.neighbour / "ran").exists()


async def test_a_killed_retinue_leaves_nothing(scene: Scene, box: Box, walls: str):
    if walls == "bubblewrap":
        pytest.skip("bubblewrap ends the launcher with Retinue, before its last look: the README says so")
    code = "import subprocess, sys\nsubprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)\nsys.stdin.read()\n"
    argv = box.wrap(["/bin/bash", "-c", f"{TRAPS['new-repository']}; echo up; sleep 300"], scene.workspace)
    environment = {**os.environ, **scene.variables}
    parent = subprocess.Popen(
        [sys.executable, "-c", code, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None and parent.stdout.readline() == "up\n"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.read()  # ends when the launcher does, which has its last look before
    next_git_status(scene)
    assert not (scene.neighbour / "ran").exists()


async def test_a_workspace_without_a_repository_is_looked_at_too(scene: Scene, walls: str):
    plain = scene.folder / "plain"
    plain.mkdir()
    box = Box(SandboxPolicy(writable=(plain,), readonly=protected_places(plain), namespaces=walls), "run")
    argv = box.wrap(["/bin/bash", "-c", f"{MAKE} evil .git"], plain)
    done = subprocess.run(argv, env=box.environment({**os.environ, **scene.variables}), capture_output=True, text=True)
    box.close()
    subprocess.run(["git", "-C", str(plain), "status"], capture_output=True)
    assert "core.fsmonitor" in done.stderr
    assert not (scene.neighbour / "ran").exists()


ORDINARY = {
    "commit": ("echo x >> a.txt; git add -A . ':!nested' && git -c user.name=T -c user.email=t@example.invalid commit -qm mine && git log --oneline -1", "mine"),
    "branch-and-switch": ("git switch -q -c b && git switch -q - && git branch", "b"),
    "new-repository": ("git init -q fresh && cd fresh && touch f && git add f && git status --short", "A  f"),
    "clone": ("git -c protocol.file.allow=always clone -q nested copy && git -C copy log --oneline", "n"),
    "worktree": ("git worktree add -q wt && git -C wt status --short && git worktree list", "/wt"),
    "submodule": ("git submodule status", "module"),
    "rebase": ("git -c user.name=T -c user.email=t@example.invalid rebase -q HEAD~1 && echo rebased", "rebased"),
    "stash": ("echo y >> sub/c.txt; git -c user.name=T -c user.email=t@example.invalid stash -q && git stash list", "stash@{0}"),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
async def test_ordinary_work_with_repositories_is_not_disturbed(name: str, scene: Scene, box: Box, walls: str):
    if walls == "never" and name in ("new-repository", "clone"):
        pytest.skip("git changes modes when it makes a repository, which needs namespaces")
    script, expected = ORDINARY[name]
    output = await scene.shell(script, box)
    assert expected in output.text
    assert "retinue sandbox" not in output.text
    later = await scene.shell("git status && git -C fresh status; git -C copy status; git -C wt status; true", box)
    assert "retinue sandbox" not in later.text
    assert not list(scene.workspace.rglob("*disabled-by-retinue*"))


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("[core]\n\tbare = false\n", ""),
        ('[remote "origin"]\n\turl = https://example.invalid/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n', ""),
        ('[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n# a comment\n; another\n', ""),
        ("[core]\n\tfsmonitor\n", "core.fsmonitor"),
        ("[core]\n\tbare = false \\\n", "core.bare"),
        ("[core] hooksPath = x\n", "[core] hooksPath = x"),
        ("[core]\r\n\tsshCommand = x\r\n", "core.sshcommand"),
        ("[include]\n\tpath = x\n", "include.path"),
        ('[includeIf "gitdir:/"]\n\tpath = x\n', "includeif.path"),
        ('[remote "x"]\n\tuploadpack = x\n', "remote.uploadpack"),
        ('[filter "x"]\n\tclean = x\n', "filter.clean"),
        ('[submodule "x"]\n\tupdate = !x\n', "submodule.update"),
        ("[core.x]\n\tbare = x\n", "[core.x]"),
        ("\ufeff[core]\n\tfsmonitor = x\n", ".\ufeff[core]"),
        ("fsmonitor = x\n", ".fsmonitor"),
        ("[core]\n\tbare = false\n[alias]\n\tst = !x\n", "alias.st"),
        ("[core]\x0b\n\tfsmonitor = x", "[core]\x0b"),
    ],
)  # fmt: skip
def test_only_settings_that_start_nothing_are_harmless(text: str, odd: str):
    assert find_unknown_setting(text) == odd
