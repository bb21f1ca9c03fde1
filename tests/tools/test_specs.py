"""What the model sees of the tools: pinned, described, and small."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from tests.tools.described import is_described

import retinue
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.tools.base import builtin_names, builtin_tools

SNAPSHOTS = Path(__file__).with_name("snapshots")


def tokens(spec) -> int:
    """About what a provider counts: four characters of the wire form to a token."""
    wire = {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
    return -(-len(json.dumps(wire, separators=(",", ":"))) // 4)


@pytest.mark.parametrize("name", builtin_names())
def test_the_spec_is_what_was_agreed(name):
    """Regenerate with RETINUE_SNAPSHOTS=write after a change that is meant."""
    spec = (
        json.dumps(
            to_builtins(replace(builtin_tools()[name].spec, aliases=None), order="sorted"), indent=2, sort_keys=True
        )
        + "\n"
    )
    path = SNAPSHOTS / f"{name}.json"
    if os.environ.get("RETINUE_SNAPSHOTS") == "write":
        SNAPSHOTS.mkdir(exist_ok=True)
        path.write_text(spec)
    assert spec == path.read_text()


@pytest.mark.parametrize("name", builtin_names())
def test_every_parameter_is_described_and_every_effect_is_the_agreed_one(name):
    tool = builtin_tools()[name]
    spec = tool.spec
    assert spec.name == name
    # Agreed in one place: in the table, which is known before a tool is loaded, or by the tool itself.
    own = type(tool).effects
    assert (own is None) == (name in TOOL_EFFECTS)
    assert spec.effects == (TOOL_EFFECTS[name] if own is None else own)
    assert spec.exclusive == bool(spec.effects & {"write", "execute"})
    assert spec.aliases is not None and spec.aliases.schema["additionalProperties"] is False
    assert is_described(spec.parameters)


def test_the_tools_are_small():
    sizes = {name: tokens(tool.spec) for name, tool in builtin_tools().items()}
    print(sizes, "total", sum(sizes.values()))
    assert max(sizes.values()) <= 260
    assert sum(sizes.values()) <= 1200


def test_tools_can_be_built_one_by_one():
    assert list(builtin_tools(["ls", "nonsense"])) == ["ls"]


def test_importing_the_registry_loads_no_tool_and_nothing_heavy():
    code = (
        "import sys, retinue.tools.base as r\n"
        "loaded = [m for m in sys.modules if m.startswith('retinue.tools.') and m.endswith('.tool')]\n"
        "assert not loaded, loaded\n"
        "r.builtin_tools()\n"
        "heavy = {'difflib', 'aiohttp', 'sysconfig', 'importlib.metadata', 'yaml', 'orjson'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


NEW_TOOL = """
from typing import ClassVar

from retinue.core.tool import ok
from retinue.tools.base import BuiltinTool


class GreetTool(BuiltinTool):
    name = "greet"
    required = ("who",)
    properties: ClassVar[dict] = {"who": {"type": "string"}}
    effects = frozenset({"read"})

    async def call(self, call_id, given, context):
        return ok(f"Hello {given.text('who')}")
"""


def test_a_new_tool_is_two_files(tmp_path: Path):
    """A copy of the package gets a tool as CONTRIBUTING.md says: its module and its prompt."""
    package = tmp_path / "retinue"
    shutil.copytree(Path(retinue.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "tools" / "greet.py").write_text(NEW_TOOL)
    (package / "tools" / "prompts" / "greet.md").write_text("Greets someone.")
    code = (
        "import asyncio\n"
        "from retinue.tools.base import builtin_tools\n"
        "tool = builtin_tools()['greet']\n"
        "assert tool.spec.description == 'Greets someone.' and tool.spec.effects == {'read'}\n"
        "print(asyncio.run(tool.run('c', {'who': 'Ada'}, None)).text)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Hello Ada\n"
