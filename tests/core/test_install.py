"""Remedies that install something can be followed, wherever Retinue came from."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from retinue.core.install import install_command
from retinue.core.version import __version__

FOUND = (
    "from retinue.core.install import install_command, upgrade_advice; print(install_command('web'), upgrade_advice())"
)
SOURCES = {
    "index": (None, "pip install 'retinue[web]'"),
    "folder": ({"url": "file:///a%20b/retinue", "dir_info": {}}, "pip install '/a b/retinue[web]'"),
    "editable": ({"url": "file:///r", "dir_info": {"editable": True}}, "pip install -e '/r[web]'"),
    "archive": (
        {"url": "file:///r.whl", "archive_info": {}},
        "pip install 'retinue[web] @ file:///r.whl'",
    ),
    "git": (
        {"url": "https://example.com/r", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
        "pip install 'retinue[web] @ git+https://example.com/r@abc'",
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_command_names_where_this_installation_came_from(source: str, tmp_path: Path) -> None:
    written, command = SOURCES[source]
    info = tmp_path / f"retinue-{__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: retinue\nVersion: 1\n")
    if written is not None:
        (info / "direct_url.json").write_text(json.dumps(written))
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    done = subprocess.run([sys.executable, "-c", path + FOUND], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(command + " ")
    assert ("pip install --upgrade retinue" in done.stdout) == (source == "index")


def test_pip_understands_the_command_of_this_installation() -> None:
    """It was the name alone, which no index has."""
    if distribution("retinue").read_text("direct_url.json") is None:
        pytest.skip("installed from an index")
    program, *words = shlex.split(install_command("serve"))
    command = [sys.executable, "-m", program, *words, "--dry-run", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Would install retinue" in done.stdout or "No module named 'hatchling'" in done.stdout + done.stderr, done
