"""The verbs of the feed on runs of this process and of others: spawn, say, stop, resume, to the background, answer."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

from retinue.app.feed import ConflictError, Feed, ForkOrder, SpawnOrder
from retinue.app.projects import Projects, UnknownProjectError
from retinue.core.delegation import LIVE
from retinue.errors import AnsweredError, UnknownAgentError, UnknownItemError, UnknownRunError, UsageError


@pytest.fixture
async def feed(project: Project, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], Feed]]:
    made: list[Feed] = []

    def make() -> Feed:
        for name, value in project.environment.items():
            monkeypatch.setenv(name, value)
        made.append(Feed(project.cwd.resolve()))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def until(find: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = await find()
        if found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


async def ended(feed: Feed, run_id: str) -> Any:
    async def look() -> Any:
        row = await feed.find(run_id)
        return row if row.state not in LIVE else None

    return await until(look)


async def one_running(feed: Feed) -> Any:
    async def look() -> Any:
        rows = (await feed.snapshot(states={"running"})).runs
        return rows[0] if rows else None

    return await until(look)


async def test_a_run_that_is_spawned_here_says_who_asked_for_it(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Done."))
    here = feed()
    row, new = await here.spawn(SpawnOrder(agent="Explore", task="Look"), by="web")
    assert new
    assert (await ended(here, row.id)).ended == "completed"
    created = await here.read(lambda reader: reader.conversation(row.id).created)
    assert created.options.asked == {"by": "web"}


async def test_the_main_agent_is_spawned_where_no_agent_is_named(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Done."))
    here = feed()
    row, _ = await here.spawn(SpawnOrder(task="Look"), by="web")
    assert row.depth == 0
    assert (await ended(here, row.id)).ended == "completed"
    with pytest.raises(UsageError, match="isolation"):
        await here.spawn(SpawnOrder(task="Look", isolation="worktree"), by="web")


async def test_what_cannot_be_spawned_leaves_no_run(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Done."))
    here = feed()
    with pytest.raises(UnknownAgentError):
        await here.spawn(SpawnOrder(agent="Nobody", task="Look"), by="web")
    with pytest.raises(UsageError):
        await here.spawn(SpawnOrder(agent="Explore", task="  "), by="web")
    with pytest.raises(UsageError):
        await here.spawn(SpawnOrder(agent="Explore", task="Look", budget={"euro": 1}), by="web")
    assert (await here.snapshot()).runs == []


async def test_the_same_key_is_the_same_run_also_after_a_restart(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Done."))
    order = SpawnOrder(agent="Explore", task="Look")
    first, second = feed(), feed()
    both = await asyncio.gather(*(first.spawn(order, by="web", key="k1") for _ in range(3)))
    assert sorted(new for _, new in both) == [False, False, True]
    assert len({row.id for row, _ in both}) == 1
    again, new = await second.spawn(order, by="web", key="k1")
    assert (again.id, new) == (both[0][0].id, False)
    with pytest.raises(ConflictError, match="k1"):
        await second.spawn(SpawnOrder(agent="Explore", task="Look elsewhere"), by="web", key="k1")
    other, new = await second.spawn(order, by="web", key="k2")
    assert new and other.id != again.id
    await ended(second, other.id)
    await ended(first, again.id)


async def test_of_two_runs_with_one_id_only_the_first_is_started(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Done."))
    here, order = feed(), SpawnOrder(agent="Explore", task="Look")
    both = [here.spawn(order, by="web", run_id="11111111-2222-433") for _ in range(2)]
    first, second = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(second, ConflictError) and first[0].id == "11111111-2222-433"
    assert (await ended(here, first[0].id)).ended == "completed"


def hangs_after_a_read(request: Request) -> Reply:
    """Reads a file and hangs, until it has heard the steering: then it ends."""
    if "STEERED" in json.dumps(request.body):
        return Reply(text="Heard.")
    if request.turn == 0:
        return Reply(calls=[("bash", {"command": "sleep 2; echo slept"})])
    return Reply(text="Never told.")


async def test_a_run_of_another_process_is_steered(project: Project, serve: Any, feed: Any) -> None:
    serve(hangs_after_a_read)
    here = feed()
    process = project.start("run", "general-purpose", "Work")
    row = await one_running(here)
    said = await here.say(row.id, "STEERED", by="web")
    assert said.accepted
    out, err = await asyncio.to_thread(process.communicate, timeout=60)
    assert "Heard." in out, err
    notes = await here.read(lambda reader: [event.body for event in reader.events(row.id)])
    assert [body.text for body in notes if body.type == "run.warned"] == ["Steered by web."]


async def test_a_person_reaches_an_agent_of_a_run_by_its_name_and_a_model_does_not(
    project: Project, serve: Any, feed: Any
) -> None:
    released = threading.Event()

    def delegates(request: Request) -> Reply:
        text = json.dumps(request.body["messages"])
        if "CHILD" in text and not request.turn:
            released.wait(30)
            return Reply(calls=[("ls", {})])
        if "CHILD" in text or request.turn:
            return Reply(text="Heard." if "HURRY" in text else "Done.")
        call = {"prompt": "CHILD: look", "description": "look around", "subagent_type": "Explore"}
        return Reply(calls=[("Agent", {**call, "run_in_background": False})])

    serve(delegates)
    here = feed()
    row, _ = await here.spawn(SpawnOrder(task="Delegate"), by="web")

    async def child() -> Any:
        return next((each for each in (await here.tree(row.id)).runs if each.depth), None)

    below = await until(child)
    said = await here.say(row.id, "@explore HURRY", by="web")
    assert said.run_id == below.id
    assert (await here.say(row.id, "@explore HURRY", by="mcp", verbatim=True)).run_id == row.id
    above = (await here.find(row.id)).name
    assert (await here.say(below.id, f"@{above} hello", by="web")).run_id == below.id, "no agent reaches one above it"
    (project.cwd / ".retinue").mkdir(exist_ok=True)
    (project.cwd / ".retinue" / "settings.json").write_text('{"agentMentions": "off"}')
    assert (await here.say(row.id, "@explore HURRY", by="web")).run_id == row.id
    released.set()
    await ended(here, row.id)
    assert (await here.read(lambda reader: reader.outcome(below.id))).text == "Heard."


async def test_a_run_of_another_process_is_stopped_and_says_by_whom(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Thinking", hang=True))
    here = feed()
    process = project.start("run", "Explore", "Work")
    row = await one_running(here)
    await here.stop(row.id, by="web")
    await asyncio.to_thread(process.communicate, timeout=60)
    outcome = await here.read(lambda reader: reader.outcome(row.id))
    assert outcome.ended == "stopped"
    assert "Stopped by web." in outcome.failure.message
    with pytest.raises(ConflictError, match="resume"):
        await here.stop(row.id, by="web")
    with pytest.raises(ConflictError, match="resume"):
        await here.say(row.id, "Hello", by="web")


async def test_a_run_whose_process_was_killed_goes_on_here(project: Project, serve: Any, feed: Any) -> None:
    server = serve(lambda request: Reply(text="Thinking", hang=True))
    here = feed()
    process = project.start("run", "Explore", "Work")
    row = await one_running(here)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.communicate, timeout=60)
    assert (await here.find(row.id)).state == "interrupted"
    assert (await here.stop(row.id, by="web")).accepted
    server.answer = lambda request: Reply(text="Went on.")
    again = await here.resume(row.id, by="web")
    assert again.id == row.id
    assert (await ended(here, row.id)).ended == "completed"


async def test_a_live_run_is_not_resumed(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Thinking", hang=True))
    here = feed()
    row, _ = await here.spawn(SpawnOrder(agent="Explore", task="Look"), by="web")
    with pytest.raises(ConflictError, match="Steer"):
        await here.resume(row.id, by="web")
    assert await here.close() == 1
    assert (await here.find(row.id)).ended == "stopped"


async def test_a_run_that_asks_waits_for_the_answer_of_a_remote_face(project: Project, serve: Any, feed: Any) -> None:
    project.mode = "default"

    def edits(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})])
        return Reply(text="Edited.")

    serve(edits)
    here = feed()
    row, _ = await here.spawn(SpawnOrder(agent="general-purpose", task="Edit"), by="web")
    (waiting,) = await until(here.inbox)
    assert "gamma" in waiting.item.detail
    item = await here.answer(waiting.item.id, "allow", by="web")
    assert item.answer is not None and item.answer.by == "web"
    assert (await ended(here, row.id)).ended == "completed"
    assert "gamma" in (project.cwd / "f0.txt").read_text()
    with pytest.raises(AnsweredError, match="by web"):
        await here.answer(waiting.item.id, "deny", by="terminal")
    with pytest.raises(UnknownItemError):
        await here.answer("nothing", "deny", by="terminal")


async def test_a_run_that_nobody_waits_for_has_nothing_to_move(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text="Thinking", hang=True))
    here = feed()
    row, _ = await here.spawn(SpawnOrder(agent="Explore", task="Look"), by="web")
    said = await here.to_background(row.id, by="web")
    assert "nothing to move" in said.text


async def test_a_tree_has_parents_before_their_children_with_their_names(
    project: Project, serve: Any, feed: Any
) -> None:
    def delegates(request: Request) -> Reply:
        if "CHILD" in json.dumps(request.body["messages"][0]) or request.turn:
            return Reply(text="Done.")
        call = {"prompt": "CHILD: look", "description": "look around", "subagent_type": "Explore"}
        return Reply(calls=[("Agent", {**call, "run_in_background": False})])

    serve(delegates)
    here = feed()
    row, _ = await here.spawn(SpawnOrder(task="Delegate"), by="web")
    await ended(here, row.id)
    tree = await here.tree(row.id)
    assert [each.depth for each in tree.runs] == [0, 1]
    assert tree.runs[1].description == "look around"
    with pytest.raises(UnknownRunError):
        await here.tree("zzzz")


async def test_only_projects_with_a_log_can_be_reached(
    project: Project, serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(lambda request: Reply(text="Done."))
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    project.retinue("run", "Explore", "Look")
    other = tmp_path / "other"
    other.mkdir()
    projects = Projects(other)
    views = await projects.views()
    assert [view.current for view in views] == [True, False]
    assert (views[1].cwd, views[1].runs, views[1].live) == (str(project.cwd), 1, 0)
    found = await projects.feed(views[1].id)
    (row,) = (await found.snapshot()).runs
    located, same = await projects.of_run(row.id[:6])
    assert located is found and same.id == row.id
    for name in ("..", "../..", str(project.cwd), "", "a/b"):
        with pytest.raises(UnknownProjectError):
            await projects.feed(name)
    again = await located.resume(row.id, "And now?", by="web")
    assert (await ended(located, again.id)).ended == "completed"
    assert await projects.close() == 0


async def test_settings_of_a_feed_hold_for_its_runs_alone(
    project: Project, serve: Any, feed: Callable[[], Feed], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "note.txt").write_text("from outside")

    def look(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("read", {"path": str(outside / "note.txt")})])
        return Reply("done")

    server = serve(look)
    plain = feed()
    wider = Feed(plain.cwd, settings={"extra_roots": [str(outside)]})
    try:
        for each in (plain, wider):
            row, _ = await each.spawn(SpawnOrder(task="Read it", agent="Explore"), by="test")
            await ended(each, row.id)
    finally:
        await wider.close()
    told = [json.dumps(request.results) for request in server.requests if request.turn == 1]
    assert ["from outside" in each for each in told] == [False, True]


async def test_a_fork_says_who_asked_for_it_and_leaves_the_old_run(project: Project, serve: Any, feed: Any) -> None:
    serve(lambda request: Reply(text=f"Heard {len(request.body['messages'])} messages."))
    here = feed()
    row, _ = await here.spawn(SpawnOrder(agent="Explore", task="Look"), by="web")
    old = await ended(here, row.id)
    forked = await here.fork(row.id, ForkOrder(at=1000, edit="And now?"), by="page")
    new = await ended(here, forked.id)
    assert new.id != old.id and new.ended == "completed" and (await here.find(old.id)).turns == old.turns
    created = await here.read(lambda reader: reader.conversation(new.id).created)
    assert created.options.asked == {"by": "page"} and created.options.fork["run"] == old.id
    outcome = await here.read(lambda reader: reader.outcome(new.id))
    assert outcome.text == "Heard 3 messages."
    with pytest.raises(UsageError, match="had not begun"):
        await here.fork(row.id, ForkOrder(at=1), by="page")
