"""A child's ceiling is a matter of rights, not of its parent's tools."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.runs.run_scene import Scene

from retinue.core.delegation import Refusal
from retinue.core.events import ToolEnded
from retinue.core.permission import READ_ONLY
from retinue.core.request import EVERYTHING, Ceiling, RunRequest
from retinue.core.run_state import ActiveRun
from retinue.core.spec import AgentSpec, ModelPolicy, ToolPolicy
from retinue.core.usage import Budget
from retinue.errors import LaunchError
from retinue.runs.guard import RunGuards

COORDINATOR = AgentSpec(name="main", prompt="x", tools=ToolPolicy(allow=("Agent(Explore, general-purpose)",)))
WRITING = {"write", "edit"}


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


def spec(*allow: str, deny: tuple[str, ...] = (), **more) -> AgentSpec:
    return AgentSpec(name="main", prompt="x", tools=ToolPolicy(allow=allow or None, deny=deny), **more)


def tools_of(node) -> set[str]:
    return {tool.spec.name for tool in node.tools}


async def test_a_coordinator_starts_the_agents_it_names_with_the_tools_of_their_own_files(scene):
    async with scene:
        main = await scene.main(spec=COORDINATOR)
        explore = await scene.child(main, "look", agent="Explore")
        general = await scene.child(main, "build")
        assert {"read", "grep"} <= tools_of(explore)
        assert not explore.tools[0].spec.effects - READ_ONLY
        assert {"read", "write", "edit", "bash"} <= tools_of(general)
        assert not general.readonly
        scene.model("build").call("write", path="made.txt", content="made")
        await scene.model("build").asked()
        assert (scene.folder / "project" / "made.txt").read_text() == "made"


async def test_a_coordinator_starts_nobody_else_and_its_model_is_offered_nobody_else(scene):
    async with scene:
        main = await scene.main(spec=COORDINATOR)
        refused = await scene.spawn(main, "plan", agent="Plan")
        assert isinstance(refused, Refusal)
        listed = refused.message.partition("Available agents: ")[2].rstrip(".").split(", ")
        assert {name.casefold() for name in listed} == {"explore", "general-purpose"}
        offered = next(tool.spec for tool in main.tools if tool.spec.name == "Agent")
        assert "Plan" not in offered.description.split("general-purpose")[0]


@pytest.mark.parametrize("allow", [("Read", "Agent(Explore)"), ("Read", "Agent"), ("Read", "Task")])
async def test_an_agent_that_may_start_others_can_read_their_results(scene, allow):
    async with scene:
        main = await scene.main(spec=spec(*allow))
        assert {"Agent", "get_subagent_result", "steer_subagent"} <= tools_of(main)


@pytest.mark.parametrize(
    "above",
    [
        spec("read", "Agent"),
        spec("Agent"),
        spec("read", "Write(docs/**)", "Bash(git *)", "Agent"),
        spec(deny=("write", "edit", "bash")),
        spec("read", "write", "Agent", readonly=True),
        spec("read", "Agent(general-purpose)", readonly=True),
        spec(readonly=True),
    ],
)
async def test_a_run_that_cannot_write_starts_read_only_children(scene, above):
    async with scene:
        main = await scene.main(spec=above)
        child = await scene.child(main, "child")
        assert child.readonly
        assert not WRITING & tools_of(child)
        assert any("read-only" in note for note in child.snapshot().notes)
        nested = await scene.child(child, "nested")
        assert nested.readonly


async def test_plan_mode_starts_agents_and_they_can_change_nothing(scene):
    async with scene:
        main = await scene.main(permission_mode="plan")
        assert "Agent" in tools_of(main)
        scene.model("main").call("Agent", prompt="child", description="d", subagent_type="general-purpose")
        await scene.model("child").asked()
        (child,) = main.children
        assert child.readonly
        assert child.mode == "plan"
        scene.model("child").call("bash", command="touch made.txt")
        await scene.model("child").asked()
        assert not (scene.folder / "project" / "made.txt").exists()
        explore = await scene.child(main, "look", agent="Explore")
        assert {"read", "grep"} <= tools_of(explore)


async def test_what_a_file_denies_by_name_the_agents_it_starts_unnamed_do_not_have(scene):
    async with scene:
        main = await scene.main(spec=spec(deny=("Bash",)))
        child = await scene.child(main, "child")
        nested = await scene.child(child, "nested")
        for node in (child, nested):
            assert "bash" not in tools_of(node)
            assert "write" in tools_of(node)


async def test_a_child_that_never_started_has_its_ceiling_after_a_restart(tmp_path, monkeypatch):
    scene = Scene(tmp_path, monkeypatch, max_concurrent=1)
    async with scene:
        main = await scene.main(spec=spec("read", "Agent"))
        await scene.child(main, "first")
        view = await scene.spawn(main, "second", background=True)
        assert isinstance(view, ActiveRun)
        assert view.status == "queued"
    async with scene.again():
        again = await scene.supervisor.resume(view.id, "go on")
        await scene.model("second").asked()
        assert again.readonly
        assert not WRITING & tools_of(again)


@pytest.mark.parametrize("data", [None, 3, {}, {"readonly": "x"}, {"denied": 3}])
def test_a_ceiling_that_cannot_be_read_lets_nothing_be_changed(data):
    assert Ceiling.read(data).readonly


def test_a_ceiling_is_read_as_it_was_said():
    made = Ceiling(denied=("Bash",), servers=("db",))
    assert Ceiling.read(made.as_dict()) == made


TOOLS = st.lists(
    st.sampled_from(["read", "write", "Write(docs/**)", "bash", "Bash(git *)", "grep"]), unique=True, max_size=4
)
STARTING = st.sampled_from(["Agent", "Agent(general-purpose)"])
SCOPE = ("anthropic/claude-sonnet-4-5", "anthropic/claude-haiku-4-5", "house/unpriced")
OUTSIDE = "anthropic/claude-opus-4-5"
MODELS_OF_FILES = st.sampled_from([None, None, None, SCOPE[1], SCOPE[2], OUTSIDE])
MODELS_OF_CALLS = st.sampled_from([None, None, SCOPE[1], SCOPE[2], OUTSIDE, OUTSIDE])
"""What files and calls say; a call's counts where the file says none."""
BUDGETS = st.builds(
    Budget,
    tokens=st.sampled_from([None, 5_000, 100_000]),
    usd=st.sampled_from([None, None, 1.0, 20.0]),
    turns=st.sampled_from([None, 10, 40]),
    tool_calls=st.sampled_from([None, 3, 7]),
    seconds=st.sampled_from([None, 60.0, 600.0]),
    spawns=st.sampled_from([None, 3, 5]),
)
LEVELS = st.lists(
    st.builds(
        lambda tools, starting, deny, readonly, everything, model, budget: AgentSpec(
            name="general-purpose",
            prompt="x",
            subagents=True if everything else None,
            tools=ToolPolicy(allow=None if everything else (*tools, starting), deny=tuple(deny)),
            readonly=readonly or None,
            model=ModelPolicy(model),
            budget=budget,
        ),
        TOOLS,
        STARTING,
        st.lists(st.sampled_from(["bash", "write", "Bash(git push*)"]), unique=True, max_size=2),
        st.booleans(),
        st.booleans(),
        MODELS_OF_FILES,
        BUDGETS,
    ),
    min_size=2,
    max_size=3,
)
USES = (
    ("write", {"path": "docs/a.txt", "content": "x"}),
    ("write", {"path": "a.txt", "content": "x"}),
    ("bash", {"command": "git status"}),
    ("bash", {"command": "git push origin"}),
    ("bash", {"command": "touch b.txt"}),
)
MODES = st.sampled_from(["plan", "default", "acceptEdits", "bypassPermissions"])


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(LEVELS, MODES, st.lists(st.tuples(MODELS_OF_CALLS, st.none() | BUDGETS), min_size=2, max_size=2))
def test_no_run_of_any_tree_has_a_right_that_the_run_above_it_could_not_give(levels, mode, calls):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        asyncio.run(_descend(Path(folder), patch, levels, mode, calls))


async def _descend(folder: Path, patch: pytest.MonkeyPatch, levels: list[AgentSpec], mode: str, calls) -> None:
    """Starts one run below the other, each by its own file and call, and compares what they may do."""
    house = {"house": {"baseUrl": "https://house.invalid/v1", "api": "openai", "apiKey": "k", "models": ["unpriced"]}}
    limits = {"scope_models": "true", "enabled_models": ",".join(SCOPE), "providers": json.dumps(house)}
    scene = Scene(folder, patch, max_subagent_depth=5, **limits)
    async with scene:
        main = replace(levels[0], name="main")
        request = RunRequest(spec=main, task="main", cwd=folder / "project", pinned=EVERYTHING, permission_mode=mode)
        try:
            above = await scene.supervisor.start(request)
        except LaunchError:  # a budget of dollars and a model without a price
            return
        if above.account.verdict() is not None:
            return
        for depth, (file, (model, budget)) in enumerate(zip(levels[1:], calls, strict=False)):
            if "Agent" not in tools_of(above):
                return
            entry = SimpleNamespace(spec=file, enabled=True)
            patch.setattr("retinue.runs.requests._entry", lambda *_, found=entry: found)
            left = above.account.remaining()
            view = await scene.spawn(above, f"run {depth}", background=True, model=model, budget=budget)
            if isinstance(view, Refusal):
                return
            below = scene.supervisor.members[view.id]
            _compare_spending(left, below, model)
            if below.account.verdict() is not None:
                return  # it wraps up at once: nothing is left to compare
            await scene.model(f"run {depth}").asked()
            _compare(scene, above, below)
            above = below


def _compare_spending(left: Budget, below, asked: str | None) -> None:
    """`left` is what the run above could give away, `asked` the model that its call named."""
    lower = below.account.remaining()
    assert lower == lower.within(left), (lower, left)
    info = below.launch.model.info
    if lower.usd is not None:
        assert info.prices is not None
    if info.full_name not in SCOPE:
        assert info.full_name != asked or below.launch.request.spec.model.name == asked
        assert any("is not among the enabled models" in note for note in below.notes)


def _compare(scene: Scene, above, below) -> None:
    upper, lower = above.launch, below.launch
    named = "Agent(general-purpose)" in (upper.request.spec.tools.allow or ())
    writes = any(
        tool.spec.effects - READ_ONLY - {"spawn"} and tool.spec.name not in upper.patterns.allowed
        for tool in upper.tools
    )
    if upper.readonly or not (named or writes):
        assert lower.readonly
    if lower.readonly:
        assert not WRITING & tools_of(below)
    if not named:
        denied = {entry for entry in upper.request.spec.tools.deny if "(" not in entry}
        assert not denied & tools_of(below)
    guards = scene.supervisor.project.part(RunGuards)
    for tool, arguments in USES:
        if tool not in tools_of(below):
            continue
        first = _verdict(guards[above.id], tool, arguments)
        second = _verdict(guards[below.id], tool, arguments)
        assert _STRENGTH[second] >= _STRENGTH[first], (tool, arguments, first, second)


_STRENGTH = {"allow": 0, "confine": 1, "ask": 2, "deny": 3}


def _verdict(guard, tool: str, arguments) -> str:
    from retinue.core.permission import ToolUse
    from retinue.core.tool_names import TOOL_EFFECTS as EFFECTS

    return guard.permissions.decide(ToolUse(tool, arguments, EFFECTS[tool])).verdict


async def test_a_denial_of_a_rule_holds_for_the_agents_of_a_coordinator(scene):
    limited = spec("Bash(git *)", "Agent(general-purpose)")
    async with scene:
        main = await scene.main(spec=limited)
        child = await scene.child(main, "child")
        scene.model("child").call("bash", command="touch made.txt")
        await scene.model("child").asked()
        await scene.supervisor.project.log.flush()
        events = scene.supervisor.project.log.reader.events(child.id)
        (ended,) = [event.body for event in events if isinstance(event.body, ToolEnded)]
        assert "allows only bash(git *)" in ended.result.text
        assert not (scene.folder / "project" / "made.txt").exists()
