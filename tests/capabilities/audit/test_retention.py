"""Old checkpoints go, and nothing that anyone may still want to undo goes with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from audit_bench import Bench, Worker

from retinue.capabilities.audit.retention import collect, drop, is_due, retention_lock
from retinue.capabilities.audit.shadow import CheckpointError


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def stored(bench: Bench) -> set[str]:
    """Every object of the shadow repository."""
    listed = bench.shadow.git(["cat-file", "--batch-check=%(objectname)", "--batch-all-objects"])
    return set(listed.decode().split())


async def work(bench: Bench, run_id: str, name: str) -> Worker:
    """Edits a file, has a command change another and delete a third; `name` is in all of them."""
    for kind in ("edited", "changed", "deleted"):
        bench.put(f"{name}-{kind}", f"{name} {kind} before\n")
    run = bench.run(run_id)
    await run.use("read", path=f"{name}-edited")
    await run.use("edit", path=f"{name}-edited", edits=[{"old": "before", "new": "after"}])
    await run.bash(f"echo after > {name}-changed; rm {name}-deleted; echo made > {name}-made")
    run.checkpoints.close()
    return run


async def test_what_is_dropped_is_gone_and_what_is_not_can_be_undone(bench):
    old, new = await work(bench, "old", "one"), await work(bench, "new", "two")
    before = stored(bench)
    drop(bench.shadow, bench.store, ["old"])
    assert is_due(bench.shadow.folder)
    collect(bench.shadow, bench.store, grace=0)
    assert not is_due(bench.shadow.folder) and len(stored(bench)) < len(before)
    assert bench.undo(old) == {} and bench.store.forgotten(["old"]) is not None
    assert (bench.root / "one-edited").read_text() == "one edited after\n"
    assert bench.store.forgotten(["new"]) is None
    assert {path: each.fate for path, each in bench.undo(new).items()} == {
        "two-edited": "restored", "two-changed": "restored", "two-deleted": "restored", "two-made": "removed",
    }  # fmt: skip
    for kind in ("edited", "changed", "deleted"):
        assert (bench.root / f"two-{kind}").read_text() == f"two {kind} before\n"
    bench.shadow.git(["fsck", "--connectivity-only", "--no-dangling"])


async def test_the_next_checkpoint_after_it_is_whole(bench):
    """The index that makes it fast still knows of files; their contents must be there."""
    for number in range(150):  # enough for a pack
        bench.put(f"many/{number}", f"{number}\n")
    await work(bench, "old", "one")
    drop(bench.shadow, bench.store, ["old"])
    collect(bench.shadow, bench.store, grace=0)
    new = await work(bench, "new", "two")
    bench.shadow.git(["fsck", "--connectivity-only", "--no-dangling"])
    assert bench.undo(new)["two-changed"].fate == "restored"
    assert [path.name for path in (bench.shadow.folder / "index").iterdir()] != []


async def test_a_command_that_was_cut_off_can_still_be_undone(bench):
    await work(bench, "old", "one")
    file = bench.put("b", "before\n")
    cut = bench.run("cut")
    cut.checkpoints.begin("call", "echo after > b")
    file.write_text("after\n")
    drop(bench.shadow, bench.store, ["old"])
    collect(bench.shadow, bench.store, grace=0)
    assert bench.undo(bench.run("cut"))["b"].fate == "restored"
    assert file.read_text() == "before\n"


async def test_what_was_stored_within_the_last_day_stays(bench):
    """Another process may have stored it a moment ago for a run that is about to be recorded."""
    await work(bench, "old", "one")
    oid = bench.shadow.keep(b"not recorded yet")
    drop(bench.shadow, bench.store, ["old"])
    collect(bench.shadow, bench.store)
    assert oid in stored(bench)
    long_ago = time.time() - 3 * 24 * 3600
    for path in (bench.shadow.directory / "objects").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    assert bench.shadow.keep(b"not recorded yet") == oid  # asked for again: it counts as new
    collect(bench.shadow, bench.store)
    assert oid in stored(bench)


async def test_leftovers_of_killed_processes_go(bench):
    await work(bench, "old", "one")
    long_ago = time.time() - 3 * 24 * 3600
    left = [bench.shadow.folder / "index" / "dead-1", bench.shadow.folder / "making-1-2.git"]
    left[0].write_bytes(b"half")
    left[1].mkdir()
    for path in left:
        os.utime(path, (long_ago, long_ago))
    (bench.shadow.folder / "index" / "fresh-1").write_bytes(b"half")
    collect(bench.shadow, bench.store)
    assert not any(path.exists() for path in left)


async def test_without_time_everything_stays_and_is_still_due(bench):
    from retinue.capabilities.audit.shadow import Shadow

    run = await work(bench, "old", "one")
    new = await work(bench, "new", "two")
    drop(bench.shadow, bench.store, [run.author.run_id])
    with pytest.raises(CheckpointError, match="could not"):
        collect(Shadow(bench.shadow.folder, seconds=0.0001), bench.store, grace=0)
    assert is_due(bench.shadow.folder)
    assert bench.undo(new)["two-edited"].fate == "restored"


COLLECTOR = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit_bench import Bench
from retinue.capabilities.audit.retention import collect
bench = Bench(Path(sys.argv[1]))
print("now", flush=True)
collect(bench.shadow, bench.store, grace=0)
"""


def gone(session: int) -> None:
    """Returns when no process of a killed session works any more: its git may outlive its leader by a
    moment, and write."""
    while any(
        fields[3] == str(session) and fields[0] != "Z" for fields in map(stat_fields, Path("/proc").glob("[0-9]*"))
    ):
        time.sleep(0.01)


def stat_fields(process: Path) -> list[str]:
    """State, parent, group and session of a process and more; zeros for one that is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 4


async def test_a_kill_in_the_middle_costs_nothing(bench, tmp_path):
    for number in range(300):
        bench.put(f"many/{number}", f"{number}\n" * 2000)
    await work(bench, "old", "one")
    new = await work(bench, "new", "two")
    drop(bench.shadow, bench.store, ["old"])
    for wait in (0.0, 0.01, 0.03, 0.08):
        script = [sys.executable, "-c", COLLECTOR, str(tmp_path), str(Path(__file__).parent)]
        with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stdout.readline() == "now\n"
            time.sleep(wait)
            os.killpg(process.pid, signal.SIGKILL)
        gone(process.pid)
    collect(bench.shadow, bench.store, grace=0)
    bench.shadow.git(["fsck", "--connectivity-only", "--no-dangling"])
    assert bench.undo(new)["two-deleted"].fate == "restored"
    assert not list((bench.shadow.directory / "objects" / "pack").glob("tmp_*"))


@pytest.mark.parametrize("lock", ["gc.pid.lock", "objects/info/commit-graph.lock"])
async def test_locks_of_a_git_that_was_killed_stop_no_later_one(bench, lock):
    await work(bench, "old", "one")
    drop(bench.shadow, bench.store, ["old"])
    (bench.shadow.directory / lock).touch()
    collect(bench.shadow, bench.store, grace=0)
    assert not is_due(bench.shadow.folder)


def test_only_one_process_is_at_it(bench):
    with retention_lock(bench.shadow.folder) as first, retention_lock(bench.shadow.folder) as second:
        assert (first, second) == (True, False)
