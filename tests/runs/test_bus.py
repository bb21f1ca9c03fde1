"""The event bus for programs: the seed's names and fields, order, isolation, what a child hears."""

import asyncio
import logging

import pytest
from tests.runs.run_scene import Scene, until

from retinue.core.events import Compacted
from retinue.core.messages import user
from retinue.core.usage import Usage
from retinue.runs.bus import BUS_NAMES, EventBus


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch, max_concurrent=1)


class Heard(list):
    """Everything on the bus, as (name, data)."""

    def __init__(self, bus: EventBus, **options) -> None:
        super().__init__()
        for name in sorted(BUS_NAMES):
            bus.on(name, lambda data, name=name: self.append((name.removeprefix("subagents:"), data)), **options)

    def names(self, run_id=None):
        return [name for name, data in self if run_id in (None, data.get("id"))]

    def data(self, name):
        return [data for each, data in self if each == name]


async def test_the_life_of_an_agent_in_order_with_the_fields_of_the_seed(scene):
    heard = Heard(scene.supervisor.bridge.bus)
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child", description="a look", call_id="c1")
        await until(lambda: "started" in heard.names())
        assert child.steer_now("only src")
        scene.model("child").call("ls")
        await scene.model("child").asked()
        scene.model("child").say("the finding", Usage(100, 20, 7, 3, 0.5))
        await child.wait()
        await until(lambda: "completed" in heard.names())
    assert heard.names(child.id) == ["created", "started", "steered", "completed"]
    (created,) = heard.data("created")
    assert created["type"] == "general-purpose"
    assert (created["description"], created["depth"], created["isBackground"]) == ("a look", 1, True)
    assert (created["status"], created["toolUses"], created["parentId"]) == ("running", 0, main.id)
    assert "parentAgentId" not in created
    assert created["invocation"]["model"] == "anthropic/claude-sonnet-4-5"
    assert heard.data("steered")[0]["message"] == "only src"
    (done,) = heard.data("completed")
    assert (done["result"], done["status"], done["toolUses"]) == ("the finding", "completed", 1)
    assert done["tokens"] == {"input": 110, "output": 25, "total": 139}
    assert done["usage"]["cacheRead"] == 9
    assert done["completedAt"] >= done["startedAt"]
    assert "error" not in done


async def test_errors_and_stops_are_failures_and_a_queued_agent_says_so(scene):
    heard = Heard(scene.supervisor.bridge.bus)
    async with scene:
        main = await scene.main()
        first = await scene.child(main, "first")
        queued = await scene.spawn(main, "second", background=True)
        scene.supervisor.stop(scene.supervisor.members[queued.id], "Not needed.")
        scene.model("first").fail("no more")
        await first.wait()
        await until(lambda: heard.names().count("failed") == 2)
    assert [data["status"] for data in heard.data("created")] == ["running", "queued"]
    assert heard.names(queued.id) == ["created", "failed"]
    ends = {data["id"]: data for data in heard.data("failed")}
    assert (ends[queued.id]["status"], ends[queued.id]["error"]) == ("stopped", "Stopped before it had started.")
    assert "tokens" not in ends[queued.id]
    assert (ends[first.id]["status"], ends[first.id]["error"]) == ("error", "no more")


async def test_agents_of_agents_are_heard_with_depth_and_parent_but_not_what_is_between_them(scene):
    heard = Heard(scene.supervisor.bridge.bus)
    async with scene:
        main = await scene.main()
        child = await scene.child(main, "child")
        below = Heard(scene.supervisor.bridge.bus, within=child.id)
        grandchild = await scene.child(child, "grandchild")
        await until(lambda: "started" in below.names())
        grandchild.steer_now("psst")
        child.steer_now("hello")
        scene.model("grandchild").call("ls")
        await scene.model("grandchild").asked()
        compacted = Compacted("manual", "pruned", 100, 50, (user("x"),))
        grandchild.record(compacted)
        scene.model("grandchild").say("deep")
        await grandchild.wait()
        await until(lambda: "completed" in heard.names(grandchild.id))
        assert heard.names(grandchild.id) == ["created", "started", "compacted", "completed"]
        assert below.names(grandchild.id) == ["created", "started", "steered", "compacted", "completed"]
        assert below.names(child.id) == []
        assert heard.names(child.id) == ["created", "started", "steered"]
        assert heard.names(main.id) == []
    for name in ("created", "compacted", "completed"):
        (data,) = [data for data in heard.data(name) if data["id"] == grandchild.id]
        assert (data["depth"], data["parentAgentId"], data["parentId"]) == (2, child.id, child.id)
    (data,) = heard.data("compacted")
    assert (data["reason"], data["tokensBefore"], data["compactionCount"]) == ("manual", 100, 1)


async def test_readiness_is_announced_once_when_the_session_begins_and_not_before(scene):
    heard = Heard(scene.supervisor.bridge.bus)
    assert heard == []
    async with scene:
        await scene.supervisor.__aenter__()
        assert heard.names() == ["settings_loaded", "ready"]
        (loaded,) = heard.data("settings_loaded")
        assert loaded["settings"]["maxConcurrent"] == 1
        assert "providers" not in loaded["settings"]
        folder = scene.folder / "project" / ".retinue"
        folder.mkdir()
        (folder / "settings.json").write_text('{"graceTurns": 9}')
        scene.supervisor.reload_settings()
        (changed,) = heard.data("settings_changed")
        assert (changed["settings"]["graceTurns"], changed["persisted"]) == (9, True)


async def test_raising_the_limit_live_starts_what_waits(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch)
    folder = tmp_path / "project" / ".retinue"
    folder.mkdir()
    (folder / "settings.json").write_text('{"maxConcurrent": 1}')
    scene.again()
    async with scene:
        main = await scene.main()
        await scene.child(main, "first")
        await scene.spawn(main, "second", background=True)
        assert scene.supervisor.queue.waiting
        (folder / "settings.json").write_text('{"maxConcurrent": 2}')
        scene.supervisor.reload_settings()
        await scene.model("second").asked()


async def test_a_handler_that_fails_harms_nobody(scene, caplog):
    bus = scene.supervisor.bridge.bus
    told = []

    async def fails_later(data):
        await asyncio.sleep(0)
        raise ValueError("later")

    def fails(data):
        raise RuntimeError("at once")

    bus.on("subagents:completed", fails)
    bus.on("subagents:completed", fails_later)
    bus.on("subagents:completed", lambda data: told.append(data["id"]))
    with caplog.at_level(logging.ERROR, logger="retinue.events"):
        async with scene:
            main = await scene.main()
            child = await scene.child(main, "child")
            scene.model("child").say("done")
            assert (await child.wait()).ended == "completed"
            await until(lambda: told)
            await until(lambda: len(caplog.records) == 2)
    assert told == [child.id]


async def test_a_listener_that_has_left_hears_nothing_more(scene):
    async with scene:
        told = []
        off = scene.supervisor.bridge.bus.on("x", told.append)
        scene.supervisor.bridge.bus.emit("x", {"n": 1})
        off()
        off()
        scene.supervisor.bridge.bus.emit("x", {"n": 2})
        assert told == [{"n": 1}]


async def test_events_can_be_iterated_and_every_end_comes_before_the_session_is_over(scene):
    async with scene:
        stream = scene.supervisor.bridge.bus.stream("subagents:created", "subagents:failed")
        main = await scene.main()
        child = await scene.child(main, "child")
        first = await anext(stream)
        assert (first.name, first.data["id"]) == ("subagents:created", child.id)
    last = await anext(stream)
    assert (last.name, last.data["id"], last.data["status"]) == ("subagents:failed", child.id, "stopped")
    stream.close()
    assert [event async for event in stream] == []


async def test_without_listeners_the_log_is_not_followed(scene):
    async with scene:
        assert "bridge" not in vars(scene.supervisor)
        bus = scene.supervisor.bridge.bus
        bus.on("my:own:channel", print)
        assert not bus.has_listeners
        await scene.main()
        assert scene.supervisor.project.log._subscribers == {}
