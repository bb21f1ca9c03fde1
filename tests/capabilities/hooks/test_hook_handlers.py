"""Handlers that really run: programs with and without a shell, a web server, functions."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.capabilities.hooks.sources import from_callable
from retinue.core.permission import NO_OPINION

ASKED = {"tool_name": "bash", "tool_input": {"command": "rm x"}, "tool_use_id": "c1"}


async def fire(bus: Any, event: str = "PreToolUse", subject: str = "bash", payload: Any = ASKED) -> Any:
    async with asyncio.timeout(30):
        return await bus.fire(event, subject, payload)


async def test_a_program_gets_everything_on_standard_input(bench: Any) -> None:
    seen = bench.folder / "seen.json"
    bus = bench.bus(bench.hook(command=f"cat > {seen}"))
    assert bus.listens("PreToolUse")
    assert not bus.listens("PostToolUse")
    assert await fire(bus) == NO_OPINION
    said = json.loads(seen.read_text())
    assert said["hook_event_name"] == "PreToolUse"
    assert said["tool_name"] == "Bash"
    assert said["tool_input"] == {"command": "rm x"}
    for name in ("session_id", "run_id", "agent_id", "agent_type", "parent_id", "transcript_path", "cwd"):
        assert said[name], name
    assert said["permission_mode"] == "default"


async def test_exec_form_has_no_shell_and_shell_form_has_one(bench: Any) -> None:
    script = bench.script("args.sh", '#!/bin/sh\nprintf "%s|" "$@" >&2\nexit 2\n')
    bare = await fire(bench.bus(bench.hook(command=script, args=["$HOME", "a b", "; touch x"])))
    assert bare.reason == "$HOME|a b|; touch x|"
    assert not (bench.folder / "x").exists()
    shell = await fire(bench.bus(bench.hook(command=f"{script} $HOME 'a b'")))
    assert shell.reason == f"{bench.folder}|a b|"


async def test_points_of_codingcode_run_without_a_shell_in_their_words(bench: Any) -> None:
    out = bench.folder / "seen"
    script = bench.script("p.py", f"#!{sys.executable}\nimport sys\nopen({str(out)!r}, 'w').write(sys.stdin.read())\n")
    bus = bench.bus(bench.hook("tool.approval.pre", type="decision", command=script))
    assert (await fire(bus)).verdict is None
    said = json.loads(out.read_text())
    assert (said["toolName"], said["point"]) == ("execute_command", "tool.approval.pre")


async def test_env_is_honoured_and_the_project_is_named(bench: Any) -> None:
    bus = bench.bus(bench.hook(command='echo "$MINE $CLAUDE_PROJECT_DIR" >&2; exit 2', env={"MINE": "yes"}))
    assert (await fire(bus)).reason == f"yes {bench.folder}"
    placed = bench.bus(bench.hook(command="/bin/sh", args=["-c", "echo ${CLAUDE_PROJECT_DIR} >&2; exit 2"]))
    assert (await fire(placed)).reason == str(bench.folder)


async def test_a_disabled_handler_is_none(bench: Any) -> None:
    from retinue.capabilities.hooks.sources import from_spec
    from retinue.core.spec import HookSpec

    for raw in ({"command": "exit 2", "enabled": False}, {"command": "exit 2", "disabled": True}):
        assert from_spec(HookSpec("PreToolUse", raw), source="", dialect="claude") == ([], None)


async def test_a_missing_program_blocks_and_says_which(bench: Any) -> None:
    result = await fire(bench.bus(bench.hook(command="/no/such/guard", args=[])))
    assert result.verdict == "deny"
    assert "/no/such/guard" in result.reason
    assert "cannot be started" in result.reason
    assert bench.reports == list(result.failures)


async def test_a_missing_program_that_observes_is_only_reported(bench: Any) -> None:
    result = await fire(bench.bus(bench.hook("PostToolUse", command="/no/such/thing", args=[])), "PostToolUse")
    assert result.verdict is None
    assert len(bench.reports) == 1


async def test_fail_open_lets_it_happen_and_reports(bench: Any) -> None:
    result = await fire(bench.bus(bench.hook(command="/no/such/guard", args=[]), fail_open=True))
    assert result.verdict is None
    assert "/no/such/guard" in bench.reports[0]
    blocked = await fire(bench.bus(bench.hook(command="exit 2"), fail_open=True))
    assert blocked.verdict == "deny"


async def test_a_hanging_hook_is_ended_with_all_it_started_and_blocks(bench: Any) -> None:
    pids = bench.folder / "pids"
    stubborn = f"(trap '' TERM; echo $BASHPID >> {pids}; sleep 300) &"
    line = f"{stubborn} echo $$ >> {pids}; setsid sleep 300 & echo $! >> {pids}; wait"
    result = await fire(bench.bus(bench.hook(command=line, timeout=0.5)))
    assert result.verdict == "deny"
    assert "did not answer within 0.5 seconds" in result.reason
    assert "PreToolUse hook '(trap" in result.reason
    assert [pid for pid in pids.read_text().split() if alive(int(pid))] == []


async def test_cancelling_ends_the_hook_too(bench: Any) -> None:
    pids = bench.folder / "pids"
    task = asyncio.create_task(fire(bench.bus(bench.hook(command=f"echo $$ > {pids}; sleep 300"))))
    async with asyncio.timeout(20):
        while not (pids.exists() and pids.read_text().strip()):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(int(pids.read_text()))


async def test_a_daemon_that_a_hook_leaves_does_not_outlive_it(bench: Any) -> None:
    pids = bench.folder / "pids"
    assert (await fire(bench.bus(bench.hook(command=f"sleep 300 & echo $! > {pids}")))).verdict is None
    assert not alive(int(pids.read_text()))


async def test_a_flood_and_unread_input_do_no_harm(bench: Any) -> None:
    big = {**ASKED, "tool_input": {"command": "x" * 3_000_000}}
    assert (await fire(bench.bus(bench.hook(command="true")), payload=big)).verdict is None
    flood = await fire(bench.bus(bench.hook(command="head -c 3000000 /dev/zero | tr '\\0' x")))
    assert flood.verdict == "deny"
    assert "more than 1024 KiB" in flood.reason


async def test_bytes_that_are_no_text_are_no_crash(bench: Any) -> None:
    assert (await fire(bench.bus(bench.hook(command="printf '\\xff\\xfe'")))).verdict == "deny"
    odd = {"tool_name": "bash", "tool_input": {"command": "\ud800", "n": 2**70}}
    assert (await fire(bench.bus(bench.hook(command="cat >/dev/null")), payload=odd)).verdict is None


async def test_handlers_run_at_the_same_time_and_identical_ones_once(bench: Any) -> None:
    count = bench.folder / "count"
    # Each waits for the other: one after the other they would never end.
    meet = "touch {0}/{1}; while [ ! -e {0}/{2} ]; do sleep 0.01; done; echo x >> {0}/count"
    one = bench.hook(command=meet.format(bench.folder, "a", "b"))
    two = bench.hook(command=meet.format(bench.folder, "b", "a"))
    again = bench.hook(command=meet.format(bench.folder, "a", "b"), matcher="Bash")
    assert (await fire(bench.bus(one, two, again))).verdict is None
    assert count.read_text() == "x\nx\n"


async def test_lower_priority_numbers_come_first(bench: Any) -> None:
    def says(number: int) -> str:
        return f'echo \'{{"modifiedInput": {{"command": "{number}"}}}}\''

    handlers = [bench.hook(command=says(number), priority=number, dialect="retinue") for number in (5, -1, 3)]
    assert (await fire(bench.bus(*handlers))).updated_input == {"command": "-1"}


async def test_a_changed_input_comes_back_in_the_words_of_our_tool(bench: Any) -> None:
    said = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"file_path": "b", "content": "c"}}}
    bus = bench.bus(bench.hook(command=f"echo '{json.dumps(said)}'"))
    result = await fire(
        bus, subject="write", payload={"tool_name": "write", "tool_input": {"path": "a", "content": "c"}}
    )
    assert result.updated_input == {"path": "b", "content": "c"}


async def test_long_output_is_cut_and_the_rest_is_in_a_file(bench: Any) -> None:
    bus = bench.bus(bench.hook("SessionStart", command="head -c 20000 /dev/zero | tr '\\0' x"))
    result = await fire(bus, "SessionStart", "startup", {})
    assert len(result.context) == 10_000
    place = Path(result.context.rpartition(" in ")[2].rstrip("]"))
    assert place.read_text() == "x" * 20_000


async def test_an_async_handler_is_not_waited_for_and_ends_with_the_bus(bench: Any) -> None:
    pids = bench.folder / "pids"
    bus = bench.bus(bench.hook(command=f"echo $$ > {pids}; sleep 300", **{"async": True}))
    assert await fire(bus) == NO_OPINION
    async with asyncio.timeout(20):
        while not (pids.exists() and pids.read_text().strip()):
            await asyncio.sleep(0.01)
    await bus.close()
    assert not alive(int(pids.read_text()))
    assert not bus.listens("PreToolUse")
    assert await fire(bus) == NO_OPINION


async def test_http(bench: Any, web: Any) -> None:
    web.answer = lambda payload: (200, json.dumps({"decision": "block", "reason": payload["tool_name"]}))
    headers = {"Authorization": "Bearer $TOKEN", "X-Other": "${OTHER}"}
    bus = bench.bus(bench.hook(type="http", url=web.url, headers=headers, allowedEnvVars=["TOKEN"]))
    result = await fire(bus)
    assert (result.verdict, result.reason) == ("deny", "Bash")
    sent, payload = web.requests[0]
    assert (sent["authorization"], sent["x-other"], sent["content-type"]) == ("Bearer t0p", "", "application/json")
    assert payload["run_id"] == "run"


async def test_http_that_fails_is_a_no_for_a_guard(bench: Any, web: Any) -> None:
    web.answer = lambda payload: (500, "oops")
    broken = await fire(bench.bus(bench.hook(url=web.url)))
    assert (broken.verdict, "500" in broken.reason) == ("deny", True)
    web.answer = lambda payload: (web.over.wait(20), (200, ""))[1]
    slow = await fire(bench.bus(bench.hook(url=web.url, timeout=0.2)))
    assert (slow.verdict, "0.2 seconds" in slow.reason) == ("deny", True)
    nobody = await fire(bench.bus(bench.hook(url="http://127.0.0.1:9/x")))
    assert nobody.verdict == "deny"
    assert (await fire(bench.bus(bench.hook(url="no url")))).verdict == "deny"


async def test_http_with_nothing_to_say_has_no_opinion(bench: Any, web: Any) -> None:
    assert (await fire(bench.bus(bench.hook(url=web.url)))).verdict is None


@pytest.mark.parametrize("is_async", [True, False])
async def test_functions(bench: Any, is_async: bool) -> None:
    seen: list[dict[str, Any]] = []

    def plain(payload: dict[str, Any]) -> dict[str, Any]:
        seen.append(payload)
        return {"decision": "deny", "reason": "no"}

    async def coroutine(payload: dict[str, Any]) -> dict[str, Any]:
        return plain(payload)

    (one,) = from_callable("PreToolUse", coroutine if is_async else plain, matcher="Bash")
    result = await fire(bench.bus(one))
    assert (result.verdict, result.reason) == ("deny", "no")
    assert seen[0]["tool_name"] == "bash"


async def test_functions_that_break_are_a_no_for_a_guard(bench: Any) -> None:
    def breaks(payload: Any) -> Any:
        raise RuntimeError("out of order")

    def leaves(payload: Any) -> Any:
        raise SystemExit(3)

    async def hangs(payload: Any) -> Any:
        await asyncio.Event().wait()

    for function, why in ((breaks, "out of order"), (leaves, "SystemExit"), (hangs, "0.1 seconds"), (len, "object")):
        (one,) = from_callable("PreToolUse", function, timeout=0.1)
        result = await fire(bench.bus(one))
        assert result.verdict == "deny", function
        assert why in result.reason


async def test_a_function_named_in_a_file(bench: Any) -> None:
    echoed = await fire(bench.bus(bench.hook(python="json:dumps")))
    assert echoed.verdict == "deny", "what it gives back is an object, and no answer"
    missing = await fire(bench.bus(bench.hook(python="no_such_module:check")))
    assert "no_such_module" in missing.reason


async def test_what_cannot_be_run_guards_by_refusing(bench: Any) -> None:
    result = await fire(bench.bus(bench.hook(type="prompt", prompt="is it safe?")))
    assert result.verdict == "deny"
    assert "not supported" in result.reason


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in ("Z", "X")
