"""Whatever ends while the main agent is idle reaches the conversation at once, exactly once."""

from __future__ import annotations

from retinue.core.events import Event, MessageAdded
from retinue.core.messages import ChildrenEnded
from retinue.core.run_state import ActiveRun
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.chat.notification import NotificationBox
from retinue.frontends.tui.screens.agents import counted
from retinue.runs.notifications import announcement
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.watch_scene import picture, until, watching
from tests.tools.delegation_scene import make_child


def main_of(app):
    return app.retinue.supervisor.members[app.session.main_id]


async def told(app, run_id: str) -> int:
    """How often the main agent was told of an end, by its log."""
    log = app.retinue.supervisor.project.log
    await log.flush()
    added = [event.body for event in log.reader.events(app.session.main_id) if isinstance(event.body, MessageAdded)]
    told = [each.message.notice for each in added if isinstance(each.message.notice, ChildrenEnded)]
    return sum(ending.id == run_id for notice in told for ending in notice.endings)


def ended(run_id: str, description: str) -> ActiveRun:
    return make_child(id=run_id, description=description, text="Found.")


async def interrupted(scene, app, pilot):
    """A main agent that was stopped while an agent of it works in the background."""
    await type_in(pilot, "go")
    await scene.model("go").asked()
    child = await scene.child(main_of(app), "slow work", description="slow work")
    await pilot.press("escape")
    await until(pilot, lambda: "Interrupted." in picture(app) and app.session.state == "idle")
    return child


async def test_a_background_agent_that_ends_after_escape_gets_a_box_and_a_turn(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        child = await interrupted(scene, app, pilot)
        scene.model("slow work").say("It was the cache.")
        await until(pilot, lambda: len(scene.model("go").requests) == 2)
        await until(pilot, lambda: "It was the cache." in picture(app))
        last = scene.model("go").requests[-1].messages[-1]
        assert last.origin == "notification", "nobody spoke in the person's name"
        scene.model("go").say("So it was the cache.")
        await until(pilot, lambda: "So it was the cache." in picture(app) and app.session.state == "idle")
        assert await told(app, child.id) == 1
        assert len(app.query(NotificationBox)) == 1


async def test_without_the_setting_the_person_sees_it_at_once_and_the_model_hears_it_later(
    tmp_path, monkeypatch
) -> None:
    async with watching(tmp_path, monkeypatch, wake_main="false") as (scene, app, pilot):
        child = await interrupted(scene, app, pilot)
        scene.model("slow work").say("It was the cache.")
        await until(pilot, lambda: "It was the cache." in picture(app))
        assert len(scene.model("go").requests) == 1
        await type_in(pilot, "and now?")
        await until(pilot, lambda: len(scene.model("go").requests) == 2)
        scene.model("go").say("So it was.")
        await until(pilot, lambda: "So it was." in picture(app))
        assert await told(app, child.id) == 1
        assert len(app.query(NotificationBox)) == 1, "it is not shown twice"


async def test_an_end_that_was_shown_is_not_shown_again_with_one_that_was_not(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, wake_main="false") as (scene, app, pilot):
        await interrupted(scene, app, pilot)
        scene.model("slow work").say("It was the cache.")
        await until(pilot, lambda: "It was the cache." in picture(app))
        (shown,) = app.retinue.supervisor.news_for(app.session.main_id)
        added = MessageAdded(announcement([shown, ended("other", "new work")], group=True))
        app._chat.push(Event(app.session.main_id, None, app.session.main_id, 99, 0.0, added))
        await until(pilot, lambda: "new work completed" in picture(app))
        assert picture(app).count("slow work completed") == 1
        assert "2 agents finished" not in picture(app)


async def test_an_agent_that_goes_on_after_its_end_was_shown_is_shown_when_it_ends_again(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        await type_in(pilot, "go")
        await until(pilot, lambda: app.session.main_id is not None)
        cut = make_child("interrupted", id="cut", description="slow work")
        app._chat.tell_early([cut], show_cost=False)
        await until(pilot, lambda: "slow work interrupted" in picture(app))
        app._chat.tell_early([cut], show_cost=False)
        added = MessageAdded(announcement([ended("cut", "slow work")]))
        app._chat.push(Event(app.session.main_id, None, app.session.main_id, 99, 0.0, added))
        await until(pilot, lambda: "slow work completed" in picture(app))
        assert picture(app).count("slow work interrupted") == 1


async def test_the_answer_to_a_mention_of_an_idle_conversation_is_shown_and_heard(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        child = await scene.child(main_of(app), "find it", description="find it", name="finder")
        scene.model("find it").say("It is in a.py.")
        scene.model("go").say("waiting")
        await until(pilot, lambda: len(scene.model("go").requests) == 2)
        scene.model("go").say("found")
        await until(pilot, lambda: app.session.state == "idle")
        await type_in(pilot, "@finder and the test?")
        await scene.model("find it").asked()
        scene.model("find it").say("The test is in b.py.")
        await until(pilot, lambda: len(scene.model("go").requests) == 3)
        scene.model("go").say("Noted.")
        await until(pilot, lambda: "The test is in b.py." in picture(app) and "Noted." in picture(app))
        assert await told(app, child.id) == 2, "once for each end"


async def test_a_schedule_of_an_idle_conversation_reports_to_it(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        scene.model("go").call(
            "Agent", prompt="look again", description="watch", subagent_type="Explore", schedule="1h"
        )
        await until(pilot, lambda: len(scene.model("go").requests) == 2)
        scene.model("go").say("Scheduled.")
        await until(pilot, lambda: app.session.state == "idle")
        fired = await app.retinue.schedules.run_now("watch")
        assert fired.run_id is not None, fired.error
        await scene.model("look again").asked()
        scene.model("look again").say("Nothing new.")
        await until(pilot, lambda: len(scene.model("go").requests) == 3)
        scene.model("go").say("All quiet.")
        await until(pilot, lambda: "Nothing new." in picture(app) and "All quiet." in picture(app))
        assert await told(app, fired.run_id) == 1


async def test_escape_gives_words_that_wait_back_to_the_editor(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        await type_in(pilot, "also the tests")
        await until(pilot, lambda: app.session.waiting == ["also the tests"])
        app._prompt.put("and this")
        await pilot.press("escape")
        await until(pilot, lambda: app.session.state == "idle")
        assert app._prompt.text == "also the tests\n\nand this"
        assert app.session.waiting == []
        await until(pilot, lambda: "sent after this turn" not in picture(app))


async def test_ends_that_were_missed_are_shown_when_the_conversation_is_opened_again(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, wake_main="false") as (scene, app, pilot):
        child = await interrupted(scene, app, pilot)
        main_id = app.session.main_id
        scene.model("slow work").say("It was the cache.")
        await until(pilot, lambda: not child.live and "It was the cache." in picture(app))
        await app.new_conversation()
        await until(pilot, lambda: "It was the cache." not in picture(app))
        await app.open_session(main_id)
        await until(pilot, lambda: "It was the cache." in picture(app))
        assert await told(app, child.id) == 0, "the model hears it with the next words"


async def test_an_agent_that_is_moved_to_the_background_is_shown_among_those_that_work_there(
    tmp_path, monkeypatch
) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        await scene.model("go").asked()
        scene.model("go").call(
            "Agent", prompt="slow", description="slow work", subagent_type="Explore", run_in_background=False
        )
        await scene.model("slow").asked()
        await pilot.pause()
        assert [card.about for card in app.board.shown(0.0, background_only=True)] == []
        await pilot.press("ctrl+b")
        await until(pilot, lambda: app.board.shown(0.0, background_only=True))
        assert [card.about for card in app.board.shown(0.0, background_only=True)] == ["slow work"]


def test_agents_that_wait_for_a_slot_are_not_counted_as_running() -> None:
    cards = [
        RunCard("a", state="running"),
        RunCard("b"),
        RunCard("c", state="ended", ended="completed"),
    ]
    assert counted(cards) == "1 running, 1 queued, 1 done"
    assert counted(cards[:1]) == "1 running, 0 done"
