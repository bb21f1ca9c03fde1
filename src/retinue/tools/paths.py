"""Confinement: every path a model names is resolved and checked before anything opens it.

Links, `..`, `~` and absolute paths are followed to where they really lead. What is returned
holds no symbolic link, and `retinue.tools.files` opens it one folder at a time without
following any, so a link swapped in between the check and the opening is refused as well.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from retinue.core.lean import dataclass
from retinue.core.tool import ToolContext
from retinue.tools.arguments import ToolError

_DETOURS = frozenset({"", ".", ".."})
_folded = str if os.sep == "/" else os.path.normcase


@dataclass(frozen=True, slots=True)
class Confined:
    """A path that led into `root` when it was resolved. `shown` is how to name it to a model:
    relative to the working directory where it is inside."""

    root: Path
    real: str
    """The path itself, as text: most callers need no more."""
    shown: str

    @property
    def path(self) -> Path:
        return Path(self.real)

    @property
    def parts(self) -> tuple[str, ...]:
        below = _below(self.real, self.root)
        return tuple(below.split(os.sep)) if below else ()  # noqa: PTH206 - see _below


def confine(text: str, context: ToolContext, *, writing: bool = False) -> Confined:
    """Where `text` leads, if a tool may go there. Reading may also go to the run's own stored
    outputs and the transcripts of its children, because results point there."""
    path = _resolve(text, context)
    root = next((root for root in context.roots if _below(path, root) is not None), None)
    if root is None and not writing:
        outputs = Path(os.path.realpath(context.outputs))
        root = outputs if _below(path, outputs) is not None else None
        if root is None and path in map(os.path.realpath, context.transcripts()):
            root = Path(path).parent
    if root is not None:
        return Confined(root, path, _shown(path, context))
    allowed = ", ".join(str(root) for root in context.roots)
    where = f"{text!r} leads to {path}, which is" if path != text else f"{text} is"
    if context.instead is not None and (below := _below(path, context.instead[0])) is not None:
        right = context.instead[1] / below if below else context.instead[1]
        raise ToolError(f"{where} in the main checkout, which this run must not touch. Use its copy: {right}")
    raise ToolError(f"{where} outside the workspace. Use a path inside: {allowed}")


def as_written(text: str, context: ToolContext) -> Confined | None:
    """Where `text` leads if it names something below the working directory and no part of it is
    a link. That is not looked at here: `retinue.tools.files`, which opens it part by part,
    refuses links. None for a path with detours; `confine` knows where those lead."""
    root = context.root
    path = os.path.join(root, text)  # noqa: PTH118
    below = _straight_below(path, root)
    if below is None or "\0" in text or text.startswith("~"):
        return None
    return Confined(root, path, visible(below))


def shown(path: Path, context: ToolContext) -> str:
    return _shown(str(path), context)


def _shown(path: str, context: ToolContext) -> str:
    below = _below(path, context.root)
    return visible(path if below is None else below or ".")


def visible(name: str) -> str:
    """A file name without hidden characters: control characters are escaped, so that no name can
    pose as another line of a result, and bytes that are no text are replaced."""
    if name.isprintable():
        return name
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _below(path: str, root: Path) -> str | None:
    """What follows `root` in `path`: nothing for itself, None for a path outside. Both hold no
    links. (By text: asking Path objects took most of the time of a small read.)"""
    whole, start = _folded(path), _folded(str(root))
    if whole == start:
        return ""
    start = start if start.endswith(os.sep) else start + os.sep
    return path[len(start) :] if whole.startswith(start) else None


def _resolve(text: str, context: ToolContext) -> str:
    if "\0" in text:
        raise ToolError("The path holds a NUL character. Send a plain path.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ToolError("The path holds characters that no file name can have. Send a plain path.") from None
    if text == "~" or text.startswith("~/"):
        text = (context.environment.get("HOME") or str(Path.home())) + text[1:]
    path = os.path.join(context.root, text)  # noqa: PTH118
    return path if _is_plain(path, context.root) else os.path.realpath(path)  # Path.resolve raises on loops


def _is_plain(path: str, root: Path) -> bool:
    """Whether `path` is its own real path: below the root, which is real, without detours and
    links. Looks only at what is below the root; whatever is doubtful is not plain."""
    below = _straight_below(path, root)
    if below is None:
        return False
    start = f"{root}{os.sep}"
    try:
        for part in below.split("/"):
            start += part
            if stat.S_ISLNK(os.lstat(start).st_mode):
                return False
            start += "/"
    except OSError:
        return False
    return True


def _straight_below(path: str, root: Path) -> str | None:
    """What follows the root in `path`, if it goes down from there by names alone."""
    start = f"{root}{os.sep}"
    if os.sep != "/" or not path.startswith(start):
        return None
    below = path[len(start) :]
    return below if _DETOURS.isdisjoint(below.split("/")) else None
