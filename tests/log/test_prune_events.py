"""Old runs lose their events and keep what they were asked, how they ended, and every sum."""

import log_stories as stories
import pytest
from test_activity import written

from retinue.core.events import RunEnded, RunPruned
from retinue.core.outcome import Outcome
from retinue.core.run_state import RunPlace
from retinue.errors import StateError
from retinue.log.activity import activity, spending, totals
from retinue.log.database import log_file
from retinue.log.migrations import RARE_TYPES
from retinue.log.prune import prunable, prune_events
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.log.troubles import troubles

RUNS = ["run-parent", "run-child"]


async def finished(folder):
    """The log of the tests of activity, with its runs ended, and a run with much output."""
    log = await written(folder)
    log.append(RunPlace("run-child", "run-parent", "run-parent"), RunEnded(Outcome("completed", "Found.")))
    for body in stories.opening("Read much"):
        log.append(RunPlace("long"), body)
    for number in range(1, 40):
        made = stories.call(number)
        for body in stories.asking(number, [made]):
            if body.type == "tool.ended":
                body = type(body)(made.id, made.name, stories.result(made, "x" * 20_000), body.effect, 3)
            log.append(RunPlace("long"), body)
    log.append(RunPlace("long"), stories.ending("All read."))
    await log.close()


async def test_sums_stay_and_the_file_shrinks(tmp_path, database):
    await finished(tmp_path)
    with LogReader.open(tmp_path) as reader:
        rows = reader.list_runs()
    size = log_file(tmp_path).stat().st_size if database is None else 0
    costs = [spending(tmp_path, by) for by in ("agent", "run", "tree", "model")]
    calls, wrong = totals(activity(tmp_path)), troubles(tmp_path, limit=None)
    done = prune_events(tmp_path, [*RUNS, "long"])
    # A server gives the space to new rows only.
    assert (done.runs, done.busy) == (3, database is not None)
    if database is None:
        assert done.bytes > 700_000
        assert log_file(tmp_path).stat().st_size < size / 4
    assert [spending(tmp_path, by) for by in ("agent", "run", "tree", "model")] == costs
    assert [row.total for row in totals(activity(tmp_path))] == [row.total - row.pending for row in calls]
    assert troubles(tmp_path, limit=None) == wrong
    with LogReader.open(tmp_path) as reader:
        assert reader.list_runs() == rows
        events = reader.events("long")
        assert [event.body.type for event in events] == ["run.created", "run.ended", "run.pruned"]
        assert events[-1].body == RunPruned(39 * 6 + 2)
        assert reader.outcome("long").text == "All read."
        assert prunable(reader, ["long", "other"]) == ["other"]
        with pytest.raises(StateError, match="cannot be resumed"):
            reader.conversation("long")


async def test_a_run_that_is_at_work_again_is_left_alone(tmp_path):
    await finished(tmp_path)
    async with Log.open(tmp_path) as log:
        await log.claim("long")
        with pytest.raises(StateError, match="at work again"):
            prune_events(tmp_path, ["long"])
        assert len(log.reader.events("long")) > 200


@pytest.mark.slow
async def test_the_space_is_left_to_new_runs_while_another_process_reads(tmp_path):
    await finished(tmp_path)
    with LogReader.open(tmp_path) as reader:
        reader.select("BEGIN")
        reader.select("SELECT count(*) FROM runs")
        done = prune_events(tmp_path, ["long"])
        reader.select("COMMIT")
    assert done.busy
    assert done.events == 39 * 6 + 2


async def test_rare_events_are_found_by_their_index(tmp_path, database):
    await finished(tmp_path)
    query = f"SELECT run_id FROM events WHERE type='run.pruned' AND {RARE_TYPES}"
    with LogReader.open(tmp_path) as reader:
        if database is None:
            (row,) = reader.select(f"EXPLAIN QUERY PLAN {query}")
            plan = row["detail"]
        else:
            # The table of a test is so small that the server would read it whole.
            reader.select("SELECT set_config('enable_seqscan', 'off', false)")
            plan = " ".join(row[0] for row in reader.select(f"EXPLAIN {query}"))
    assert "events_rare" in plan
