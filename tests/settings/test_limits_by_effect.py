"""Every setting that changes what a run may do is declared as a limit, whatever its name says.

`tests/agents/test_restrictions_everywhere.py` proves that no mistake in any setting changes a declared limit. Here runs
are planned under sound values of every setting, and their rights are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.test_restrictions_everywhere import CALLS, LOOSE, STRICT, nested

from retinue.capabilities.permissions import permissions_for
from retinue.cluster import open_project
from retinue.core.permission import ToolUse
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec, DialectName, PermissionMode
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.errors import RetinueError
from retinue.guard.permissions.policy import PermissionPolicy
from retinue.runs.budget import of_settings
from retinue.runs.delegate import Delegate
from retinue.runs.guard import NO_PATTERNS, SandboxScope, make_walls
from retinue.runs.launch import LaunchPlan
from retinue.runs.plan import launching
from retinue.runs.project import Project
from retinue.runs.supervisor import Supervisor
from retinue.settings.field import Choice, Field, Flag, Items, Number, Table, Texts, TextValue, Whole
from retinue.settings.load import LIMITING_SETTINGS
from retinue.settings.table import fields

NO_LIMITS = {
    "permissions.allow": "the rules of all files count, and one that is dropped allows nothing",
    "permissions.additionalDirectories": "the folders of all files count",
    "delegationVocabulary": "other names for the same tools",
}
"""Settings that change what is compared here, although no value of them takes a right away."""
SAMPLES: dict[str, tuple[Any, ...]] = {
    "permissions.deny": (["Bash"],),
    "permissions.allow": (["Bash", "Write"],),
    "permissions.additionalDirectories": (["/srv"],),
    "extraRoots": (["/srv"],),
}
OUTSIDE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("outside", "write", {"path": "/srv/a", "content": "b"}),
    ("this machine", "fetch_content", {"url": "http://localhost:1/"}),
)
MODEL = {"ANTHROPIC_API_KEY": "not-a-key", "RETINUE_MODEL": "anthropic/claude-sonnet-4-5"}
PLANS: tuple[tuple[DialectName, int, PermissionMode | None], ...] = (
    ("retinue", 0, None),
    ("retinue", 2, "bypassPermissions"),
    ("devkit", 1, "acceptEdits"),
)


def samples(field: Field) -> Iterator[Any]:
    yield from SAMPLES.get(field.name, ())
    yield from (table[field.name] for table in (STRICT, LOOSE) if field.name in table)
    match field.kind:
        case Flag():
            yield from (True, False)
        case Whole() | Number():
            yield from (field.kind.low, field.kind.high)
        case Choice():
            yield from field.kind.words
        case TextValue():
            yield "haiku"
        case Texts():
            yield from (list(field.kind.allowed[:1]) or ["Bash"], [])
        case Table() | Items():
            yield field.kind.read({}, "", lambda *_: None) or {}


def verdicts(policy: PermissionPolicy) -> dict[str, str]:
    return {
        name: policy.decide(ToolUse(tool, given, TOOL_EFFECTS.get(tool, frozenset({"read"})))).verdict
        for name, tool, given in (*CALLS, *OUTSIDE)
    }


def walls(project: Project, policy: PermissionPolicy) -> dict[str, Any]:
    scope = SandboxScope((project.cwd,), project.state / "outputs")
    made = make_walls(project, "a", scope, lambda: policy, project.environment)
    found: dict[str, Any] = {}
    for clearance in ("inside", "mode", "rule", "person"):
        box: Any = made(clearance) if made is not None else None
        found[clearance] = repr(box and box._policy)
    return found


async def rights(folder: Path, home: Path) -> dict[str, Any]:
    """Return what runs in a folder may do: their tools, limits, mode, budget, verdicts and sandboxes."""
    project = open_project(folder, environment={"HOME": str(home), **MODEL})
    found: dict[str, Any] = {"budget": of_settings(project.settings.settings)}
    for dialect, depth, mode in PLANS:
        spec = AgentSpec(name="a", dialect=dialect, memory="project")
        request = RunRequest(spec=spec, task="x", cwd=folder, depth=depth, permission_mode=mode)
        try:
            plan = LaunchPlan(request, project, delegation=Delegate(Supervisor(project), "a"))
            async with launching(plan) as launch:
                pass
            policy = permissions_for(launch.request, project, None, NO_PATTERNS, [])
        except RetinueError as error:
            found[f"{dialect} {depth} {mode}"] = repr(error)
            continue
        found[f"{dialect} {depth} {mode}"] = {
            "tools": sorted(tool.spec.name for tool in launch.tools),
            "limits": launch.limits,
            "mode": (launch.mode, launch.readonly),
            "verdicts": verdicts(policy),
            "walls": walls(project, policy),
        }
    return found


async def changes_rights(folder: Path, field: Field) -> bool:
    """Return whether runs have other rights under one sound value of a setting than under another."""
    project, home = folder / "project", folder / "home"
    file = home / ".retinue" / "settings.json"
    for place in (project, file.parent):
        place.mkdir(parents=True, exist_ok=True)
    seen = []
    for data in ({}, *(nested(field.name, value) for value in samples(field))):
        file.write_text(json.dumps(data))
        seen.append(await rights(project, home))
    file.unlink()
    return any(other != seen[0] for other in seen)


@pytest.mark.parametrize("name", [name for name in fields() if name not in LIMITING_SETTINGS])
async def test_a_setting_that_is_no_limit_changes_no_rights(tmp_path: Path, name: str) -> None:
    if name == "web.nativeModel":
        # Without a search service, this setting alone decides whether there is a search tool.
        pytest.importorskip("ddgs")
    assert await changes_rights(tmp_path, fields()[name]) == (name in NO_LIMITS)


@pytest.mark.parametrize(
    "name",
    [
        "allowWrite",
        "budget.usd",
        "maxSubagentDepth",
        "permissions.ask",
        "sandbox.network",
        "timeoutSeconds",
        "web.enabled",
    ],
)
async def test_a_limit_that_was_not_declared_would_be_seen(tmp_path: Path, name: str) -> None:
    assert await changes_rights(tmp_path, fields()[name])
