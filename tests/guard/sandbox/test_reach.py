# ruff: noqa: E501 - scripts read better on one line
"""`reach="system"`: a shell that sees the system, the user's tools and its workspace, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.environment import tool_roots


@pytest.fixture
def box(scene: Scene, walls: str) -> Iterator[Box]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    policy = replace(readonly(scene, walls).policy, reach="system", shown=(scene.workspace,), path=path)
    made = Box(policy, "run")
    yield made
    made.close()


OUTSIDE = {
    "a-neighbour": "cat $N/b.txt | grep -q beta && echo OUT-$OUT",
    "a-neighbour-by-a-relative-path": "cat ../neighbour/b.txt | grep -q beta && echo OUT-$OUT",
    "the-names-beside": "ls .. | grep -q neighbour && echo OUT-$OUT",
    "the-home": "cat $H/.bashrc >/dev/null && echo OUT-$OUT",
    "keys": "cat $H/.ssh/id_ed25519 | grep -q PRIVATE && echo OUT-$OUT",
    "temporary-files": "ls /tmp | grep -q $(basename $(dirname $SOCK)) && echo OUT-$OUT",
    "by-a-link": "ln -s $N/b.txt $TMPDIR/l; cat $TMPDIR/l | grep -q beta && echo OUT-$OUT",
    "by-the-root-of-a-process": "cat /proc/self/root$N/b.txt /proc/$PPID/root$N/b.txt | grep -q beta && echo OUT-$OUT",
    "by-the-directory-of-a-process": "cat /proc/$VICTIM/cwd/pyproject.toml /proc/$PPID/cwd/../neighbour/b.txt | grep -q . && echo OUT-$OUT",
    "by-find": "find / -xdev -name b.txt 2>/dev/null | grep -q neighbour && echo OUT-$OUT",
    "by-jq": "jq -n 'import \"secrets\" as $s {search:\"'$N'\"}; $s' | grep -q beta && echo OUT-$OUT",
    "by-dots-in-another-name": "cat $W/../neighbour/b.txt | grep -q beta && echo OUT-$OUT",
    "by-a-hard-link": "ln $N/b.txt $TMPDIR/h && cat $TMPDIR/h | grep -q beta && echo OUT-$OUT",
}


@pytest.mark.parametrize("name", OUTSIDE)
async def test_outside_the_workspace_nothing_can_be_read(name: str, scene: Scene, box: Box, walls: str):
    output = await scene.shell(OUTSIDE[name], box)
    assert f"OUT-{scene.out}" not in output.text


@pytest.mark.parametrize("name", [each for each in OUTSIDE if each not in ("by-jq", "by-the-directory-of-a-process")])
async def test_with_reach_all_it_could_be(name: str, scene: Scene):
    """The control."""
    output = await scene.shell(OUTSIDE[name], None)
    assert f"OUT-{scene.out}" in output.text


ORDINARY = {
    "git-status": ("git status --short", "sub/c.txt"),
    "git-log": ("git log -p --oneline", "first"),
    "ls": ("ls -la", "a.txt"),
    "ripgrep": ("rg -n alpha", "alpha"),
    "find": ("find . -name '*.txt'", "./sub/c.txt"),
    "python": ("python -c 'print(6 * 7)'", "42"),
    "python-of-this-environment": ("$PY -c 'import pytest; print(pytest.__name__)'", "pytest"),
    "node": ("node -e 'console.log(6 * 7)'", "42"),
    "npm": ("npm --version", "."),
    "gcc": ("cd $TMPDIR && printf 'int main(void){return 0;}' > m.c && gcc -c m.c -o m.o && echo built", "built"),
    "process-substitution": ("diff <(cat a.txt) <(echo omega) || true", "< alpha"),
    "temporary-files": ("t=$(mktemp) && echo kept > $t && cat $t", "kept"),
    "who-am-i": ("id -un", "root" if os.getuid() == 0 else ""),
}


@pytest.mark.parametrize("name", ORDINARY)
async def test_tools_and_the_workspace_work_as_usual(name: str, scene: Scene, box: Box):
    script, expected = ORDINARY[name]
    output = await scene.shell(script, box)
    if "command not found" in output.text:
        pytest.skip(output.text)
    assert expected in output.text
    assert not output.is_error, output.text


async def test_a_workspace_that_is_given_by_a_link_is_found_by_both_names(scene: Scene, walls: str):
    link = scene.folder / "by-link"
    link.symlink_to(scene.workspace)
    box = Box(replace(readonly(scene, walls).policy, reach="system", shown=(link,)), "run")
    output = await scene.shell(f"cat {link}/a.txt {scene.workspace}/a.txt", box)
    box.close()
    assert output.text.splitlines()[:2] == ["alpha", "alpha"]


async def test_a_toolchain_that_is_a_link_is_found_by_both_names(scene: Scene, walls: str):
    elsewhere = scene.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tool").write_text("works\n")
    (scene.home / ".nvm").symlink_to(elsewhere)
    (scene.folder / "dot").write_text("[user]\n\tname = Linked\n")
    (scene.home / ".gitconfig").unlink()
    (scene.home / ".gitconfig").symlink_to(scene.folder / "dot")
    box = Box(replace(readonly(scene, walls).policy, reach="system", shown=(scene.workspace,)), "run")
    output = await scene.shell(f"cat $H/.nvm/tool {elsewhere}/tool; git config user.name", box)
    box.close()
    assert output.text.splitlines() == ["works", "works", "Linked"]


async def test_hidden_files_in_the_workspace_stay_hidden(scene: Scene, walls: str):
    (scene.workspace / ".env").write_text("PRIVATE\n")
    policy = replace(
        readonly(scene, walls).policy, reach="system", shown=(scene.workspace,), hidden=(scene.workspace / ".env",)
    )
    box = Box(policy, "run")
    output = await scene.shell("cat .env; cat a.txt; ls", box)
    box.close()
    assert "PRIVATE" not in output.text
    assert "alpha" in output.text
    assert "sub" in output.text.split()


async def test_what_is_hidden_is_not_shown_for_being_a_toolchain_or_the_systems(scene: Scene, walls: str):
    (scene.home / ".cargo/registry").mkdir(parents=True)
    (scene.home / ".cargo/registry/a").write_text("PRIVATE\n")
    (scene.home / "go/pkg").mkdir(parents=True)
    (scene.home / "go/pkg/b").write_text("PRIVATE\n")
    (scene.home / ".gitconfig").write_text("[user]\n\tname = PRIVATE\n")
    hidden = (scene.home / ".cargo", scene.home / "go/pkg/b", scene.home / ".gitconfig", Path("/opt"))
    box = Box(replace(readonly(scene, walls).policy, reach="system", shown=(scene.workspace,), hidden=hidden), "run")
    script = "cat $H/.cargo/registry/a $H/go/pkg/b $H/.gitconfig; ls $H/go/pkg; ls -A /opt 2>/dev/null"
    output = await scene.shell(script, box)
    box.close()
    assert "PRIVATE" not in output.text
    names = [line for line in output.text.splitlines() if ":" not in line and not line.startswith("[")]
    assert names == ["b"]


@pytest.mark.parametrize("how", ["path", "code"])
async def test_an_editable_install_outside_is_named_until_it_is_shown(scene: Scene, how: str):
    venv, library = scene.home / "venv", scene.folder / "library"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python3*/site-packages")
    (library / "src/mylib").mkdir(parents=True)
    (library / "src/mylib/__init__.py").write_text("print('imported')")
    if how == "path":
        (packages / "_mylib.pth").write_text(f"{library}/src\n")
    else:
        (packages / "_mylib.pth").write_text(f"import sys; sys.path.append('{library}/src')\n")
        (packages / "mylib-1.dist-info").mkdir()
        origin = {"url": f"file://{library}", "dir_info": {"editable": True}}
        (packages / "mylib-1.dist-info/direct_url.json").write_text(json.dumps(origin))
    policy = replace(readonly(scene, "try").policy, reach="system", shown=(scene.workspace,), path=f"{venv}/bin")
    said = []
    for shown in ((scene.workspace,), (scene.workspace, library)):
        box = Box(replace(policy, shown=shown), "run")
        said.append((await scene.shell(f"{venv}/bin/python -c 'import mylib'", box)).text)
        box.close()
    assert f"walls around this shell: {library}/src, from where mylib" in said[0] and "sandbox.shown" in said[0]
    assert said[1] == "imported"


async def test_a_file_outside_is_named_however_a_program_says_that_it_is_not_there(scene: Scene, box: Box):
    output = await scene.shell("$PY -c \"open('$N/b.txt')\"", box)
    assert f"{scene.neighbour}/b.txt cannot be seen from inside" in output.text or "Permission denied" in output.text


async def test_a_linked_worktree_sees_its_repository_and_a_forged_one_does_not(scene: Scene, walls: str):
    tree = scene.folder / "tree"
    git = ["git", "-C", str(scene.workspace), "-c", "core.hooksPath=/dev/null"]
    subprocess.run([*git, "worktree", "add", "-q", "--detach", str(tree)], check=True, capture_output=True)
    forged = scene.folder / "forged"
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {scene.workspace}/.git\n")
    for root, expected in ((tree, True), (forged, False)):
        box = Box(replace(readonly(scene, walls).policy, reach="system", shown=(root,)), "run")
        context = scene.context(box)
        context.roots = (root,)
        from retinue.tools.bash import BashTool

        output = await BashTool().run("call", {"command": "git log --oneline"}, context)
        box.close()
        assert ("first" in output.text) is expected, output.text


def test_folders_of_programs_show_what_they_need_and_no_home(tmp_path: Path):
    home = tmp_path / "home"
    for folder in ("bin", ".local/bin", "tools/node/bin", "venv/bin", "base/python/bin", "pipx/venvs/x/bin"):
        (home / folder).mkdir(parents=True)
    (tmp_path / "elsewhere" / "nvm").mkdir(parents=True)
    (home / ".nvm").symlink_to(tmp_path / "elsewhere" / "nvm")
    (home / "venv" / "pyvenv.cfg").write_text(f"home = {home}/base/python/bin\n")
    (home / "pipx" / "venvs" / "x" / "bin" / "x").touch()
    (home / ".local" / "bin" / "x").symlink_to(home / "pipx/venvs/x/bin/x")
    path = ":".join(f"{home}/{part}" for part in ("bin", ".local/bin", "tools/node/bin", "venv/bin", "missing/bin"))
    roots = set(tool_roots(home, f"{path}:relative/bin:/usr/bin:"))
    wanted = {"bin", ".local/bin", "tools/node", "venv", "base/python", "pipx/venvs/x"}
    assert {f"{home}/{part}" for part in wanted} <= roots
    assert {f"{home}/.nvm", f"{tmp_path}/elsewhere/nvm"} <= roots
    assert not {str(home), str(tmp_path), f"{home}/.local", "/"} & roots
