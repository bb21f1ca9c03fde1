"""What the model sees of lsp and convert_content: pinned, described, and small."""

import json
import os
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from tests.tools.described import is_described

from retinue.capabilities.convert.attach import ConvertContentTool
from retinue.capabilities.lsp.pool import LanguageServerPool
from retinue.capabilities.lsp.tool import PRIVILEGED_ACTIONS, READ_ACTIONS, LspTool
from retinue.core.tool_names import TOOL_EFFECTS


def no_pool() -> LanguageServerPool:
    raise AssertionError("nothing is asked here")


SPECS = {
    "lsp": LspTool(no_pool).spec,
    "lsp_privileged": LspTool(no_pool, (*READ_ACTIONS, *PRIVILEGED_ACTIONS)).spec,
    "convert_content": ConvertContentTool().spec,
}


@pytest.mark.parametrize("name", SPECS)
def test_the_spec_is_what_was_agreed(name):
    """Regenerate with RETINUE_SNAPSHOTS=write after a change that is meant."""
    spec = SPECS[name]
    text = json.dumps(to_builtins(replace(spec, aliases=None), order="sorted"), indent=2, sort_keys=True) + "\n"
    path = Path(__file__).with_name("snapshots") / f"{name}.json"
    if os.environ.get("RETINUE_SNAPSHOTS") == "write":
        path.write_text(text)
    assert text == path.read_text()
    assert spec.effects == TOOL_EFFECTS[spec.name]
    assert is_described(spec.parameters)
    assert len(text) < 6_000
