"""ripgrep: where the program is, and how it is run. It comes with the package of the same name."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from retinue.core.programs import prepare
from retinue.core.tool import ToolContext
from retinue.tools.base import ToolError
from retinue.tools.processes import own_variables, run_program

SECONDS = 60.0


_PROGRAM = "rg.exe" if sys.platform == "win32" else "rg"

_known: Path | None = None


def find_ripgrep() -> Path | None:
    """Return the program: beside this Python, among its scripts, in the package's record, or on PATH."""
    global _known
    if _known is None or not _known.exists():
        _known = None
        for path in _locations():
            if path.is_file() and os.access(path, os.X_OK):
                _known = path
                break
    return _known


def _locations() -> Iterator[Path]:
    yield Path(sys.executable).parent / _PROGRAM
    import sysconfig

    yield Path(sysconfig.get_path("scripts")) / _PROGRAM
    # A virtual environment on top of another one has the scripts elsewhere.
    yield from _recorded_programs()
    on_path = shutil.which(_PROGRAM)
    if on_path:
        yield Path(on_path)


def _recorded_programs() -> Iterator[Path]:
    from importlib import metadata

    try:
        files = metadata.files("ripgrep") or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == _PROGRAM:
            yield Path(str(file.locate()))


async def ripgrep(
    arguments: list[str],
    cwd: Path,
    context: ToolContext,
    receive: Callable[[bytes], None],
    descriptors: Sequence[int] = (),
) -> int:
    """Run rg in `cwd`, without anyone's configuration, and return its exit code: 0 found, 1
    found nothing, 2 some files could not be searched. `descriptors` are files it gets open.
    Raise ToolError for a pattern it rejects, for lack of time, and when there is no rg."""
    program = find_ripgrep()
    if program is None:
        raise ToolError(
            "ripgrep (rg) was not found, so searching does not work. "
            "Tell the user to run: pip install ripgrep. Until then use ls and read."
        )
    errors = bytearray()

    def split(stream: int, data: bytes) -> None:
        if stream == 1:
            receive(data)
        elif len(errors) < 4000:
            errors.extend(data)

    env = own_variables("PATH", "HOME", "XDG_CONFIG_HOME", "SYSTEMROOT")
    seconds = SECONDS
    if context.tool_timeout is not None:
        seconds = min(SECONDS, context.tool_timeout * 0.9)
    ended = await run_program(
        prepare(
            [str(program), "--no-config", "--no-messages", "--color=never", *arguments],
            clearance="own",
            environment=env,
            cwd=cwd,
        ),
        receive=split,
        seconds=seconds,
        merge=False,
        alone=True,
        owner=context.run_id,
        descriptors=descriptors,
    )
    if ended.timed_out:
        raise ToolError(f"The search took longer than {seconds:g} s. Narrow it with path or glob.")
    message = errors.decode("utf-8", "replace").strip()
    if ended.code == 2 and message:
        raise ToolError(advice(message))
    # A signal, or a program that is not ripgrep.
    if ended.code not in (0, 1, 2):
        raise ToolError(f"ripgrep failed (exit {ended.code}). {message[:500]}")
    return ended.code


def hidden_flags(hidden: bool) -> list[str]:
    """Return the flags for hidden files. Folders of version control stay out even then."""
    if hidden:
        return ["--hidden", "--glob=!.git", "--glob=!.hg", "--glob=!.svn"]
    return []


def skipped_files(hidden: bool) -> str:
    """Return which files a search has skipped, as the subject of a sentence."""
    return "Ignored files were" if hidden else "Ignored and hidden files were"


def advice(message: str) -> str:
    """Return what rg said about a pattern, with the remedy."""
    text = message.removeprefix("rg: ")[:600]
    if "look-around" in text or "backreferences" in text:
        return f"{text}\nLook-around and backreferences are not supported. Search for a simpler pattern."
    if "regex" in text:
        return f"{text}\nTo search for the text as it is, set literal to true; otherwise escape special characters."
    return text
