"""The first request of an agent: what it costs, what it offers, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from docs.requests import BEFORE, PLAIN, first_requests, largest_request
from tests.git_folder import make_git_folder

from retinue.app.dialogue import main_agent
from retinue.cluster import open_project
from retinue.core.messages import user
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec
from retinue.core.tool import shown_specs
from retinue.http.transport import Transport
from retinue.models.build import build_model
from retinue.models.select import select_model
from retinue.runs.offer import with_patches
from retinue.runs.preview import preview
from retinue.runs.project import Project
from retinue.settings.table import Settings
from retinue.testing import ModelRequest


def project_with(tmp_path: Path, **files: str) -> Project:
    cwd = tmp_path.resolve() / "project"
    make_git_folder(cwd)
    for name, text in files.items():
        path = cwd / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return open_project(
        cwd, environment={"HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home"), "PATH": "/usr/bin"}
    )


async def seen(project: Project, spec: AgentSpec | None = None, **request):
    above = None
    if request.pop("under_main", False):
        above = await preview(RunRequest(spec=main_agent(), task="x", cwd=project.cwd), project)
        request["depth"] = 1
    return await preview(RunRequest(spec=spec or main_agent(), task="x", cwd=project.cwd, **request), project, above)


def names(found) -> list[str]:
    return [tool.spec.name for tool in found.tools]


def test_the_first_request_of_main_stays_within_its_budget() -> None:
    sizes = {name: whole for name, _, _, _, whole in first_requests()}
    assert sizes["main"] <= 2_600, sizes
    assert sizes["general-purpose"] <= 3_000, sizes
    others = {name: size for name, size in sizes.items() if name not in ("main", "general-purpose", "retinue-guide")}
    assert max(others.values()) <= 1_500, sizes
    assert sizes["main"] < BEFORE["main"] * 0.75 and sizes["general-purpose"] < BEFORE["general-purpose"] * 0.75


def test_main_stays_within_its_budget_with_every_extra_installed_and_a_person_to_ask() -> None:
    _, tools, _, _, whole = largest_request()
    assert tools == 17
    assert whole <= 3_000


PROVIDERS = (
    "anthropic/claude-sonnet-5-5",
    "openrouter/anthropic/claude-sonnet-4.5",
    "openai/gpt-4.1",
    "openai/gpt-6.1-sol",
    "gemini/gemini-2.5-pro",
    "deepseek/deepseek-v4-pro",
    "mistral/mistral-large-latest",
    "xai/grok-4.7",
)


@pytest.mark.parametrize("mode", [None, "plan"])
@pytest.mark.parametrize("name", PROVIDERS)
async def test_main_stays_within_its_budget_in_the_words_of_every_provider(
    tmp_path: Path, name: str, mode: str | None
) -> None:
    """What really goes over the wire, with every extra installed and a person to ask."""

    async def nobody(item: Any) -> None: ...

    project = project_with(tmp_path)
    project.__dict__["unavailable"] = {}
    project.approvers.append(nobody)
    found = await seen(project, permission_mode=mode)
    variable = f"{name.partition('/')[0].upper()}_API_KEY"
    chosen = (await select_model(name, settings=Settings({}), environment={variable: "k"}))._replace(attempts=1)
    transport = Transport()
    model: Any = build_model(chosen, transport)
    specs = shown_specs(tool.spec for tool in with_patches(tuple(found.tools), chosen.info.id))
    asked = ModelRequest(system=found.system, messages=(user(found.message),), tools=specs, thinking="high")
    body = json.dumps(model.body(asked), separators=(",", ":"), ensure_ascii=False)
    await transport.close()
    # The path of the project is not ours to shorten.
    measured = len(body.replace(str(project.cwd), "/home/somebody/project").encode()) / 4
    assert 2_000 < measured <= 3_000


async def test_tools_that_cannot_work_here_are_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("capabilities.lsp", "capabilities.convert", "capabilities.web", "capabilities.web.searchers"):
        monkeypatch.setattr(f"retinue.{module}.find_spec", lambda name: None)
    project = project_with(tmp_path)
    assert set(project.unavailable) == set(PLAIN)
    assert not PLAIN.keys() & set(names(await seen(project)))


async def test_a_search_service_that_is_set_up_makes_the_search_available(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("retinue.capabilities.web.find_spec", lambda name: None)
    project = project_with(tmp_path)
    project.environment = {**project.environment, "BRAVE_SEARCH_API_KEY": "k"}
    assert "web_search" in names(await seen(project))


async def test_tools_that_another_one_stands_for_are_offered_only_by_name(tmp_path: Path) -> None:
    project = project_with(
        tmp_path,
        **{".retinue__agents__lister.md": "---\nname: lister\ntools: Agent, list_subagents, clear_subagents\n---\nx"},
    )
    main = names(await seen(project))
    assert not {"list_subagents", "clear_subagents", "get_search_content"} & set(main)
    lister = project.catalog().find("lister").spec
    assert {"list_subagents", "clear_subagents"} <= set(names(await seen(project, lister)))


async def test_a_twin_has_its_parents_tools_in_the_same_order_and_what_differs_last(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    main = await seen(project)
    twin = await seen(project, project.catalog().find("general-purpose").spec, under_main=True)
    shared = [tool for tool in main.tools if tool.spec.name != "ask_user"]
    assert [tool.spec for tool in twin.tools][: len(shared)] == [tool.spec for tool in shared]
    assert len(twin.tools) == len(shared)
    assert twin.system.startswith(main.system)
    assert twin.system.count("# Environment") == 1


async def test_plan_mode_says_what_it_is_and_how_it_ends(tmp_path: Path) -> None:
    found = await seen(project_with(tmp_path), permission_mode="plan")
    assert "Plan mode: you only read until a plan of yours is approved." in found.system
    assert "exit_plan" in names(found) and not {"write", "edit"} & set(names(found))
    child = await seen(
        project_with(tmp_path / "other"), AgentSpec(name="x", prompt="x"), permission_mode="plan", depth=1
    )
    assert "end with the plan as your answer" in child.system and "exit_plan" not in names(child)


async def test_a_run_that_nobody_can_approve_for_is_told_so(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    assert "Nobody can approve anything here" in (await seen(project)).system
    project.approvers.append(lambda item: None)  # type: ignore[arg-type, return-value]
    assert "Nobody can approve" not in (await seen(project)).system


async def test_an_agent_of_claude_code_knows_the_projects_rules_and_the_date(tmp_path: Path) -> None:
    claude = "---\nname: helper\ndescription: d\n---\nYou help."
    project = project_with(tmp_path, **{"CLAUDE.md": "Use tabs.", ".claude__agents__helper.md": claude})
    found = await seen(project, project.catalog().find("helper").spec, under_main=True)
    assert "Use tabs." in found.system and "\nDate: 20" in found.system
    explore = await seen(project, project.catalog().find("Explore").spec, under_main=True)
    assert "Use tabs." not in explore.system


async def test_a_run_without_a_tool_to_start_agents_reads_nothing_about_delegation(tmp_path: Path) -> None:
    spec = AgentSpec(name="solo", prompt="x", subagents=False)
    found = await seen(project_with(tmp_path), spec)
    assert "Delegation (" not in found.system
    assert not {"Agent", "get_subagent_result", "steer_subagent"} & set(names(found))


async def test_the_type_list_leaves_out_doubles_and_helpers_of_commands(tmp_path: Path) -> None:
    found = await seen(project_with(tmp_path))
    text = next(tool.spec.description for tool in found.tools if tool.spec.name == "Agent")
    listed = {line.partition(":")[0].removeprefix("- ") for line in text.splitlines() if line.startswith("- ")}
    assert {"Explore", "Plan", "general-purpose", "reviewer", "tester", "verification"} <= listed
    assert not {"explorer", "implementer", "statusline-setup", "retinue-guide"} & listed


async def test_main_asks_the_person_where_there_is_one_and_hands_in_a_plan_in_plan_mode(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    assert not {"ask_user", "exit_plan", "ask_parent"} & set(names(await seen(project)))
    project.approvers.append(lambda item: None)  # type: ignore[arg-type, return-value]
    assert names(await seen(project))[-1] == "ask_user"
    assert "exit_plan" in names(await seen(project, permission_mode="plan"))


async def test_a_shell_comes_with_a_way_to_read_what_goes_on_in_the_background(tmp_path: Path) -> None:
    assert "bash_output" in names(await seen(project_with(tmp_path)))


@pytest.mark.parametrize(
    ("folder", "keys", "offered"),
    [
        (".claude", "tools: Bash", True),
        (".claude", "tools: Bash(git *), Read", True),
        (".claude", "tools: Bash\ndisallowedTools: BashOutput", False),
        (".retinue", "tools: bash", True),
        (".retinue", "tools: bash\nreadonly: true", False),
        (".retinue", "tools: bash\nisolated: true", False),
        (".pi", "tools: bash", False),
    ],
)
async def test_a_file_that_lists_the_shell_gets_what_reads_its_background_commands(
    tmp_path: Path, folder: str, keys: str, offered: bool
) -> None:
    project = project_with(tmp_path, **{f"{folder}__agents__it.md": f"---\nname: it\ndescription: d\n{keys}\n---\nx"})
    found = await seen(project, project.catalog().find("it").spec, under_main=True)
    assert ("bash_output" in names(found)) is offered
    assert not any("bash_output" in note for note in found.notes)
