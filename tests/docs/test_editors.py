"""docs/editors.md and the manifest for the ACP registry say what is true of the program."""

from __future__ import annotations

import json
import re
from pathlib import Path

from retinue.core.version import __version__
from retinue.frontends.acp.commands import OWN_COMMANDS
from retinue.frontends.cli.main import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "editors.md").read_text("utf-8")


def test_what_is_to_be_pasted_starts_the_program() -> None:
    for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL):
        (server,) = json.loads(block)["agent_servers"].values()
        assert (server["command"], server["args"]) == ("retinue", ["acp"])
    assert '{ "retinue", "acp" }' in PAGE
    assert ':command-params \'("acp")' in PAGE
    assert "acp" in COMMANDS


def test_every_command_of_the_face_is_named() -> None:
    for command in OWN_COMMANDS:
        assert f"/{command.name}" in PAGE


def test_the_manifest_is_of_this_version() -> None:
    manifest = json.loads((DOCS / "registry" / "agent.json").read_text("utf-8"))
    assert {"id", "name", "version", "description", "distribution"} <= set(manifest)
    assert re.fullmatch(r"[a-z][a-z0-9-]*", manifest["id"])
    assert manifest["version"] == __version__
    assert manifest["distribution"]["uvx"] == {"package": f"retinue=={__version__}", "args": ["acp"]}
    icon = (DOCS / "registry" / manifest["icon"]).read_text("utf-8")
    assert set(re.findall(r'fill="(.*?)"', icon)) == {"currentColor"}
