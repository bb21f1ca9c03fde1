"""Real answers of a real server (`ty`, from PyPI) about real packages."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

import retinue
from retinue.capabilities.lsp import Languages
from tests.capabilities.lsp.bench import MAIN, Bench, alive, slot_of, until


async def test_a_definition_by_place_and_by_name(shop: Bench) -> None:
    at = MAIN.splitlines()[3].index("cheapest") + 1
    by_place = await shop.text("definition", file="app/main.py", line=4, column=at)
    by_name = await shop.text("definition", query="cheapest")
    in_line = await shop.text("definition", file="app/main.py", line=4, query="cheapest")
    assert by_place == by_name == in_line == "app/shop.py:16:5  def cheapest(items: list[Item]) -> Item:"


async def test_references_with_the_lines_they_stand_in(shop: Bench) -> None:
    assert (await shop.text("references", query="Item")).splitlines() == [
        "app/main.py:1:22  from app.shop import Item, cheapest",
        'app/main.py:3:8  pear = Item("🍐", 3)',
        "app/shop.py:7:7  class Item:",
        "app/shop.py:16:26  def cheapest(items: list[Item]) -> Item:",
        "app/shop.py:16:36  def cheapest(items: list[Item]) -> Item:",
    ]


async def test_columns_count_characters_although_the_line_has_emoji(shop: Bench) -> None:
    found = await shop.text("references", file="app/shop.py", query="cheapest")
    column = MAIN.splitlines()[3].index("cheapest") + 1
    assert f"app/main.py:4:{column}  " in found


async def test_hover_signature_and_symbols(shop: Bench) -> None:
    assert "What many of them cost." in await shop.text("hover", query="Item.total")
    assert "(count: int) -> int" in await shop.text("signature", file="app/main.py", line=6, column=13)
    assert "count: int" in await shop.text("signature", file="app/shop.py", query="total")
    assert (await shop.text("symbols", file="app/shop.py")).splitlines() == [
        "7:7 class Item",
        "  8:5 field name",
        "  9:5 field price",
        "  11:9 method total",
        "16:5 function cheapest",
    ]
    assert "app/shop.py:16:5" in await shop.text("symbols", query="cheap")


async def test_diagnostics_of_files_and_of_the_workspace(shop: Bench) -> None:
    of_file = await shop.text("diagnostics", file="app/main.py")
    assert of_file.startswith("2 errors\napp/main.py:5:14 error: ")
    assert "app/main.py:6:12 error: " in of_file
    assert await shop.text("diagnostics", file="app/shop.py") == "No problems found."
    assert await shop.text("workspace-diagnostics", severity="error") == of_file
    assert await shop.text("diagnostics", files=["app/main.py", "app/shop.py"]) == of_file
    (shop.root / "app" / "main.py").write_text(MAIN.splitlines()[0] + "\n")
    assert await shop.text("workspace-diagnostics") == "No problems found in the workspace."


async def test_what_changes_on_the_disk_is_noticed(shop: Bench) -> None:
    await shop.text("diagnostics", file="app/main.py")
    (shop.root / "app" / "shop.py").write_text("class Item: ...\n")
    assert "cheapest" in await shop.text("diagnostics", file="app/main.py"), "a file that was never opened"
    (shop.root / "app" / "new.py").write_text("from app.shop import Item\n")
    assert "app/new.py:1:22" in await shop.text("references", query="Item")
    (shop.root / "app" / "new.py").unlink()
    assert "new.py" not in await shop.text("references", query="Item")


async def test_nothing_found_is_an_answer(shop: Bench) -> None:
    assert await shop.text("definition", query="nowhere") == "No symbol named 'nowhere' found in the workspace."
    assert (
        await shop.text("hover", file="app/main.py", query="nowhere")
        == "No symbol named 'nowhere' found in app/main.py."
    )
    assert await shop.text("definition", file="app/shop.py", line=1, column=1) == "No definition found."
    assert await shop.text("references", file="app/shop.py", line=2, column=1) == "No references found."
    assert await shop.text("hover", file="app/shop.py", line=2, column=1) == "No hover information found."
    assert await shop.text("symbols", query="zzzz") == "No symbols found for 'zzzz'."


async def test_two_symbols_of_one_name_are_told_apart(shop: Bench) -> None:
    (shop.root / "app" / "two.py").write_text("class A:\n    def go(self): ...\n\n\nclass B:\n    def go(self): ...\n")
    asked = await shop.text("references", query="go")
    assert asked.startswith("2 symbols have that name; ask again with file:\n")
    assert await shop.text("definition", query="B.go") == "app/two.py:6:9  def go(self): ..."
    assert await shop.text("references", file="app/two.py", query="A.go") == "app/two.py:2:9  def go(self): ..."
    assert "ask again with line" in await shop.text("hover", file="app/two.py", query="go")


async def test_proposals_change_nothing(shop: Bench) -> None:
    allowing = Bench(shop.root, environment={"RETINUE_LSP_ALLOW_MUTATING_ACTIONS": "true"})
    try:
        before = {path: path.read_bytes() for path in shop.root.rglob("*.py")}
        renamed = await allowing.text("rename", file="app/shop.py", query="cheapest", newName="least")
        assert renamed.startswith("Proposed, nothing was changed:\n")
        assert renamed.count("'cheapest' → 'least'") == 3
        assert "Ignore" in await allowing.text("codeAction", file="app/main.py", line=5)
        assert {path: path.read_bytes() for path in shop.root.rglob("*.py")} == before
        started = slot_of(allowing).starts
        assert "running, process" in await allowing.text("restart")
        assert slot_of(allowing).starts == started + 1
    finally:
        await allowing.close()


async def test_two_concurrent_starts_make_one_process(shop: Bench) -> None:
    answers = await asyncio.gather(*(shop.text("definition", query="cheapest") for _ in range(8)))
    assert len(set(answers)) == 1
    assert slot_of(shop).starts == 1


async def test_killed_in_the_middle_of_a_question_the_next_one_works(shop: Bench) -> None:
    await shop.text("definition", query="cheapest")
    session = slot_of(shop).connection
    assert session is not None
    server = (await until(lambda: _children(session.pid)))[-1]
    os.kill(server, signal.SIGSTOP)  # it answers nothing any more, but lives
    asked = asyncio.create_task(shop.text("references", query="Item"))
    await asyncio.sleep(0)
    os.kill(server, signal.SIGKILL)
    assert "app/main.py:3:8" in await asked, "even the question itself is asked again"
    assert slot_of(shop).starts == 2
    assert "app/shop.py:16:5" in await shop.text("definition", query="cheapest")
    assert not alive(session.pid)


async def test_nothing_is_left_when_the_project_closes(shop: Bench) -> None:
    await shop.text("definition", query="cheapest")
    session = slot_of(shop).connection
    assert session is not None
    family = [session.pid, *_children(session.pid)]
    await shop.close()
    assert not any(map(alive, family))


async def test_a_server_that_nobody_asks_is_ended_and_started_again(shop: Bench) -> None:
    resting = Bench(shop.root)
    resting.project._parts[Languages] = Languages(resting.project, idle_seconds=0)
    try:
        await resting.text("definition", query="cheapest")
        await until(lambda: not slot_of(resting).connection)
        assert "app/shop.py" in await resting.text("definition", query="cheapest")
        assert slot_of(resting).starts == 2
    finally:
        await resting.close()


@pytest.mark.slow
async def test_this_package_itself(bench: object, tmp_path: Path) -> None:
    source = Path(retinue.__file__).parent
    root = tmp_path.resolve() / "copy"
    shutil.copytree(source, root / "retinue", ignore=shutil.ignore_patterns("__pycache__", "frontends"))
    (root / "pyproject.toml").write_text('[project]\nname = "copy"\nversion = "1"\n')
    made = Bench(root)
    try:
        lines = (root / "retinue/tools/filter.py").read_text().splitlines()
        line = next(number for number, text in enumerate(lines, 1) if text.startswith("def select_tools("))
        place = f"retinue/tools/filter.py:{line}:5"
        assert (await made.text("definition", query="select_tools")).startswith(place)
        used = await made.text("references", file="retinue/tools/filter.py", query="select_tools")
        assert place in used
        assert "retinue/runs/plan.py:" in used
        assert "No problems found." in await made.text("diagnostics", file="retinue/core/globs.py", severity="error")
    finally:
        await made.close()


def _children(pid: int) -> list[int]:
    """Every process below one, the youngest last."""
    found: list[int] = []
    level = [pid]
    while level:
        level = [
            int(child)
            for each in level
            for tasks in [Path(f"/proc/{each}/task/{each}/children")]
            if tasks.exists()
            for child in tasks.read_text().split()
        ]
        found += level
    return found
