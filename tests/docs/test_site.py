"""The site has every page, and every link between pages leads somewhere. `make site` checks the rest."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])


def test_every_page_is_in_the_site():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    listed = {page for section in site["nav"] for pages in section.values() for page in pages}
    assert listed == {path.name for path in PAGES if path.parent == ROOT / "docs"}, "add it to `nav` in mkdocs.yml"


def test_every_link_between_pages_leads_somewhere():
    for path in PAGES:
        for target in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", path.read_text("utf-8")):
            assert (path.parent / target).is_file(), f"{path.name} links to {target}"
