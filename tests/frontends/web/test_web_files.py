"""The files of the page: what is shipped, what was taken from others, and how much there is of it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import retinue.frontends.web
from retinue.app.approvals import APPROVAL_CHOICES
from retinue.app.text import STATUS_MARKS
from retinue.core.format import UNIT, format_cost, format_count, format_duration, format_tokens, format_wait
from retinue.frontends.server.app import static_files

WEB = Path(retinue.frontends.web.__file__).parent
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


def test_the_page_has_no_words_for_states_and_answers_of_its_own() -> None:
    """It shows those of `/v1/words`."""
    for name in ("over-budget", "allow-run", "allow-agent"):
        assert name in {*STATUS_MARKS, *APPROVAL_CHOICES}
        for path in OWN:
            assert name not in path.read_text(), f"{path.name} has {name}"


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_the_page_formats_numbers_as_the_other_faces_do(tmp_path: Path) -> None:
    """`format.js` updates its numbers while time passes, so it repeats the rules of `core/format.py`."""
    (tmp_path / "format.js").write_text((WEB / "app" / "format.js").read_text())
    (tmp_path / "words.js").write_text(f'export const words = {{ value: {{ unit: "{UNIT}" }} }};')
    seconds = [0, 0.04, 9.99, 12.34, 59.94, 60, 61.9, 3599, 3600, 3661, 90_061, 400_000]
    counts = [0, 1, 950, 999, 1_000, 1_234, 33_800, 999_949, 999_950, 1_260_000]
    dollars = [0.00001, 0.0001, 0.0042, 0.01, 0.0214, 0.1, 0.5, 0.999, 1, 1.236, 123.456]
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "ask.js").write_text(
        'import { count, duration, spent, tokenText, wait } from "./format.js";\n'
        f"const rows = {json.dumps([seconds, counts, dollars])};\n"
        "const [seconds, counts, dollars] = rows;\n"
        "console.log(JSON.stringify([seconds.map(duration), seconds.map(wait), counts.map(count), "
        "counts.map(tokenText), dollars.map(spent)]));\n"
    )
    output = subprocess.run(["node", tmp_path / "ask.js"], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == [
        [format_duration(each * 1000) for each in seconds],
        [format_wait(each) for each in seconds],
        list(map(format_count, counts)),
        list(map(format_tokens, counts)),
        list(map(format_cost, dollars)),
    ]
