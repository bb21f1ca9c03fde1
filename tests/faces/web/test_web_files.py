"""The files of the page: what is shipped, what was taken from others, and how much there is of it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

import retinue.faces.web
from retinue.app.approvals import CHOICES
from retinue.faces.server.app import static_files

WEB = Path(retinue.faces.web.__file__).parent
ROOT = Path(__file__).parents[3]
VENDOR = json.loads((WEB / "vendor" / "versions.json").read_text())
OWN = [path for folder in ("app", "parts", "views") for path in sorted((WEB / folder).glob("*.js"))]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("row", VENDOR["files"], ids=lambda row: row["file"])
def test_what_was_taken_from_others_is_what_they_published(row: dict[str, str]) -> None:
    shipped = (WEB / "vendor" / row["file"]).read_text()
    assert digest(shipped) == row["shipped"]
    published = shipped
    for package, beside in VENDOR["imports"].items():
        published = published.replace(beside, package)
    assert digest(published) == row["published"]
    licence = ROOT / "LICENSES" / f"{row['package'].strip('@').replace('/', '-')}.txt"
    assert row["licence"] in ("MIT", "Apache-2.0") and licence.is_file()


def test_every_file_of_others_is_listed() -> None:
    listed = {row["file"] for row in VENDOR["files"]}
    assert {path.name for path in (WEB / "vendor").glob("*.mjs")} == listed


def test_the_whole_page_is_small() -> None:
    assert sum(len(file.content) for file in static_files().values()) <= 155 * 1024


def test_the_page_asks_nobody_else_for_anything() -> None:
    for name, file in static_files().items():
        text = file.content.decode()
        if not name.startswith("vendor/"):
            assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)[\w.]+", text), name


def test_nothing_is_inline_and_text_never_becomes_elements() -> None:
    page = (WEB / "index.html").read_text()
    assert "<style" not in page and "style=" not in page
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page)) and not re.search(r"\son\w+=", page)
    for path in OWN:
        text = path.read_text()
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"):
            assert forbidden not in text, f"{path.name} uses {forbidden}"


def test_every_module_is_loaded_by_another_one() -> None:
    imported = {"app/main.js"}
    for path in OWN:
        for target in re.findall(r'from "(\.[^"]+)"', path.read_text()):
            found = (path.parent / target).resolve().relative_to(WEB.resolve())
            assert (WEB / found).is_file(), f"{path.name} imports {target}"
            imported.add(found.as_posix())
    assert {path.relative_to(WEB).as_posix() for path in OWN} == {each for each in imported if "vendor" not in each}


def test_the_page_has_the_keys_of_the_app_for_the_answers_to_an_approval() -> None:
    table = re.search(r"KEYS = \{(.*?)\}", (WEB / "parts" / "item.js").read_text())
    assert table is not None
    assert dict(re.findall(r'(\w): "([\w-]+)"', table[1])) == {choice.key: name for name, choice in CHOICES.items()}
