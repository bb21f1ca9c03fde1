"""Tool calls as people read them: what they are about, without JSON; agents at work; the list of things to do."""

from __future__ import annotations

import pytest

from retinue.core.events import Compacted, RunEnded, TodosUpdated, ToolStarted, TurnEnded
from retinue.core.messages import ToolCall
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import IN_BACKGROUND
from retinue.core.tool import Todo
from retinue.core.usage import Usage
from retinue.frontends.tui.board.calls import agent_lines, arguments, heading, result_for_people, todo_lines
from retinue.frontends.tui.chat.folded import AgentBlock, Checklist, ToolBlock
from tests.frontends.tui.cards import Story
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.test_chat import Page, result
from tests.frontends.tui.watch_scene import picture, until, watching


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("grep", {"pattern": "login", "path": "src/auth.py"}, "grep login in src/auth.py"),
        ("grep", {"pattern": "login", "path": "."}, "grep login"),
        ("Grep", {"pattern": "login", "path": "src", "glob": "*.py"}, "Grep login in src (*.py)"),
        ("find", {"pattern": "*.md", "path": "docs"}, "find *.md in docs"),
        ("read", {"path": "a.py"}, "read a.py"),
        ("read", {"path": "a.py", "offset": 10, "limit": 50}, "read a.py:10-59"),
        ("read", {"path": "a.py", "offset": 10}, "read a.py:10-"),
        ("bash", {"command": "make test\n", "timeout": 5}, "bash make test"),
        ("edit", {"path": "a.py", "old_string": "x", "new_string": "y"}, "edit a.py"),
        ("Agent", {"description": "Compare", "prompt": "…", "subagent_type": "Explore"}, "Explore Compare"),
        ("get_subagent_result", {"agent_id": "ab12"}, "result of agent ab12"),
        ("ask_user", {"question": "Which one?"}, "question Which one?"),
        ("mcp__docs__look_up", {"topic": "tables", "limit": 3}, "mcp__docs__look_up tables"),
        ("odd", {"deep": {"a": 1}}, "odd"),
    ],
)  # fmt: skip
def test_the_line_of_a_call_says_what_it_is_about(tool: str, given: dict, said: str) -> None:
    assert heading(ToolCall("c", tool, given)) == said


def test_opened_arguments_are_words_and_never_json() -> None:
    given = {"query": "x", "deep": {"a": [1, 2], "b": "one\ntwo"}, "exact": True, "none": None, "rows": [{"k": "v"}]}
    assert arguments(ToolCall("c", "odd", given)).plain == (
        "deep:\n  a: 1, 2\n  b:\n    one\n    two\nexact: yes\nrows:\n  1:\n    k: v"
    )
    assert arguments(ToolCall("c", "bash", {"command": "ls -l\npwd"})).plain == "$ ls -l\npwd"
    assert arguments(ToolCall("c", "grep", {"pattern": "x", "path": "a", "ignore_case": True})).plain == (
        "ignore case: yes"
    )


def test_the_result_of_an_agent_has_no_prose_for_the_model() -> None:
    told = (
        "Agent completed in 4.1s (3 tool uses, 12.4k token).\nAgent ID: ab12\nType: Explore\n\n"
        "Found **two** places.\n\nBoth in src/.\n\n"
        "Everything it produced is above; there is nothing more to fetch. To go on, resume it."
    )
    assert result_for_people(told) == "Found **two** places.\n\nBoth in src/."
    assert result_for_people("Just words.\n\nAnd more.") == "Just words.\n\nAnd more."


def agent(status: str, turns: int, uses: int, tokens: int, limit: int | None = None, **more) -> Story:
    told = Story()
    told.start("a", background=False, call_id="c9", limits={"max_turns": limit})
    for number in range(uses):
        told.call("a", "read", f"t{number}")
        told.called("a", "read", f"t{number}")
    for _ in range(more.pop("compactions", 0)):
        told.tell("a", Compacted("auto", "summarised", 9, 1, ()))
    told.now += more.pop("seconds", 0.0)
    told.tell("a", TurnEnded(turns, Usage(tokens), Usage(tokens), more.pop("context", 620)))
    if status == "running":
        told.call("a", "grep", "now")
        for number in range(3):
            told.call("a", "read", f"n{number}")
    else:
        told.tell("a", RunEnded(Outcome(status, turns=turns, **more)))  # type: ignore[arg-type]
    return told


TIMEOUT = Failure("timeout", "timeout")


@pytest.mark.parametrize(
    ("story", "drawn"),
    [
        (agent("running", 3, 3, 12_400, 30, context=80), ["⠹ ↻3≤30 · 3 tool uses · 12.4k token (8%)",
                                                          "⎿ searching, reading 3 files…"]),
        (agent("completed", 8, 5, 33_800, seconds=12.3), ["✓ ↻8 · 5 tool uses · 33.8k token (62%) · 12.3s", "⎿ Done"]),
        (agent("steered", 50, 50, 89_100, 50, compactions=2, context=840, seconds=45.2),
         ["✓ ↻50≤50 · 50 tool uses · 89.1k token (84% · ⇊2) · 45.2s", "⎿ Wrapped up (turn limit)"]),
        (agent("stopped", 3, 3, 12_400, context=80), ["■ ↻3 · 3 tool uses · 12.4k token (8%)", "⎿ Stopped"]),
        (agent("error", 3, 3, 12_400, context=80, failure=TIMEOUT),
         ["✗ ↻3 · 3 tool uses · 12.4k token (8%)", "⎿ Error: timeout"]),
        (agent("aborted", 55, 55, 102_300, 50, compactions=3, context=950),
         ["✗ ↻55≤50 · 55 tool uses · 102.3k token (95% · ⇊3)", "⎿ Aborted (max turns exceeded)"]),
    ],
    ids=["running", "completed", "wrapped up", "stopped", "error", "aborted"],
)  # fmt: skip
def test_an_agent_is_drawn_as_codingcode_draws_it(story: Story, drawn: list[str]) -> None:
    card = story.board.cards["a"]
    assert [line.plain for line in agent_lines(card, story.now, lambda model: 1_000, frame=2)] == drawn


async def test_the_line_of_a_foreground_agent_lives_and_ends() -> None:
    app = Page()
    story = agent("running", 3, 3, 12_400)
    app.chat._board = story.board
    call = ToolCall("c9", "Agent", {"description": "Compare callers", "prompt": "p", "subagent_type": "Explore"})
    async with app.run_test(size=(80, 24)) as pilot:
        app.push(ToolStarted(call))
        await until(pilot, lambda: "● Explore Compare callers" in picture(app))
        app.chat.paint(story.now, lambda model: None, motion=False)
        await until(pilot, lambda: "⎿ searching, reading 3 files…" in picture(app))
        assert "● ↻3 · 3 tool uses · 12.4k token" in picture(app)
        story.now += 2
        story.tell("a", RunEnded(Outcome("completed", "Two **callers**.", turns=3)))
        told = "Agent completed in 2.0s (3 tool uses).\nAgent ID: a\n\nTwo callers.\n\nEverything it produced is above."
        app.push(result(call, told))
        await until(pilot, lambda: "⎿ Done" in picture(app))
        assert "✓ ↻3 · 7 tool uses" not in picture(app) and "✓ ↻3 · 3 tool uses · 12.4k token · 2.0s" in picture(app)
        app.query_one(AgentBlock).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "Two callers." in picture(app))
        assert "Everything it produced" not in picture(app) and "Agent ID" not in picture(app)


async def test_an_agent_in_the_background_says_so_and_is_not_drawn_again() -> None:
    app = Page()
    call = ToolCall("c9", "Agent", {"description": "Compare callers", "prompt": "p"})
    async with app.run_test(size=(80, 24)) as pilot:
        told = "Agent started in the background.\nAgent ID: a\nType: Explore\n\nYou will be notified when it ends."
        app.push(ToolStarted(call), result(call, told, effect=IN_BACKGROUND))
        await until(pilot, lambda: "⎿ works in the background" in picture(app))
        assert app.query_one(AgentBlock).result is not None


async def test_a_long_change_shows_its_first_lines_until_it_is_opened() -> None:
    app = Page()
    content = "\n".join(f"line {number}" for number in range(30))
    call = ToolCall("c1", "write", {"path": "a.py", "content": content})
    async with app.run_test(size=(80, 50)) as pilot:
        app.push(ToolStarted(call), result(call, "Wrote a.py."))
        await until(pilot, lambda: "✓ write a.py · +30" in picture(app))
        await until(pilot, lambda: "… 20 more lines" in picture(app))
        assert "+line 9" in picture(app) and "+line 10" not in picture(app)
        app.query_one(ToolBlock).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "+line 29" in picture(app) and "Wrote a.py." in picture(app))


def todos(*states: str) -> tuple[Todo, ...]:
    return tuple(Todo(f"step {number}", state, f"doing {number}") for number, state in enumerate(states))  # type: ignore[arg-type]


def test_a_checklist_has_a_sign_for_each_state_and_counts_what_is_done() -> None:
    lines = [line.plain for line in todo_lines(todos("completed", "in_progress", "pending"), 60)]
    assert lines == ["To do · 1 of 3 done", "  ☑ step 0", "  ▶ doing 1", "  ☐ step 2"]
    long = [line.plain for line in todo_lines(todos(*["completed"] * 20, "in_progress", *["pending"] * 20), 60)]
    assert long[1] == "  ☑ 20 done before" and long[2] == "  ▶ doing 20" and long[-1] == "  … 9 more"
    nasty = todo_lines((Todo("a\nb\x1b[31m[bold]c", "pending"),), 60)
    assert nasty[1].plain == "  ☐ a b[bold]c"


async def test_todo_is_one_checklist_updated_in_place(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        model = scene.model("go")
        await model.asked()
        steps = [{"content": "Read it", "status": "in_progress"}, {"content": "Change it", "status": "pending"}]
        model.call("todo", todos=steps)
        await until(pilot, lambda: "To do · 0 of 2 done" in picture(app) and "▶ Read it" in picture(app))
        await model.asked()
        steps[0]["status"], steps[1]["status"] = "completed", "in_progress"
        model.call("todo", todos=steps)
        await until(pilot, lambda: "To do · 1 of 2 done" in picture(app))
        assert "☑ Read it" in picture(app) and "▶ Change it" in picture(app)
        assert len(app.query(Checklist)) == 1 and "✓ todo" not in picture(app)
        await model.asked()
        model.call("todo", todos=[{"content": "", "status": "pending"}])
        await until(pilot, lambda: "✗ todo" in picture(app))


async def test_a_list_that_was_done_stays_and_the_next_is_its_own() -> None:
    app = Page()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push(TodosUpdated(todos("in_progress")), TodosUpdated(todos("completed")), TodosUpdated(todos("pending")))
        await until(pilot, lambda: "0 of 1 done" in picture(app))
        assert "1 of 1 done" in picture(app) and len(app.query(Checklist)) == 2
