"""What a project makes of its plugins: hooks, servers, consent and notes."""

from __future__ import annotations

import asyncio
import json

from retinue.capabilities.hooks import SessionHooks
from retinue.capabilities.hooks.sources import HookSources, plugin_hooks
from retinue.capabilities.mcp import ServerScope
from retinue.capabilities.mcp.servers import project_servers
from retinue.capabilities.plugins import PluginExtensions, PluginsCapability
from retinue.capabilities.plugins.discover import FailedPlugin, Plugin
from retinue.capabilities.plugins.tools import PluginLoader, read_own
from retinue.core.spec import AgentSpec, ToolPolicy
from tests.capabilities.plugins.plugin_project import TOOL

HOOK = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/x", "args": ["-v"]}]}]}}


def test_hooks_know_their_folder_and_a_broken_entry_takes_no_other_along(project):
    project.write("kit/hooks/hooks.json", HOOK, user=True)
    project.write("bad/hooks/hooks.json", {"hooks": {"Nothing": [1], "Stop": [{"hooks": "x"}]}}, user=True)
    opened = project.project()
    report = HookSources()
    handlers = plugin_hooks(opened.part(PluginExtensions).hooks(), report)
    (mine,) = [each for each in handlers if each.kind == "exec"]
    root = str(project.home / ".retinue" / "plugins" / "kit")
    assert (mine.target, mine.arguments, mine.environment["RETINUE_PLUGIN_ROOT"]) == (f"{root}/x", ("-v",), root)
    assert mine.source == "plugin 'kit'"
    assert mine.environment["PYTHONPYCACHEPREFIX"] == str(project.home / ".retinue" / "cache" / "python")
    assert report.problems
    assert mine in opened.part(SessionHooks).sources.handlers


def test_hooks_and_servers_of_a_project_have_no_effect_without_consent(project):
    project.write("kit/hooks/hooks.json", HOOK)
    project.write("kit/.mcp.json", {"mcpServers": {"db": {"command": "db", "trustAnnotations": True}}})
    opened = project.project()
    assert opened.part(PluginExtensions).hooks() == []
    assert project_servers(opened).servers == {}
    (subject,) = PluginsCapability().trust_subjects(opened)
    assert subject.what == ("hook Stop: ${CLAUDE_PLUGIN_ROOT}/x -v", 'MCP server db: db {"trustAnnotations": true}')
    opened.trust.grant(subject.path, *subject.contents, what=subject.what)
    again = project.project()
    assert len(again.part(PluginExtensions).hooks()) == 1
    server = project_servers(again).servers["db"]
    assert server.trust_annotations is False
    assert server.env["CLAUDE_PLUGIN_ROOT"] == str(subject.path)
    project.write("kit/x", "#!/bin/sh")
    assert project.project().part(PluginExtensions).hooks() == []


def test_of_two_plugins_with_one_server_the_first_has_it_and_settings_replace_both(project):
    for name in ("a", "b"):
        project.write(f"{name}/.mcp.json", {"mcpServers": {"db": {"command": name}}}, user=True)
    assert project_servers(project.project()).servers["db"].command == "a"
    settings = project.home / ".retinue" / "settings.json"
    settings.write_text(json.dumps({"mcpServers": {"db": {"command": "mine"}}}))
    assert project_servers(project.project()).servers["db"].command == "mine"


def test_a_file_that_names_a_plugin_means_its_servers_too(project):
    project.write("kit/.mcp.json", {"db": {"command": "db"}}, user=True)
    project.write("other/.mcp.json", {"mcpServers": {"web": {"command": "web"}}}, user=True)
    extensions = project.project().part(PluginExtensions)

    def servers(**tools):
        meant = extensions.with_servers(AgentSpec(name="a", dialect="pi", tools=ToolPolicy(**tools)))
        return {name for name in ("db", "web") if ServerScope(meant, None).wants(name)}

    assert servers() == {"db", "web"}
    assert servers(extensions=("KIT",)) == {"db"}
    assert servers(exclude_extensions=("kit",)) == {"web"}
    assert servers(allow=("read",), selectors=("ext:kit",)) == {"db"}


def test_an_agent_of_a_plugin_brings_no_code_by_path(project):
    (project.cwd / "own.py").write_text(TOOL)
    tools = ToolPolicy(extensions=("./own.py",))
    opened = project.project()
    (made,) = read_own(AgentSpec(name="a", source="plugin", tools=tools), opened)
    assert isinstance(made, FailedPlugin)
    assert [
        type(read_own(AgentSpec(name="a", source=source, tools=tools), opened)[0]) for source in ("user", "project")
    ] == [
        Plugin,
        Plugin,
    ]
    assert [
        read_own(AgentSpec(name="a", source=s, tools=tools), opened)[0].provenance == "person"
        for s in ("user", "project")
    ] == [
        True,
        False,
    ]


def test_what_cannot_be_bound_is_said_and_never_runs(project, tmp_path):
    file = project.write("kit/tools.py", TOOL)
    (tmp_path / "outside").write_text("x")
    (file.parent / "link").symlink_to(tmp_path / "outside")
    opened = project.project()
    assert PluginsCapability().trust_subjects(opened) == []
    (note,) = opened.part(PluginExtensions).notes()
    assert "consent to it is not possible: link is a link that leads out of the plugin" in note
    assert project.project(trust=True).part(PluginExtensions).notes() == []


async def test_runs_that_start_together_share_one_import_and_a_change_is_imported_anew(project):
    count = project.cwd / "count"
    code = f"open({str(count)!r}, 'a').write('x')\n{TOOL}"
    file = project.write("kit/tools.py", code, user=True)
    opened = project.project()
    extensions = opened.part(PluginExtensions)
    loader, plugins = opened.part(PluginLoader), [(each, each.names) for each in extensions.plugins.usable]
    spec = AgentSpec(name="a")
    made = await asyncio.gather(*(loader.load(plugins, spec, []) for _ in range(20)))
    assert all(list(tools) == ["forecast"] for _, tools in made)
    assert count.read_text() == "x"
    file.write_text(code.replace("sunny", "rainy"))
    _, again = await loader.load(plugins, spec, [])
    assert again["forecast"].function("Rome") == "Rome: rainy"
    assert count.read_text() == "xx"


async def test_two_plugins_with_one_tool_and_a_program_with_its_own(project):
    for name in ("a", "b"):
        project.write(f"{name}/tools.py", TOOL.replace("sunny", name), user=True)
    opened = project.project()
    notes: list[str] = []
    plugins = [(each, each.names) for each in opened.part(PluginExtensions).plugins.usable]
    _, made = await opened.part(PluginLoader).load(plugins, AgentSpec(name="x"), notes)
    assert made["forecast"].function("Rome") == "Rome: a"
    assert notes == ["Plugin 'b': its tool 'forecast' is left out: another tool has that name."]
    own = project.project(tools=[made["forecast"]])
    _, made = await own.part(PluginLoader).load(plugins, AgentSpec(name="x"), [])
    assert made == {}
