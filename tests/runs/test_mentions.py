"""Y05: where `@name message` goes."""

import pytest
from tests.runs.run_scene import Scene, until

from retinue.errors import StateError
from retinue.runs.messages import DeliveredMessage, route


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


async def test_a_running_agent_is_steered_and_the_main_agent_has_no_turn(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", name="scout")
        for text in ("@scout only src", "@agent-scout\nand tests"):
            routed = await route(scene.supervisor, main.id, text)
            assert isinstance(routed, DeliveredMessage)
            assert (routed.action, routed.run.id) == ("steered", child.id)
        scene.model("child").call("ls")
        request = await scene.model("child").asked()
        assert [m.text for m in request.messages[-2:]] == ["only src", "and tests"]
        assert len(scene.model("main").requests) == 1


async def test_a_queued_agent_hears_it_when_it_starts(scene):
    async with scene:
        main = await scene.main()
        await scene.child(main, "first", name="first")
        await scene.spawn(main, "second", background=True, name="second")
        routed = await route(scene.supervisor, main.id, "@second look closely")
        assert (routed.action, routed.run.status) == ("steered", "queued")
        scene.model("first").say("done")
        assert (await scene.model("second").asked()).messages[-1].text == "look closely"


@pytest.mark.parametrize("stopped", [False, True], ids=["finished", "stopped by the user"])
async def test_a_finished_agent_goes_on_in_the_background_and_its_answer_is_announced(scene, stopped):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", name="scout")
        if stopped:
            scene.supervisor.stop(child, "Stopped by the user.")
        else:
            scene.model("child").say("done")
        await child.wait()
        routed = await route(scene.supervisor, main.id, "@scout and the tests?")
        assert (routed.action, routed.run.id, routed.run.background) == ("resumed", child.id, True)
        assert (await scene.model("child").asked()).messages[-1].text == "and the tests?"
        scene.model("child").say("tests are fine")
        await child.wait()
        await scene.clock.advance(1)
        scene.model("main").say("hm")
        assert "tests are fine" in (await scene.model("main").asked()).messages[-1].text


async def test_an_agent_of_an_earlier_process_is_taken_up_by_its_name(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", name="scout")
        scene.model("child").say("done")
        await child.wait()
    async with scene.again():
        main = await scene.supervisor.resume(main.id, "hello again")
        await scene.model("main").asked()
        routed = await route(scene.supervisor, main.id, "@scout one more thing")
        assert (routed.action, routed.run.id, routed.run.name) == ("resumed", child.id, "scout")


@pytest.mark.parametrize(
    "text",
    [
        "@nobody hello",
        "hello @scout",
        "@scout",
        "@src/app.py what is this?",
        "@README.md read it",
        " @scout hi",
        "plain",
    ],
)
async def test_what_means_no_agent_goes_to_the_main_agent_unchanged(scene, text):
    async with scene:
        main = await scene.main()
        await scene.child(main, "child", name="scout")
        assert await route(scene.supervisor, main.id, text) == text


async def test_main_is_reserved_and_its_prefix_is_taken_off(scene):
    async with scene:
        main = await scene.main()
        assert await route(scene.supervisor, main.id, "@main what now?") == "what now?"


async def test_switched_off_everything_passes(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, agent_mentions="off")
    async with scene:
        main = await scene.main()
        await scene.child(main, "child", name="scout")
        for text in ("@scout hello", "@main hello", "@explore hello"):
            assert await route(scene.supervisor, main.id, text) == text


async def test_a_type_that_nobody_runs_goes_to_the_model_or_is_started_as_the_setting_says(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, agent_mentions="model")
    async with scene:
        main = await scene.main()
        assert await route(scene.supervisor, main.id, "@explore find it") == "@explore find it"
    direct = Scene(tmp_path, monkeypatch, agent_mentions="direct")
    async with direct:
        main = await direct.main()
        routed = await route(direct.supervisor, main.id, "@agent-explore find it")
        assert (routed.action, routed.run.agent, routed.run.background) == ("started", "Explore", True)
        await direct.model("find it").asked()
        assert await route(direct.supervisor, main.id, "@nobody find it") == "@nobody find it"


async def test_a_type_is_started_before_there_is_a_main_agent_and_for_one_that_has_ended(scene):
    async with scene:
        routed = await route(scene.supervisor, None, "@explore first")
        assert (routed.action, routed.run.agent, routed.run.parent_id) == ("started", "Explore", None)
        await scene.model("first").asked()
        main = await scene.main()
    async with scene.again():
        routed = await route(scene.supervisor, main.id, "@explore later")
        assert (routed.action, routed.run.parent_id) == ("started", main.id)
        await scene.model("later").asked()


async def test_agents_of_agents_are_addressed_by_their_names_too(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", name="scout")
        deep = await scene.child(child, "grandchild", name="deep")
        routed = await route(scene.supervisor, main.id, "@deep hello")
        assert (routed.action, routed.run.id) == ("steered", deep.id)
        scene.model("grandchild").say("done")
        await until(lambda: len(scene.model("grandchild").requests) == 2)
        scene.model("grandchild").say("done")
        await deep.wait()
        routed = await route(scene.supervisor, main.id, "@deep go on")
        assert (routed.action, routed.run.id, routed.run.parent_id) == ("resumed", deep.id, child.id)
        await scene.model("grandchild").asked()
    async with scene.again():
        routed = await route(scene.supervisor, main.id, "@deep and again")
        assert (routed.action, routed.run.id) == ("resumed", deep.id)
        await scene.model("grandchild").asked()


async def test_what_cannot_be_delivered_says_why(scene):
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", name="scout")
        scene.model("child").say("done")
        await child.wait()
        here, there = scene.supervisor, scene.again()
        await there.resume(child.id, "elsewhere")
        await scene.model("child").asked()
        with pytest.raises(StateError, match="is being run by process"):
            await route(here, main.id, "@scout hello")
        await there.close()
        scene.supervisor = here
