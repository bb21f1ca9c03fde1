"""Decisions that depend on what lies in the workspace: names that look like options, files that a
rule keeps from being read, below a folder that a command goes through."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.guard.permissions.corpus import Block, policy, workspace

from retinue.core.permission import Decision, ToolUse
from retinue.core.spec import PermissionMode
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions import PermissionPolicy
from retinue.guard.permissions.locations import RunFolders


@pytest.fixture
def scene(tmp_path: Path) -> tuple[Path, Path]:
    return workspace(tmp_path)


def bash(scene: tuple[Path, Path], command: str, mode: PermissionMode = "default", **rules: str) -> Decision:
    given = policy(Block(mode, list(rules.items())), *scene)
    return given.decide(ToolUse("bash", {"command": command}, TOOL_EFFECTS["bash"]))


@pytest.mark.parametrize("command", ["rg x *", "sort *", "cd sub && sort *", "sort ?*", "sort [!.]*"])
def test_a_pattern_is_not_trusted_where_a_file_is_called_like_an_option(scene: tuple[Path, Path], command: str) -> None:
    """`sort *` with a file `--output=x` writes, `rg x *` with `--pre=./evil` runs a program."""
    (scene[0] / "out").unlink()
    before = bash(scene, command)
    for folder in (scene[0], scene[0] / "sub"):
        (folder / "--output=x").touch()
    after = bash(scene, command)
    assert after.verdict == "ask"
    assert before.verdict == "allow" or "[" in command
    assert "option" in after.reason or "[" in command


def test_names_behind_a_folder_are_no_options(scene: tuple[Path, Path]) -> None:
    (scene[0] / "out").unlink()
    (scene[0] / "--output=x").touch()
    assert bash(scene, "sort ./*").verdict == "allow"
    assert bash(scene, "sort src/*").verdict == "allow"


def test_a_repository_that_hides_in_a_folder_is_not_entered_unasked(scene: tuple[Path, Path]) -> None:
    """Files that make a bare repository can be in any clone; to `cd` into it was enough to let git
    start the programs that its settings name."""
    trap = scene[0] / "sub/trap"
    traps = ("cd sub/trap && git status", "cd sub/trap/deep; git log", "cd sub; cd trap; git diff")
    for command in traps:
        assert bash(scene, command, allow="Bash(git *)").verdict == "allow", command
    for name in ("refs", "objects", "deep"):
        (trap / name).mkdir(parents=True)
    (trap / "HEAD").write_text("ref: refs/heads/main\n")
    for command in traps:
        for mode in ("default", "acceptEdits"):
            assert bash(scene, command, mode, allow="Bash(git *)").verdict == "ask", command
    assert bash(scene, "cd sub && git status", allow="Bash(git *)").verdict == "allow"
    made = "mkdir -p x/refs x/objects && cp src/app.py x/HEAD && cd x && git status"
    assert bash(scene, made, "acceptEdits", allow="Bash(git *)").verdict == "ask"


def test_a_folder_of_programs_in_the_workspace_is_protected(scene: tuple[Path, Path]) -> None:
    """An `ls` that an agent puts into the project's .venv/bin would be what `ls` starts."""
    (scene[0] / ".venv/bin").mkdir(parents=True)
    place = RunFolders.of(scene[0], home=str(scene[1]), programs=f"{scene[0]}/.venv/bin:/usr/bin:bin:")
    given = PermissionPolicy("acceptEdits", place)
    for command in ("cp x .venv/bin/ls", "cp x .venv/bin/", "mv ls .venv/bin", "touch bin/ls"):
        assert given.decide(ToolUse("bash", {"command": command}, TOOL_EFFECTS["bash"])).by == "protected", command
    assert given.decide(ToolUse("write", {"path": ".venv/bin/git"}, TOOL_EFFECTS["write"])).by == "protected"
    assert given.decide(ToolUse("write", {"path": "x.py"}, TOOL_EFFECTS["write"])).verdict == "allow"
    assert given.decide(ToolUse("write", {"path": ".venv/lib/x.py"}, TOOL_EFFECTS["write"])).verdict == "allow"
    assert (
        given.fork("acceptEdits").decide(ToolUse("write", {"path": "bin/ls"}, TOOL_EFFECTS["write"])).verdict == "ask"
    )


LEAVING = [
    "cat *.txt",
    "head -1 n*",
    "cat */key",
    "cat sub/*/key",
    "grep x *",
]


@pytest.mark.parametrize("command", LEAVING)
def test_no_pattern_leads_out_of_the_workspace_through_a_link(scene: tuple[Path, Path], command: str) -> None:
    """A clone can hold links to anywhere; `cat link` is asked about, and so is `cat *`."""
    ws, home = scene
    (home / "key").write_text("secret")
    (ws / "sub/plain.txt").write_text("x")
    for link in ("out", "envlink", "inlink"):
        (ws / link).unlink()
    assert bash(scene, command).verdict == "allow"
    (ws / "notes.txt").symlink_to(home / "key")
    for folder in (ws / "home", ws / "sub/home"):
        folder.symlink_to(home)
    assert bash(scene, command).verdict == "ask"


@pytest.mark.parametrize("command", ["touch *.txt", "sed -i s/a/b/ */key", "cp src/app.py */key"])
def test_no_pattern_writes_out_of_the_workspace_through_a_link(scene: tuple[Path, Path], command: str) -> None:
    ws, home = scene
    assert bash(scene, command, "acceptEdits").verdict == "allow"
    (home / "key").write_text("secret")
    (ws / "notes.txt").symlink_to(home / "key")
    (ws / "home").symlink_to(home)
    assert bash(scene, command, "acceptEdits").verdict == "ask"


def test_links_that_stay_inside_are_no_reason_to_ask(scene: tuple[Path, Path]) -> None:
    (scene[0] / "out").unlink()
    for command in ("cat */app.py", "cat *link"):
        assert bash(scene, command).verdict == "allow", command


GOING_THROUGH = [
    "grep -r KEY .",
    "grep -rn KEY",
    "grep -R KEY ./",
    "grep --recursive KEY {ws}",
    "grep -ri KEY src .",
    "cd src && grep -r KEY ..",
    "egrep -r KEY .",
    "rg --hidden KEY",
    "rg -uuu KEY .",
    "rg -. KEY",
    "git grep --no-index KEY",
    "git grep --untracked KEY",
    "find . -name '.en*' -exec cat {} \\;",
    "find . -type f -exec grep KEY {} +",
    "find -type f -execdir cat {} \\;",
    "tar cf - .",
    "tar -czf /tmp/all.tgz .",
    "cp -r . /tmp/all",
    "rsync -a ./ /tmp/all",
    "zip -r all.zip .",
    "diff -r . /tmp/all",
    "python3 -c 'print(open(\".env\").read())'",
    'node -e \'require("fs").readFileSync(".env")\'',
]


@pytest.mark.parametrize("command", GOING_THROUGH)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_what_goes_through_a_folder_does_not_read_what_a_rule_denies_in_it(
    scene: tuple[Path, Path], command: str, mode: PermissionMode
) -> None:
    command = command.replace("{ws}", str(scene[0]))
    assert bash(scene, command, mode, deny="Read(.env)").verdict in ("ask", "deny")
    assert bash(scene, command, mode, ask="Read(.env)").verdict == "ask"


@pytest.mark.parametrize("command", [*GOING_THROUGH[:10], "rg main", "git grep main", "ls -R"])
def test_what_goes_through_a_folder_runs_where_the_walls_hide_what_a_rule_denies(
    scene: tuple[Path, Path], command: str
) -> None:
    given = policy(Block("default", [("deny", "Read(.env)")], walls=True), *scene)
    decision = given.decide(ToolUse("bash", {"command": command.replace("{ws}", str(scene[0]))}, TOOL_EFFECTS["bash"]))
    assert (decision.verdict, decision.by) == ("confine", "walls")
