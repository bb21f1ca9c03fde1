"""Programs of other people in another language, from npm: installed once for all test processes of a machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.absent import give_up

PACKAGES = (
    "node@22",
    "@ag-ui/client@1.0.0",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "axe-core@4.14.0",
)


def npm_modules() -> Path:
    """Return the folder `node_modules` with these packages."""
    name = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"retinue-npm-{os.getuid()}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder)
            (folder / "complete").touch()
    return folder / "node_modules"


def _install(folder: Path) -> None:
    if shutil.which("npm") is None:
        give_up("npm is not installed: programs of other people were not tried.")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        give_up(f"npm could not install {', '.join(PACKAGES)} ({type(error).__name__}).")
