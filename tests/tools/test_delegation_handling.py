"""steer_subagent, list_subagents and clear_subagents."""

from __future__ import annotations

import pytest
from delegation_scene import FakeDelegate

from retinue.core.usage import Usage
from retinue.loop.schema_check import problem
from retinue.tools.delegation.manage import ClearSubagentsTool, ListSubagentsTool, SteerSubagentTool


async def use(tool, context, **arguments):
    assert problem(arguments, tool.spec.parameters) is None
    return await tool.run("c", arguments, context)


async def test_a_message_to_an_agent_that_is_not_ready_is_kept_and_said_to_be(context):
    supervisor = FakeDelegate()
    view = supervisor.add("starting")
    for text in ("first", "second"):
        made = await use(SteerSubagentTool(supervisor), context, agent_id=view.id, message=text)
        assert "kept" in made.text
        assert "delivered as soon as" in made.text
        assert not made.is_error
    assert supervisor.messages == [(view.id, "first"), (view.id, "second")]


async def test_a_delivered_message_is_confirmed_with_the_state_of_the_agent(context):
    supervisor = FakeDelegate()
    view = supervisor.add("running", usage=Usage(33_000, 800), tool_uses=1, context_percent=62.4, compactions=2)
    made = await use(SteerSubagentTool(supervisor), context, agent_id="@" + view.id, message=" Only src/ ")
    assert "after its current tool execution" in made.text
    assert made.text.endswith("Current state: 33.8k tokens · 1 tool use · context 62% full · 2 compactions")
    assert supervisor.messages == [(view.id, "Only src/")]


@pytest.mark.parametrize("status", ["queued", "completed", "error", "stopped"])
async def test_a_refused_message_is_an_error_that_names_the_status(context, status):
    supervisor = FakeDelegate()
    made = await use(SteerSubagentTool(supervisor), context, agent_id=supervisor.add(status).id, message="x")
    assert made.is_error
    assert status in made.text
    assert supervisor.messages == []


async def test_steering_needs_an_agent_and_a_message(context):
    supervisor = FakeDelegate()
    unknown = await use(SteerSubagentTool(supervisor), context, agent_id="nope", message="x")
    assert unknown.is_error
    assert "Agent not found" in unknown.text
    blank = await use(SteerSubagentTool(supervisor), context, agent_id=supervisor.add().id, message="  ")
    assert blank.is_error
    assert supervisor.messages == []


async def test_the_list_shows_what_is_at_work_what_failed_and_two_successes(context):
    supervisor = FakeDelegate()
    old = [supervisor.add("completed", description=f"old {number}") for number in range(3)]
    failed = supervisor.add("error", error="529\nline", description="broken")
    stopped = supervisor.add("interrupted", description="cut off")
    new = [supervisor.add(status, description="new", consumed=True) for status in ("completed", "steered")]
    queued = supervisor.add("queued", name="bob")
    running = supervisor.add("running", last_tool="reading\nfiles")
    made = await use(ListSubagentsTool(supervisor), context)
    lines = made.text.split("\n")
    ids = [line.split()[0] for line in lines[:-1]]
    assert ids == [running.id, queued.id, stopped.id, failed.id, new[1].id, new[0].id]
    assert lines[0].endswith("[running] Explore: " + running.description + " - reading files")
    assert " @bob [queued] " in lines[1]
    assert lines[3].endswith("- 529 line")
    assert lines[-1] == "[3 older successful agents hidden; all: true shows them]"
    everything = await use(ListSubagentsTool(supervisor), context, all=True)
    assert all(view.id in everything.text for view in old)
    assert "hidden" not in everything.text


async def test_the_list_marks_results_that_were_not_read_yet(context):
    supervisor = FakeDelegate()
    supervisor.add("completed", consumed=True)
    supervisor.add("completed")
    newest, read = (await use(ListSubagentsTool(supervisor), context)).text.split("\n")
    assert "not read yet" in newest
    assert "not read yet" not in read


async def test_the_list_of_nobody_and_of_a_thousand(context):
    supervisor = FakeDelegate()
    assert (await use(ListSubagentsTool(supervisor), context)).text == "You have started no agents."
    for _ in range(1_000):
        supervisor.add("running")
    lines = (await use(ListSubagentsTool(supervisor), context)).text.split("\n")
    assert len(lines) == 201
    assert lines[-1] == "[800 more are not shown]"


async def test_clearing_by_age_leaves_young_ones_failures_and_live_ones(context):
    supervisor = FakeDelegate()
    now = supervisor.clock.now()
    old = supervisor.add("completed", ended_at=now - 400)
    young = supervisor.add("completed", ended_at=now - 100)
    failed = supervisor.add("error", ended_at=now - 400)
    live = supervisor.add("running")
    made = await use(ClearSubagentsTool(supervisor), context)
    assert made.text == f"Cleared 1: {old.id}"
    again = await use(ClearSubagentsTool(supervisor), context)
    assert "No agent ended more than 5 minutes ago" in again.text
    assert "include_errors" in again.text
    made = await use(ClearSubagentsTool(supervisor), context, older_than_minutes=0, include_errors=True)
    assert {young.id, failed.id} <= set(made.text.replace(",", "").split())
    assert [view.id for view in supervisor.children()] == [live.id]


async def test_clearing_by_id_ignores_age_and_reports_each_that_cannot_be(context):
    supervisor = FakeDelegate()
    now = supervisor.clock.now()
    one = supervisor.add("completed", id="aaaa1111-1", ended_at=now)
    supervisor.add("completed", id="aaaa2222-2", ended_at=now)
    bad = supervisor.add("error", id="bbbb3333-3", name="bob", ended_at=now)
    live = supervisor.add("running", id="cccc4444-4")
    made = await use(
        ClearSubagentsTool(supervisor), context, agent_ids=["aaaa1", "aaaa", "@bob", "cccc", "zzzz", "aa", ""]
    )
    lines = made.text.split("\n")
    assert made.is_error
    assert lines[0] == f"Cleared 2: {one.id}, {bad.id}"
    assert lines[1] == "aaaa: could be any of aaaa2222-2, aaaa1111-1"
    assert lines[2].startswith("cccc: is running")
    assert lines[3:] == ["zzzz: there is no such agent", "aa: there is no such agent", '"": there is no such agent']
    assert live in supervisor.children()


async def test_an_exact_id_wins_over_a_longer_one_that_begins_with_it(context):
    supervisor = FakeDelegate()
    supervisor.add("completed", id="aaaa")
    supervisor.add("completed", id="aaaa1")
    made = await use(ClearSubagentsTool(supervisor), context, agent_ids=["aaaa"])
    assert made.text == "Cleared 1: aaaa"
    assert not made.is_error


@pytest.mark.parametrize(
    "arguments", [{"agent_ids": [1]}, {"agent_ids": {"a": 1}}, {"older_than_minutes": -1}, {"older_than_minutes": "x"}]
)
async def test_clearing_with_nonsense_clears_nothing(context, arguments):
    supervisor = FakeDelegate()
    supervisor.add("completed", ended_at=0.0)
    made = await ClearSubagentsTool(supervisor).run("c", arguments, context)
    assert made.is_error
    assert len(supervisor.children()) == 1
