"""What holds for every server, shown with one that misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.capabilities.lsp import Languages
from retinue.capabilities.lsp.catalog import KNOWN_SERVERS, root_of, server_kinds
from retinue.capabilities.lsp.connection import Decoder, WireError, encode
from retinue.capabilities.lsp.protocol import TextDocument, TextPosition
from retinue.core.install import install_command
from retinue.core.tool import ToolContext
from retinue.guard.sandbox.kernel import can_sandbox
from tests.capabilities.lsp.bench import FAKE, Bench, alive, pool_of, slot_of, until

Make = Callable[..., Bench]


def faking(bench: Make, how: str, **variables: str) -> Bench:
    """A project whose `.fake` files have a server that behaves in this way. It is not in a sandbox,
    so that it can write down what a test wants to know."""
    home = {"STARTS": "", "ANSWERS": ""}
    made = bench(
        RETINUE_LSP_SERVERS=json.dumps(
            {
                "fake": {
                    "command": [sys.executable, str(FAKE), how],
                    "languages": {".fake": "fake"},
                    "settings": {"fake": {"deep": {"yes": 1}}},
                    "env": {name: variables.get(name, home[name]) for name in home},
                }
            }
        ),
        **{"RETINUE_LSP_SANDBOX": "off", **{k: v for k, v in variables.items() if k not in home}},
    )
    (made.root / "a.fake").write_text("first line\nsecond BAD line\n🍐 third\n")
    return made


async def test_privileged_actions_are_refused_by_default_and_always_in_a_child(bench: Make) -> None:
    made = faking(bench, "ok")
    for action in ("rename", "codeAction", "restart"):
        assert (await made.error(action, file="a.fake", line=1, column=1)).startswith("LSP_ACTION_NOT_ALLOWED")
    allowing = faking(bench, "ok", RETINUE_LSP_ALLOW_MUTATING_ACTIONS="true")
    allowing.context = replace(allowing.context, child=True)
    for action in ("rename", "codeAction", "restart"):
        said = await allowing.error(action, file="a.fake", line=1, column=1)
        assert said.startswith("LSP_ACTION_NOT_ALLOWED") and "another run started" in said


async def test_what_is_not_allowed_is_neither_offered_nor_done(bench: Make) -> None:
    made = faking(bench, "ok")
    tool = made.project.part(Languages).tool(("symbols",))
    assert tool.spec.parameters["properties"]["action"]["enum"] == ["symbols"]
    output = await tool.run("c", {"action": "hover", "file": "a.fake", "line": 1, "column": 1}, made.context)
    assert output.is_error and output.text.startswith("LSP_ACTION_NOT_ALLOWED")
    assert "lsp" in made.project.tools and "lsp" not in bench(RETINUE_LSP_ENABLED="false").project.tools


async def test_paths_outside_of_the_workspace_are_refused(bench: Make) -> None:
    made = faking(bench, "ok")
    (made.root.parent / "b.fake").write_text("secret")
    (made.root / "link.fake").symlink_to(made.root.parent / "b.fake")
    for path in ("../b.fake", str(made.root.parent / "b.fake"), "link.fake"):
        assert (await made.error("hover", file=path, line=1, column=1)).startswith("INVALID_INPUT")
        assert (await made.error("diagnostics", files=[path])).startswith("INVALID_INPUT")


async def test_at_most_64_files_and_2_MiB(bench: Make) -> None:
    made = faking(bench, "ok")
    for number in range(65):
        (made.root / f"{number}.fake").write_text("BAD\n")
    names = [f"{number}.fake" for number in range(65)]
    assert (await made.error("diagnostics", files=names)).startswith("INVALID_INPUT")
    assert (await made.text("diagnostics", files=names[:64])).startswith("64 warnings")
    (made.root / "large.fake").write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    assert "2 MiB" in await made.error("hover", file="large.fake", line=1, column=1)
    (made.root / "large.fake").write_bytes(b"x" * (2 * 1024 * 1024))
    assert "hover 0:0" in await made.text("hover", file="large.fake", line=1, column=1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "nonsense"},
        {"action": 7},
        {},
        {"action": "hover"},
        {"action": "hover", "file": "a.fake"},
        {"action": "hover", "file": "a.fake", "line": 0, "column": 1},
        {"action": "hover", "file": "a.fake", "line": 99, "column": 1},
        {"action": "hover", "file": "a.fake", "line": 1, "column": 99},
        {"action": "hover", "file": "a.fake", "line": "x", "column": 1},
        {"action": "hover", "file": "none.fake", "line": 1, "column": 1},
        {"action": "hover", "file": ".", "line": 1, "column": 1},
        {"action": "hover", "file": "a\0.fake", "line": 1, "column": 1},
        {"action": "diagnostics"},
        {"action": "diagnostics", "files": [1, 2]},
        {"action": "diagnostics", "files": "nonsense"},
        {"action": "symbols"},
        {"action": "diagnostics", "file": "a.fake", "severity": "awful"},
    ],
)
async def test_bad_input_is_named(bench: Make, arguments: dict[str, object]) -> None:
    made = faking(bench, "ok")
    output = await made.tool("lsp").run("c", arguments, made.context)
    assert output.is_error and output.text.startswith("INVALID_INPUT: "), output.text
    assert output.effect.code == "INVALID_INPUT"


async def test_other_spellings_are_understood(bench: Make) -> None:
    made = faking(bench, "ok")
    tool = made.tool("lsp")
    said = await tool.run("c", {"operation": "hover", "filePath": "a.fake", "line": 3, "character": 3}, made.context)
    assert "hover 2:3" in said.text, "the emoji before it takes two units of UTF-16"


async def test_files_that_no_server_is_for(bench: Make) -> None:
    made = faking(bench, "ok")
    (made.root / "a.unknown").write_text("x")
    (made.root / "a.zig").write_text("x")
    assert "no language server is known for .unknown files" in await made.error(
        "hover", file="a.unknown", line=1, column=1
    )
    said = await made.error("hover", file="a.zig", line=1, column=1)
    assert said.startswith("LSP_SERVER_NOT_FOUND") and "Install it: zls" in said
    assert "There are: fake" in await made.error("hover", file="a.fake", line=1, column=1, server="other")


async def test_without_the_extra_the_error_says_how_to_get_it(bench: Make) -> None:
    made = bench()
    (made.root / "a.py").write_text("x = 1\n")
    empty = made.root.parent / "empty"
    empty.mkdir()
    code = f"""
import asyncio, sys
from pathlib import Path
sys.executable = {str(empty / "python")!r}
sys.modules["lsprotocol"] = None
from retinue.core.tool import ToolContext
from retinue.capabilities.lsp import Languages
from retinue.cluster import open_project as opened
async def main():
    root = Path({str(made.root)!r})
    for servers in ("{{}}", '{{"mine": {{"command": ["/bin/cat"], "languages": {{".py": "python"}}}}}}'):
        held = opened(root, environment={{"PATH": "", "RETINUE_HOME": {str(empty)!r}, "RETINUE_LSP_SERVERS": servers}})
        tool = held.part(Languages).tool()
        question = {{"action": "hover", "file": "a.py", "line": 1, "column": 1}}
        output = await tool.run("c", question, ToolContext("r", (root,), root))
        print(output.text)
        await held.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert all(line.startswith("LSP_SERVER_NOT_FOUND") and install_command("lsp") in line for line in lines), lines
    assert len(lines) == 2


async def test_diagnostics_that_a_server_sends_by_itself(bench: Make) -> None:
    made = faking(bench, "ok")
    assert await made.text("diagnostics", file="a.fake") == "1 warning\na.fake:2:8 warning: bad word"
    assert await made.text("diagnostics", file="a.fake", severity="error") == "No problems found."
    (made.root / "a.fake").write_text("BAD BAD\n")
    assert await made.text("workspace-diagnostics") == "1 warning\na.fake:1:1 warning: bad word"


async def test_a_server_that_fails_stays_broken_until_it_is_restarted(bench: Make, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    made = faking(bench, "dies", STARTS=str(starts), RETINUE_LSP_ALLOW_MUTATING_ACTIONS="true")
    first = await made.error("hover", file="a.fake", line=1, column=1)
    assert first.startswith("LSP_SERVER_FAILED") and "no licence" in first
    assert "stays off until it is restarted" in await made.error("hover", file="a.fake", line=1, column=1)
    assert len(starts.read_text().split()) == 1
    assert "failed" in await made.text("servers", server="fake")
    assert "no licence" in await made.text("restart", server="fake")
    assert len(starts.read_text().split()) == 2


@pytest.mark.parametrize("how", ["noise", "huge", "silent"])
async def test_a_program_that_is_no_server_is_ended(bench: Make, tmp_path: Path, how: str) -> None:
    starts = tmp_path / "starts"
    made = faking(bench, how, STARTS=str(starts))
    made.project._parts[Languages] = Languages(made.project, start_seconds=2)
    said = await made.error("hover", file="a.fake", line=1, column=1)
    assert said.startswith(("LSP_SERVER_FAILED", "LSP_TIMEOUT"))
    await until(lambda: not any(alive(int(pid)) for pid in starts.read_text().split()))


async def test_a_question_that_kills_the_server_is_asked_twice_and_then_told(bench: Make, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    made = faking(bench, "crashes", STARTS=str(starts))
    assert (await made.error("hover", file="a.fake", line=1, column=1)).startswith("LSP_SERVER_FAILED")
    assert len(starts.read_text().split()) == 2
    assert "1 warning" in await made.text("diagnostics", file="a.fake"), "other questions go on"


async def test_no_answer_in_time_leaves_the_server_usable(bench: Make, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    made = faking(bench, "hangs", STARTS=str(starts))
    made.project._parts[Languages] = Languages(made.project, seconds=0.3)
    assert (await made.error("hover", file="a.fake", line=1, column=1)).startswith("LSP_TIMEOUT")
    assert "1 warning" in await made.text("diagnostics", file="a.fake")
    assert len(starts.read_text().split()) == 1


async def test_a_cancelled_question_leaves_the_server_usable(bench: Make) -> None:
    made = faking(bench, "hangs")
    await made.text("diagnostics", file="a.fake")
    asked = asyncio.create_task(made.ask("hover", file="a.fake", line=1, column=1))
    await asyncio.sleep(0.05)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert "1 warning" in await made.text("diagnostics", file="a.fake")
    assert slot_of(made).starts == 1


async def test_answers_of_another_shape_and_refusals_are_told(bench: Make) -> None:
    assert "violates the protocol" in await faking(bench, "wrong").error("hover", file="a.fake", line=1, column=1)
    assert "cannot do that" in await faking(bench, "refuses").text("hover", file="a.fake", line=1, column=1)
    assert "does not offer this" in await faking(bench, "ok").text("references", file="a.fake", line=1, column=1)


async def test_a_server_that_is_not_ready_is_asked_again(bench: Make) -> None:
    assert "hover 0:0" in await faking(bench, "modified").text("hover", file="a.fake", line=1, column=1)
    assert "hover 0:0" in await faking(bench, "loading").text("hover", file="a.fake", line=1, column=1)


async def test_what_a_server_asks_of_us(bench: Make, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    made = faking(bench, "asks", ANSWERS=str(answers))
    await made.text("hover", file="a.fake", line=1, column=1)
    await until(lambda: answers.exists() and len(answers.read_text().splitlines()) == 3)
    said = {each["id"]: each for each in map(json.loads, answers.read_text().splitlines())}
    assert said["q1"]["result"] == [{"yes": 1}]
    assert said["q2"]["result"]["applied"] is False
    assert said["q3"]["error"]["code"] == -32601


async def test_servers_can_change_nothing(bench: Make) -> None:
    made = faking(bench, "touch", RETINUE_LSP_SANDBOX="on")
    if not can_sandbox(made.project.settings.settings):
        said = await made.error("hover", file="a.fake", line=1, column=1)
        assert "nothing here can confine it" in said
        return
    assert "hover 0:0" in await made.text("hover", file="a.fake", line=1, column=1)
    assert not (made.root / "touched").exists()
    assert not (made.root.parent / "home" / "touched").exists()


async def test_a_killed_process_leaves_no_server_behind(bench: Make, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    made = faking(bench, "ok", STARTS=str(starts))
    code = f"""
import asyncio, os, signal
from pathlib import Path
from retinue.core.tool import ToolContext
from retinue.capabilities.lsp import Languages
from retinue.cluster import open_project as opened
async def main():
    root = Path({str(made.root)!r})
    project = opened(root, environment={dict(made.project.environment)!r})
    tool = project.part(Languages).tool()
    question = {{"action": "hover", "file": "a.fake", "line": 1, "column": 1}}
    await tool.run("c", question, ToolContext("r", (root,), root))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == -9
    (pid,) = map(int, starts.read_text().split())
    await until(lambda: not alive(pid))


async def test_servers_of_a_projects_files_need_consent(bench: Make) -> None:
    made = bench()
    (made.root / ".retinue").mkdir()
    servers = {"evil": {"command": ["/bin/sh"], "languages": {".py": "python"}}}
    (made.root / ".retinue" / "settings.json").write_text(json.dumps({"lsp": {"servers": servers, "sandbox": "off"}}))
    assert [kind.name for kind in pool_of(made).kinds] == [kind.name for kind in KNOWN_SERVERS]
    assert not pool_of(made).trusting


def test_settings_change_known_servers_and_add_others() -> None:
    kinds = server_kinds(
        {
            "ty": {"disabled": True},
            "mine": {
                "command": ["mine", "--stdio"],
                "languages": {"py": "python", "*.pyx": "cython"},
                "rootMarkers": ["m"],
            },
            "nothing": {},
        }
    )
    by_name = {kind.name: kind for kind in kinds}
    assert not by_name["ty"].enabled
    assert by_name["mine"].argv == ("mine", "--stdio")
    assert by_name["mine"].languages == {".py": "python", ".pyx": "cython"}
    assert "nothing" not in by_name
    assert len(by_name) == len(kinds)


def test_a_root_is_the_nearest_marker_and_never_outside(tmp_path: Path) -> None:
    kind = next(kind for kind in KNOWN_SERVERS if kind.name == "ty")
    (tmp_path / "pyproject.toml").touch()
    work = tmp_path / "work"
    (work / "inner" / "deep").mkdir(parents=True)
    assert root_of(kind, work / "inner" / "deep" / "a.py", work) == work
    (work / "inner" / "pyproject.toml").touch()
    assert root_of(kind, work / "inner" / "deep" / "a.py", work) == work / "inner"


@given(st.text(), st.data())
def test_places_come_back_as_they_went(text: str, data: st.DataObject) -> None:
    document = TextDocument(text)
    line = data.draw(st.integers(0, len(document.lines) - 1))
    column = data.draw(st.integers(0, len(document.lines[line])))
    for encoding in ("utf-8", "utf-16", "utf-32"):
        units = document.to_units(TextPosition(line, column), encoding)
        assert document.to_spot(line, units, encoding) == TextPosition(line, column)


@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text(), max_size=3), max_size=5), st.integers(1, 20))
def test_messages_survive_being_cut_anywhere(messages: list[dict[str, object]], size: int) -> None:
    wire = b"".join(encode(message) for message in messages)
    decoder = Decoder()
    found = [each for at in range(0, len(wire), size) for each in decoder.feed(wire[at : at + size])]
    assert found == [{"jsonrpc": "2.0", **message} for message in messages]


@given(st.binary(max_size=300))
def test_garbage_on_the_wire_is_an_error_or_nothing(data: bytes) -> None:
    decoder = Decoder()
    try:
        for message in decoder.feed(data):
            assert isinstance(message, dict)
    except WireError:
        pass


def test_importing_the_tool_loads_no_protocol_library() -> None:
    code = (
        "import sys, retinue.capabilities.lsp.tool\n"
        "heavy = {'lsprotocol', 'attrs', 'cattrs'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})


def test_the_context_says_who_is_a_child(tmp_path: Path) -> None:
    assert not ToolContext("r", (tmp_path,), tmp_path).child
