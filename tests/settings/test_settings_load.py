"""Where settings come from, and what wins."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from settings_home import Home
from tests.git_folder import make_git_folder

import retinue
from retinue.settings.field import Origin
from retinue.settings.load import explain_variables, load_settings
from retinue.settings.table import Settings


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_missing_files_give_the_defaults_without_a_word_and_create_nothing(place: Home, tmp_path: Path) -> None:
    before = files_of(tmp_path)
    loaded = place.listed()
    assert loaded.changed == {}
    assert loaded.warnings == []
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    "text", ["{", "", "nonsense", '{"maxConcurrent": 8', "[1]", '"text"', "null", "7", b"\xff\xfe{}", "{" * 100_000]
)
def test_a_malformed_file_counts_as_empty_with_one_warning(place: Home, text: str | bytes) -> None:
    place.write(place.user_file, {"maxConcurrent": 9})
    place.write(place.project_file, text)
    loaded = place.listed()
    assert loaded["maxConcurrent"] == 9
    assert len(loaded.warnings) == 1
    assert str(place.project_file) in loaded.warnings[0]


def test_a_syntax_error_is_located(place: Home) -> None:
    place.write(place.project_file, '{\n  "maxConcurrent": 8,\n}')
    assert "line 3" in place.listed().warnings[0]


def test_global_only_project_only_and_merged_field_by_field(place: Home) -> None:
    place.write(place.user_file, {"maxConcurrent": 9, "graceTurns": 7})
    assert place.listed()["maxConcurrent"] == 9
    place.write(place.project_file, {"graceTurns": 2, "retry": {"enabled": False}})
    place.write(place.local_file, {"retry": {"maxAttempts": 3}})
    settings = place.listed()
    assert (settings["maxConcurrent"], settings["graceTurns"]) == (9, 2)
    assert (settings["retry.enabled"], settings["retry.maxAttempts"]) == (False, 3)


def test_unknown_names_are_always_reported_and_a_slip_with_what_was_meant(place: Home) -> None:
    place.write(place.project_file, {"outputStyle": {}, "editorMode": "vim", "maxConcurent": 8, "grace_turns": 2})
    loaded = place.listed()
    assert loaded.changed == {}
    assert set(loaded.unknown) == {"outputStyle", "editorMode", "maxConcurent", "grace_turns"}
    said = {problem.field: problem.message for problem in loaded.problems}
    assert "did you mean maxConcurrent?" in said["maxConcurent"]
    assert "did you mean graceTurns?" in said["grace_turns"]
    assert "is not a setting, it has no effect" in said["outputStyle"]
    assert "is not a setting, it has no effect" in said["editorMode"]


def test_a_misspelt_guard_is_reported_with_what_it_costs_whether_group_or_name(place: Home) -> None:
    place.write(place.project_file, {"permisions": {"deny": ["Bash"]}, "permissions": {"dney": ["Bash"], "allow": []}})
    said = {problem.field: problem.message for problem in place.listed().problems}
    assert said == {
        "permisions": "is not a setting; did you mean permissions? The rules in it protect nothing until it is "
        "corrected.",
        "permissions.dney": "is not a setting; did you mean permissions.deny? The rules in it protect nothing until "
        "it is corrected.",
    }


def test_a_group_that_is_no_object_is_reported_with_what_belongs_in_it(place: Home) -> None:
    place.write(place.project_file, {"retry": True, "$schema": "https://example.com/schema.json"})
    (problem,) = place.listed().problems
    assert (problem.field, problem.message) == ("retry", "is ignored; it must be an object with enabled, maxAttempts")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget.allowUnpriced", True),
        ("lsp.sandbox", "off"),
        ("sandbox.network", "on"),
        ("sandbox.network", ["pypi.org"]),
        ("sandbox.passEnvironment", ["TOKEN"]),
        ("statusLine.command", "date"),
        ("worktree.shell", "checked"),
    ],
)
def test_what_counts_only_in_your_own_settings_has_no_effect_in_a_project_and_is_said(
    place: Home, name: str, value: Any
) -> None:
    for path in (place.project_file, place.local_file):
        place.write(path, {name: value})
        loaded = place.listed()
        assert name not in loaded.changed
        (problem,) = loaded.problems
        assert (problem.where, problem.field) == (str(path), name)
        assert "counts only in your own settings" in problem.message
        path.unlink()
    place.write(place.user_file, {name: value})
    loaded = place.listed()
    assert (loaded[name], loaded.problems) == (value, [])


def test_a_project_may_still_ask_for_less_than_your_own_settings_allow(place: Home) -> None:
    place.write(place.user_file, {"sandbox": {"network": ["pypi.org"]}})
    place.write(place.project_file, {"sandbox": {"network": ["evil.example"]}})
    assert place.listed()["sandbox.network"] == ["pypi.org"]
    place.write(place.project_file, {"sandbox": {"network": "off"}})
    assert place.listed()["sandbox.network"] == "off"


def test_the_order_is_user_project_local_environment_flag(place: Home) -> None:
    layers: list[tuple[Origin, Any]] = []
    place.write(place.user_file, {"maxConcurrent": 1})
    layers.append((Origin("user", str(place.user_file)), 1))
    place.write(place.project_file, {"maxConcurrent": 2})
    layers.append((Origin("project", str(place.project_file)), 2))
    place.write(place.local_file, {"maxConcurrent": 3})
    layers.append((Origin("local", str(place.local_file)), 3))
    place.environment["RETINUE_MAX_CONCURRENT"] = "4"
    layers.append((Origin("environment", "RETINUE_MAX_CONCURRENT"), 4))
    loaded = load_settings(place.project, environment=place.environment, flags={"maxConcurrent": 5})
    layers.append((Origin("flag", "maxConcurrent"), 5))
    told = loaded.explain("maxConcurrent")
    assert told.value == loaded.get("max_concurrent") == 5
    assert told.origin == layers[-1][0]
    assert [(origin, value) for origin, _, value in told.layers] == layers
    assert Settings().origin("max_concurrent").layer == "default"
    with pytest.raises(KeyError):
        loaded.explain("nonsense")


def test_the_nearest_project_folder_counts_up_to_the_repository_and_no_further(place: Home) -> None:
    place.write(place.project.parent / ".retinue" / "settings.json", {"maxConcurrent": 99})
    deep = place.project / "a" / "b"
    deep.mkdir(parents=True)
    assert place.listed(deep)["maxConcurrent"] == 4
    place.write(place.project_file, {"maxConcurrent": 2})
    assert place.listed(deep)["maxConcurrent"] == 2
    place.write(place.project / "a" / ".retinue" / "settings.local.json", {"maxConcurrent": 3})
    assert place.listed(deep)["maxConcurrent"] == 3
    assert place.listed(place.project)["maxConcurrent"] == 2


def test_without_a_repository_only_the_folder_itself_counts(tmp_path: Path, place: Home) -> None:
    plain = tmp_path / "plain" / "sub"
    plain.mkdir(parents=True)
    place.write(tmp_path / "plain" / ".retinue" / "settings.json", {"maxConcurrent": 9})
    assert place.listed(plain)["maxConcurrent"] == 4
    assert place.listed(plain.parent)["maxConcurrent"] == 9


def test_the_users_own_file_is_never_taken_for_a_projects(place: Home) -> None:
    place.write(place.user_file, {"maxConcurrent": 9})
    make_git_folder(place.home)
    assert place.listed(place.home).layers("maxConcurrent") == [("user", 9)]
    moved = place.listed(place.project, environment={"RETINUE_HOME": str(place.project / ".retinue")})
    assert moved["maxConcurrent"] == 4
    place.write(place.project_file, {"maxConcurrent": 8})
    moved = place.listed(place.project, environment={"RETINUE_HOME": str(place.project / ".retinue")})
    assert moved.layer("maxConcurrent") == "user"


def test_providers_and_models_merge_by_name_and_know_their_file(place: Home) -> None:
    place.write(place.user_file, {"providers": {"ollama": {}, "mine": {"baseUrl": "http://localhost:1"}}})
    place.write(place.project_file, {"providers": {"mine": {"baseUrl": "http://localhost:2"}, "new": {}}})
    settings = load_settings(place.project, environment=place.environment).settings
    assert list(settings.providers) == ["ollama", "mine", "new"]
    assert settings.providers["mine"] == {"baseUrl": "http://localhost:2"}
    assert settings.origin("providers.ollama").personal
    assert not settings.origin("providers.mine").personal


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("RETINUE_MODEL", "anthropic/claude-haiku-4-5", "model", "anthropic/claude-haiku-4-5"),
        ("RETINUE_MODEL", "inherit", "model", None),
        ("RETINUE_MODEL", "  ", "model", None),
        ("RETINUE_SCOPE_MODELS", "yes", "scopeModels", True),
        ("RETINUE_DISABLE_DEFAULT_AGENTS", "1", "disableDefaultAgents", True),
        ("RETINUE_OUTPUT_TRANSCRIPT", "off", "outputTranscript", False),
        ("RETINUE_TIMEOUT_SECONDS", "2.5", "timeoutSeconds", 2.5),
        ("RETINUE_ENABLED_MODELS", "a/b, c/d", "enabledModels", ["a/b", "c/d"]),
        ("RETINUE_EXTRA_ROOTS", '["/a,b"]', "extraRoots", ["/a,b"]),
        ("RETINUE_PROVIDERS", '{"ollama": {}}', "providers", {"ollama": {}}),
        ("RETINUE_AGENT_MENTIONS", "false", "agentMentions", "off"),
        ("RETINUE_FALLBACK_SUBAGENT", "false", "fallbackSubagent", False),
        ("PI_ABORT_RESEND_KEY", "f8", "abortResendKey", "f8"),
        ("PI_SUBAGENT_MAX_DEPTH", "2", "maxSubagentDepth", 2),
    ],
)
def test_every_setting_has_a_variable(place: Home, variable: str, text: str, name: str, value: Any) -> None:
    loaded = place.listed(environment={variable: text})
    assert loaded[name] == value
    assert loaded.warnings == []


def test_a_bad_variable_is_named_and_dropped(place: Home) -> None:
    loaded = place.listed(environment={"RETINUE_MAX_CONCURRENT": "many", "RETINUE_GRACE_TURNS": "3"})
    assert loaded["graceTurns"] == 3
    assert loaded["maxConcurrent"] == 4
    assert loaded.warnings == [
        "RETINUE_MAX_CONCURRENT: maxConcurrent is ignored; it must be a whole number from 1 to 1024",
    ]


def test_variables_that_mean_nothing_are_reported_and_a_slip_with_what_was_meant(place: Home) -> None:
    environment = {
        "RETINUE_MAX_CONCURENT": "8",
        "RETINUE_PERMISSION_DENY": "Bash",
        "RETINUE_COFFEE": "black",
        "RETINUE_REMEMBER_AGENTS": "1",
        "RETINUE_WEB_CACHE_SECONDS": "60",
        "RETINUE_RUN_CALL": "x",
        "RETINUE_PROJECT_DIR": "/x",
        "PI_SOMETHING": "else",
    }
    assert place.listed(environment=environment).warnings == [
        "environment: RETINUE_MAX_CONCURENT is not a variable of Retinue, it has no effect; "
        "did you mean RETINUE_MAX_CONCURRENT?",
        "environment: RETINUE_PERMISSION_DENY is not a variable of Retinue, it has no effect; "
        "did you mean RETINUE_PERMISSIONS_DENY?",
        "environment: RETINUE_COFFEE is not a variable of Retinue, it has no effect. "
        "All settings: retinue settings list --all",
        "environment: RETINUE_REMEMBER_AGENTS is no variable any more, it has no effect: "
        "finished agents can always be addressed again",
        "environment: RETINUE_WEB_CACHE_SECONDS is no variable any more, it has no effect: "
        "a page is fetched again each time it is asked for",
    ]


def test_every_variable_that_the_code_reads_is_known() -> None:
    package = Path(retinue.__file__).parent
    source = "\n".join(path.read_text() for path in package.rglob("*.py"))
    read = set(re.findall(r"""["'{](RETINUE_[A-Z_]*[A-Z])["'}]""", source)) - {"RETINUE_ERROR"}
    assert read >= {"RETINUE_HOME"}
    assert explain_variables(read) == {}


def test_strange_things_in_the_files_place_never_hang_or_crash(place: Home) -> None:
    place.project_file.parent.mkdir(parents=True)
    os.mkfifo(place.project_file)
    place.local_file.mkdir()
    loaded = place.listed()
    assert loaded.changed == {}
    assert len(loaded.warnings) == 2
    place.project_file.unlink()
    place.project_file.symlink_to("/dev/zero")
    place.local_file.rmdir()
    place.local_file.symlink_to(place.local_file)
    assert len(place.listed().warnings) == 2


def test_a_bom_is_no_error(place: Home) -> None:
    place.write(place.project_file, b'\xef\xbb\xbf{"maxConcurrent": 8}')
    assert place.listed()["maxConcurrent"] == 8


def test_the_real_environment_is_the_default(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETINUE_HOME", str(place.home / "elsewhere"))
    place.write(place.home / "elsewhere" / "settings.json", {"maxConcurrent": 12})
    assert load_settings(place.project).settings.max_concurrent == 12
    assert load_settings(str(place.project)).settings.max_concurrent == 12
