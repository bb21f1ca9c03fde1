"""Cards and the board: what they know of runs, whichever way they hear of them."""

from __future__ import annotations

from unicodedata import category

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text as Line

from retinue.app.model_choice import known_windows
from retinue.app.rich_text import STYLES, clean_lines, exact, fit, one_line, wrap
from retinue.core.events import Compacted, InboxClosed, InboxOpened, RunResumed, RunStarted, TurnEnded
from retinue.core.usage import Usage
from retinue.frontends.tui.board.board import Board, backfill_from
from retinue.frontends.tui.board.marks import badge, contrast, icon, resolve, stats
from tests.frontends.tui.cards import Story
from tests.runs.run_scene import Scene

ANY = st.text(max_size=200) | st.text(alphabet="ab 漢字\t\n\r\x1b[31m👩‍👧\u202e\ud800\ufe0f", max_size=200)


def test_a_run_that_asks_waits_until_everything_is_answered() -> None:
    story = Story()
    story.start("a")
    card = story.board.cards["a"]
    story.tell("a", InboxOpened("i1", "approval", "rm -rf build"))
    story.tell("a", InboxOpened("i2", "approval", "git push"))
    assert (card.status, icon(card, 0)) == ("waiting", ("?", "warning"))
    assert card.activity() == "waiting for an answer: rm -rf build"
    story.tell("a", InboxClosed("i1", "answered", "allow"))
    assert card.status == "waiting"
    story.tell("a", InboxClosed("i2", "answered", "deny"))
    assert card.status == "running"


def test_the_share_of_the_window_is_coloured_by_urgency_and_compactions_are_counted() -> None:
    def drawn(used: int, compactions: int = 0) -> Line:
        story = Story()
        story.start("a")
        for _ in range(compactions):
            story.tell("a", Compacted("threshold", "pruned", 10, 5, ()))
        story.tell("a", TurnEnded(1, Usage(1_234), Usage(1_234), used))
        return stats(story.board.cards["a"], story.now, lambda model: 100, time=False)

    assert drawn(45, 2).plain == "↻1 · 1.2k token (45% · ⇊2)"
    assert drawn(0).plain == "↻1 · 1.2k token"
    for used, style in ((50, "dim"), (70, "warning"), (84, "warning"), (85, "error"), (99, "error")):
        line = drawn(used)
        spans = [span.style for span in line.spans if line.plain[span.start : span.end] == f"{used}%"]
        assert spans == [STYLES[style]]


def test_the_share_is_unknown_right_after_a_compaction_and_tokens_never_shrink() -> None:
    story = Story()
    story.start("a")
    story.tell("a", TurnEnded(3, Usage(900), Usage(9_000), 600))
    card = story.board.cards["a"]
    assert card.context_percent(lambda model: 1_000) == 60
    story.tell("a", Compacted("threshold", "pruned", 600, 100, ()))
    assert card.context_percent(lambda model: 1_000) is None
    story.tell("a", RunResumed("go on"))
    story.tell("a", TurnEnded(4, Usage(50), Usage(50), 150))
    assert card.usage.total_tokens == 9_050


def test_the_turn_counter_starts_at_one() -> None:
    story = Story()
    story.start("a")
    assert stats(story.board.cards["a"], story.now, lambda model: None).plain == "↻1 · 0.0s"


def test_a_narrow_row_gives_up_numbers_in_the_order_of_their_use() -> None:
    story = Story()
    story.start("a", limits={"max_turns": 30})
    story.called("a", "read")
    story.turn("a", 5)
    card = story.board.cards["a"]
    rooms = {room: stats(card, story.now, lambda model: None, room=room).plain for room in (60, 25, 12, 4, 0)}
    assert rooms == {
        60: "↻5≤30 · 1 tool use · 1.2k token · 0.0s",
        25: "↻5≤30 · 1.2k token · 0.0s",
        12: "0.0s" if cell_len("↻5≤30 · 0.0s") > 12 else "↻5≤30 · 0.0s",
        4: "0.0s",
        0: "",
    }


def test_a_board_forgets_to_look_at_what_ended_long_ago() -> None:
    story = Story()
    for number in range(300):
        story.start(f"r{number}")
        story.end(f"r{number}")
    story.start("last")
    story.now += 200
    assert [card.id for card in story.board.recent(story.now)] == ["last"]
    assert len(story.board.cards) == 301
    story.tell("r7", RunResumed("again"))
    assert {card.id for card in story.board.recent(story.now)} == {"last", "r7"}


def test_a_run_whose_process_is_gone_is_interrupted_and_ages() -> None:
    story = Story()
    story.start("a")
    story.board.mark_lost("a", story.now)
    card = story.board.cards["a"]
    assert (card.status, card.live, icon(card, 0)) == ("interrupted", False, ("■", "warning"))
    assert len(story.board.shown(story.now)) == 1
    assert story.board.shown(story.now + 121) == []


async def test_a_board_learns_from_the_log_what_it_did_not_see(tmp_path, monkeypatch) -> None:
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main()
        child = await scene.child(main, "count the files", description="Count", name="counter")
        scene.model("count the files").call("ls", path=".")
        await scene.model("count the files").asked()
        scene.model("count the files").say("three")
        await child.wait()
        log = scene.supervisor.project.log
        await log.flush()
        board = Board(backfill=backfill_from(log))
        events = log.reader.events(child.id)
        resumed = events[-1].__class__(child.id, main.id, main.id, 99, events[-1].at + 5, RunResumed("go on"))
        card = board.take(resumed)
        assert (card.agent, card.about, card.status) == ("general-purpose", "Count", "running")
        assert (card.turn, card.tool_uses, card.usage.total_tokens) == (2, 1, 32)
        assert board.cards[main.id].is_main
        assert [each.id for each in board.agents()] == [child.id]
        scene.model("main").say("bye")


def test_a_board_meets_a_run_nobody_knows_without_fuss() -> None:
    board = Board(backfill=lambda card, counts: None)
    story = Story()
    story.board = board
    story.tell("unknown", RunStarted("offline/planner", (), "/p"))
    assert board.cards["unknown"].label == "unknown"


def test_windows_come_from_the_table_and_from_settings() -> None:
    window = known_windows({"house/model": {"window": 5_000}, "other": {"window": 7}})
    assert window("house/model") == 5_000
    assert window("x/other") == 7
    assert window("anthropic/claude-sonnet-4-5") == 200_000
    assert window("nobody/knows-this") is None
    assert window("") is None


def test_names_and_hex_are_colours_and_nonsense_is_none() -> None:
    assert resolve("Purple") == "#9333ea"
    assert resolve(" #0AF ") == "#00aaff"
    assert resolve("#00aaff") == "#00aaff"
    assert resolve("bright_red") is not None
    assert [resolve(each) for each in ("", "#12", "blurple", "default", None, 7)] == [None] * 6
    assert badge("blurple") is None


@given(st.integers(0, 0xFFFFFF))
def test_a_badge_is_readable_whatever_its_colour(value: int) -> None:
    style = badge(f"#{value:06x}")
    _, front, _, back = style.split()
    assert contrast(front, back) >= 4.5


@settings(max_examples=300)
@given(ANY, st.integers(2, 40))
def test_text_that_is_cleaned_draws_nothing_but_itself_and_fits(text: str, width: int) -> None:
    for line in [*wrap(text, width), fit(one_line(text), width)]:
        assert cell_len(line) <= width
        assert not _moves(line)
        line.encode()
    assert not any(_moves(line) for line in clean_lines(text))
    assert exact(Line(one_line(text)), width).cell_len == width


def _moves(line: str) -> bool:
    """Whether something in it would move the cursor, turn the writing or fail to be written."""
    return any(category(sign) in ("Cc", "Cs", "Zl", "Zp") or sign in "\u200e\u202e\u2066\u200d" for sign in line)


@given(st.lists(st.text(alphabet="abcdefghijkl", min_size=1, max_size=12), max_size=30), st.integers(12, 60))
def test_wrapping_loses_no_word(words: list[str], width: int) -> None:
    assert " ".join(wrap(" ".join(words), width)).split() == words


def test_indentation_and_tabs_survive_wrapping() -> None:
    assert wrap("def f():\n\treturn 1\n\n    x", 20) == ["def f():", "    return 1", "", "    x"]
