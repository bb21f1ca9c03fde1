"""Every name that others use is known, and whatever stands in one field touches no other."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from settings_home import Home

from retinue.errors import ConfigurationError
from retinue.settings.load import RETIRED, check_limits, load_settings
from retinue.settings.table import fields, spellings
from retinue.settings.write import save_settings

PI = {
    "maxConcurrent": ([1, 1024], [0, 1025, 1.5, "4", True]),
    "defaultMaxTurns": ([0, 10_000], [-1, 10_001, 2.5]),
    "graceTurns": ([1, 1_000], [0, 1_001]),
    "defaultJoinMode": (["async", "group", "smart"], ["sync", True]),
    "schedulingEnabled": ([True, False], [1, "true"]),
    "scopeModels": ([True], [0]),
    "disableDefaultAgents": ([True], ["yes"]),
    "toolDescriptionMode": (["full", "compact", "custom"], ["short"]),
    "waitTimeoutSeconds": ([30, 3_600], [29, 3_601]),
    "abortResendKey": (["f9"], ["", 9]),
    "widgetDisplayMode": (["auto", "rich", "compact"], ["tiny"]),
    "fleetView": ([False], [0]),
    "widgetMode": (["all", "background", "off"], ["some"]),
    "outputTranscript": ([False], ["false"]),
    "backgroundByDefault": ([False], [0]),
    "maxSubagentDepth": ([0, 16], [-1, 17, 1.5]),
    "fallbackSubagent": (["scout", "none", False], [5, True]),
    "strictAgentFiles": ([True], [1]),
    "agentMentions": (["model", "direct", "off", True, False], ["on", 1]),
    "worktreeIsolation": ([False], [0]),
    "showCost": ([True], ["x"]),
}
"""The settings of pi-subagents, each with values that it takes and some that it does not."""
WITHOUT_EFFECT = ("rollupChildUsage", "herdrReportWorking", "rememberAgents", "reportUsage", "web.cache")
"""Settings of pi-subagents without a counterpart here, and of earlier versions of Retinue."""


@pytest.fixture
def place(tmp_path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("name", PI)
def test_every_setting_of_pi_subagents_is_known_by_its_name_and_range(place: Home, name: str) -> None:
    good, bad = PI[name]
    for value in good:
        place.write(place.user_file, {name: value})
        assert place.listed().warnings == [], value
    for value in bad:
        place.write(place.user_file, {name: value, "budget": {"spawns": 7}})
        loaded = place.listed()
        assert loaded["budget.spawns"] == 7
        (warning,) = loaded.warnings
        assert str(place.user_file) in warning
        assert name in warning


def test_a_removed_setting_in_a_file_or_the_environment_is_told_with_what_happens_now(place: Home) -> None:
    place.write(place.project_file, {"web": {"maxResults": 3}, "taskFileAbove": 9})
    told = place.listed(environment={"RETINUE_SCHEDULE_MAX_JOBS": "2"}).warnings
    gone = "it has no effect"
    assert [warning.removeprefix(f"{place.project_file}: ") for warning in told] == [
        f"web.maxResults is no setting any more, {gone}: one search gives 5 results at most",
        f"taskFileAbove is no setting any more, {gone}: tasks of more than 24,000 characters are handed over as a file",
        f"environment: RETINUE_SCHEDULE_MAX_JOBS is no variable any more, {gone}: there may be 50 jobs at a time",
    ]


@pytest.mark.parametrize("where", ["file", "environment"])
def test_a_removed_budget_refuses_the_launch_and_is_no_limit_that_got_lost(place: Home, where: str) -> None:
    environment = {"RETINUE_BUDGET_TURNS": "3"} if where == "environment" else {}
    place.write(place.project_file, {"budget": {"turns": 3}} if where == "file" else {})
    with pytest.raises(ConfigurationError, match=r"any more.*defaultMaxTurns"):
        check_limits(load_settings(place.project, environment={**place.environment, **environment}))


def test_no_removed_setting_is_in_the_table_and_the_table_stays_small() -> None:
    assert not set(RETIRED) & set(spellings())
    assert len(fields()) <= 110


def test_the_old_limit_of_tool_calls_is_a_budget_and_never_wider(place: Home) -> None:
    place.write(place.project_file, {"maxToolCalls": 3})
    assert place.listed()["budget.toolCalls"] == 3
    place.write(place.project_file, {"maxToolCalls": 0})
    loaded = place.listed()
    assert loaded.warnings == []
    assert loaded["budget.toolCalls"] == 10**9, "0 meant no limit"


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_setting_that_nothing_reads_is_said_to_have_no_effect(place: Home, name: str) -> None:
    place.write(place.project_file, {name: True})
    (warning,) = place.listed().warnings
    assert f"{name} is no setting any more, it has no effect" in warning


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
some_fields = st.dictionaries(st.sampled_from(sorted(spellings())), json_values, max_size=6)


def nested(flat: dict[str, object]) -> dict[str, object]:
    """`{"a.b": 1}` as files write it; where two names want the same place, one of them."""
    data: dict[str, object] = {}
    for name, value in flat.items():
        level = data
        *groups, last = name.split(".")
        for group in groups:
            inner = level.setdefault(group, {})
            level = inner if isinstance(inner, dict) else {}
        level.setdefault(last, value)
    return data


@effort(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(flat=some_fields)
def test_whatever_stands_in_a_file_loads_and_every_warning_names_file_and_field(place: Home, flat) -> None:
    place.write(place.project_file, json.dumps(nested({**flat, "graceTurns": 9})))
    loaded = load_settings(place.project, environment=place.environment)
    assert loaded.settings.grace_turns == 9
    for problem in loaded.problems:
        assert problem.where == str(place.project_file)
        assert problem.field
    for field in fields().values():
        getattr(loaded.settings, field.attribute)


@effort(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(unknown=st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda t: t not in spellings()), json_values))
def test_what_a_write_does_not_know_stays_as_it_was(place: Home, unknown) -> None:
    unknown = {name: value for name, value in unknown.items() if name.partition(".")[0] not in ("graceTurns",)}
    text = json.dumps(unknown)
    place.write(place.project_file, text)
    saved = save_settings({"graceTurns": 4}, cwd=place.project, environment=place.environment)
    assert saved.persisted
    after = json.loads(place.project_file.read_text())
    assert after.pop("graceTurns") == 4
    assert json.dumps(after) == text


def test_the_settings_of_plugins_and_questions_are_in_the_table(place: Home) -> None:
    said = {"plugins": ["a", 5], "disabledPlugins": ["b"], "questions": "later", "wakeMain": False}
    place.write(place.project_file, said)
    loaded = place.listed()
    assert (loaded["plugins"], loaded["disabledPlugins"]) == (["a"], ["b"])
    assert (loaded["questions"], loaded["wakeMain"]) == ("wait", False)
    assert [problem.field for problem in loaded.problems] == ["plugins[1]", "questions"]
