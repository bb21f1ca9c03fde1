"""What the menus are made of: rows that fit, lists that keep their place, paths as people say them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from textual.app import App, ComposeResult

from retinue.frontends.tui.screens.sheet import HEADING, Rows, columns, near

CELLS = st.lists(
    st.tuples(st.text(max_size=60), st.integers(0, 40), st.sampled_from(["", "dim", "no-such"])), max_size=6
)


@given(cells=CELLS, room=st.integers(0, 120))
def test_a_row_never_leaves_its_room_nor_its_line(cells, room):
    line = columns(cells, room)
    assert line.cell_len <= room
    assert not set(line.plain) & set("\n\r\t\x1b\x00\x7f")


def test_cells_stand_below_each_other():
    one = columns([("✓", 1, ""), ("short", 10, ""), ("rest", 0, "")], 40).plain
    two = columns([("!", 1, ""), ("編集編集編集", 10, ""), ("rest", 0, "")], 40)
    assert one == "✓  short       rest"
    assert two.plain.endswith("  rest") and two.cell_len == Text(one).cell_len


def test_paths_are_said_from_the_project_or_from_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    cwd = Path("/home/me/project")
    assert near("/home/me/project/.retinue/agents/a.md", cwd) == ".retinue/agents/a.md"
    assert near("/home/me/.retinue/agents/a.md", cwd) == "~/.retinue/agents/a.md"
    assert near("/etc/retinue/a.md", cwd) == "/etc/retinue/a.md"
    assert near("--agents#x", cwd) == "--agents#x"


class Listing(App[None]):
    def compose(self) -> ComposeResult:
        yield Rows()


def rows(*names: str) -> list[tuple[str, Text]]:
    return [(name, Text(name)) for name in names]


async def test_a_list_that_is_filled_again_keeps_its_place():
    async with Listing().run_test() as pilot:
        listing = pilot.app.query_one(Rows)
        assert listing.chosen is None
        listing.fill(rows(HEADING + "one", "a", "b", "c"))
        assert listing.chosen == "a", "a heading is never chosen"
        listing.focus()
        await pilot.press("j", "j", "k")
        assert listing.chosen == "b"
        listing.fill(rows("new", HEADING + "one", "a", "b", "c"))
        assert listing.chosen == "b"
        listing.fill(rows("new", HEADING + "one", "a", "c"))
        assert listing.chosen in ("a", "c"), "a neighbour of what is gone"
        listing.fill(rows("new", "a"), "new")
        assert listing.chosen == "new"
        listing.fill([])
        assert listing.chosen is None
        listing.fill(rows("z"))
        assert listing.chosen == "z"
