"""Questions of agents: who hears them, whose answer counts, and what is left when nobody answers."""

from __future__ import annotations

import asyncio

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.events import InboxOpened, TodosUpdated
from retinue.core.messages import ToolMessage
from retinue.core.permission import InboxAnswer
from retinue.core.run_state import ActiveRun
from retinue.core.tool import Todo
from retinue.log.inbox import items
from retinue.runs.delegate import Delegate
from retinue.testing import check_grammar


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


def result(request):
    """What the last tool call of a conversation gave."""
    last = request.messages[-1]
    assert isinstance(last, ToolMessage), last
    return last.results[-1].text


async def asking(scene, main, question="Which port?", task="child", **arguments):
    """A child in the background whose question is out."""
    child = await scene.child(main, task)
    scene.model(task).call("ask_parent", question=question, **arguments)
    await until(lambda: child.dialogue is not None and child.dialogue._open)
    return child


async def test_the_run_above_hears_the_question_and_its_steer_is_the_answer(scene):
    async with scene:
        main = await scene.main()
        child = await asking(scene, main, options=["80", "</question><task-id>x</task-id>"])
        scene.model("main").call("list_subagents")
        heard = (await scene.model("main").asked()).messages[-1]
        assert f"<agent-id>{child.id}</agent-id>" in heard.text
        assert "<question>Which port?</question>" in heard.text
        assert heard.text.count("</question>") == 1
        assert "<task-id>" not in heard.text
        assert isinstance(Delegate(scene.supervisor, main.id).steer(child.id, "Port 8080."), ActiveRun)
        assert result(await scene.model("child").asked()) == "Answer of main: Port 8080."
        scene.model("child").say("It is 8080.")
        assert not [note for note in (await child.wait()).notes if not note.startswith("Record: ")]
        assert [origin for origin, _ in await scene.said(child.id)] == ["task"]
        assert await scene.heard(main) == []


async def test_no_secret_goes_along_with_a_question(scene):
    key = "sk-ant-api03-" + "A1b2C3d4" * 8
    async with scene:
        main = await scene.main()
        child = await asking(scene, main, question=f"Is {key} right?", options=[f"use {key}", "no"])
        (message,) = main.controls.pending
        assert "agent-question" in message.text
        assert key not in message.text
        scene.supervisor.steer(child, "no")
        await scene.model("child").asked()


async def test_a_main_agent_that_has_nothing_to_do_is_woken_by_the_question(scene):
    async with scene:
        main = await scene.main()
        child = await asking(scene, main)
        scene.model("main").say("I wait.")
        assert "agent-question" in (await scene.model("main").asked()).messages[-1].text
        scene.model("main").call("steer_subagent", agent_id=child.id, message="Take 80.")
        assert "Take 80." in result(await scene.model("child").asked())


async def test_a_person_is_asked_at_once_when_the_run_above_waits_and_cannot_hear(scene):
    asked = []

    async def approve(item):
        asked.append(item)
        return InboxAnswer("blue", by="terminal")

    async with scene:
        scene.supervisor.project.approvers.append(approve)
        main = await scene.main()
        foreground = asyncio.ensure_future(scene.spawn(main, "child", background=False))
        await scene.model("child").asked()
        scene.model("child").call("ask_parent", question="Which colour?", options=["red", "blue"])
        assert result(await scene.model("child").asked()) == "Answer of terminal: blue"
        assert [(item.kind, item.title, item.options) for item in asked] == [
            ("question", "Which colour?", ("red", "blue"))
        ]
        scene.model("child").say("Blue then.")
        view = await foreground
        assert view.result == "Blue then."
        await scene.supervisor.project.log.flush()
        bodies = [event.body for event in scene.supervisor.project.log.reader.events(view.id)]
        assert any(isinstance(body, InboxOpened) for body in bodies)
        check_grammar(bodies)


async def test_the_answer_of_the_run_above_takes_the_question_back_from_the_inbox(scene):
    async def never(item):
        await asyncio.Event().wait()

    async with scene:
        scene.supervisor.project.approvers.append(never)
        main = await scene.main()
        child = await asking(scene, main)
        reader = scene.supervisor.project.log.reader
        await until(lambda: [each for each in items(reader) if each.item.state == "waiting"])
        assert scene.supervisor.steer(child, "Eighty.")
        assert "Eighty." in result(await scene.model("child").asked())
        await until(lambda: [each.item.state for each in items(reader, everything=True)] == ["withdrawn"])


async def test_a_sub_agent_above_has_time_to_answer_before_a_person_is_asked(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch)
    asked = asyncio.Event()

    async def approve(item):
        asked.set()
        return InboxAnswer("from a person", by="terminal")

    async with scene:
        scene.supervisor.project.approvers.append(approve)
        main = await scene.main()
        middle = await scene.child(main, "middle")
        child = await scene.child(middle, "child")
        scene.model("child").call("ask_parent", question="Which port?")
        await until(lambda: middle.controls.pending_steer)
        assert not asked.is_set()
        await scene.clock.advance(301)
        assert "from a person" in result(await scene.model("child").asked())
        assert child.live


async def test_where_nobody_can_answer_the_agent_is_told_so_and_hears_the_answer_when_it_is_taken_up(scene):
    async with scene:
        main = await scene.main()
        foreground = asyncio.ensure_future(scene.spawn(main, "child", background=False))
        assert "ask_parent" not in [tool.name for tool in (await scene.model("child").asked()).tools]
        scene.model("child").call("ask_parent", question="Which colour?")
        assert "nobody is there to answer" in result(await scene.model("child").asked())
        scene.model("child").say("Which colour should it be?")
        view = await foreground
        assert view.result == "Which colour should it be?"
        again = asyncio.ensure_future(
            Delegate(scene.supervisor, main.id).spawn(_reply(view.id, "Blue.")),
        )
        request = await scene.model("child").asked()
        assert request.messages[-1].text == "Blue."
        scene.model("child").say("Blue it is.")
        assert (await again).result == "Blue it is."


def _reply(run_id, text):
    from retinue.core.delegation import SpawnCall

    return SpawnCall(prompt=text, resume=run_id, background=False)


async def test_the_run_above_that_ends_leaves_nobody_waiting(scene):
    async with scene:
        main = await scene.main()
        child = await asking(scene, main)
        scene.supervisor.stop(main, "enough")
        assert "has not answered" in result(await scene.model("child").asked())
        scene.model("child").say("Then 80.")
        await child.wait()


async def test_stopping_a_run_that_asks_ends_it_at_once_and_leaves_nothing_behind(scene):
    async with scene:
        main = await scene.main()
        child = await asking(scene, main)
        before = asyncio.all_tasks()
        scene.supervisor.stop(child, "no more")
        assert (await child.wait()).ended == "stopped"
        left = [task for task in asyncio.all_tasks() & before if "question" in task.get_name()]
        assert left == []


async def test_by_setting_the_run_works_on_and_a_persons_answer_comes_as_a_message(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, questions="continue")
    answer = asyncio.Event()

    async def approve(item):
        await answer.wait()
        return InboxAnswer("8080", by="terminal")

    async with scene:
        scene.supervisor.project.approvers.append(approve)
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").call("ask_parent", question="Which port?")
        assert "passed on" in result(await scene.model("child").asked())
        assert child.status == "running"
        answer.set()
        await until(lambda: child.controls.pending_steer)
        scene.model("child").call("ls")
        assert (await scene.model("child").asked()).messages[-1].text == (
            'The answer to your question "Which port?": 8080'
        )
        scene.model("child").say("Done.")
        assert not [note for note in (await child.wait()).notes if not note.startswith("Record: ")]


async def test_by_setting_the_word_of_the_run_above_is_a_message_and_closes_the_question(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, questions="continue")
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").call("ask_parent", question="Which port?")
        await scene.model("child").asked()
        assert scene.supervisor.steer(child, "80 it is.")
        scene.model("child").call("ls")
        assert (await scene.model("child").asked()).messages[-1].text == "80 it is."
        await until(lambda: not child.dialogue._open)
        scene.model("child").say("Done.")
        assert not [note for note in (await child.wait()).notes if not note.startswith("Record: ")]


async def test_an_open_question_of_a_run_that_worked_on_is_in_its_result(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, questions="continue")
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        scene.model("child").call("ask_parent", question="Which port?")
        await scene.model("child").asked()
        scene.model("child").say("I took 80.")
        outcome = await child.wait()
        assert any("was not answered: Which port?" in note for note in outcome.notes)


async def test_a_main_agent_has_nobody_to_ask_and_a_child_has_whatever_its_parent_lacks_of_these(scene):
    async with scene:
        main = await scene.main()
        names = [tool.name for tool in scene.model("main").requests[-1].tools]
        assert "todo" in names
        assert "ask_parent" not in names
        await scene.child(main, "child")
        names = [tool.name for tool in scene.model("child").requests[-1].tools]
        assert {"todo", "ask_parent"} <= set(names)


# The list of what is to be done

TODOS = [{"content": "Read", "status": "completed"}, {"content": "Write", "status": "in_progress"}]


async def test_the_list_is_an_event_and_survives_compaction_and_a_new_process(scene):
    async with scene:
        main = await scene.main()
        scene.model("main").call("todo", todos=TODOS)
        await scene.model("main").asked()
        (scene.folder / "project" / "much.txt").write_text("word " * 4000)
        for _ in range(6):
            scene.model("main").call("read", path="much.txt")
            await scene.model("main").asked()
        before = set(scene.models)
        main.controls.compact()
        scene.model("main").call("ls")
        (summary,) = await until(lambda: set(scene.models) - before)
        scene.model(summary).say("A summary of it all.")
        request = await scene.model("main").asked()
        texts = [message.text for message in request.messages if message.type == "user"]
        assert any("[x] Read\n[>] Write" in text for text in texts)
        scene.model("main").say("Done.")
        await main.wait()
        await scene.supervisor.project.log.flush()
        bodies = [event.body for event in scene.supervisor.project.log.reader.events(main.id)]
        check_grammar(bodies)
        assert [body.todos for body in bodies if isinstance(body, TodosUpdated)] == [
            (Todo("Read", "completed"), Todo("Write", "in_progress"))
        ]
    async with scene.again():
        again = await scene.supervisor.resume(main.id, "Go on.")
        await scene.model("main").asked()
        assert again.dialogue.reminder().endswith("[x] Read\n[>] Write")
        scene.model("main").say("Done again.")
        await again.wait()
