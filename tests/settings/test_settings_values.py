"""What each setting accepts: validation, one field at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from settings_home import Home, Listed

from retinue.settings.load import load_settings
from retinue.settings.table import Settings, fields, find, spellings

ACCEPTED = [
    ("maxConcurrent", 1, 1),
    ("maxConcurrent", 1024, 1024),
    ("defaultMaxTurns", 0, None),
    ("defaultMaxTurns", 10_000, 10_000),
    ("graceTurns", 1, 1),
    ("graceTurns", 1000, 1000),
    ("defaultJoinMode", "async", "async"),
    ("defaultJoinMode", "group", "group"),
    ("defaultJoinMode", "smart", "smart"),
    ("toolDescriptionMode", "full", "full"),
    ("toolDescriptionMode", "compact", "compact"),
    ("toolDescriptionMode", "custom", "custom"),
    ("widgetMode", "all", "all"),
    ("widgetMode", "off", "off"),
    ("widgetDisplayMode", "rich", "rich"),
    ("maxSubagentDepth", 0, 0),
    ("maxSubagentDepth", 16, 16),
    ("fallbackSubagent", "Explore", "Explore"),
    ("fallbackSubagent", False, False),
    ("fallbackSubagent", "none", False),
    ("agentMentions", "direct", "direct"),
    ("agentMentions", True, "model"),
    ("agentMentions", False, "off"),
    ("waitTimeoutSeconds", 30, 30),
    ("waitTimeoutSeconds", 3600, 3600),
    ("abortResendKey", " f8 ", "f8"),
    ("scopeModels", True, True),
    ("idleTimeoutSeconds", 0, None),
    ("timeoutSeconds", 0.5, 0.5),
    ("enabledModels", ["a/b", " a/b ", "", " ", "c/d"], ["a/b", "c/d"]),
    ("compaction", {"at": 0.5}, None),
]

REFUSED = [
    *(("maxConcurrent", value) for value in (0, -1, 1025, 1.0, 2.5, "4", True, [4], {})),
    *(("defaultMaxTurns", value) for value in (-1, 10_001, 0.5, "0", False)),
    *(("graceTurns", value) for value in (0, -1, 1001, 1.5, "5")),
    *(("defaultJoinMode", value) for value in ("Async", "", "all", 1, True, ["async"])),
    *(("toolDescriptionMode", value) for value in ("FULL", "short", 0, {})),
    *(("widgetMode", value) for value in ("on", True, 1)),
    *(("maxSubagentDepth", value) for value in (-1, 17, 2.0, "2", True)),
    *(("fallbackSubagent", value) for value in (True, 0, "", "  ", [], {})),
    *(("agentMentions", value) for value in ("yes", 1, 0, [])),
    *(("waitTimeoutSeconds", value) for value in (29, 3601, 270.0)),
    *(("abortResendKey", value) for value in ("", "  ", 9, "f\n9", "\ud800")),
    *(("scopeModels", value) for value in (0, 1, "true", "false", [], {})),
    *(("timeoutSeconds", value) for value in (-1, "60", True, 1e12)),
    *(("enabledModels", value) for value in ("a/b", {}, 1)),
    *(("model", value) for value in ("", 1, [], False, "a\x00b")),
    *(("providers", value) for value in ([], "ollama", 1)),
]


@pytest.mark.parametrize(("name", "raw", "value"), ACCEPTED)
def test_accepted(load_project: Listed, name: str, raw: Any, value: Any) -> None:
    loaded = load_project({name: raw})
    assert loaded.warnings == []
    if name == "compaction":
        assert loaded["compaction.at"] == 0.5
    else:
        assert loaded[name] == value
        assert type(loaded[name]) is type(value)


@pytest.mark.parametrize(("name", "raw"), REFUSED)
def test_a_bad_value_falls_alone_and_is_named(load_project: Listed, place: Home, name: str, raw: Any) -> None:
    loaded = load_project(json.dumps({name: raw, "fleetView": False}))
    assert list(loaded.changed) == ["fleetView"]
    assert len(loaded.warnings) == 1
    assert loaded.warnings[0].startswith(f"{place.project_file}: {name} is ignored; it must be ")


def test_NaN_falls_as_one_field(load_project: Listed) -> None:
    loaded = load_project('{"maxConcurrent": NaN, "graceTurns": 2, "timeoutSeconds": Infinity}')
    assert loaded["graceTurns"] == 2
    assert len(loaded.warnings) == 2


def test_only_present_fields_apply_and_false_is_a_value(load_project: Listed, place: Home) -> None:
    place.write(place.user_file, {"outputTranscript": False, "fleetView": False})
    loaded = load_project({"outputTranscript": True})
    assert loaded["outputTranscript"] is True
    assert loaded["fleetView"] is False


def test_null_says_nothing(load_project: Listed, place: Home) -> None:
    place.write(place.user_file, {"maxConcurrent": 9})
    loaded = load_project({"maxConcurrent": None, "model": None})
    assert loaded["maxConcurrent"] == 9
    assert loaded.warnings == []


def test_the_names_of_devkit_are_understood(place: Home) -> None:
    place.write(
        place.user_file,
        {
            "subagents": {
                "enabled": False,
                "maxDepth": 1,
                "timeoutMs": 900_000,
                "idleTimeoutMs": 1_500,
                "allowWrite": True,
                "allowLspTools": False,
                "allowedLspActions": ["symbols", "rename", "symbols", "restart"],
                "injectDelegationPolicy": False,
                "retry": {"enabled": False, "maxAttempts": 3},
            }
        },
    )
    settings = place.listed()
    assert (settings["timeoutSeconds"], settings["idleTimeoutSeconds"]) == (900.0, 1.5)
    assert (settings["subagents.enabled"], settings["maxSubagentDepth"]) == (False, 1)
    assert (settings["allowWrite"], settings["allowLspTools"]) == (True, False)
    assert settings["allowedLspActions"] == ["symbols"]
    assert (settings["retry.enabled"], settings["retry.maxAttempts"]) == (False, 3)
    assert settings["injectDelegationPolicy"] is False
    assert len(settings.warnings) == 2  # rename and restart, which a sub-agent may not


def test_bad_values_of_devkit_names_leave_the_defaults(load_project: Listed) -> None:
    loaded = load_project(
        {"subagents": {"maxDepth": -1, "timeoutMs": 0, "retry": {"maxAttempts": 0}}, "timeoutMs": "9"}
    )
    assert loaded.changed == {}
    assert [problem.field for problem in loaded.problems] == [
        "subagents.maxDepth",
        "subagents.timeoutMs",
        "subagents.retry.maxAttempts",
        "timeoutMs",
    ]


def test_a_settings_own_name_wins_over_an_alias_in_the_same_file(load_project: Listed) -> None:
    loaded = load_project({"timeoutSeconds": 5, "timeoutMs": 9_000})
    assert loaded["timeoutSeconds"] == 5
    assert loaded.rows["timeoutSeconds"]["layers"][0]["name"] == "timeoutSeconds"
    assert load_project({"timeoutSeconds": "x", "timeoutMs": 9_000})["timeoutSeconds"] == 9


def test_the_bad_parts_of_a_provider_fall_one_by_one(load_project: Listed) -> None:
    loaded = load_project(
        {
            "providers": {
                "mine": {
                    "baseUrl": "http://localhost:1/v1",
                    "api": "telepathy",
                    "headers": {"x-a": "1", "x-b": 2},
                    "models": ["a", 7, {"id": "b", "window": -1, "thinking": True}],
                    "colour": "red",
                },
                "broken": [],
                "\x07": {},
                "a/b": {},
            },
            "models": {"mine/a": {"window": 1000, "prices": {"input": 1, "output": "two"}}, "x": 1},
        }
    )
    assert loaded["providers"] == {
        "mine": {
            "baseUrl": "http://localhost:1/v1",
            "headers": {"x-a": "1"},
            "models": ["a", {"id": "b", "thinking": True}],
        }
    }
    assert loaded["models"] == {"mine/a": {"window": 1000, "prices": {"input": 1.0}}}
    assert [problem.field for problem in loaded.problems] == [
        "providers.mine.api",
        "providers.mine.headers.x-b",
        "providers.mine.models[1]",
        "providers.mine.models[2].window",
        "providers.mine.colour",
        "providers.broken",
        "providers.'\\x07'",
        "providers.'a/b'",
        "models.mine/a.prices.output",
        "models.x",
    ]


def test_a_problem_never_quotes_the_value(load_project: Listed) -> None:
    loaded = load_project({"providers": {"mine": {"apiKey": ["sk-secret"]}}, "model": ["sk-secret"]})
    assert len(loaded.warnings) == 2
    assert "sk-secret" not in " ".join(loaded.warnings) + repr(loaded.rows) + str(loaded.problems)


def test_the_table_is_complete_and_unambiguous() -> None:
    names = [name for name in spellings() if "." not in name]
    assert len({name.lower() for name in names}) == len(names)
    for name, field in fields().items():
        assert field.doc.endswith("."), name
        assert field.section
        assert field.kind.accepts
        assert find(name) is field is find(field.attribute)
        assert field.variables[0] == f"RETINUE_{field.attribute.upper()}"


def test_settings_cannot_be_changed_in_place() -> None:
    settings = Settings()
    with pytest.raises(AttributeError):
        settings.max_concurrent = 5
    changed = settings.replace(max_concurrent=5)
    assert (changed.max_concurrent, settings.max_concurrent) == (5, 4)
    assert changed.origin("max_concurrent").layer == "flag"
    with pytest.raises(TypeError):
        settings.replace(nonsense=1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
names = st.sampled_from(sorted({*spellings(), "retry", "subagents", "compaction", "other"})) | st.text(max_size=8)


@hypothesis(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
@given(document=st.dictionaries(names, json_values, max_size=6))
def test_any_document_loads_and_every_value_keeps_its_type(place: Home, document: dict[str, Any]) -> None:
    place.write(place.project_file, document)
    loaded = load_settings(place.project, environment=place.environment)
    for field in fields().values():
        value = getattr(loaded.settings, field.attribute)
        loaded.explain(field.name)
        assert type(value) in {type(field.default), type(None), str, int, float, bool, tuple, dict}
    assert 1 <= loaded.settings.max_concurrent <= 1024
    assert isinstance(loaded.settings.scope_models, bool)
