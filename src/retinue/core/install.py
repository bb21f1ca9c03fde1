"""How this installation is changed: the command that adds an optional part, for remedies that can be followed.

pip writes down where a package came from. From a folder, an archive or a repository it must come again with the part;
the name alone would ask an index for it.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from retinue.core.version import __version__


def install_command(extra: str) -> str:
    """Return the command that installs Retinue with one more optional part."""
    return _command(_source(), extra)


def upgrade_advice() -> str:
    """Return how to get a newer version, as one sentence."""
    if _source() is None:
        return "Upgrade with: pip install --upgrade retinue."
    return "Install a newer version of Retinue."


def _command(source: dict[str, Any] | None, extra: str) -> str:
    if source is None:
        return f"pip install 'retinue[{extra}]'"
    url = str(source.get("url", ""))
    if "dir_info" in source and url.startswith("file:"):
        option = "-e " if source["dir_info"].get("editable") else ""
        return f"pip install {option}'{unquote(urlsplit(url).path)}[{extra}]'"
    repository = source.get("vcs_info")
    if repository is not None:
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return f"pip install 'retinue[{extra}] @ {url}'"


@cache
def _source() -> dict[str, Any] | None:
    """Return where this installation came from, as PEP 610 has it; None for an index, or when nobody knows.

    The file is read directly: `importlib.metadata` takes 6 ms to import, and every run builds such remedies."""
    for folder in sys.path:
        information = Path(folder, f"retinue-{__version__}.dist-info")
        if information.is_dir():
            import orjson

            try:
                return orjson.loads((information / "direct_url.json").read_bytes())  # type: ignore[no-any-return]
            except (OSError, ValueError):
                return None
    return None
