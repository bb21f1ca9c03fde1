"""docs/models.md: a row for every provider, only the words it explains, and examples that load."""

from __future__ import annotations

import json
import re
from pathlib import Path

from retinue.models.presets import BUILT_IN, PRESETS
from retinue.models.providers import Providers
from retinue.settings.table import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
WORDS = {"bytes", "format", "auto", "bridge", "text", "no"}


def rows() -> dict[str, list[str]]:
    table = PAGE[PAGE.index("| provider | tools") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {first: rest for first, *rest in cells}


def test_every_provider_has_a_row_with_words_that_the_page_explains() -> None:
    found = rows()
    assert set(BUILT_IN) | set(PRESETS) <= set(found)
    for provider, cells in found.items():
        assert len(cells) == 7 and set(cells) <= WORDS, provider


def test_providers_that_the_zoo_plays_are_those_whose_tools_are_tested_on_bytes() -> None:
    from tests.models.zoo import ZOO

    tested = {provider for provider, cells in rows().items() if cells[0] == "bytes"}
    assert tested == {animal.provider for animal in ZOO}


def test_the_example_of_keys_makes_providers_that_can_be_used() -> None:
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.S)]
    entries = next(block["providers"] for block in blocks if "providers" in block)
    providers = Providers(Settings({"providers": entries}), {"AWS_BEARER_TOKEN_BEDROCK": "k"})
    for name in entries:
        found = providers.get(name)
        assert found is not None and found.problem is None, found
    azure = providers.get("azure")
    assert azure is not None and azure.api_for("gpt-5.6-sol") == "openai-responses"
