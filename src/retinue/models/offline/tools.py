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
}

_MODES = {"content": ("content", "lines"), "count": ("count",)}


@dataclass(frozen=True, slots=True)
class SearchTool:
    kind: Kind
    spec: ToolSpec

    def arguments(self, **wanted: Any) -> dict[str, Any]:
        """Return our words in the tool's own: what its schema has no parameter for is left out."""
        found: dict[str, Any] = {}
        for name, value in wanted.items():
            own, schema = self._parameter(name)
            if name == "mode":
                value = next((mode for mode in schema.get("enum") or [value] if mode in _MODES[value]), None)
            if own and value is not None:
                found[own] = value
        return found

    def value(self, arguments: Mapping[str, Any], name: str) -> Any:
        """Return what a call of this tool said for one of our words."""
        return arguments.get(self._parameter(name)[0])

    @property
    def counts(self) -> bool:
        return "count" in (self._parameter("mode")[1].get("enum") or ())

    @property
    def excludes(self) -> bool:
        """The tool says that several patterns, some negated by `!`, may be given at once."""
        return "!" in str(self._parameter("glob")[1].get("description", ""))

    def _parameter(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """Return the tool's own name and schema for one of our words; both empty if it has none."""
        properties = self.spec.parameters.get("properties") or {}
        for own in _SPELLINGS[name]:
            if own in properties and not (own == "glob" and name == "pattern" and self.kind == "grep"):
                return own, properties[own]
        return "", {}


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

    @property
    def tools(self) -> tuple[SearchTool, ...]:
        return tuple(tool for tool in (self.grep, self.find, self.read, self.ls) if tool is not None)
