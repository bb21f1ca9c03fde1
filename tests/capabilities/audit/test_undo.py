"""Undo puts back what a run changed, byte by byte, and nobody else's work."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from audit_bench import Bench, Worker, picture


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_edits_new_files_and_what_commands_did_are_put_back(bench):
    bench.put("a.txt", "one\n")
    bench.put("b.txt", "two\n")
    before = picture(bench.root)
    run = bench.run("run-1")
    await run.use("read", path="a.txt")
    await run.use("edit", path="a.txt", edits=[{"old": "one", "new": "uno"}])
    await run.use("write", path="deep/er/new.txt", content="hello")
    touched = await run.bash("rm b.txt; echo x > c.txt; mkdir -p e/f; chmod 600 a.txt; ln -s a.txt link")
    names = {os.path.relpath(each.path, bench.root): (each.before, each.after) for each in touched}
    assert set(names) == {"a.txt", "b.txt", "c.txt", "link"}
    assert names["b.txt"][1] is None
    assert names["c.txt"][0] is None
    done = bench.undo(run)
    assert {path: each.fate for path, each in done.items()} == {
        "a.txt": "restored",
        "b.txt": "restored",
        "c.txt": "removed",
        "deep/er/new.txt": "removed",
        "link": "removed",
    }
    assert picture(bench.root) == before


async def test_a_dry_run_changes_nothing_and_says_the_same(bench):
    bench.put("a.txt", "one\n")
    run = bench.run("run-1")
    await run.bash("echo two > a.txt")
    before = picture(bench.root)
    planned = bench.undo(run, dry_run=True)
    assert picture(bench.root) == before
    assert planned == bench.undo(run)


async def test_later_changes_of_people_are_kept_unless_forced(bench):
    bench.put("a.txt", "one\n")
    run = bench.run("run-1")
    await run.bash("echo two > a.txt; echo new > b.txt")
    bench.put("a.txt", "mine\n")
    done = bench.undo(run)
    assert done["a.txt"].fate == "kept"
    assert done["a.txt"].detail == "it was changed since by someone else"
    assert done["b.txt"].fate == "removed"
    assert (bench.root / "a.txt").read_text() == "mine\n"
    assert bench.undo(run, force=True)["a.txt"].fate == "restored"
    assert (bench.root / "a.txt").read_text() == "one\n"


async def test_another_runs_later_change_is_kept_and_named(bench):
    bench.put("a.txt", "one\n")
    first, second = bench.run("11111111-aa"), bench.run("22222222-bb", "reviewer")
    await first.bash("echo two > a.txt")
    await second.use("read", path="a.txt")
    await second.use("edit", path="a.txt", edits=[{"old": "two", "new": "three"}])
    assert bench.undo(first)["a.txt"].detail == "it was changed since by reviewer (run 22222222)"
    assert bench.undo(second)["a.txt"].fate == "restored"
    assert bench.undo(first)["a.txt"].fate == "restored"
    assert (bench.root / "a.txt").read_text() == "one\n"


async def test_changes_of_others_in_between_are_noticed(bench):
    bench.put("a.txt", "1\n")
    run = bench.run("run-1")
    await run.bash("echo 2 >> a.txt")
    bench.put("a.txt", "1\n2\nmine\n")
    await run.bash("echo 3 >> a.txt")
    assert bench.undo(run)["a.txt"].detail == "someone else changed it between two changes of this run"


async def test_undo_from_a_turn_on_leaves_earlier_turns(bench):
    run = bench.run("run-1")
    for turn in (1, 2, 3):
        run.ledger.turn = turn
        await run.bash(f"echo {turn} >> a.txt; echo {turn} > only{turn}.txt")
    done = bench.undo(run, turn=2)
    assert done["a.txt"].fate == "restored"
    assert (bench.root / "a.txt").read_text() == "1\n"
    assert (bench.root / "only1.txt").exists()
    assert not (bench.root / "only2.txt").exists()


async def test_undo_of_a_tree_takes_children_with_it(bench):
    bench.put("a.txt", "one\n")
    before = picture(bench.root)
    parent, child = bench.run("parent-1"), bench.run("child-1")
    await parent.bash("echo two > a.txt")
    await child.bash("echo three > a.txt; echo c > c.txt")
    assert bench.undo(parent)["a.txt"].fate == "kept"
    done = bench.undo(parent, below=("child-1",))
    assert {each.fate for each in done.values()} == {"restored", "removed"}
    assert picture(bench.root) == before


async def test_a_file_in_place_of_a_folder_and_the_other_way_round(bench):
    bench.put("folder/x.txt", "x")
    bench.put("file", "f")
    (bench.root / "empty").mkdir()
    before = picture(bench.root)
    run = bench.run("run-1")
    await run.bash(
        "rm -r folder; echo now-a-file > folder; rm file; mkdir file; echo in > file/inner; rmdir empty; echo 1 > empty"
    )
    bench.undo(run)
    assert picture(bench.root) == before


async def test_a_folder_that_became_a_link_leads_undo_nowhere(bench, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    bench.put("folder/x.txt", "x")
    run = bench.run("run-1")
    await run.bash("echo changed > folder/x.txt")
    (bench.root / "folder" / "x.txt").rename(outside / "x.txt")
    (bench.root / "folder").rmdir()
    (bench.root / "folder").symlink_to(outside)
    done = bench.undo(run, force=True)
    assert done["folder/x.txt"].fate == "failed"
    assert (outside / "x.txt").read_text() == "changed\n"


async def test_ignored_files_that_tools_wrote_are_put_back_too(bench):
    bench.put(".gitignore", "*.env\nbuild/\n")
    bench.put("x.env", "A=1\n")
    run = bench.run("run-1")
    await run.use("read", path="x.env")
    await run.use("edit", path="x.env", edits=[{"old": "A=1", "new": "A=2"}])
    touched = await run.bash("sed -i s/A=2/A=3/ x.env; mkdir build; echo o > build/out")
    assert [os.path.basename(each.path) for each in touched] == ["x.env"]
    bench.undo(run)
    assert (bench.root / "x.env").read_text() == "A=1\n"


async def test_crlf_attributes_and_filters_of_the_project_change_no_byte(bench):
    bench.put(".gitattributes", "* text=auto eol=lf\n*.bin filter=lfs\n")
    (bench.root / "dos.txt").write_bytes(b"a\r\nb\r\n")
    (bench.root / "x.bin").write_bytes(bytes(range(256)))
    before = picture(bench.root)
    run = bench.run("run-1")
    await run.bash("echo > dos.txt; echo > x.bin")
    bench.undo(run)
    assert picture(bench.root) == before


async def test_the_users_repository_is_not_touched(bench):
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
            cwd=bench.root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    git("init", "-q")
    hook = bench.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hook-ran\n")
    hook.chmod(0o755)
    bench.put("a.txt", "one\n")
    git("add", "a.txt")
    bench.put("a.txt", "staged differs\n")
    own = {str(path): path.read_bytes() for path in (bench.root / ".git").rglob("*") if path.is_file()}
    run = bench.run("run-1")
    await run.bash("echo two > a.txt; echo b > b.txt")
    bench.undo(run)
    assert {str(path): path.read_bytes() for path in (bench.root / ".git").rglob("*") if path.is_file()} == own
    assert not (bench.root / "hook-ran").exists()


async def test_files_too_large_are_left_out_and_named(tmp_path):
    bench = Bench(tmp_path, max_file_bytes=1000)
    bench.put("big.dat", "x" * 5000)
    bench.put("grows.txt", "x")
    run = bench.run("run-1")
    touched = await run.bash("echo y >> big.dat; head -c 3000 /dev/zero > grows.txt; echo 1 > small.txt")
    assert {os.path.basename(each.path) for each in touched} >= {"small.txt"}
    assert {os.path.basename(each) for each in run.checkpoints.left_out} == {"big.dat", "grows.txt"}


NAMES = ["a.txt", "b.txt", "dir/c.txt", "dir/sub/d.txt", "e f.txt", "ü/ö.txt", "x.env", "run.sh"]


def _command(chosen: random.Random) -> str:
    one, other = (f"'{chosen.choice(NAMES)}'" for _ in range(2))
    return chosen.choice(
        [
            f"mkdir -p $(dirname {one}); echo {chosen.random()} > {one}",
            f"echo more >> {one} || true",
            f"rm -f {one}",
            "rm -rf dir",
            f"mv {one} {other} 2>/dev/null || true",
            f"chmod {chosen.choice(['600', '755', '640', '777'])} {one} 2>/dev/null || true",
            f"ln -sf {other} {one} 2>/dev/null || true",
            f"mkdir -p empty{chosen.randrange(3)}/x",
            "rmdir empty0/x empty0 2>/dev/null || true",
            f"head -c 300 /dev/urandom > {one} 2>/dev/null || true",
        ]
    )


async def _edit(run: Worker, chosen: random.Random) -> None:
    name = chosen.choice(NAMES)
    await run.use("read", path=name)
    if chosen.random() < 0.5:
        await run.use("write", path=name, content=f"written {chosen.random()}\n")
    else:
        await run.use("edit", path=name, edits=[{"old": "e", "new": "E", "all": True}])


@pytest.mark.parametrize("seed", range(int(os.environ.get("RETINUE_UNDOS", "12"))))
async def test_whatever_a_run_does_undo_gives_the_tree_back(bench, seed):
    chosen = random.Random(seed)
    for name in NAMES:
        if chosen.random() < 0.7:
            bench.put(name, f"first {chosen.random()} e\n").chmod(chosen.choice([0o644, 0o755, 0o600]))
    (bench.root / "empty0").mkdir()
    before = picture(bench.root)
    run = bench.run("run-1")
    for turn in range(1, 7):
        run.ledger.turn = turn
        if chosen.random() < 0.5:
            await run.bash("; ".join(_command(chosen) for _ in range(chosen.randrange(1, 4))))
        else:
            await _edit(run, chosen)
    done = bench.undo(run)
    assert not [each for each in done.values() if each.fate in ("kept", "failed")]
    assert picture(bench.root) == before
