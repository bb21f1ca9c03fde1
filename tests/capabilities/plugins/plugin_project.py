"""A project with plugins, as its runs see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retinue.capabilities.plugins import PluginExtensions
from retinue.capabilities.plugins.discover import Plugin, Plugins
from retinue.capabilities.plugins.load import PluginTools, load_tools
from retinue.cluster import open_project
from retinue.runs.project import Project as OpenProject
from tests.git_folder import make_git_folder

TOOL = """
from retinue import tool

@tool(effects=["read"])
def forecast(city: str) -> str:
    "The weather in a city."
    return f"{city}: sunny"
"""


class Project:
    """`project()` sees the files as they are now; entry points only where a test wants them."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "project"
        self.home = folder / "home"
        self.cwd.mkdir()
        self.home.mkdir()
        make_git_folder(self.cwd)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "RETINUE_HOME": str(self.home / ".retinue"),
        }

    def write(self, path: str, content: Any = "", *, user: bool = False) -> Path:
        """A file below the project's (or the user's) plugins folder; what is no text is JSON."""
        base = self.home / ".retinue" / "plugins" if user else self.cwd / ".retinue" / "plugins"
        file = base / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    def project(self, **options: Any) -> OpenProject:
        return open_project(self.cwd, environment=self.environment, **options)

    @property
    def plugins(self) -> Plugins:
        return self.project().part(PluginExtensions).plugins

    def one(self) -> Plugin:
        """The only plugin there is, without a fault."""
        found = self.plugins
        assert found.problems == ()
        (plugin,) = found.usable
        return plugin

    def load(self, seconds: float = 20) -> PluginTools:
        (plugin,) = self.plugins.usable
        return load_tools(plugin, seconds)
