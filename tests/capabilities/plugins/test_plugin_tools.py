"""Tools of plugins: imported late, in bounded time, from the text that was consented to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from retinue.capabilities.plugins.load import NoDigestError, content_digest, load_tools
from tests.capabilities.plugins.plugin_project import TOOL


def test_modules_of_a_folder_import_each_other_relatively(project):
    project.write("kit/helper.py", "NAME = 'from the helper'")
    project.write("kit/tools/__init__.py")
    project.write("kit/tools/one.py", "from ..helper import NAME\n" + TOOL.replace("sunny", "{NAME}"))
    project.write("kit/tools/two.py", "from .one import forecast\n")
    project.write("kit/tools/_private.py", "raise RuntimeError('never imported')")
    loaded = project.load()
    assert "there are two tools of that name" in loaded.problems[0]
    assert loaded.tools["forecast"].function("Rome") == "Rome: from the helper"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('broken here')", "ValueError: broken here (tools.py, line 1)"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("tools = [1]", "not a tool"),
        ("import threading; threading.Event().wait()", "did not finish its import within 0.2 s"),
    ],
)
def test_one_that_breaks_on_import_is_a_sentence_and_no_other_plugin_suffers(project, code, says):
    project.write("bad/tools.py", code)
    project.write("good/tools.py", TOOL)
    bad, good = project.plugins.usable
    loaded = load_tools(bad, 0.2)
    assert loaded.tools == {}
    assert says in loaded.problems[0]
    assert list(load_tools(good, 20).tools) == ["forecast"]


@pytest.mark.parametrize("name", ["bash", "Read", "Agent", "todo", "mcp__db__query", "search", "a b", "x" * 65])
def test_no_plugin_takes_the_name_of_a_tool_of_ours(project, name):
    project.write("kit/tools.py", TOOL.replace('effects=["read"]', f'effects=["read"], name="{name}"'))
    loaded = project.load()
    assert loaded.tools == {}
    assert "is left out" in loaded.problems[0]


def test_a_list_named_tools_says_which(project):
    project.write("kit/tools.py", TOOL + "\nother = tool(name='other')(forecast.function)\ntools = [other]\n")
    assert list(project.load().tools) == ["other"]


def test_printing_does_not_reach_standard_output(project, capsys):
    project.write("kit/tools.py", "print('hello')\n" + TOOL)
    project.load()
    assert capsys.readouterr().out == ""


def test_no_cache_of_python_is_used_or_written(project):
    file = project.write("kit/tools.py", TOOL)
    project.load()
    assert not (file.parent / "__pycache__").exists()
    file.write_text(TOOL.replace("sunny", "rainy"))
    assert project.load().tools["forecast"].function("Rome") == "Rome: rainy"


def test_the_digest_is_of_every_byte_but_pythons_caches(project):
    root = project.write("kit/tools.py", TOOL).parent
    first = content_digest(root)
    project.write("kit/__pycache__/tools.pyc", "x")
    assert content_digest(root) == first
    seen = {first}
    project.write("kit/data/deep.txt", "one")
    seen.add(content_digest(root))
    project.write("kit/data/deep.txt", "two")
    seen.add(content_digest(root))
    (root / "data" / "deep.txt").rename(root / "data" / "other.txt")
    seen.add(content_digest(root))
    (root / "data" / "other.txt").chmod(0o755)
    seen.add(content_digest(root))
    assert len(seen) == 5


def test_what_leads_out_of_the_folder_cannot_be_consented_to(project, tmp_path):
    root = project.write("kit/tools.py", TOOL).parent
    (tmp_path / "outside.py").write_text("x = 1")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(NoDigestError, match="leads out"):
        content_digest(root)
    (root / "link.py").unlink()
    (root / "inside.py").symlink_to(root / "tools.py")
    assert content_digest(root)


PACKAGE = """
[console_scripts]
x = y:z
[retinue.plugins]
weather = acme_weather.plugin
broken = acme_broken:missing
nonsense = 1 + 1
[other]
a = b
"""


def test_packages_are_found_by_their_entry_points_without_importing_them(project, tmp_path):
    site = tmp_path / "site"
    info = site / "acme_weather-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(PACKAGE)
    package = site / "acme_weather" / "plugin"
    (package / "agents").mkdir(parents=True)
    (package / "agents" / "a.md").write_text("---\ndescription: An agent.\n---\nHi.")
    (package.parent / "__init__.py").write_text("import sys; sys.stderr.write('IMPORTED')")
    (package / "__init__.py").write_text(TOOL)
    (site / "acme_broken.py").write_text("x = 1")
    environment = dict(project.environment)
    code = f"""
import json, sys
sys.path.insert(0, {str(site)!r})
from retinue.capabilities.plugins.load import load_tools
from retinue.cluster import open_project
from retinue.capabilities.plugins import PluginExtensions
from retinue.cluster import open_project
from pathlib import Path
opened = open_project(Path({str(project.cwd)!r}), environment={environment!r})
found = opened.part(PluginExtensions).plugins
names = [entry.qualified_name for entry in opened.catalog().entries if entry.source == "plugin"]
before = "acme_weather" in sys.modules
loaded = [load_tools(plugin, 20) for plugin in found.usable if plugin.name in ("weather", "broken")]
print(json.dumps({{
    "plugins": [[p.name, p.version, p.provenance, sorted(p.names)] for p in found.usable if "acme" in p.where],
    "failed": [f.reason for f in found.failed], "agents": names, "before": before,
    "tools": [sorted(each.tools) for each in loaded], "problems": [list(each.problems) for each in loaded],
}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["plugins"] == [
        ["weather", "2.5", "person", ["acme-weather", "plugin", "weather"]],
        ["broken", "2.5", "person", ["acme-weather", "broken"]],
    ]
    assert "is neither a module" in said["failed"][0]
    assert said["agents"] == ["weather:a"]
    assert said["before"] is False
    assert said["tools"] == [["forecast"], []]
    assert "AttributeError" in said["problems"][1][0]
    assert done.stderr.count("IMPORTED") == 1


def test_what_lies_in_the_project_is_not_installed_even_where_python_finds_it(project):
    info = project.cwd / "evil-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[retinue.plugins]\nevil = evil_module\n")
    (project.cwd / "evil_module.py").write_text("raise SystemExit")
    done = subprocess.run(
        [sys.executable, "-m", "retinue", "plugins", "list", "--json"],
        cwd=project.cwd,
        env=project.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "evil" not in done.stdout


def test_what_was_found_is_remembered_until_something_is_installed(project, tmp_path, monkeypatch):
    from retinue.capabilities.plugins import discover as packages

    site = tmp_path / "site"
    info = site / "one-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text("[retinue.plugins]\none = module_one\n")
    monkeypatch.setattr(sys, "path", [str(site)])
    home = project.home / ".retinue"

    def names():
        packages._entry_points.clear()  # as a new process
        return [point.name for point in packages.entry_points(home, project.cwd)]

    assert names() == ["one"]
    assert not home.exists()
    home.mkdir()
    assert names() == ["one"]
    memory = home / "cache" / "entry-points.json"
    memory.write_text(memory.read_text().replace("module_one", "remembered").replace('"one"', '"two"'))
    assert names() == ["two"]
    (site / "new-1.0.dist-info").mkdir()
    assert names() == ["one"]
    for garbage in ("{", "[]", json.dumps({str(site): {"changed": 1}}), json.dumps({str(site): 5})):
        memory.write_text(garbage)
        assert names() == ["one"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("description=''", "no description"),
        ("description=5", "no description"),
        ("effects=['read']", "its effects"),
        ("effects=frozenset({'everything'})", "its effects"),
        ("parameters=None", "its parameters"),
        ("parameters={'type': 'string'}", "its parameters"),
        ("parameters={'type': 'object', 'x': object()}", "its parameters"),
        ("name=None", "a name has"),
    ],
)
def test_a_tool_that_no_model_could_be_offered_is_left_out(project, change, says):
    changed = f"replace(forecast, spec=replace(forecast.spec, {change}))"
    more = f"from msgspec.structs import replace\ntools = [forecast, {changed}]"
    project.write("kit/tools.py", f"{TOOL}\n{more}\n")
    loaded = project.load()
    assert list(loaded.tools) == ["forecast"]
    assert says in loaded.problems[0]
