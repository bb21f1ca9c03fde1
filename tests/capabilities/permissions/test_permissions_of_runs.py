"""The permissions of runs from real settings files, through the supervisor's own parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.capabilities.permissions import mode_for, permissions_for, permit_tools
from retinue.cluster import open_project
from retinue.core.permission import ToolUse
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.errors import LaunchError
from retinue.runs.guard import NO_PATTERNS, Patterns
from retinue.runs.project import Project as OpenProject


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".retinue").mkdir(parents=True)
    (tmp_path / "home" / ".retinue").mkdir(parents=True)
    return tmp_path / "project"


def open_with(folder: Path, *, trust: bool = False, **files: Any) -> OpenProject:
    places = {
        "user": folder.parent / "home" / ".retinue" / "settings.json",
        "project": folder / ".retinue" / "settings.json",
        "local": folder / ".retinue" / "settings.local.json",
    }
    for name, permissions in files.items():
        places[name].write_text(json.dumps({"permissions": permissions}))
    return open_project(folder, environment={"HOME": str(folder.parent / "home")}, trust=trust)


def request(project: Path, **spec: Any) -> RunRequest:
    return RunRequest(spec=AgentSpec(name="a", **spec), task="x", cwd=project)


def verdict(policy: Any, command: str) -> tuple[str, str]:
    decision = policy.decide(ToolUse("bash", {"command": command}, TOOL_EFFECTS["bash"]))
    return decision.verdict, Path(decision.source).name


def test_rules_of_all_files_hold_and_name_their_file(project: Path) -> None:
    here = open_with(
        project,
        user={"allow": ["Bash(make:*)"]},
        project={"deny": ["Bash(make deploy:*)"], "allow": ["Bash(npm test)"]},
        local={"ask": ["Bash(make test)"]},
    )
    notes: list[str] = []
    policy = permissions_for(request(project), here, None, NO_PATTERNS, notes)
    assert verdict(policy, "make all") == ("allow", "settings.json")
    assert verdict(policy, "make deploy") == ("deny", "settings.json")
    assert verdict(policy, "make test") == ("ask", "settings.local.json")
    unasked = policy.decide(ToolUse("bash", {"command": "npm test"}, TOOL_EFFECTS["bash"]))
    assert unasked.by == "walls", "nobody has consented to what the project allows"
    trusted = permissions_for(request(project), open_with(project, trust=True), None, NO_PATTERNS, [])
    assert verdict(trusted, "npm test") == ("allow", "settings.json")


def test_broken_deny_rules_deny_and_are_in_the_notes(project: Path) -> None:
    here = open_with(project, user={"deny": ["Bash(rm", "Read(.env)"]})
    notes: list[str] = []
    policy = permissions_for(request(project), here, None, NO_PATTERNS, notes)
    assert any("'Bash(rm'" in note and "every call of Bash is denied" in note for note in notes)
    assert verdict(policy, "ls")[0] == "deny"


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"deny": ["Bash(rm:*)", 5]}, r"permissions\.deny\[1\]"),
        ({"deny": ["Bsh(rm:*)"]}, "Did you mean 'bash'"),
        ({"ask": ["Wrte"]}, "Did you mean 'write'"),
        ({"denny": ["Bash"]}, "did you mean permissions.deny"),
        ({"defaultMode": "ploan"}, "defaultMode"),
        ({"disableBypass": "true"}, "disableBypass"),
    ],
)
def test_limits_of_the_settings_that_cannot_be_read_refuse(project: Path, user: dict[str, Any], why: str) -> None:
    here = open_with(project, user=user)
    with pytest.raises(LaunchError, match=why):
        permissions_for(request(project), here, None, NO_PATTERNS, [])


def test_the_default_mode_and_its_limits(project: Path) -> None:
    assert (
        mode_for(request(project), open_with(project, user={"defaultMode": "acceptEdits"}), None, []) == "acceptEdits"
    )
    here = open_with(project, user={"defaultMode": "bypassPermissions", "disableBypassPermissionsMode": "disable"})
    notes: list[str] = []
    assert mode_for(request(project), here, None, notes) == "default"
    assert "disabled" in notes[0]


def test_auto_without_a_model_says_that_it_asks(project: Path) -> None:
    notes: list[str] = []
    assert mode_for(request(project), open_with(project, user={"defaultMode": "auto"}), None, notes) == "auto"
    assert "permissions.autoModel" in notes[0]


def test_patterns_of_an_agent_file_limit_its_calls_and_its_childrens(project: Path) -> None:
    here = open_with(project, user={"defaultMode": "bypassPermissions"})
    patterns = Patterns({"bash": ("git *",)}, {"bash": ("git push *",)})
    policy = permissions_for(request(project, path="/x/a.md"), here, None, patterns, [])
    child = permissions_for(request(project), here, policy, NO_PATTERNS, [])
    for each in (policy, child):
        assert verdict(each, "git commit")[0] == "allow"
        assert verdict(each, "git push") == ("deny", "a.md")
        assert verdict(each, "ls") == ("deny", "a.md")


def test_tools_denied_by_name_are_not_offered(project: Path) -> None:
    here = open_with(project, user={"deny": ["WebFetch", "Bash"]})
    notes: list[str] = []
    offered = permit_tools(request(project), here, here.tools, notes)
    assert "bash" not in {tool.spec.name for tool in offered}
    assert "read" in {tool.spec.name for tool in offered}
    assert any("bash is withheld" in note for note in notes)


def test_agents_of_codingcode_bring_its_presets(project: Path) -> None:
    here = open_with(project, user={"defaultMode": "bypassPermissions"})
    policy = permissions_for(request(project, dialect="codingcode"), here, None, NO_PATTERNS, [])
    assert verdict(policy, "sudo ls")[0] == "deny"
    assert verdict(policy, "cat .env")[0] == "ask"
    plain = permissions_for(request(project), here, None, NO_PATTERNS, [])
    assert verdict(plain, "sudo ls")[0] == "allow"
