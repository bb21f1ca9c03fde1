"""Stale edits are refused, and the run that changed the file is named; one writer wins."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from audit_bench import Bench

from retinue.capabilities.audit import ledger as ledger_module
from retinue.capabilities.audit.ledger import LeaseError, LedgerStore

HERE = str(Path(__file__).parent)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_an_edit_after_another_runs_edit_names_that_run(bench):
    bench.put("src/a.py", "x = 1\n")
    one, other = bench.run("ab12cd34-1"), bench.run("ffff0000-2", "reviewer")
    await one.use("read", path="src/a.py")
    await other.use("read", path="src/a.py")
    await one.use("edit", path="src/a.py", edits=[{"old": "1", "new": "2"}])
    said = await other.use("edit", path="src/a.py", edits=[{"old": "1", "new": "3"}])
    assert said.is_error
    assert said.text.startswith("src/a.py was changed by implementer (run ab12cd34) since you read it.")
    await other.use("read", path="src/a.py")
    assert not (await other.use("edit", path="src/a.py", edits=[{"old": "2", "new": "3"}])).is_error


def test_a_ledger_that_another_process_is_just_making_is_waited_for(tmp_path):
    """SQLite does not wait by itself there: the first edits of two processes met, and one of them failed."""
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    pending = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    pending.start()
    store = LedgerStore(tmp_path)
    pending.join()
    assert store.newest() == 0
    store.close()
    other.close()


async def test_a_change_by_a_command_of_another_run_is_named_too(bench):
    bench.put("a.py", "x = 1\n")
    one, other = bench.run("ab12cd34-1"), bench.run("ffff0000-2")
    await other.use("read", path="a.py")
    await one.bash("sed -i s/1/2/ a.py")
    said = await other.use("edit", path="a.py", edits=[{"old": "1", "new": "3"}])
    assert "a.py was changed by implementer (run ab12cd34) since you read it" in said.text
    await one.bash("rm a.py")
    said = await other.use("edit", path="a.py", edits=[{"old": "1", "new": "3"}])
    assert "a.py was deleted by implementer (run ab12cd34) since you read it" in said.text


async def test_a_persons_change_is_nobodys(bench):
    bench.put("a.py", "x = 1\n")
    run = bench.run("run-1")
    await run.use("read", path="a.py")
    bench.put("a.py", "x = 9\n")
    said = await run.use("edit", path="a.py", edits=[{"old": "9", "new": "3"}])
    assert said.text.startswith("a.py changed since it was last read here.")


async def test_a_file_that_another_run_made_is_not_overwritten_unseen(bench):
    one, other = bench.run("ab12cd34-1"), bench.run("ffff0000-2")
    await one.use("write", path="new.py", content="1")
    said = await other.use("write", path="new.py", content="2")
    assert said.is_error
    assert "it was written by implementer (run ab12cd34)" in said.text


async def test_undo_is_named_like_a_run(bench):
    bench.put("a.py", "x = 1\n")
    one, other = bench.run("ab12cd34-1"), bench.run("ffff0000-2")
    await one.bash("echo 2 > a.py")
    await other.use("read", path="a.py")
    bench.undo(one)
    said = await other.use("edit", path="a.py", edits=[{"old": "1", "new": "3"}])
    assert "was changed by undo of implementer (run ab12cd34) since you read it" in said.text


async def test_an_edit_that_fails_leaves_no_row(bench):
    bench.put("a.py", "x = 1\n")
    run = bench.run("run-1")
    await run.use("read", path="a.py")
    assert (await run.use("edit", path="a.py", edits=[{"old": "nothing", "new": "3"}])).is_error
    with pytest.raises(RuntimeError), run.ledger.lease(bench.root / "a.py"):
        run.ledger.writing(bench.root / "a.py", b"x = 1\n", b"x = 2\n", None)
        raise RuntimeError("cut off")
    assert bench.store.of_runs(["run-1"]) == []


def test_a_lease_waits_for_its_holder_and_says_who_that_is(bench, monkeypatch):
    monkeypatch.setattr(ledger_module, "LEASE_SECONDS", 0.05)
    one, other = bench.run("ab12cd34-1"), bench.run("ffff0000-2")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with one.ledger.lease(bench.root / "a.py"):
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    with pytest.raises(LeaseError, match=r"implementer \(run ab12cd34\)"), other.ledger.lease(bench.root / "a.py"):
        pass
    done.set()
    thread.join()
    with other.ledger.lease(bench.root / "a.py"):
        pass


EDITOR = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop())
from audit_bench import Bench
bench = Bench(Path(sys.argv[1]))
run = bench.run(sys.argv[2], sys.argv[2][:5])
async def main():
    await run.use("read", path="a.txt")
    print("ready", flush=True)
    sys.stdin.readline()
    output = await run.use("edit", path="a.txt", edits=[{"old": "start", "new": sys.argv[2]}])
    print(json.dumps({"error": output.is_error, "text": output.text}), flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("round_", range(3))
def test_of_two_processes_that_edit_one_file_one_wins_and_the_other_is_told_who(bench, tmp_path, round_):
    file = bench.put("a.txt", "start\n")
    names = ["first-11-a", "other-22-b"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", EDITOR, str(tmp_path), name, HERE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    winners = [name for name, answer in zip(names, said, strict=True) if not answer["error"]]
    assert len(winners) == 1, said
    assert file.read_text() == f"{winners[0]}\n"
    loser = next(answer for answer in said if answer["error"])
    assert f"a.txt was changed by {winners[0][:5]} (run {winners[0][:8]}) since you read it" in loser["text"]


async def test_edits_of_another_run_during_a_command_are_not_the_commands(bench):
    bench.put("a.txt", "one\n")
    shell, editor = bench.run("run-shell"), bench.run("run-edit")
    shell.checkpoints.begin("call-1", "make")
    await editor.use("read", path="a.txt")
    await editor.use("edit", path="a.txt", edits=[{"old": "one", "new": "two"}])
    await editor.use("write", path="new.txt", content="n")
    bench.put("made.txt", "by the command")
    touched = shell.checkpoints.end()
    assert [Path(each.path).name for each in touched] == ["made.txt"]


async def test_commands_of_two_runs_at_once_share_what_nobody_can_tell_apart(bench):
    one, other = bench.run("11111111-a"), bench.run("22222222-b")
    one.checkpoints.begin("call-1", "echo 1 > one.txt; ./build")
    other.checkpoints.begin("call-1", "echo 2 > two.txt; ./build")
    bench.put("one.txt", "1")
    bench.put("artefact", "whose?")
    of_one = await asyncio.to_thread(one.checkpoints.end)
    bench.put("two.txt", "2")
    of_other = await asyncio.to_thread(other.checkpoints.end)
    assert {Path(each.path).name for each in of_one} == {"one.txt", "artefact"}
    assert {Path(each.path).name for each in of_other} == {"two.txt", "artefact"}
    done = bench.undo(one)
    assert done["one.txt"].fate == "removed"
    assert done["artefact"].fate == "kept"
    assert "22222222" in done["artefact"].detail
    assert bench.undo(other, force=True)["artefact"].fate == "removed"
