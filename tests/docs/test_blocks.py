"""Every block of code of every page is followed as a reader would, or its reason not to be is in the list below."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, Block, blocks
from tests.docs.reader import Reader
from tests.docs.scenes import SCENES, answer, plain
from tests.recordings.scenes import git

# Commands and blocks that are not run, by their beginning, and why.
NOT_RUN = {
    "$ make demo": "makes a virtual environment from the package index",
    "$ make test": "makes a virtual environment from the package index, and runs this test",
    "$ pip install": "takes packages from the package index",
    'require("codecompanion")': "needs Neovim; test_editors.py checks the command in it",
    "CREATE ROLE retinue_workers": "tests/program/test_cluster_roles.py runs it, and a run through these roles",
    "REVOKE INSERT": "the same",
    "(require 'agent-shell)": "needs Emacs; test_editors.py checks the command in it",
}
# Drawings, grammars and listings of files.
DRAWN = "text"


def runnable(block: Block) -> Block | None:
    """Return the block without what cannot be run here, or None where nothing is left."""
    reasons = tuple(NOT_RUN)
    if block.language == "console":
        left = "".join(line for line in block.text.splitlines(True) if not line.startswith(reasons))
    else:
        left = "" if block.language == DRAWN or block.text.startswith(reasons) else block.text
    return Block(block.page, block.line, block.language, block.title, left) if left.strip() else None


@pytest.fixture
def reader(project, serve, tmp_path: Path, request):
    """A person in a small project that is a repository, with a model that answers."""
    serve(answer)
    project.mode = ""
    (project.cwd / "notes.txt").write_text("version = 1\n")
    git(project.cwd, "init", "-q")
    git(project.cwd, "add", ".")
    git(project.cwd, "-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "-qm", "first")
    made = Reader(project, tmp_path / "bin", request.getfixturevalue)
    yield made
    made.close()


@pytest.mark.parametrize("page", [page for page in PAGES if any(runnable(block) for block in blocks(page))])
def test_a_page_can_be_followed_from_its_beginning_to_its_end(page: str, reader: Reader) -> None:
    found = [left for block in blocks(page) if (left := runnable(block)) is not None]
    reader.put_files(found)
    with SCENES.get(page, plain)(reader):
        for block in found:
            reader.follow(block)
        reader.finish()


def test_every_block_says_what_it_is_and_a_drawing_hides_no_command() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.language, f"{block} has no language"
            if block.language == DRAWN and page != "docs/commands.md":
                assert not re.search(r"^(\$ |retinue )", block.text, re.MULTILINE), f"{block}: make it a console block"


def test_every_reason_not_to_run_something_is_still_needed() -> None:
    lines = [line for page in PAGES for block in blocks(page) for line in block.text.splitlines()]
    for beginning in NOT_RUN:
        assert any(line.startswith(beginning) for line in lines), beginning
