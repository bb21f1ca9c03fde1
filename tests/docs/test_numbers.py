"""A figure that was measured stands in one table, and other pages repeat it."""

from __future__ import annotations

import re

from tests.docs.pages import PAGES

FIGURE = re.compile(r"\d[\d.]* (?:×|ms|s|µs|[MG]B|%)(?!\w)")
TABLE = "docs/comparison.md"
MEASURED = re.compile(r"bench/\w+\.py|[Mm]easured")


def test_measured_figures_are_those_of_the_table() -> None:
    """The README and the comparison gave two figures for the same script and the same day."""
    table = set(FIGURE.findall(PAGES[TABLE]))
    other = {}
    for page, text in PAGES.items():
        for paragraph in text.split("\n\n"):
            if page != TABLE and MEASURED.search(paragraph):
                foreign = [figure for figure in FIGURE.findall(paragraph) if figure not in table]
                other.update({f"{page}: {figure}": paragraph for figure in foreign})
    assert other == {}


def test_the_readme_counts_the_agent_files_of_the_table() -> None:
    rows = re.findall(r"^\| [\w ]+ \| (\d+) \| (\d+) \|", PAGES[TABLE], re.MULTILINE)
    files, agents = (sum(int(row[place]) for row in rows) for place in (0, 1))
    assert f"| {agents} of {files};" in PAGES["README.md"]
