"""Commands in the background: started in the same walls, read by id, stopped, and never longer than their run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from retinue.core.events import ToolEnded
from retinue.core.tool import ToolOutput
from retinue.testing import Call, ScriptedModel, ToolBench, Turn, drive
from retinue.tools.bash import MAX_COMMANDS, BackgroundCommands


async def run(bench: ToolBench, name: str, **arguments: Any) -> ToolOutput:
    return await bench.tool(name).run("call-1", arguments, bench.context)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


async def test_a_command_goes_on_is_read_piece_by_piece_and_tells_its_end(tmp_path: Path) -> None:
    bench = ToolBench(tmp_path / "work")
    go = bench.root / "go"
    command = f"echo first; while [ ! -e {go} ]; do sleep 0.05; done; echo second; exit 3"
    started = await run(bench, "bash", command=command, run_in_background=True)
    assert "shell-1 still running in the background" in started.text
    go.touch()
    ended = await run(bench, "bash_output", id="shell-1", wait=30)
    assert "second" in ended.text and "[shell-1 ended with exit code 3]" in ended.text
    assert "first" in started.text + ended.text and (started.text + ended.text).count("second") == 1
    again = await run(bench, "bash_output", id="shell-1")
    assert again.text.startswith("(no new output)")
    assert (bench.context.outputs / "shell-1.txt").read_text() == "first\nsecond\n"


async def test_stopping_ends_everything_the_command_started(tmp_path: Path) -> None:
    bench = ToolBench(tmp_path / "work")
    command = "sleep 1000 & echo $! > child; echo $$ > own; wait"
    await run(bench, "bash", command=command, run_in_background=True)
    pids = await _pids(bench.root)
    stopped = await run(bench, "bash_output", id="1", stop=True)
    assert "[shell-1 stopped]" in stopped.text
    assert not any(map(is_alive, pids))


async def test_the_end_of_a_run_ends_what_it_left_at_work(tmp_path: Path) -> None:
    bench = ToolBench(tmp_path / "work")
    await run(bench, "bash", command="echo $$ > own; echo $$ > child; sleep 1000", run_in_background=True)
    pids = await _pids(bench.root)
    assert isinstance(bench.context.commands, BackgroundCommands)
    assert len(await bench.context.commands.close()) == 1
    assert not any(map(is_alive, pids))


async def test_only_so_many_commands_run_at_once_and_the_list_names_them(tmp_path: Path) -> None:
    bench = ToolBench(tmp_path / "work")
    for _ in range(MAX_COMMANDS):
        await run(bench, "bash", command="sleep 1000", run_in_background=True)
    refused = await run(bench, "bash", command="sleep 1000", run_in_background=True)
    assert refused.is_error and "are at work already" in refused.text
    listed = await run(bench, "bash_output")
    assert listed.text.count("still running") == MAX_COMMANDS
    await bench.close()


async def test_claude_codes_names_for_it_work_through_the_loop(tmp_path: Path) -> None:
    bench = ToolBench(tmp_path / "work")
    model = ScriptedModel(
        Turn(Call("Bash", {"command": "echo hi; sleep 1000", "run_in_background": True})),
        Turn(Call("BashOutput", {"bash_id": "shell-1", "filter": "x"})),
        Turn(Call("KillShell", {"shell_id": "shell-1"})),
        "ok",
    )
    tools = [bench.tool("bash"), bench.tool("bash_output")]
    texts: list[str] = []

    def keep(body) -> None:
        if isinstance(body, ToolEnded):
            texts.append(body.result.text)

    await asyncio.gather(_drive(model, tools, bench, keep))
    assert "still running" in texts[0] and "[shell-1 stopped]" in texts[2]


async def _drive(model, tools, bench, keep) -> None:
    before = asyncio.all_tasks()
    try:
        await drive(model, tools=tools, context=bench.context, watch=keep)
    finally:
        await bench.close()
        assert asyncio.all_tasks() <= before


async def _pids(root: Path) -> list[int]:
    for _ in range(600):
        texts = [path.read_text().strip() for name in ("child", "own") if (path := root / name).exists()]
        if len(texts) == 2 and all(texts):
            return [int(text) for text in texts]
        await asyncio.sleep(0.05)
    raise AssertionError("the command did not start")


async def test_a_run_that_cannot_read_background_commands_is_told_not_to_start_them(tmp_path: Path) -> None:
    bench = ToolBench(tmp_path / "work")
    bench.context.commands = None
    refused = await run(bench, "bash", command="sleep 1000", run_in_background=True)
    assert refused.is_error and "Run it in the foreground" in refused.text
    bench.context.tool_timeout = 0.1
    late = await run(bench, "bash", command="sleep 1000")
    assert "Do less at once]" in late.text
