"""Consent is for exactly this content of exactly this file, and is kept where no project can reach."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from retinue.agents.parse import parse_file
from retinue.guard.trust import Trust
from retinue.guard.trust_subjects import WIDE_MODES, brings, settings_subject, untrusted, withhold, without_rights
from retinue.settings.load import load_settings

AGENT = """---
name: guarded
description: has everything
permissionMode: bypassPermissions
mcpServers:
  - shared
  - inline: {command: ./server}
hooks:
  PreToolUse:
    - matcher: Bash
      hooks: [{type: command, command: ./check.sh}]
---
You work.
"""


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "home")


def test_nothing_is_trusted_until_someone_consents(trust: Trust, tmp_path: Path) -> None:
    path = tmp_path / "p" / "settings.json"
    assert not trust.is_trusted(path, b"{}")
    assert not trust.file.exists()
    trust.grant(path, b"{}", what=("hook",))
    assert trust.is_trusted(path, b"{}")
    assert Trust(trust.file.parent).is_trusted(path, "{}")
    assert stat.S_IMODE(trust.file.stat().st_mode) == 0o600


def test_changed_content_and_another_folder_need_new_consent(trust: Trust, tmp_path: Path) -> None:
    trust.grant(tmp_path / "a" / "f", b"one")
    assert not trust.is_trusted(tmp_path / "a" / "f", b"one ")
    assert not trust.is_trusted(tmp_path / "b" / "f", b"one")
    assert not trust.is_trusted(tmp_path / "f", b"one")
    trust.grant(tmp_path / "a" / "f", b"two")
    assert not trust.is_trusted(tmp_path / "a" / "f", b"one"), "going back needs consent again"


def test_a_refusal_is_remembered_and_can_be_taken_back(trust: Trust, tmp_path: Path) -> None:
    path = tmp_path / "f"
    trust.refuse(path, b"x")
    assert trust.answer(path, b"x") == "refused"
    assert not trust.is_trusted(path, b"x")
    trust.grant(path, b"x")
    assert trust.is_trusted(path, b"x")
    assert trust.revoke(tmp_path)
    assert not trust.is_trusted(path, b"x")
    assert not trust.revoke(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"/f": {"d": {"answer": "yes"}}}}', "\0"])
def test_a_damaged_store_is_no_consent(trust: Trust, tmp_path: Path, text: str) -> None:
    trust.file.parent.mkdir(parents=True)
    trust.file.write_text(text)
    assert not trust.is_trusted(Path("/f"), b"x")
    trust.grant(tmp_path / "f", b"x")
    assert trust.is_trusted(tmp_path / "f", b"x")


def test_a_change_through_us_keeps_consent_only_where_there_was_some(trust: Trust, tmp_path: Path) -> None:
    path = tmp_path / "f"
    trust.follow(path, b"one", b"two")
    assert not trust.is_trusted(path, b"two")
    trust.grant(path, b"one")
    trust.follow(path, b"one", b"two")
    assert trust.is_trusted(path, b"two")


def test_what_an_agent_brings_and_how_it_runs_without(trust: Trust, tmp_path: Path) -> None:
    path = tmp_path / "guarded.md"
    path.write_text(AGENT)
    spec = parse_file(path, dialect="claude", source="project").spec
    assert spec is not None
    what = "\n".join(brings(spec))
    assert "./check.sh" in what and "./server" in what and "bypassPermissions" in what and "shared" not in what
    assert not trust.trusts(spec)
    bare = without_rights(spec)
    assert (bare.hooks, bare.permission_mode) == ((), None)
    assert [server.name for server in bare.servers or ()] == ["shared"]
    for source in ("user", "flag", "builtin", "policy"):
        own = parse_file(path, dialect="claude", source=source).spec
        assert own is not None and trust.trusts(own)
    plugin = parse_file(path, dialect="claude", source="plugin").spec
    assert plugin is not None and not plugin.hooks and not Trust(trust.file.parent, everything=True).trusts(plugin)


def test_any_change_of_an_agent_file_that_means_something_needs_new_consent(trust: Trust, tmp_path: Path) -> None:
    from retinue.guard.trust import content_of

    path = tmp_path / "guarded.md"
    path.write_text(AGENT)
    spec = parse_file(path, dialect="claude", source="project").spec
    assert spec is not None
    trust.grant(path, content_of(spec))
    assert trust.trusts(spec)
    for before, after in (("./check.sh", "./other.sh"), ("You work.", "You delete."), ("./server", "./evil")):
        path.write_text(AGENT.replace(before, after))
        changed = parse_file(path, dialect="claude", source="project").spec
        assert changed is not None and not trust.trusts(changed)


def test_a_narrow_mode_needs_no_consent(tmp_path: Path) -> None:
    for mode in ("plan", "default", "dontAsk", *WIDE_MODES):
        path = tmp_path / f"{mode}.md"
        path.write_text(f"---\nname: a\ndescription: d\npermissionMode: {mode}\n---\nx\n")
        spec = parse_file(path, dialect="claude", source="project").spec
        assert spec is not None
        assert bool(brings(spec)) == (mode in WIDE_MODES)
        assert without_rights(spec).permission_mode == (None if mode in WIDE_MODES else mode)


def test_a_projects_settings_give_nothing_without_consent_and_take_always(trust: Trust, tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".retinue").mkdir(parents=True)
    home.mkdir()
    (home / "settings.json").write_text(json.dumps({"budget": {"usd": 2}, "extraRoots": ["/mine"]}))
    file = project / ".retinue" / "settings.json"
    said = {
        "hooks": {"PreToolUse": [{"command": "./x"}], "failOpen": True},
        "disableAllHooks": True,
        "extraRoots": ["/theirs"],
        "localModel": "/m.gguf",
        "budget": {"usd": 9, "tokens": 5},
        "maxConcurrent": 2,
    }
    file.write_text(json.dumps(said))
    environment = {"HOME": str(tmp_path), "RETINUE_HOME": str(home)}
    loaded = load_settings(project, environment=environment)
    settings = withhold(loaded, trust).settings
    assert (dict(settings.hooks), settings.hooks_fail_open, settings.disable_all_hooks) == ({}, False, False)
    assert (settings.extra_roots, settings.local_model) == (("/mine",), None)
    assert (settings.budget_usd, settings.budget_tokens, settings.max_concurrent) == (2.0, 5, 2)
    assert len(untrusted(withhold(loaded, trust))) == 1
    assert "retinue trust add" in untrusted(withhold(loaded, trust))[0]

    trust.grant(file, file.read_bytes())
    settings = withhold(loaded, trust).settings
    assert settings.budget_usd == 9.0 and settings.extra_roots == ("/theirs",) and settings.hooks_fail_open
    file.write_text(json.dumps({**said, "localModel": "/other.gguf"}))
    assert withhold(load_settings(project, environment=environment), trust).settings.local_model is None


def test_what_would_run_is_listed_in_full() -> None:
    long = "./check.sh " + "x" * 500
    data = {
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": long}, {"url": "http://h"}]}]},
        "permissions": {"allow": ["Bash(rm *)"], "deny": ["Read"]},
    }
    subject = settings_subject(Path("/p/.claude/settings.json"), data, b"{}")
    assert subject is not None
    assert subject.what == (
        f"hook PreToolUse (Bash): {long}",
        "hook PreToolUse (Bash): http://h",
        'permissions.allow: ["Bash(rm *)"]',
    )
    assert settings_subject(Path("/p"), {"permissions": {"deny": ["Read"]}}, b"") is None


def test_what_a_person_sets_through_us_needs_no_second_consent(tmp_path: Path) -> None:
    from retinue.engine import open_project
    from retinue.runs.consent import consent_stays

    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".retinue").mkdir(parents=True)
    opened = open_project(project, environment={"HOME": str(tmp_path), "RETINUE_HOME": str(home)})
    file = project / ".retinue" / "settings.local.json"
    with consent_stays(opened, file):
        file.write_text('{"permissions": {"allow": ["Bash(ls)"]}}')
    assert opened.trust.is_trusted(file, file.read_bytes())
    file.write_text('{"permissions": {"allow": ["Bash"]}}')  # someone else, behind our back
    with consent_stays(opened, file):
        file.write_text('{"permissions": {"allow": ["Bash", "Edit"]}}')
    assert not opened.trust.is_trusted(file, file.read_bytes())
