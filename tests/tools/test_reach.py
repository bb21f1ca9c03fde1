"""Tools that reach a folder outside of the workspace: that folder, and nothing by way of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.core.tool import ToolContext
from retinue.tools.base import builtin_tools
from retinue.tools.paths import Reaching, ReachingWriter, label

TOOLS = builtin_tools(["read", "write", "edit"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("work", "memory", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "a.txt").write_text("workspace\n")
    (tmp_path / "other" / "secret.md").write_text("secret\n")
    return tmp_path.resolve()


@pytest.fixture
def context(place: Path) -> ToolContext:
    return ToolContext("run", (place / "work",), place / "outputs", environment={"HOME": str(place)})


async def call(tool: Reaching, context: ToolContext, path: str, **more: Any) -> tuple[bool, str]:
    output = await tool.run("c", {"path": path, **more}, context)
    return not output.is_error, output.text


async def test_the_folder_is_reached_by_any_spelling_and_others_are_not(place, context):
    write = ReachingWriter(TOOLS["write"], (place / "memory",))
    for number, path in enumerate(
        (f"{place}/memory/0.md", "../memory/1.md", "~/memory/2.md", f"{place}/memory/x/3.md")
    ):
        assert (await call(write, context, path, content="x"))[0], path
        assert list((place / "memory").rglob(f"{number}.md"))
    for path in (f"{place}/other/x.md", f"{place}/memory/../other/x.md", f"{place}/memoryx", "~/x.md", f"{place}/x\0y"):
        assert not (await call(write, context, path, content="x"))[0], path
    assert (await call(write, context, "new.txt", content="x"))[0]
    assert (place / "work" / "new.txt").exists()
    assert sorted(path.name for path in (place / "other").iterdir()) == ["secret.md"]


async def test_other_spellings_of_the_argument_count(place, context):
    write = ReachingWriter(TOOLS["write"], (place / "memory",), only="notes")
    output = await write.run("c", {"file_path": f"{place}/memory/a.md", "content": "x"}, context)
    assert not output.is_error
    output = await write.run(
        "c", {"path": f"{place}/memory/a.md", "file_path": f"{place}/other/b", "content": "x"}, context
    )
    assert not (place / "other" / "b").exists()


async def test_a_link_put_into_the_folder_leads_nowhere(place, context):
    (place / "memory" / "link").symlink_to(place / "other")
    (place / "memory" / "file.md").symlink_to(place / "other" / "secret.md")
    (place / "memory" / "work").symlink_to(place / "work")
    read = Reaching(TOOLS["read"], (place / "memory",), only="notes")
    write = ReachingWriter(TOOLS["write"], (place / "memory",), only="notes")
    for name in ("link/secret.md", "file.md", "work/a.txt"):
        fine, text = await call(read, context, f"{place}/memory/{name}")
        assert not fine
        assert "secret\n" not in text
        assert "workspace\n" not in text
        assert not (await call(write, context, f"{place}/memory/{name}", content="x"))[0]
    assert (place / "work" / "a.txt").read_text() == "workspace\n"


async def test_a_tool_for_its_folder_only_takes_names_as_names_in_it(place, context):
    write = ReachingWriter(TOOLS["write"], (place / "memory",), only="your memory")
    assert (await call(write, context, "a.txt", content="note"))[0]
    assert (place / "memory" / "a.txt").read_text() == "note"
    assert (place / "work" / "a.txt").read_text() == "workspace\n"
    assert label(write) == "write (memory only)"
    assert label(ReachingWriter(TOOLS["write"], ())) == "write"


async def test_a_name_of_an_index_is_read_beside_it_but_never_written_there_by_chance(place, context):
    (place / "memory" / "notes.md").write_text("remembered\n")
    read = Reaching(TOOLS["read"], (place / "memory",))
    assert "remembered" in (await call(read, context, "notes.md"))[1]
    assert "workspace" in (await call(read, context, "a.txt"))[1]
    write = ReachingWriter(TOOLS["write"], (place / "memory",))
    assert (await call(write, context, "notes.md", content="new"))[0]
    assert (place / "memory" / "notes.md").read_text() == "remembered\n"
    assert (place / "work" / "notes.md").read_text() == "new"


async def test_what_is_beyond_is_asked_for_only_outside_of_the_workspace(place, context):
    asked: list[str] = []

    def beyond(path: str) -> Path | None:
        asked.append(path)
        return place / "other" if path.startswith(f"{place}/other/") else None

    read = Reaching(TOOLS["read"], (), beyond=beyond)
    assert "workspace" in (await call(read, context, "a.txt"))[1]
    assert asked == []
    assert "secret" in (await call(read, context, f"{place}/other/secret.md"))[1]
    assert not (await call(read, context, "/etc/hostname"))[0]


async def test_stale_writes_are_noticed_across_both_ways(place, context):
    index = place / "memory" / "MEMORY.md"
    index.write_text("- one\n")
    read = Reaching(TOOLS["read"], (place / "memory",))
    edit = ReachingWriter(TOOLS["edit"], (place / "memory",), after=lambda path: f"after {path.name}")
    await call(read, context, str(index))
    index.write_text("- one\n- two\n")
    edits = [{"old": "- one", "new": "- changed"}]
    fine, text = await call(edit, context, str(index), edits=edits)
    assert not fine
    assert "Read it again" in text
    assert "after" not in text
    await call(read, context, str(index))
    assert "- changed" in await edit.preview({"path": str(index), "edits": edits}, context)
    fine, text = await call(edit, context, str(index), edits=edits)
    assert fine
    assert "after MEMORY.md" in text
    assert index.read_text() == "- changed\n- two\n"
