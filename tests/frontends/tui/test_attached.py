"""A conversation of another process, as the app sees it: through the log, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from retinue.app.conversation import AttachedConversation
from retinue.app.feed import CommandRefusedError, Feed
from retinue.app.run_events import follow_tree
from retinue.core.events import RunEnded
from tests.frontends.tui.test_session import talk  # noqa: F401 - a fixture
from tests.runs.run_scene import until

TOKEN = "ghp_" + "a1B2" * 9


async def test_words_reach_the_run_and_its_agents_through_the_log(talk) -> None:  # noqa: F811
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        main = t.retinue.supervisor.members[t.session.main_id]
        child = await t.scene.child(main, "look", name="scout")
        project = t.retinue.supervisor.project
        attached = AttachedConversation(Feed(project.cwd, project.state), main.id)
        assert (await attached.say(f"hurry, {TOKEN}")).how == "sent"
        assert (await attached.say("@agent-scout only src")).agent == "agent-scout"
        assert "shortens" in await attached.compact()
        assert not attached.interrupt() and not await attached.resend() and main.live
        model.call("ls")
        t.scene.model("look").call("ls")
        await until(lambda: len(model.requests) == 2 and len(t.scene.model("look").requests) == 2)
        assert ("steer", "hurry, [GITHUB_TOKEN_REDACTED]") in await t.scene.said(main.id), "no secret gets into the log"
        assert ("steer", "only src") in await t.scene.said(child.id)
        assert "1 below it" in await attached.stop()
        await until(lambda: not main.live and not child.live)
        with pytest.raises(CommandRefusedError, match="ended"):
            await attached.say("too late")


async def test_a_whole_tree_is_followed_from_its_beginning_to_its_end(talk, tmp_path) -> None:  # noqa: F811
    async with talk() as t:
        await t.session.say("go")
        model = t.scene.model("go")
        await model.asked()
        main = t.retinue.supervisor.members[t.session.main_id]
        first = await t.scene.child(main, "first")
        seen = []

        async def watch() -> None:
            async for event in follow_tree(Feed(tmp_path, t.retinue.supervisor.project.state), main.id):
                seen.append(event)
                if isinstance(event.body, RunEnded) and event.run_id == main.id:
                    return

        watching = asyncio.create_task(watch())
        await until(lambda: {event.run_id for event in seen} == {main.id, first.id})
        second = await t.scene.child(main, "second")
        for task in ("first", "second"):
            t.scene.model(task).say(f"{task} is done")
        model.standing = "all done"
        model.say("waiting")
        async with asyncio.timeout(30):
            await watching
        for run in (main.id, first.id, second.id):
            durable = [event.seq for event in seen if event.run_id == run and not event.body.type.endswith(".delta")]
            assert durable == list(range(1, len(durable) + 1))
        assert sum(isinstance(event.body, RunEnded) for event in seen) == 3
