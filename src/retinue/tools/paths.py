"""Confinement: every path a model names is resolved and checked before anything opens it.

Links, `..`, `~` and absolute paths are followed to where they really lead. What is returned
holds no symbolic link, and `retinue.tools.files` opens it one folder at a time without
following any, so a link swapped in between the check and the opening is refused as well.
"""

from __future__ import annotations

import os
from pathlib import Path

from retinue.domain.lean import dataclass
from retinue.domain.tool import ToolContext
from retinue.tools.errors import ToolError


@dataclass(frozen=True, slots=True)
class Confined:
    """A path that led into `root` when it was resolved. `shown` is how to name it to a model:
    relative to the working directory where it is inside."""

    root: Path
    path: Path
    shown: str

    @property
    def parts(self) -> tuple[str, ...]:
        return self.path.relative_to(self.root).parts


def confine(text: str, context: ToolContext, *, writing: bool = False) -> Confined:
    """Where `text` leads, if a tool may go there. Reading may also go to the run's own stored
    outputs, because truncated results point there."""
    path = Path(_resolve(text, context))
    root = next((root for root in context.roots if _inside(path, root)), None)
    if root is None and not writing:
        outputs = Path(os.path.realpath(context.outputs))
        root = outputs if _inside(path, outputs) else None
    if root is not None:
        return Confined(root, path, shown(path, context))
    allowed = ", ".join(str(root) for root in context.roots)
    where = f"{text!r} leads to {path}, which is" if str(path) != text else f"{text} is"
    raise ToolError(f"{where} outside the workspace. Use a path inside: {allowed}")


def shown(path: Path, context: ToolContext) -> str:
    return visible(str(path.relative_to(context.root) if _inside(path, context.root) else path))


def visible(name: str) -> str:
    """A file name in which nothing hides: control characters are escaped, so that no name can
    pose as another line of a result, and bytes that are no text are replaced."""
    if name.isprintable():
        return name
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _inside(path: Path, root: Path) -> bool:
    return path == root or root in path.parents


def _resolve(text: str, context: ToolContext) -> str:
    if "\0" in text:
        raise ToolError("The path holds a NUL character. Send a plain path.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ToolError("The path holds characters that no file name can have. Send a plain path.") from None
    if text == "~" or text.startswith("~/"):
        text = (context.environment.get("HOME") or str(Path.home())) + text[1:]
    return os.path.realpath(os.path.join(context.root, text))  # noqa: PTH118 - Path.resolve raises on loops
