"""No row of the pages for people who come from elsewhere is without a test that shows what it says."""

from __future__ import annotations

import importlib

import pytest
from tests.docs.coming_from import SHOWN, rows
from tests.docs.pages import PAGES

FROM = [page for page in PAGES if page.startswith("docs/coming-from-")]


@pytest.mark.parametrize("page", FROM)
def test_every_row_of_the_page_has_a_test(page: str) -> None:
    name = page.removeprefix("docs/coming-").removesuffix(".md").replace("-", "_")
    importlib.import_module(f"tests.docs.test_{name}")
    assert set(rows(page)) == SHOWN[page]
