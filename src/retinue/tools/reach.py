"""File tools that reach a folder outside of the workspace: a memory, the files of a skill.

Only these tools of this run reach it; shells, searches and other runs do not. A call that leads
into such a folder is confined to it and nothing else, so a link that is put there meanwhile leads
nowhere. A tool that has `only` its folders can touch nothing in the workspace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.core.messages import Text
from retinue.core.tool import Tool, ToolContext, ToolOutput, failed
from retinue.tools.base import PATH_NAMES

_NAMES = ("path", *PATH_NAMES)
After = Callable[[Path], str]
"""What to tell a model about a file it has just written."""
Beyond = Callable[[str], Path | None]
"""The folder that a resolved path outside of the workspace leads into, if it may be read."""


class Reaching:
    """`inner` is read, write or edit; `folders` are real paths. `only` says what it is for when
    the tool is for these folders and nothing else."""

    def __init__(
        self,
        inner: Tool,
        folders: tuple[Path, ...],
        *,
        beyond: Beyond | None = None,
        only: str = "",
        after: After | None = None,
    ) -> None:
        self.inner = inner
        self.spec = inner.spec
        self.only = only
        self._folders = folders
        self._beyond = beyond
        self._after = after

    def target(self, arguments: Mapping[str, Any], root: Path, house: str = "") -> tuple[Path, Path] | None:
        """Return the folder outside of the workspace that a call leads into, and the path in it."""
        text = _path(arguments)
        if text is None:
            return None
        if house and (text == "~" or text.startswith("~/")):
            text = house + text[1:]
        # Links are resolved here, and the inner tool then refuses any that appear later.
        path = os.path.realpath(root / text)
        found = _inside(path, self._folders)
        if found is None and self._beyond is not None and not path.startswith(f"{root}{os.sep}"):
            folder = self._beyond(path)
            if folder is not None:
                found = folder, Path(path)
        if found is not None or Path(text).is_absolute():
            return found
        if self.only:
            if self._folders:
                return _inside(os.path.realpath(self._folders[0] / text), self._folders)
            return None
        if "write" in self.spec.effects or (root / text).exists():
            return None
        return _beside_index(text, self._folders)

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        found = self.target(arguments, context.root, _house(context))
        if found is None:
            if self.only:
                return failed(f"{self.spec.name} is for {self.only} only: {', '.join(map(str, self._folders))}")
            return await self.inner.run(call_id, arguments, context)
        folder, path = found
        output = await self.inner.run(call_id, _with_path(arguments, path), replace(context, roots=(folder,)))
        if output.is_error:
            return output
        said = self._after(path) if self._after is not None else ""
        content = list(output.content)
        if said:
            content.append(Text(said))
        if self.only and "write" in self.spec.effects:
            content.append(Text(f"This is {self.only}: {path}. {self.spec.name} reaches no file of the workspace."))
        return replace(output, content=tuple(content))


class ReachingWriter(Reaching):
    """One whose inner tool can say beforehand what it would change."""

    async def preview(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        found = self.target(arguments, context.root, _house(context))
        if found is not None:
            folder, path = found
            arguments, context = _with_path(arguments, path), replace(context, roots=(folder,))
        preview = getattr(self.inner, "preview", None)
        return str(await preview(arguments, context)) if preview is not None else ""


def label(tool: Tool) -> str:
    """The name of a tool as the log keeps it: one that reaches only a memory is not the tool of
    that name, and passes no right to it on to a child."""
    if isinstance(tool, Reaching) and tool.only:
        return f"{tool.spec.name} (memory only)"
    return tool.spec.name


def _path(arguments: Mapping[str, Any]) -> str | None:
    for name in _NAMES:
        found = arguments.get(name)
        if found is not None:
            if isinstance(found, str) and found and "\0" not in found and _encodable(found):
                return found
            return None
    return None


def _encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _with_path(arguments: Mapping[str, Any], path: Path) -> dict[str, Any]:
    changed = dict(arguments)
    for name in _NAMES:
        changed.pop(name, None)
    return {**changed, "path": str(path)}


def _inside(path: str, folders: Iterable[Path]) -> tuple[Path, Path] | None:
    for folder in folders:
        if path.startswith(f"{folder}{os.sep}"):
            return folder, Path(path)
    return None


def _beside_index(text: str, folders: Iterable[Path]) -> tuple[Path, Path] | None:
    """A file that is only named, as an index names it, is found beside the index."""
    for folder in folders:
        found = _inside(os.path.realpath(folder / text), (folder,))
        if found is not None and found[1].is_file():
            return found
    return None


def _house(context: ToolContext) -> str:
    return context.environment.get("HOME") or str(Path.home())
