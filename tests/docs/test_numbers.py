"""A figure that was measured stands in one table, and other pages repeat it."""

from __future__ import annotations

import re

from tests.docs.pages import PAGES

FIGURE = re.compile(r"\d+(?:\.\d+)? (?:×|ms|s|µs|MB)(?!\w)")
TABLE = "docs/comparison.md"
MADE_BY = re.compile(r"bench/(\w+\.py)")


def test_figures_of_a_script_are_the_same_on_every_page() -> None:
    """The README and the comparison gave two figures for the same script and the same day."""
    table = set(FIGURE.findall(PAGES[TABLE]))
    scripts = set(MADE_BY.findall(PAGES[TABLE]))
    other = {}
    for page, text in PAGES.items():
        for line in text.splitlines():
            if page != TABLE and scripts & set(MADE_BY.findall(line)):
                foreign = [figure for figure in FIGURE.findall(line) if figure not in table]
                other.update({f"{page}: {figure}": line for figure in foreign})
    assert other == {}


def test_the_readme_counts_the_agent_files_of_the_table() -> None:
    rows = re.findall(r"^\| [\w ]+ \| (\d+) \| (\d+) \|", PAGES[TABLE], re.MULTILINE)
    files, agents = (sum(int(row[place]) for row in rows) for place in (0, 1))
    assert f"| {agents} of {files};" in PAGES["README.md"]
