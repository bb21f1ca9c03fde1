"""Hooks from files: whose they are, in which shape, and which of them count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.git_folder import make_git_folder

from retinue.agents.parse import parse_file
from retinue.capabilities.hooks.sources import HookSources, agent_hooks, read_hooks, session_hooks
from retinue.guard.trust import Trust
from retinue.settings.load import load_settings

CODINGCODE = "hooks:\n  - {{point: agent.turn.stop, command: {}}}\n"


class Place:
    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.environment = {"HOME": str(self.home), "RETINUE_HOME": str(self.home / ".retinue")}
        self.trust = Trust(self.home / ".retinue")
        make_git_folder(self.project)

    def write(self, path: Path, content: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def found(self, *, everything: bool = False) -> HookSources:
        trust = Trust(self.home / ".retinue", everything=True) if everything else self.trust
        from retinue.guard.trust import withhold

        loaded = withhold(load_settings(self.project, environment=self.environment), trust)
        return session_hooks(self.project, loaded, trust, self.environment)

    def targets(self, **options: Any) -> list[str]:
        return [handler.target for handler in self.found(**options).handlers]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def hooks(command: str, event: str = "PreToolUse", **more: Any) -> dict[str, Any]:
    return {"hooks": {event: [{"matcher": "Bash", "hooks": [{"type": "command", "command": command, **more}]}]}}


def test_the_users_own_files_need_no_consent_and_a_projects_do(place: Place) -> None:
    place.write(place.home / ".retinue/settings.json", hooks("mine"))
    place.write(place.home / ".claude/settings.json", hooks("mine-claude"))
    place.write(
        place.home / ".codingcode/hooks.yaml", "hooks:\n  - {name: a, point: tool.approval.pre, command: mine-cc}\n"
    )
    files = [
        place.write(place.project / ".retinue/settings.json", hooks("theirs")),
        place.write(place.project / ".claude/settings.json", hooks("theirs-claude")),
        place.write(place.project / ".claude/settings.local.json", hooks("theirs-local")),
        place.write(
            place.project / ".codingcode/hooks.yml", "hooks:\n  - {point: agent.turn.stop, command: theirs-cc}\n"
        ),
    ]
    assert list(dict.fromkeys(place.targets())) == ["mine", "mine-claude", "mine-cc"]
    assert len(place.found().withheld) == 3
    for file in files:
        place.trust.grant(file, file.read_bytes())
    assert sorted(set(place.targets())) == sorted(
        ["mine", "theirs", "mine-claude", "theirs-claude", "theirs-local", "mine-cc", "theirs-cc"]
    )
    assert place.targets() == place.targets(everything=True)
    place.write(files[1], hooks("changed"))
    assert "changed" not in place.targets()
    assert "theirs-claude" not in place.targets()


def test_a_projects_entry_replaces_a_global_one_of_the_same_name(place: Place) -> None:
    entry = "hooks:\n  - {{name: guard, point: tool.approval.pre, type: decision, command: {}}}\n"
    place.write(place.home / ".codingcode/hooks.yaml", entry.format("global"))
    place.write(place.project / ".codingcode/hooks.yaml", entry.format("project"))
    assert place.targets(everything=True) == ["project"]
    assert place.targets() == ["global"]


def test_enabled_false_in_yaml_is_honoured(place: Place) -> None:
    text = "hooks:\n  - {name: a, point: tool.execute.before, command: a, enabled: false}\n"
    place.write(place.home / ".codingcode/hooks.yaml", text)
    assert place.targets() == []


def test_disable_all_hooks(place: Place) -> None:
    place.write(place.home / ".claude/settings.json", hooks("claude"))
    place.write(place.home / ".retinue/settings.json", hooks("mine"))
    place.write(place.project / ".retinue/settings.json", {"disableAllHooks": True})
    assert place.targets() == ["mine", "claude"], "a project cannot switch the user's hooks off"
    place.write(place.home / ".retinue/settings.json", {**hooks("mine"), "disableAllHooks": True})
    assert place.targets() == []


def test_claudes_switch_is_for_claudes_file(place: Place) -> None:
    place.write(place.home / ".claude/settings.json", {**hooks("claude"), "disableAllHooks": True})
    place.write(place.home / ".retinue/settings.json", hooks("mine"))
    assert place.targets() == ["mine"]


def test_the_home_folder_as_a_project_is_still_the_users(place: Place) -> None:
    place.write(place.home / ".claude/settings.json", hooks("mine"))
    loaded = load_settings(place.home, environment=place.environment)
    found = session_hooks(place.home, loaded, place.trust, place.environment)
    assert [handler.target for handler in found.handlers] == ["mine"]


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"hooks": 3}', '{"hooks": {"PreToolUse": "x"}}', "\ufeff{}"])
def test_damaged_files_hide_no_other(place: Place, text: str) -> None:
    place.write(place.home / ".claude/settings.json", text)
    place.write(place.home / ".retinue/settings.json", hooks("mine"))
    assert "mine" in place.targets()


@pytest.mark.parametrize(
    "text", ["hooks: [", "hooks: x", "- a", "hooks:\n  - x\n", "hooks:\n  - {point: nope, command: x}"]
)
def test_damaged_yaml_is_reported(place: Place, text: str) -> None:
    place.write(place.home / ".codingcode/hooks.yaml", text)
    found = place.found()
    assert [handler for handler in found.handlers if handler.kind != "broken"] == []
    assert found.problems or found.refusals


def test_a_guard_that_cannot_be_read_does_not_vanish() -> None:
    report = HookSources()
    made = read_hooks({"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command"}]}]}, "f", "claude", report)
    assert [(handler.event, handler.kind) for handler in made] == [("PreToolUse", "broken")]
    assert report.problems
    listed = read_hooks([{"event": "PreToolUse", "matcher": 3, "command": "x"}], "f", "claude", HookSources())
    assert [handler.kind for handler in listed] == ["broken"]
    both = {"PreToolUse": [{"command": "good"}, {"matcher": 3, "command": "bad"}], "Stop": {"command": "also"}}
    assert [handler.kind for handler in read_hooks(both, "f", "claude", HookSources())] == ["shell", "broken", "shell"]


@pytest.mark.parametrize("event", ["PreTollUse", "PreTooluse", "preToolUse", "PreTool", "tool.aproval.pre"])
def test_a_misspelt_event_refuses(event: str) -> None:
    report = HookSources()
    assert read_hooks({event: [{"command": "x"}]}, "f", "claude", report) == []
    (refusal,) = report.refusals
    assert event in refusal.message
    assert "Did you mean" in refusal.remedy


def test_events_that_only_other_programs_have_are_reported() -> None:
    report = HookSources()
    assert read_hooks({"TeammateIdle": [{"command": "x"}], "FooBar": [{"command": "x"}]}, "f", "claude", report) == []
    assert (report.refusals, len(report.problems)) == ([], 2)
    read_hooks([{"point": "nosuch.point", "type": "decision", "command": "x"}], "f", "claude", report)
    assert len(report.refusals) == 1


@pytest.mark.parametrize("matcher", ["Bsh", "Bash|Wrte", "Bash & Write", "Bash(rm *)", "Bash Wrte"])
def test_a_matcher_that_cannot_be_understood_hears_every_call(matcher: str) -> None:
    report = HookSources()
    made = read_hooks({"PreToolUse": [{"matcher": matcher, "command": "x"}]}, "f", "claude", report)
    assert [(handler.kind, handler.matcher) for handler in made] == [("broken", "")]


def test_timeouts_are_seconds_unless_they_are_a_thousand_or_more() -> None:
    def seconds(event: str, timeout: Any) -> float:
        entry = {"command": "x"} if timeout is None else {"command": "x", "timeout": timeout}
        return read_hooks({event: [entry]}, "f", "claude", HookSources())[0].seconds

    assert seconds("PreToolUse", 5) == 5
    assert seconds("PreToolUse", 999) == 999
    assert seconds("PreToolUse", 1000) == 1
    assert seconds("PreToolUse", 30_000) == 30
    assert seconds("PreToolUse", None) == 600
    assert seconds("UserPromptSubmit", None) == 30
    assert seconds("SessionEnd", None) == 1.5
    assert seconds("tool.approval.pre", None) == 30


@pytest.mark.parametrize(
    "block",
    [
        "hooks:\n  Stop:\n    - hooks: [{type: command, command: ./check}]",
        "hooks:\n  Stop:\n    - command: ./check",
        "hooks:\n  - {event: Stop, command: ./check}",
    ],
)
def test_hooks_of_an_agent_file_in_each_shape_and_stop_is_its_own_end(tmp_path: Path, block: str) -> None:
    path = tmp_path / "a.md"
    path.write_text(f"---\nname: a\ndescription: d\n{block}\n---\nx\n")
    spec = parse_file(path, dialect="claude", source="user").spec
    assert spec is not None
    made = agent_hooks(spec, [])
    assert {(handler.event, handler.target) for handler in made} == {("Stop", "./check"), ("SubagentStop", "./check")}
