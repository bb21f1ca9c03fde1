"""The settings files of other programs: layers below ours, each with its origin."""

from __future__ import annotations

from pathlib import Path

import pytest
from settings_home import Home

from retinue.settings.foreign import DEVKIT_SETTINGS, PI_SETTINGS
from retinue.settings.table import spellings


def pi_user(place: Home) -> Path:
    return place.home / ".pi/agent/subagents.json"


def pi_project(place: Home) -> Path:
    return place.project / ".pi/subagents.json"


def devkit(place: Home) -> Path:
    return place.home / ".pi/agent/extensions/devkit-pi/config.json"


def test_pis_files_are_layers_below_ours_and_the_projects_goes_before_the_users(place: Home) -> None:
    place.write(pi_user(place), {"maxConcurrent": 16, "graceTurns": 10, "defaultJoinMode": "smart"})
    place.write(pi_project(place), {"graceTurns": 11, "defaultJoinMode": "group"})
    place.write(place.user_file, {"defaultJoinMode": "async"})
    loaded = place.listed()
    settings = loaded
    assert (settings["maxConcurrent"], settings["graceTurns"], settings["defaultJoinMode"]) == (16, 11, "async")
    assert settings.rows["maxConcurrent"]["origin"] == {"layer": "pi", "where": str(pi_user(place))}
    assert settings.rows["graceTurns"]["origin"] == {"layer": "pi project", "where": str(pi_project(place))}
    assert settings.layers("defaultJoinMode") == [("pi", "smart"), ("pi project", "group"), ("user", "async")]
    assert loaded.problems == [] and loaded.unused == []


@pytest.mark.parametrize("name", PI_SETTINGS)
def test_every_setting_of_pi_subagents_that_we_have_is_taken(place: Home, name: str) -> None:
    value = place.listed().rows[name]["default"]
    place.write(pi_project(place), {name: value if value is not None else 7 if name == "defaultMaxTurns" else "x"})
    loaded = place.listed()
    assert loaded.problems == []
    assert loaded.layer(name) == "pi project"


def test_pis_user_folder_can_be_moved_and_the_projects_file_is_found_from_below(place: Home) -> None:
    moved = place.home / "moved"
    place.write(moved / "subagents.json", {"maxConcurrent": 5})
    place.write(moved / "extensions/devkit-pi/config.json", {"subagents": {"maxDepth": 1}})
    place.write(pi_project(place), {"graceTurns": 3})
    below = place.project / "a/b"
    below.mkdir(parents=True)
    settings = place.listed(below, environment={"PI_CODING_AGENT_DIR": str(moved)})
    assert (settings["maxConcurrent"], settings["maxSubagentDepth"], settings["graceTurns"]) == (5, 1, 3)


def test_devkit_pis_file_is_read_by_its_own_names(place: Home) -> None:
    subagents = {"timeoutMs": 900_000, "allowWrite": True, "retry": {"enabled": True, "maxAttempts": 2}}
    web = {"provider": "ddgs", "cache": {"ttlMs": 60_000}, "enableJinaFallback": True}
    place.write(devkit(place), {"subagents": subagents, "web": web, "guards": {"mode": "confirm"}, "x": {"y": 1}})
    loaded = place.listed()
    settings = loaded
    assert (settings["timeoutSeconds"], settings["allowWrite"], settings["retry.maxAttempts"]) == (900.0, True, 2)
    assert settings["web.provider"] == "ddgs"
    assert settings.rows["allowWrite"]["origin"]["where"] == str(devkit(place))
    (unused,) = loaded.unused
    assert (unused.where, unused.field) == (
        str(devkit(place)),
        "web.cache.ttlMs, web.enableJinaFallback, guards.mode, x",
    )


def test_every_name_of_devkit_pi_that_is_read_is_one_of_ours() -> None:
    assert set(DEVKIT_SETTINGS) <= set(spellings())


@pytest.mark.parametrize(
    "lsp", [{"enabled": False, "tool": {"enabled": True}}, {"tool": {"enabled": False}}, {"enabled": False}]
)
def test_a_switch_of_devkit_pi_that_is_off_is_not_switched_on_by_another(place: Home, lsp: dict) -> None:
    place.write(devkit(place), {"subagents": {"allowLspTools": True}, "lsp": lsp})
    assert place.listed()["lsp.enabled"] is False


def test_codingcodes_switch_and_its_disabled_agents_are_read(place: Home) -> None:
    place.write(place.home / ".codingcode/config.yaml", "model: x\nsubagent:\n  enabled: false\n")
    place.write(place.project / ".codingcode/config.yaml", "subagent:\n  disabledAgents: [Plan, explore]\n")
    loaded = place.listed()
    assert loaded["subagents.enabled"] is False
    assert loaded["permissions.deny"] == ["Agent(Plan)", "Agent(explore)"]
    assert [problem.field for problem in loaded.unused] == ["model"]
    (layer,) = loaded.rows["permissions.deny"]["layers"]
    assert (layer["layer"], layer["name"]) == ("codingcode project", "subagent.disabledAgents")


@pytest.mark.parametrize("text", ["{", "[]", "\x00", ": : :"])
def test_a_file_that_cannot_be_read_is_named_and_the_others_count(place: Home, text: str) -> None:
    place.write(pi_project(place), text)
    place.write(place.project / ".codingcode/config.yaml", text if text != "{" else "{a")
    place.write(pi_user(place), {"graceTurns": 9})
    loaded = place.listed()
    assert loaded["graceTurns"] == 9
    named = {problem.where for problem in loaded.problems}
    assert named == {str(pi_project(place)), str(place.project / ".codingcode/config.yaml")}


def test_a_bad_value_falls_alone_and_what_has_no_counterpart_is_told_once(place: Home) -> None:
    place.write(pi_user(place), {"graceTurns": 0, "maxConcurrent": 6, "herdrReportWorking": True, "theme": "dark"})
    loaded = place.listed()
    assert loaded["maxConcurrent"] == 6 and loaded["theme"] == "auto"
    (problem,) = loaded.problems
    assert (problem.where, problem.field) == (str(pi_user(place)), "graceTurns")
    (unused,) = loaded.unused
    assert unused.field == "herdrReportWorking, theme"
