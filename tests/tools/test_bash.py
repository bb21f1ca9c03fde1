"""bash: bounded in time, memory and disk, and nothing it started outlives the call."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from retinue.tools.content import MAX_FILE_BYTES, MAX_SHOWN_CHARACTERS
from retinue.tools.processes import MARK, ProcessTree, processes_by_run

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def alive(text: str) -> list[int]:
    """Processes, zombies aside, with `text` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def test_output_of_both_streams_comes_in_order(use):
    result = await use("bash", command="echo out; echo err >&2; echo again")
    assert result.text == "out\nerr\nagain"
    assert not result.is_error
    assert (result.effect.status, result.effect.exit_code) == ("finished", 0)
    assert result.effect.command == "echo out; echo err >&2; echo again"


async def test_no_output_is_said(use):
    assert (await use("bash", command="true")).text == "(no output)"


async def test_the_exit_code_is_told_and_recorded(use):
    result = await use("bash", command="echo no; exit 3")
    assert result.is_error
    assert result.text == "no\n[exit code 3]"
    assert result.effect.exit_code == 3


async def test_a_long_command_tells_how_long_it_took_and_a_short_one_does_not(use, monkeypatch):
    assert "took" not in (await use("bash", command="echo out; exit 3")).text
    monkeypatch.setattr("retinue.tools.bash.LONG_SECONDS", 0.0)
    assert (await use("bash", command="echo out; exit 3")).text == "out\n[exit code 3]\n[took 0 s]"


async def test_signals_have_names(use):
    killed = await use("bash", command="kill -SEGV $$")
    assert "SIGSEGV" in killed.text
    assert killed.effect.exit_code == 139
    assert "SIGKILL" in (await use("bash", command="bash -c 'kill -KILL $$'; exit $?")).text


async def test_every_call_is_a_new_shell_in_the_working_directory(use, root):
    (root / "sub").mkdir()
    await use("bash", command="cd sub; export X=1")
    assert (await use("bash", command="pwd; echo [$X]")).text == f"{root}\n[]"


async def test_the_environment_is_the_runs_own_and_quiet(use, context, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hush")
    context.environment = {"MINE": "yes", "PATH": os.environ["PATH"], "PAGER": "less"}
    text = (await use("bash", command="env")).text
    assert "MINE=yes" in text
    assert "PAGER=cat" in text
    assert "TERM=dumb" in text
    assert "hush" not in text


async def test_nothing_can_be_asked(use):
    result = await use(
        "bash", command="read -t 5 line; echo [$line]; (exec 3</dev/tty) 2>/dev/null || echo no terminal"
    )
    assert result.text == "[]\nno terminal"


async def test_a_vanished_working_directory_is_said(use, root):
    root.rmdir()
    result = await use("bash", command="true")
    assert result.is_error
    assert "no longer exists" in result.text


@pytest.mark.parametrize(
    "arguments", [{}, {"command": ""}, {"command": 3}, {"command": "a\0b"}, {"command": "x" * 200_000}]
)
async def test_wrong_arguments_say_what_to_send(use, arguments):
    assert (await use("bash", **arguments)).is_error


async def test_background_mode_is_refused(use, context):
    context.commands = None
    assert "foreground" in (await use("bash", command="true", run_in_background=True)).text


async def test_escape_sequences_and_progress_bars_are_cleaned(use):
    result = await use("bash", command=r"printf '\033[31mred\033[0m\n1%%\r50%%\r100%%\nbad\377byte\a\n'")
    assert result.text == "red\n100%\nbad\ufffdbyte"


async def test_output_is_streamed_while_it_runs(use, context, root):
    seen: list[tuple[str, str]] = []
    context.progress = lambda call_id, text: seen.append((call_id, text))
    task = asyncio.ensure_future(use("bash", command="echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"))
    await until(lambda: seen)
    assert seen[0] == ("call-1", "first\n")
    assert not task.done()
    (root / "go").touch()
    assert (await task).text == "first\nlast"


async def test_a_line_that_is_still_written_is_a_sign_of_life(use, context):
    seen: list[str] = []
    context.progress = lambda call_id, text: seen.append(text)
    await use("bash", command="echo -n 10%; sleep 0.15; echo -ne '\\r20%'")
    assert seen[0] == "10%"


@linux
async def test_timeout_ends_the_whole_tree(use):
    """A child, a grandchild, one in its own session, and one that ignores SIGTERM."""
    tag = f"{time.time_ns()}"
    command = (
        f"sleep 1{tag} & (sleep 2{tag} & wait) & setsid sleep 3{tag} >/dev/null 2>&1 & "
        f"bash -c 'trap \"\" TERM; while :; do sleep 0.1; done' ignores{tag} & echo started; wait"
    )
    result = await use("bash", command=command, timeout=0.5)
    assert result.is_error
    assert result.text.startswith("started\n[stopped after 0.5 s")
    assert (result.effect.status, result.effect.exit_code) == ("failed", 124)
    assert alive(tag) == []


@linux
async def test_cancelling_ends_the_whole_tree(use):
    tag = f"{time.time_ns()}"
    task = asyncio.ensure_future(use("bash", command=f"sleep 1{tag} & setsid sleep 2{tag} & sleep 3{tag}"))
    await until(lambda: len(alive(tag)) >= 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(tag) == []


@linux
async def test_cancelling_at_any_early_moment_leaves_nothing(use):
    tag = f"{time.time_ns()}"
    for number in range(12):
        task = asyncio.ensure_future(use("bash", command=f"sleep 9{tag} & sleep 8{tag}"))
        for _ in range(number):
            await asyncio.sleep(0.001)
        task.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert alive(tag) == []


@linux
async def test_a_background_process_neither_holds_the_call_nor_survives_it(use):
    tag = f"{time.time_ns()}"
    async with asyncio.timeout(10):
        result = await use("bash", command=f"sleep 60{tag} & echo done")
    assert result.text.startswith("done\n[still running in the background, and stopped: sleep 60")
    assert not result.is_error
    assert alive(tag) == []


@linux
async def test_a_daemon_with_its_own_session_and_closed_pipes_is_found_too(use):
    tag = f"{time.time_ns()}"
    result = await use("bash", command=f"setsid setsid sleep 60{tag} </dev/null >/dev/null 2>&1 & echo done")
    assert "stopped: " in result.text
    assert alive(tag) == []


async def test_late_output_of_a_quick_child_still_arrives(use):
    assert (await use("bash", command="(sleep 0.05; echo late) & echo early")).text == "early\nlate"


@linux
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
async def test_an_event_loop_that_is_torn_down_while_a_program_starts_leaves_nothing(root, steps):
    """A blocked loop: the program works while asyncio has not yet taken up its pipes."""
    tag = f"{time.time_ns()}"
    code = f"""
import asyncio, pathlib, time
from retinue.core.tool import ToolContext
from retinue.tools.base import builtin_tools

async def main():
    root = pathlib.Path({str(root)!r})
    context = ToolContext("r", (root,), root, clearance="person")
    call = builtin_tools()["bash"].run("c", {{"command": "touch started; sleep 5{tag} & sleep 6{tag}"}}, context)
    task = asyncio.ensure_future(call)
    for _ in range({steps}):
        await asyncio.sleep(0)
    tries = 100
    while not (root / "started").exists() and (tries := tries - 1):
        time.sleep(0.01)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    await until(lambda: alive(f"5{tag}") == alive(f"6{tag}") == [])


@linux
async def test_an_event_loop_that_is_torn_down_leaves_nothing(root):
    tag = f"{time.time_ns()}"
    code = f"""
import asyncio, pathlib
from retinue.core.tool import ToolContext
from retinue.tools.base import builtin_tools

async def main():
    root = pathlib.Path({str(root)!r})
    context = ToolContext("r", (root,), root, clearance="person")
    call = builtin_tools()["bash"].run("c", {{"command": "touch started; sleep 5{tag} & sleep 6{tag}"}}, context)
    task = asyncio.ensure_future(call)
    while not (root / "started").exists():
        await asyncio.sleep(0.01)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
    await until(lambda: alive(f"5{tag}") == alive(f"6{tag}") == [])


@linux
async def test_what_a_crash_left_can_be_found_by_the_run(context, use):
    tag = f"{time.time_ns()}"
    task = asyncio.ensure_future(use("bash", command=f"sleep 60{tag}"))
    await until(lambda: alive(tag))
    named = processes_by_run()
    assert all("run-1" in named[pid] for pid in alive(tag))
    assert not any("no-such-run" in runs for runs in named.values())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@linux
async def test_marks_of_nested_runs_add_up(use, context):
    context.environment = {MARK: "outer.1", "PATH": os.environ["PATH"]}
    text = (await use("bash", command=f"echo ${MARK}")).text
    assert text.startswith("outer.1,run-1.")


async def test_long_output_keeps_head_and_tail_and_the_whole_in_a_file(use, context):
    result = await use("bash", command="seq 1 20000")
    assert len(result.text) < MAX_SHOWN_CHARACTERS + 500
    assert result.text.startswith("1\n2\n3\n")
    assert result.text.endswith("19999\n20000")
    assert "20,000 lines in all" in result.text
    (stored,) = context.outputs.iterdir()
    assert str(stored) in result.text
    assert stored.read_text() == "".join(f"{n}\n" for n in range(1, 20001))
    again = await use("read", path=str(stored), offset=10000, limit=1)
    assert again.text.startswith("10000\t10000\n")


@pytest.mark.slow
async def test_100_mb_of_output_are_bounded_in_memory_and_on_disk(use, context):
    import tracemalloc

    tracemalloc.start()
    result = await use("bash", command="yes 0123456789 | head -c 100000000; echo the end")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
    assert len(result.text) < MAX_SHOWN_CHARACTERS + 500
    assert result.text.endswith("the end")
    assert "95.4MB" in result.text
    (stored,) = context.outputs.iterdir()
    assert stored.stat().st_size <= MAX_FILE_BYTES


async def test_output_that_cannot_be_stored_is_still_shown(use, context):
    context.outputs.write_text("a file is in the way")
    result = await use("bash", command="seq 1 20000")
    assert not result.is_error
    assert "could not be stored" in result.text
    assert result.text.endswith("20000")


async def test_the_loops_limit_bounds_the_timeout(use, context):
    context.tool_timeout = 0.5
    result = await use("bash", command="sleep 30", timeout=600)
    assert "stopped after 0.45 s" in result.text


async def test_many_at_once(bench, context):
    bash = bench.tool("bash")
    results = await asyncio.gather(*(bash.run(f"c{n}", {"command": f"echo {n}"}, context) for n in range(40)))
    assert [result.text for result in results] == [str(n) for n in range(40)]


@linux
async def test_members_are_found_through_ps_where_there_is_no_proc():
    if not Path("/bin/ps").exists():
        pytest.skip("no ps")
    process = await asyncio.create_subprocess_exec("bash", "-c", "sleep 50 & wait", start_new_session=True)
    tree = ProcessTree(process.pid, "nothing")
    await until(lambda: len(tree.members()) == 2)
    await until(lambda: tree._from_ps() == tree.members())
    await tree.end(1)
    await process.wait()
    assert tree._from_ps() == ()
