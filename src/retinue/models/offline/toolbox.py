"""The searching tools a request offers, whatever they are called and however their parameters
are spelled. Only tools that look are used; everything else on offer is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from retinue.core.lean import dataclass
from retinue.core.tool import ToolSpec

Kind = Literal["grep", "find", "read", "ls"]

_NAMES: dict[str, Kind] = {
    "grep": "grep", "search": "grep", "searchcode": "grep", "codesearch": "grep", "ripgrep": "grep", "rg": "grep",
    "searchfiles": "grep", "greptool": "grep", "searchfilecontent": "grep", "grepsearch": "grep",
    "find": "find", "glob": "find", "findfiles": "find", "filesearch": "find", "globtool": "find",
    "read": "read", "readfile": "read", "view": "read", "viewfile": "read", "cat": "read", "openfile": "read",
    "ls": "ls", "list": "ls", "listdir": "ls", "listdirectory": "ls", "listfiles": "ls", "lstool": "ls",
}  # fmt: skip

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "pattern": ("pattern", "regex", "query", "search", "glob_pattern", "glob", "name"),
    "path": ("path", "file_path", "filePath", "absolute_path", "directory", "dir", "dir_path", "folder", "target_file"),
    "glob": ("glob", "include", "file_pattern", "include_pattern"),
    "mode": ("mode", "output_mode"),
    "limit": ("limit", "head_limit", "max_results", "num_lines"),
    "offset": ("offset", "start_line", "line"),
}

_MODES: dict[str, tuple[str, ...]] = {
    "content": ("content", "lines"),
    "count": ("count",),
    "files": ("files", "files_with_matches"),
}


@dataclass(frozen=True, slots=True)
class SearchTool:
    kind: Kind
    spec: ToolSpec

    def arguments(self, **wanted: Any) -> dict[str, Any]:
        """Our words in the tool's own: what its schema has no parameter for is left out."""
        found: dict[str, Any] = {}
        for name, value in wanted.items():
            own = self._own(name)
            if own is None or value is None:
                continue
            if name == "mode":
                options = self._properties.get(own, {}).get("enum") or [value]
                value = next((option for option in options if option in _MODES[value]), None)
            if value is not None:
                found[own] = value
        return found

    def value(self, arguments: Mapping[str, Any], name: str) -> Any:
        """What a call of this tool said for one of our words."""
        own = self._own(name)
        return arguments.get(own) if own else None

    def can(self, mode: str) -> bool:
        own = self._own("mode")
        options = (self._properties.get(own, {}).get("enum") if own else None) or ()
        return any(option in _MODES[mode] for option in options)

    @property
    def excludes(self) -> bool:
        """The tool says that several patterns, some negated by `!`, may be given at once."""
        own = self._own("glob" if self.kind == "grep" else "pattern")
        return own is not None and "!" in str(self._properties.get(own, {}).get("description", ""))

    @property
    def _properties(self) -> Mapping[str, Any]:
        found = self.spec.parameters.get("properties")
        return found if isinstance(found, Mapping) else {}

    def _own(self, name: str) -> str | None:
        names = self._properties
        options = [option for option in _SPELLINGS[name] if option in names]
        if self.kind == "grep" and name == "pattern":
            options = [option for option in options if option != "glob"]
        return options[0] if options else None


@dataclass(frozen=True, slots=True)
class Toolbox:
    grep: SearchTool | None = None
    find: SearchTool | None = None
    read: SearchTool | None = None
    ls: SearchTool | None = None

    @classmethod
    def of(cls, offered: Iterable[ToolSpec]) -> Toolbox:
        found: dict[str, SearchTool] = {}
        for spec in offered:
            kind = _NAMES.get(spec.name.lower().replace("_", "").replace("-", ""))
            if kind is not None and kind not in found and not spec.effects & {"write", "execute", "spawn", "network"}:
                found[kind] = SearchTool(kind, spec)
        return cls(**found)

    def named(self, name: str) -> SearchTool | None:
        return next((tool for tool in self.tools if tool.spec.name == name), None)

    @property
    def tools(self) -> tuple[SearchTool, ...]:
        return tuple(tool for tool in (self.grep, self.find, self.read, self.ls) if tool is not None)
