"""Which models may be used: the cases E of the conformance list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue.errors import ConfigurationError
from retinue.models.resolve import ModelScope, OutOfScopeError, load_scope
from retinue.models.select import select_model
from retinue.settings.load import load_settings
from retinue.settings.table import Settings
from retinue.testing import ModelInfo

SONNET = ModelInfo("anthropic", "claude-sonnet-4-6")
HAIKU = ModelInfo("anthropic", "claude-haiku-4-5")
CLOUD = ModelInfo("ollama", "gpt-oss:20b-cloud")
AVAILABLE = (SONNET, HAIKU, CLOUD)


def scope_of(entries: list[str] | None, folder: Path, *, on: bool = True) -> ModelScope:
    settings = Settings({"scope_models": on, "enabled_models": None if entries is None else tuple(entries)})
    return load_scope(settings, AVAILABLE)


def test_without_a_usable_list_everything_is_allowed(tmp_path: Path) -> None:
    for scope in (
        scope_of(["anthropic/claude-haiku-4-5"], tmp_path, on=False),
        scope_of(None, tmp_path),
        scope_of([], tmp_path),
    ):
        assert scope.allowed == ()
        assert scope.permits(SONNET)


@pytest.mark.parametrize("entries", [["haiku"], ["*sonnet*"], ["openai/gpt-4o"], ["claude-haiku-4-5"], ["anthropic/"]])
def test_a_list_that_names_no_available_model_refuses_the_launch(tmp_path: Path, entries: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        scope_of(entries, tmp_path)
    assert entries[0] in refused.value.message
    assert "provider/id" in refused.value.remedy


def test_in_scope_is_allowed_whatever_the_capitals(tmp_path: Path) -> None:
    scope = scope_of(["Anthropic/Claude-Haiku-4-5"], tmp_path)
    assert scope.allowed == ("anthropic/claude-haiku-4-5",)
    assert scope.permits(HAIKU)
    assert not scope.permits(SONNET)


def test_the_refusal_lists_what_is_allowed_sorted(tmp_path: Path) -> None:
    scope = scope_of(["ollama/gpt-oss:20b-cloud", "anthropic/claude-haiku-4-5"], tmp_path)
    text = str(scope.refusal("sonnet"))
    assert text.startswith('Model not in scope: "sonnet".')
    assert text.endswith("  anthropic/claude-haiku-4-5\n  ollama/gpt-oss:20b-cloud")


def test_a_colon_is_part_of_the_id_and_bare_ids_do_not_count(tmp_path: Path) -> None:
    assert scope_of(["ollama/gpt-oss:20b-cloud"], tmp_path).allowed == ("ollama/gpt-oss:20b-cloud",)
    entries = ["anthropic/claude-haiku-4-5:high", "claude-haiku-4-5", "anthropic/claude-sonnet-4-6"]
    assert scope_of(entries, tmp_path).allowed == ("anthropic/claude-sonnet-4-6",)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def listed(folder: Path) -> list[str]:
    environment = {"HOME": str(folder / "home")}
    return list(load_settings(folder, environment=environment).settings.enabled_models or ())


def test_the_projects_list_replaces_the_users(tmp_path: Path) -> None:
    write(tmp_path / "home/.pi/agent/settings.json", json.dumps({"enabledModels": ["a/global"]}))
    assert listed(tmp_path) == ["a/global"]
    write(tmp_path / ".pi/settings.json", json.dumps({"theme": "dark"}))
    assert listed(tmp_path) == ["a/global"]
    write(tmp_path / ".pi/settings.json", json.dumps({"enabledModels": ["a/project", " ", "", 7, " a/two "]}))
    assert listed(tmp_path) == ["a/project", "a/two"]
    write(tmp_path / ".retinue/settings.json", json.dumps({"enabledModels": ["a/ours"]}))
    assert listed(tmp_path) == ["a/ours"]


@pytest.mark.parametrize("text", ["{", "[]", '{"enabledModels": "a/b"}', '{"enabledModels": {"a": 1}}', "\x00"])
def test_what_is_not_a_list_counts_as_none(tmp_path: Path, text: str) -> None:
    write(tmp_path / "home/.pi/agent/settings.json", json.dumps({"enabledModels": ["a/global"]}))
    write(tmp_path / ".pi/settings.json", text)
    assert listed(tmp_path) == ["a/global"]


def test_pi_home_can_be_moved(tmp_path: Path) -> None:
    write(tmp_path / "moved/settings.json", json.dumps({"enabledModels": ["a/moved"]}))
    environment = {"HOME": str(tmp_path), "PI_CODING_AGENT_DIR": str(tmp_path / "moved")}
    assert load_settings(tmp_path, environment=environment).settings.enabled_models == ("a/moved",)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    entries = ["anthropic/claude-haiku-4-5", "ollama/my-own:7b"]
    write(tmp_path / ".retinue/settings.json", json.dumps({"scopeModels": True, "enabledModels": entries}))
    return tmp_path


def environment_of(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder / "home"), "ANTHROPIC_API_KEY": "key"}


async def test_a_caller_out_of_scope_is_refused_and_a_file_is_warned(project: Path) -> None:
    environment = environment_of(project)
    settings = load_settings(project, environment=environment).settings
    with pytest.raises(OutOfScopeError) as refused:
        await select_model("sonnet", settings=settings, environment=environment)
    assert "anthropic/claude-haiku-4-5" in refused.value.remedy
    assert refused.value.exit_code == 2
    of_file = await select_model(None, file_model="sonnet", settings=settings, environment=environment)
    assert of_file.info.id.startswith("claude-sonnet")
    assert "not among the enabled models" in " ".join(of_file.warnings)
    inherited = await select_model(None, parent=of_file.info, settings=settings, environment=environment)
    assert inherited.info == of_file.info
    assert inherited.warnings


async def test_in_scope_or_switched_off_nothing_is_said(project: Path) -> None:
    environment = environment_of(project)
    settings = load_settings(project, environment=environment).settings
    for name in ("haiku 4.5", "ollama/my-own:7b"):
        chosen = await select_model(name, settings=settings, environment=environment)
        assert chosen.warnings == ()
    off = settings.replace(scope_models=False)
    assert (await select_model("sonnet", settings=off, environment=environment)).warnings == ()


async def test_a_family_means_the_newest_model_that_is_allowed(tmp_path: Path) -> None:
    entries = ["anthropic/claude-haiku-4-5", "anthropic/claude-sonnet-4-5"]
    write(tmp_path / ".retinue/settings.json", json.dumps({"scopeModels": True, "enabledModels": entries}))
    environment = environment_of(tmp_path)
    settings = load_settings(tmp_path, environment=environment).settings
    for family, model in (("haiku", entries[0]), ("sonnet", entries[1])):
        assert (await select_model(family, settings=settings, environment=environment)).info.full_name == model
        chosen = await select_model(None, file_model=family, settings=settings, environment=environment)
        assert (chosen.info.full_name, chosen.warnings) == (model, ())
