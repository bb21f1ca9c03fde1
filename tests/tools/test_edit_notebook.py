"""Cells of notebooks, as NotebookEdit of Claude Code changes them, through the loop."""

from __future__ import annotations

import json
from pathlib import Path

from retinue.core.events import ToolEnded
from retinue.core.tool import ToolContext
from retinue.testing import Call, ScriptedModel, ToolBench, Turn, drive

BOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Title\n"]},
        {"cell_type": "code", "id": "b", "metadata": {"k": 1}, "source": ["1"], "outputs": [{}], "execution_count": 3},
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


async def edited(root: Path, *calls: dict):
    path = root / "book.ipynb"
    path.write_text(json.dumps(BOOK))
    turns = [Turn(Call("NotebookEdit", {"notebook_path": "book.ipynb", **each})) for each in calls]
    context = ToolContext("run-1", (root,), root / "outputs")
    run = await drive(ScriptedModel(*turns, "ok"), tools=[ToolBench(root).tool("edit")], context=context)
    return json.loads(path.read_text()), [ended.result for ended in run.of(ToolEnded)]


async def test_a_cell_is_replaced_and_its_old_output_goes(tmp_path: Path) -> None:
    book, (result,) = await edited(tmp_path.resolve(), {"cell_id": "b", "new_source": "x = 2\nx"})
    assert not result.is_error, result.text
    assert book["cells"][1]["source"] == ["x = 2\n", "x"]
    assert (book["cells"][1]["outputs"], book["cells"][1]["execution_count"]) == ([], None)
    assert (book["cells"][0], book["metadata"]) == (BOOK["cells"][0], BOOK["metadata"])


async def test_cells_are_inserted_and_deleted_by_id_or_number(tmp_path: Path) -> None:
    insert = {"cell_id": "a", "new_source": "y", "cell_type": "markdown", "edit_mode": "insert"}
    book, results = await edited(tmp_path.resolve(), insert, {"cell_number": "2", "edit_mode": "delete"})
    assert not any(result.is_error for result in results), [result.text for result in results]
    assert [cell["source"] for cell in book["cells"]] == [["# Title\n"], ["y"]]


async def test_a_cell_that_is_not_there_is_said_and_nothing_changes(tmp_path: Path) -> None:
    book, (result,) = await edited(tmp_path.resolve(), {"cell_id": "zzz", "new_source": "x"})
    assert result.is_error and "It has 2 cells, numbered from 0" in result.text
    assert book == BOOK
