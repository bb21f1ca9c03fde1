"""What survives a compaction: the task, the list, the agents, the files, the newest turns, and no stale words."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.events import Compacted
from retinue.core.messages import ToolMessage, UserMessage
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.tool import ToolContext, ok
from retinue.loop import Compaction
from retinue.testing import SCRIPTED, Call, FakeTool, ScriptedModel, ToolBench, Turn, drive

TASK = "Fix app.py. Never touch b.txt. The code word is tangerine."
LIST = "Your list of what is to be done (todo): [ ] Fix app.py"
SMALL = replace(SCRIPTED, window=10_000)
STARTED = "Agent started in the background.\nAgent ID: 1234-abcd\n" + "what it was told " * 60


def reminder() -> str:
    return f"{LIST}\n\nThese agents that you started are still at work: 1234-abcd"


def tools(root: Path) -> list[object]:
    (root / "app.py").write_text("x = 1\n")
    for n in range(8):
        (root / f"big{n}.txt").write_text(f"line {n} of text\n" * 500)
    return [*(ToolBench(root).tool(name) for name in ("read", "edit", "bash")), FakeTool("Agent", lambda **_: STARTED)]


def work() -> list[Turn]:
    return [
        Turn(Call("Agent", {"prompt": "look"})),
        Turn(Call("edit", {"path": "app.py", "old_string": "x = 1", "new_string": "x = 2"})),
        Turn(Call("bash", {"command": "echo tests passed; exit 3"})),
        *[Turn(f"reading {n}", Call("read", {"path": f"big{n}.txt"})) for n in range(8)],
    ]


async def run_it(root: Path, *turns: object, answer: str = "done", **options: object):
    context = ToolContext("run-1", (root,), root / "outputs", clearance="person")
    model = ScriptedModel(*turns, answer, info=SMALL)
    run = await drive(model, TASK, tools=tools(root), context=context, remind=reminder, **options)
    return run, model


def said(request: object) -> str:
    texts = []
    for message in request.messages:  # type: ignore[attr-defined]
        if isinstance(message, ToolMessage):
            texts += [result.text for result in message.results]
        else:
            texts.append(message.text)
    return "\n".join(texts)


async def test_pruning_keeps_everything_that_matters_and_says_each_thing_once(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    run, model = await run_it(root, *work(), compaction=Compaction(keep_turns=1))
    assert len(run.of(Compacted)) >= 2 and {each.method for each in run.of(Compacted)} == {"pruned"}
    last = said(model.requests[-1])
    assert TASK in last and "Agent ID: 1234-abcd" in last and "tests passed" in last
    assert last.count(LIST) == 1, "a reminder is replaced, never piled up"
    assert f"Files you changed: {root}/app.py" in last
    assert f"{root}/big0.txt" in last, "what was read is named"


async def test_a_pruned_output_invites_a_second_call_only_where_that_is_harmless(tmp_path: Path) -> None:
    run, _ = await run_it(tmp_path.resolve(), *work(), compaction=Compaction(keep_turns=1))
    results = {r.name: r.text for m in run.messages if isinstance(m, ToolMessage) for r in reversed(m.results)}
    pruned = [r for m in run.messages if isinstance(m, ToolMessage) for r in m.results if "to save space" in r.text]
    advice = {result.name: result.text for result in pruned}
    assert "Call the tool again if you need it" in advice["read"]
    assert "do not repeat it to see the output" in advice["Agent"] and "again" not in advice["Agent"]
    assert results["bash"]


async def test_the_exit_code_and_the_last_words_of_a_pruned_command_stay(tmp_path: Path) -> None:
    """P5: a test run says at its end what came of it."""
    failed = Turn(Call("bash", {"command": "echo collected; seq 1 400; echo 3 failed; exit 1"}))
    reads = [Turn(Call("read", {"path": f"big{n}.txt"})) for n in range(5)]
    run, _ = await run_it(tmp_path.resolve(), failed, *reads, compaction=Compaction(keep_turns=1))
    (text,) = [r.text for m in run.messages if isinstance(m, ToolMessage) for r in m.results if r.name == "bash"]
    assert "to save space" in text
    assert "collected" in text and "3 failed" in text and "[exit code 1]" in text


async def test_the_summariser_knows_the_task_and_the_turns_that_stay(tmp_path: Path) -> None:
    chatter = [Turn("word " * 1_500 + str(n), Call("bash", {"command": f"echo {n}"})) for n in range(5)]
    turns = [*chatter, Turn("## Decided\nnothing new")]
    run, model = await run_it(tmp_path.resolve(), *turns, compaction=Compaction(keep_turns=1))
    asked = next(request for request in model.requests if request.system.startswith("You shorten"))
    stays, gone = asked.messages[0].text.split("</stays>")
    assert TASK in stays and "echo 4" in stays
    assert TASK not in gone and "echo 0" in gone
    [compacted, *_] = run.of(Compacted)
    texts = [message.text for message in compacted.messages if isinstance(message, UserMessage)]
    assert texts[0] == TASK and "## Decided" in texts[1] and LIST in texts[1]


@pytest.mark.parametrize("share", [0.3, 0.45])
async def test_a_low_threshold_does_not_prune_every_turn_for_nothing(tmp_path: Path, share: float) -> None:
    run, _ = await run_it(tmp_path.resolve(), *work(), compaction=Compaction(at=share, keep_turns=1))
    for compacted in run.of(Compacted):
        assert compacted.tokens_after < 0.9 * compacted.tokens_before


async def test_files_that_were_written_are_named_before_those_that_were_only_read() -> None:
    effect = ToolEffect(reads=("/p/a.py", "/p/b.py"), writes=(TouchedPath("/p/a.py"),))
    tool = FakeTool("look", lambda **_: replace(ok("line of text\n" * 900), effect=effect))
    model = ScriptedModel(*[Turn(Call("look", {"n": n})) for n in range(4)], "done", info=SMALL)
    run = await drive(model, TASK, tools=[tool], compaction=Compaction(keep_turns=1))
    [compacted, *_] = run.of(Compacted)
    text = "\n".join(message.text for message in compacted.messages if isinstance(message, UserMessage))
    assert "Files you changed: /p/a.py\nFiles you read: /p/b.py" in text
