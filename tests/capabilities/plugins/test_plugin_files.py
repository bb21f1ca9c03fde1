"""What a folder brings as a plugin, and what becomes of one that is wrong."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.capabilities.plugins.discover import FailedPlugin, Plugin, read_folder
from tests.capabilities.plugins.plugin_project import TOOL


def test_claude_codes_layout_is_read_as_it_is(project):
    project.write("kit/.claude-plugin/plugin.json", {"name": "toolkit", "version": "1.2.0", "description": "A kit."})
    project.write("kit/agents/reviewer.md", "---\nname: reviewer\ndescription: Reviews.\n---\nReview.")
    project.write("kit/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: PDFs.\n---\nDo.")
    project.write("kit/hooks/hooks.json", {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}})
    project.write("kit/.mcp.json", {"mcpServers": {"db": {"command": "db-server"}}})
    project.write("kit/tools/weather.py", TOOL)
    plugin = project.one()
    assert (plugin.name, plugin.version, plugin.description) == ("toolkit", "1.2.0", "A kit.")
    assert plugin.names == {"toolkit", "kit"}
    assert [path.name for path in plugin.agents] == ["agents"]
    assert [path.name for path in plugin.skills] == ["skills"]
    assert [set(table.value) for table in plugin.hooks] == [{"Stop"}]
    assert plugin.server_names == {"db"}
    assert plugin.code == ("tools.weather",)
    assert plugin.origin == "project"
    assert plugin.provenance == "project"


def test_a_manifest_may_name_further_places_and_hold_tables_itself(project):
    manifest = {
        "name": "kit",
        "agents": "./more",
        "skills": ["./s1", "./s2"],
        "hooks": {"Stop": []},
        "mcpServers": {"db": {"command": "x"}},
        "tools": "./src/extra.py",
    }
    project.write("kit/plugin.json", manifest)
    for name in ("agents/a.md", "more/b.md", "s1/x/SKILL.md", "s2/y/SKILL.md", "src/extra.py"):
        project.write(f"kit/{name}")
    plugin = project.one()
    assert [path.name for path in plugin.agents] == ["agents", "more"]
    assert [path.name for path in plugin.skills] == ["s1", "s2"]
    assert plugin.code == ("src.extra",)
    assert plugin.server_names == {"db"}


def test_a_single_file_is_a_plugin_of_its_name(project):
    project.write("my-weather.py", TOOL)
    plugin = project.one()
    assert plugin.name == "my-weather"
    assert list(project.load().tools) == ["forecast"]


@pytest.mark.parametrize("text", ["{", "[]", "", '{"name": 5}', "\x00", '{"name": "a b"}', '{"name": "../x"}'])
def test_a_bad_manifest_is_reported_and_the_others_work(project, text):
    project.write("bad/plugin.json", text)
    project.write("bad/agents/a.md")
    project.write("good/agents/b.md")
    found = project.plugins
    assert [plugin.name for plugin in found.usable] == ["good"]
    (failed,) = found.failed
    assert failed.path.endswith("bad")
    assert failed.reason


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("agents", 5, "must be a path"),
        ("agents", ["x", 1], "must be a path"),
        ("agents", "../../other", "leads out of the plugin"),
        ("skills", "/etc", "leads out of the plugin"),
        ("hooks", "./nowhere.json", "is not there"),
        ("mcpServers", ["./nowhere.json"], "is not there"),
        ("version", 1.5, "must be a string"),
        ("tools", "./bad-name.py", "cannot be imported"),
    ],
)
def test_a_bad_field_falls_alone_and_is_named(project, field, value, says):
    project.write("kit/plugin.json", {"name": "kit", "description": "Fine.", field: value})
    project.write("kit/bad-name.py")
    (plugin,) = project.plugins.usable
    assert plugin.description == "Fine."
    (problem,) = plugin.problems
    assert field in problem or "bad-name" in problem
    assert says in problem


def test_a_link_out_of_the_plugin_is_not_followed_by_its_manifest(project, tmp_path):
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    project.write("kit/plugin.json", {"name": "kit", "agents": "./link"})
    os.symlink(secret, project.cwd / ".retinue/plugins/kit/link")
    (plugin,) = project.plugins.usable
    assert plugin.agents == ()
    assert "leads out" in plugin.problems[0]


def test_of_two_with_one_name_the_users_own_counts(project):
    project.write("kit/agents/a.md")
    own = project.write("kit/agents/a.md", user=True)
    found = project.plugins
    assert [plugin.where for plugin in found.usable] == [str(own.parent.parent)]
    assert "another plugin has the name 'kit'" in found.failed[0].reason


@pytest.mark.parametrize(
    ("folder", "name"), [("obra+superpowers", "obra-superpowers"), ("my kit", "my-kit"), ("ünï", "n"), ("+", "plugin")]
)
def test_without_a_manifest_the_folders_name_is_made_fit(project, folder, name):
    project.write(f"{folder}/agents/a.md")
    plugin = project.one()
    assert plugin.name == name
    assert folder.lower() in plugin.names


def test_folders_that_are_no_plugins_are_named_and_hidden_ones_not(project):
    project.write(".hidden/agents/a.md")
    project.write("__pycache__/agents/a.md")
    project.write("empty/readme.txt")
    found = project.plugins
    assert found.usable == ()
    assert "nothing that a plugin can bring" in found.failed[0].reason


def test_settings_list_further_plugins_and_switch_some_off(project):
    (project.cwd / "lib").mkdir()
    (project.cwd / "lib" / "one.py").write_text(TOOL)
    project.write("guard/agents/a.md", user=True)
    project.write("noise/agents/a.md")
    (project.home / ".retinue" / "two").mkdir()
    (project.home / ".retinue" / "two" / "tools.py").write_text(TOOL)
    (project.home / ".retinue" / "settings.json").write_text(json.dumps({"plugins": ["two", "gone"]}))
    said = {"plugins": ["lib/one.py"], "disabledPlugins": ["NOISE", "guard", "two"]}
    (project.cwd / ".retinue" / "settings.json").write_text(json.dumps(said))
    found = project.plugins
    assert [(plugin.name, plugin.provenance == "person") for plugin in found.usable] == [
        ("guard", True),
        ("two", True),
        ("one", False),
    ]
    assert [failed.reason for failed in found.failed] == ["there is nothing at this path"]


def test_agents_of_a_plugin_are_listed_under_both_names_and_bring_no_rights(project):
    text = (
        "---\nname: reviewer\ndescription: Reviews.\npermissionMode: bypassPermissions\n"
        "hooks:\n  Stop:\n    - hooks: [{type: command, command: 'touch /tmp/x'}]\n"
        "mcpServers: [{x: {command: y}}]\n---\nHi."
    )
    project.write("kit/agents/deep/reviewer.md", text)
    catalog = project.project().catalog()
    entry = catalog.find("kit:deep:reviewer")
    assert entry is catalog.find("reviewer")
    spec = entry.spec
    assert (spec.source, spec.hooks, spec.servers, spec.permission_mode) == ("plugin", (), None, None)
    assert [problem.code for problem in entry.problems] == ["not-in-plugin"] * 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["name", "version", "description", "agents", "skills", "hooks", "mcpServers", "tools"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(manifest=st.dictionaries(KEYS, json_values, max_size=5))
def test_no_manifest_raises_and_nothing_leads_out_of_the_folder(tmp_path, manifest):
    root = tmp_path / "kit"
    root.mkdir(exist_ok=True)
    (root / "plugin.json").write_text(json.dumps(manifest))
    made = read_folder(root, "project", provenance="project")
    assert isinstance(made, (Plugin, FailedPlugin))
    if isinstance(made, Plugin):
        for path in (*made.agents, *made.skills):
            assert root.resolve() in path.resolve().parents
