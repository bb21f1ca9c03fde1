"""What a plugin is, as far as it is known without running any of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

Origin = Literal["user", "setting", "package", "project", "agent"]
"""Who brought it: RETINUE_HOME/plugins, the setting `plugins`, an installed Python package, the
project's .retinue/plugins, or an agent's file by path."""


class PluginTable(Struct, frozen=True):
    """A part of a plugin that is data: hooks or servers, and the file they are from."""

    path: Path
    value: Mapping[str, Any]


class Plugin(Struct, frozen=True):
    """`root` is its folder; None for one that is a single file or module. `code` are the modules
    that hold its tools: names below `root`, the one file, or the value of an entry point."""

    name: str
    origin: Origin
    where: str
    personal: bool
    """Only the user can have put it there. Code, hooks and servers of any other need consent."""
    root: Path | None = None
    file: Path | None = None
    entry: str = ""
    version: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()
    """Further names by which agent files may mean it: of its folder, its manifest, its package."""
    agents: tuple[Path, ...] = ()
    skills: tuple[Path, ...] = ()
    hooks: tuple[PluginTable, ...] = ()
    servers: tuple[PluginTable, ...] = ()
    code: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """How it is called, in lower case: names of extensions match in any case."""
        return frozenset(name.lower() for name in (self.name, *self.aliases) if name)

    @property
    def acts(self) -> bool:
        """Whether it brings anything that runs, beyond texts."""
        return bool(self.code or self.hooks or self.servers)

    @property
    def place(self) -> Path:
        """What consent to it is about."""
        return self.root or self.file or Path(self.where)

    @property
    def server_names(self) -> frozenset[str]:
        return frozenset().union(*(table.value for table in self.servers))


class FailedPlugin(Struct, frozen=True):
    """A plugin that cannot be used at all, and why. The others are not affected."""

    where: str
    reason: str


class Plugins(Struct, frozen=True):
    """All plugins of a project, the user's own first: of two with one name the first counts, so
    that no project takes the place of what the user has installed."""

    found: tuple[Plugin, ...] = ()
    failed: tuple[FailedPlugin, ...] = field(default=())

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong, one line each."""
        lines = [f"Plugin {each.where} is left out: {each.reason}" for each in self.failed]
        for plugin in self.found:
            lines += [f"Plugin '{plugin.name}': {text}" for text in plugin.problems]
        return tuple(lines)

    @property
    def brought(self) -> Plugins:
        """Only what a project brings."""
        return Plugins(tuple(plugin for plugin in self.found if not plugin.personal))

    def named(self, name: str) -> Plugin | None:
        wanted = name.lower()
        return next((plugin for plugin in self.found if wanted in plugin.names), None)
