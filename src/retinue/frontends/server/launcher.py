"""Opens the page in the user's browser, without a secret in the list of processes.

Every user of a machine can read the arguments of every program. So the browser receives a file, readable only by its
owner, that redirects to the page with a one-time code. The server removes the file when the code is used.
"""

from __future__ import annotations

import html
import os
import time
import webbrowser
from pathlib import Path

LAUNCH_SECONDS = 60.0
_CODE_POLL_SECONDS = 0.1
_SNAP_FOLDER = Path("/snap/bin")
_LAUNCH_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Retinue</title>
<a href="{url}">Open Retinue</a>
"""


def open_in_browser(link: str, code: str, state: Path) -> bool:
    """Open a link with a one-time code in the browser, and wait until a page has used the code. Return whether one has.
    A browser that runs in the foreground is waited for. `state` is the state folder of the project."""
    file = _file(state, code)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(_LAUNCH_PAGE.format(url=html.escape(link)))
    try:
        deadline = time.monotonic() + LAUNCH_SECONDS
        opened = webbrowser.open(file.as_uri())
        while opened and file.exists() and time.monotonic() < deadline:
            time.sleep(_CODE_POLL_SECONDS)
        return opened and not file.exists()
    finally:
        file.unlink(missing_ok=True)


def remove_launch_file(state: Path, code: str) -> None:
    """Remove the file with this code, if there is one."""
    _file(state, code).unlink(missing_ok=True)


def remove_launch_files(state: Path) -> None:
    """Remove all such files of a project, because its server has ended."""
    for file in _folder(state).glob(f"{_stem(state)}-*.html"):
        file.unlink(missing_ok=True)


def _file(state: Path, code: str) -> Path:
    return _folder(state) / f"{_stem(state)}-{code.partition('.')[0]}.html"


def _folder(state: Path) -> Path:
    # Browsers from snaps cannot read hidden folders in the home folder, but the home folder itself.
    return Path.home() if _SNAP_FOLDER.is_dir() else state


def _stem(state: Path) -> str:
    return f"retinue-open-{state.name}"
