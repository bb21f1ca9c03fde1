"""Jobs and their slots, with a clock that the test moves: R07 to R10, policies, two processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from retinue.capabilities.schedule.scheduler import Fired, Scheduler
from retinue.errors import UnknownAgentError, UnknownJobError, UsageError
from retinue.log import schedules
from retinue.runs.supervisor import Supervisor
from retinue.testing.fixtures import settle
from tests.runs.run_scene import Scene, until


class Post:
    """One process: a supervisor whose scheduler tells the test what it did."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.heard: list[Fired] = []
        self.scheduler = supervisor.schedules = Scheduler(supervisor, self.heard.append)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path, monkeypatch)
    made.model("tidy up").standing = "tidied"
    return made


@asynccontextmanager
async def posts(scene: Scene, count: int = 1) -> AsyncIterator[list[Post]]:
    """`count` processes on one log and one clock."""
    supervisors = [scene.supervisor, *(scene.again() for _ in range(count - 1))]
    for supervisor in supervisors:
        await supervisor.__aenter__()
    try:
        yield [Post(supervisor) for supervisor in supervisors]
    finally:
        for supervisor in supervisors:
            await supervisor.close()


async def look(*processes: Post) -> list[Fired]:
    """Every process looks at once; what each decided, and every run has ended."""
    found = await asyncio.gather(*(post.scheduler.tick() for post in processes))
    for post in processes:
        await post.supervisor.wait_all()
    return [fired for each in found for fired in each]


async def test_an_interval_fires_again_and_again(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "10m")
        for _ in range(3):
            assert await look(post) == []
            scene.clock._passed += 600
            (fired,) = await look(post)
            assert fired.run_id is not None
            assert post.supervisor.project.log.reader.run(fired.run_id).ended == "completed"
        assert post.scheduler.jobs()[0].runs == 3


@pytest.mark.parametrize("when", ["10m", "*/10 * * * *"])
async def test_a_clock_that_was_ahead_keeps_no_job_waiting(scene: Scene, when: str) -> None:
    async with posts(scene, 2) as both:
        await both[0].scheduler.add("Explore", "tidy up", when, zone="UTC", missed="catch-up")
        await look(*both)
        scene.clock._start += 86_400
        assert len(await look(*both)) == 1, "one run makes up for a day"
        scene.clock._start -= 86_400
        for _ in range(2):
            scene.clock._passed += 1
            assert await look(*both) == []
        for _ in range(3):
            scene.clock._passed += 600
            assert len(await look(*both)) == 1


async def test_a_delay_is_no_longer_when_the_clock_is_set_back(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "+10m")
        scene.clock._start -= 86_400
        for _ in range(2):
            assert await look(post) == []
        scene.clock._passed += 601
        assert len(await look(post)) == 1


@pytest.mark.parametrize("when", ["+10m", "10m"])
@pytest.mark.parametrize(("set_back_after", "right_after"), [(10, 310), (300, 310), (300, 590)])
async def test_a_clock_that_is_set_back_and_put_right_changes_no_time(scene, when, set_back_after, right_after) -> None:
    async with posts(scene, 2) as both:
        await both[0].scheduler.add("Explore", "tidy up", when)
        for passed in range(0, 600, 5):
            if passed == set_back_after:
                scene.clock._start -= 3_600
            if passed == right_after:
                scene.clock._start += 3_600
            assert await look(*both) == []
            scene.clock._passed += 5
        scene.clock._passed += 5
        (fired,) = await look(*both)
        assert fired.run_id is not None


async def test_a_delay_that_ends_while_the_clock_is_set_back_takes_its_time(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "+10m")
        assert await look(post) == []
        scene.clock._passed += 500
        scene.clock._start -= 86_400
        for _ in range(2):
            assert await look(post) == []
        scene.clock._passed += 101
        assert len(await look(post)) == 1


async def test_a_one_shot_fires_once_and_is_over(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "+10m")
        scene.clock._passed += 601
        assert len(await look(post)) == 1
        scene.clock._passed += 10_000
        assert await look(post) == []
        (job,) = post.scheduler.jobs()
        assert not job.enabled and job.next_at is None


async def test_a_job_that_is_off_never_fires_and_on_again_passes_over(scene: Scene) -> None:
    async with posts(scene) as (post,):
        job = await post.scheduler.add("Explore", "tidy up", "10m", name="tidy")
        await post.scheduler.enable("tidy", False)
        scene.clock._passed += 6_000
        assert await look(post) == []
        on = await post.scheduler.enable(job.id, True)
        assert on.next_at is not None and on.next_at > scene.clock.now()
        assert await look(post) == []


async def test_it_starts_past_a_full_queue(scene: Scene) -> None:
    async with posts(scene) as (post,):
        post.supervisor.queue.limit = 1
        main = await scene.main()
        await scene.child(main, "busy")
        await post.scheduler.add("Explore", "tidy up", "10m")
        scene.clock._passed += 600
        (fired,) = await post.scheduler.tick()
        await until(lambda: not post.supervisor.members[fired.run_id].live)


async def test_an_agent_that_is_gone_is_an_error_and_the_next_slot_stays_armed(tmp_path, monkeypatch) -> None:
    scene = Scene(tmp_path, monkeypatch, fallback_subagent="none")
    agents = scene.folder / "project/.retinue/agents"
    agents.mkdir(parents=True)
    (agents / "soon-gone.md").write_text("---\nname: soon-gone\ndescription: x\n---\nHello")
    async with posts(scene) as (post,):
        await post.scheduler.add("soon-gone", "tidy up", "10m")
        (agents / "soon-gone.md").unlink()
        await asyncio.sleep(0)
        scene.clock._passed += 600
        (fired,) = await look(post)
        assert fired.run_id is None and "soon-gone" in (fired.error or "")
        (job,) = post.scheduler.jobs()
        assert job.enabled and job.next_at is not None and job.next_at > scene.clock.now() and job.last_error


async def test_how_the_last_run_went_is_its_status(scene: Scene) -> None:
    from retinue.app.schedules import last_status

    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "10m")
        scene.clock._passed += 600
        await look(post)
        assert last_status(post.supervisor.project.log.reader, post.scheduler.jobs()[0]) == "success"
        await post.scheduler.add("Explore", "go wrong", "+10m", name="wrong")
        scene.clock._passed += 600
        await post.scheduler.tick()
        await scene.model("go wrong").asked()
        scene.model("go wrong").fail()
        await post.supervisor.wait_all()
        assert last_status(post.supervisor.project.log.reader, post.scheduler.find("wrong")) == "error"


async def test_names_are_unique_and_jobs_are_found_by_id_prefix_and_name(scene: Scene) -> None:
    async with posts(scene) as (post,):
        job = await post.scheduler.add("Explore", "tidy up", "10m", name="tidy")
        with pytest.raises(UsageError, match="already"):
            await post.scheduler.add("Explore", "tidy up", "20m", name="tidy")
        assert {post.scheduler.find(each).id for each in (job.id, job.id[:4], "tidy")} == {job.id}
        await post.scheduler.remove("tidy")
        with pytest.raises(UnknownJobError):
            post.scheduler.find("tidy")


async def test_what_cannot_be_is_refused_and_nothing_is_stored(scene: Scene) -> None:
    async with posts(scene) as (post,):
        for agent, task, when, error in (
            ("Explore", "tidy up", "0m", UsageError),
            ("Explore", "  ", "5m", UsageError),
            ("nobody-knows-me", "tidy up", "5m", UnknownAgentError),
        ):
            with pytest.raises(error):
                await post.scheduler.add(agent, task, when)
        assert post.scheduler.jobs() == []


async def test_a_removed_job_never_fires_not_even_when_it_was_due(scene: Scene) -> None:
    async with posts(scene, 2) as (one, other):
        job = await one.scheduler.add("Explore", "tidy up", "10m")
        scene.clock._passed += 600
        await other.scheduler.remove(job.id)
        assert await look(one, other) == []


async def test_too_many_jobs_are_refused(scene: Scene) -> None:
    async with posts(scene) as (post,):
        for number in range(50):
            await post.scheduler.add("Explore", "tidy up", "10m", name=f"job {number}")
        with pytest.raises(UsageError, match="50 jobs, which is the limit"):
            await post.scheduler.add("Explore", "tidy up", "10m", name="one more")


async def test_overlap_is_passed_over_and_counted(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "take long", "10m")
        scene.clock._passed += 600
        await post.scheduler.tick()
        await scene.model("take long").asked()
        for _ in range(3):
            scene.clock._passed += 600
            (passed,) = await post.scheduler.tick()
            assert passed.why == "overlap"
        scene.model("take long").say("done")
        await post.supervisor.wait_all()
        (job,) = post.scheduler.jobs()
        assert (job.runs, job.skipped) == (1, 3)


@pytest.mark.parametrize(("missed", "runs", "skipped"), [("skip", 0, 6), ("catch-up", 1, 5)])
async def test_missed_slots_are_passed_over_or_made_up_for_by_one_run(scene, missed, runs, skipped) -> None:
    async with posts(scene, 2) as (one, other):
        await one.scheduler.add("Explore", "tidy up", "1h", missed=missed)
        scene.clock._passed += 6 * 3_600 + 100
        await look(one, other)
        (job,) = one.scheduler.jobs()
        assert (job.runs, job.skipped) == (runs, skipped)
        assert job.next_at is not None and 0 < job.next_at - scene.clock.now() <= 3_600


async def test_a_missed_one_shot_is_over_by_policy_skip_and_runs_by_catch_up(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "+1h", name="skipped", missed="skip")
        await post.scheduler.add("Explore", "tidy up", "+1h", name="kept", missed="catch-up")
        scene.clock._passed += 100_000
        await look(post)
        jobs = {job.name: job for job in post.scheduler.jobs()}
        assert (jobs["skipped"].runs, jobs["skipped"].enabled) == (0, False)
        assert (jobs["kept"].runs, jobs["kept"].enabled) == (1, False)


async def test_a_clock_that_is_set_back_fires_nothing_twice(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "10m")
        scene.clock._passed += 600
        await look(post)
        scene.clock._start -= 3_600
        for _ in range(60):
            scene.clock._passed += 60
            await look(post)
        slots = [
            slot for slot, result, _ in schedules.slots(post.supervisor.project.log.reader, post.scheduler.jobs()[0].id)
        ]
        assert len(slots) == len(set(slots)) == post.scheduler.jobs()[0].runs


async def test_jitter_spreads_and_is_the_same_everywhere(scene: Scene) -> None:
    async with posts(scene, 2) as (one, other):
        for number in range(8):
            await one.scheduler.add("Explore", "tidy up", "1h", name=f"job {number}", jitter=600)
        scene.clock._passed += 3_600
        early = len(await look(one, other))
        fired = early
        for _ in range(20):
            scene.clock._passed += 30
            fired += len(await look(one, other))
        assert early < 8 and fired == 8


async def test_a_job_of_a_live_session_runs_below_it_and_its_end_is_told(scene: Scene) -> None:
    async with posts(scene) as (post,):
        main = await scene.main()
        await post.scheduler.add("Explore", "tidy up", "10m", session_id=main.id)
        scene.clock._passed += 600
        (fired,) = await post.scheduler.tick()
        assert fired.run_id is not None
        child = post.supervisor.members[fired.run_id]
        assert child.parent is main
        await until(lambda: not child.live)
        await scene.clock.advance(1)
        scene.model("main").say("go on")
        await scene.model("main").asked()
        assert await scene.heard(main) == [fired.run_id]


async def test_another_process_leaves_it_to_the_session_for_a_while(scene: Scene) -> None:
    async with posts(scene, 2) as (one, other):
        scene.supervisor = one.supervisor
        main = await scene.main()
        await one.scheduler.add("Explore", "tidy up", "10m", session_id=main.id)
        scene.clock._passed += 600
        assert await other.scheduler.tick() == []
        (fired,) = await one.scheduler.tick()
        assert one.supervisor.members[fired.run_id].parent is main


async def test_switching_scheduling_off_stops_everything_at_once(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "10m")
        (scene.folder / "project/.retinue").mkdir(exist_ok=True)
        (scene.folder / "project/.retinue/settings.json").write_text('{"schedulingEnabled": false}')
        post.supervisor.reload_settings()
        scene.clock._passed += 600
        assert await look(post) == []
        with pytest.raises(UsageError, match="switched off"):
            await post.scheduler.add("Explore", "tidy up", "10m", name="another")


async def test_begun_it_looks_by_itself(scene: Scene) -> None:
    async with posts(scene) as (post,):
        await post.scheduler.add("Explore", "tidy up", "30s")
        post.scheduler.begin()
        for _ in range(95):
            await scene.clock.advance(1)
            await until_quiet(post)
        assert post.scheduler.jobs()[0].runs == 3
        await post.scheduler.end()


async def until_quiet(post: Post) -> None:
    task: Callable[[], bool] = lambda: post.scheduler._task is None or post.scheduler._task.done()  # noqa: E731
    await until(task)
    await settle()


async def test_the_bus_tells_of_jobs(scene: Scene) -> None:
    async with posts(scene) as (post,):
        told: list[tuple[str, str]] = []
        post.supervisor.bridge.bus.on("subagents:scheduled", lambda data: told.append((data["type"], data["name"])))
        await post.scheduler.add("Explore", "tidy up", "10m", name="tidy")
        scene.clock._passed += 600
        await look(post)
        await post.scheduler.remove("tidy")
        assert told == [("added", "tidy"), ("fired", "tidy"), ("removed", "tidy")]


async def test_the_bus_tells_that_jobs_are_fired_from_now_on_and_how_many_are_enabled(scene: Scene) -> None:
    async with posts(scene) as (post,):
        told: list[int] = []
        post.supervisor.bridge.bus.on("subagents:scheduler_ready", lambda data: told.append(data["jobCount"]))
        await post.scheduler.add("Explore", "tidy up", "10m", name="one")
        await post.scheduler.add("Explore", "tidy up", "10m", name="two")
        await post.scheduler.enable("two", False)
        post.scheduler.begin()
        post.scheduler.begin()
        await settle()
        assert told == [1], "once"
        await post.scheduler.end()
