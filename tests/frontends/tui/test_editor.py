"""The editor: history, completion, long pastes, and its keys in the app."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.app import App

from retinue.app.project_files import ProjectFiles, rank
from retinue.app.prompt_history import MAX_HISTORY_BYTES, PromptHistory
from retinue.core.person_prompt import parse_call
from retinue.frontends.tui.editor.completion import Candidate, Choices, completion_target
from retinue.frontends.tui.editor.prompt import Pastes, Prompt

# History


def test_history_is_kept_for_the_next_session(tmp_path: Path) -> None:
    first = PromptHistory(tmp_path / "state" / "history.jsonl")
    for text in ("one", "two\nlines", "two\nlines", "  "):
        first.add(text)
    assert PromptHistory(tmp_path / "state" / "history.jsonl").entries == ["one", "two\nlines"]
    assert stat.S_IMODE((tmp_path / "state" / "history.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_going_back_and_forth_ends_at_what_was_being_typed(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "h")
    history.add("one")
    history.add("two")
    assert [history.older("draft"), history.older("two"), history.older("one")] == ["two", "one", None]
    assert [history.newer(), history.newer(), history.newer()] == ["two", "draft", None]


def test_two_programs_share_a_history_and_secrets_stay_out_of_the_file(tmp_path: Path) -> None:
    one = PromptHistory(tmp_path / "h", lambda text: text.replace("hunter2", "…"))
    two = PromptHistory(tmp_path / "h")
    one.add("the password is hunter2")
    two.add("other")
    assert one.entries[-1] == "the password is hunter2"
    assert PromptHistory(tmp_path / "h").entries == ["the password is …", "other"]


def test_a_history_that_cannot_be_written_holds_for_this_session(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = PromptHistory(tmp_path / "file" / "below")
    history.add("kept")
    assert history.entries == ["kept"]


def test_a_long_history_is_shortened(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "h")
    for number in range(60):
        history.add(f"{number} " + "x" * 90_000)
    assert (tmp_path / "h").stat().st_size <= MAX_HISTORY_BYTES
    assert PromptHistory(tmp_path / "h").entries[-1].startswith("59 ")


@given(st.binary(max_size=300))
def test_no_file_of_any_content_breaks_the_history(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h"
        path.write_bytes(data)
        history = PromptHistory(path)
        assert all(isinstance(entry, str) for entry in history.entries)
        history.add("next")
        assert PromptHistory(path).entries[-1:] == ["next"] or data[-1:] not in (b"", b"\n")


# Pastes


def test_the_path_of_an_image_is_pasted_as_its_mention(tmp_path: Path) -> None:
    picture, words = tmp_path / "my shot.png", tmp_path / "words.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    words.write_text("no image")
    spaced = str(picture).replace(" ", "\\ ")
    for pasted in (str(picture), f"'{picture}'", f"{spaced} ", picture.as_uri()):
        assert Pastes().take(pasted) == f'@"{picture}" '
    for pasted in (str(words), "my shot.png", f"see {picture}", f"{picture}\n{picture}", "'", "/"):
        assert Pastes().take(pasted) == pasted


def test_a_long_paste_is_a_placeholder_and_is_sent_whole() -> None:
    pastes = Pastes()
    long = "\n".join(f"line {number}" for number in range(42))
    assert pastes.take("short") == "short"
    placeholder = pastes.take(long)
    assert placeholder == "[Pasted text #1 +42 lines]"
    assert pastes.take("x" * 1_001) == "[Pasted text #2 1,001 characters]"
    assert pastes.whole(f"see {placeholder} and say") == f"see {long} and say"
    assert pastes.whole("[Pasted text #9 +1 lines]") == "[Pasted text #9 +1 lines]"


def test_a_pasted_text_that_looks_like_a_placeholder_is_not_replaced_again() -> None:
    pastes = Pastes()
    pastes.take("a\n" * 20)
    tricky = pastes.take("[Pasted text #1 +20 lines]\n" * 20)
    assert pastes.whole(tricky) == "[Pasted text #1 +20 lines]\n" * 20


@given(st.lists(st.text(max_size=2_000), max_size=5))
def test_what_was_pasted_is_what_is_sent(texts: list[str]) -> None:
    from hypothesis import assume

    texts = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    assume(not any("[Pasted text #" in text for text in texts))
    pastes = Pastes()
    typed = "|".join(pastes.take(text) for text in texts)
    assert pastes.whole(typed) == "|".join(texts)


# Completion


@pytest.mark.parametrize(
    ("line", "kind", "word", "first"),
    [
        ("/he", "command", "he", True),
        ("@exp", "mention", "exp", True),
        ("look at @src/a", "mention", "src/a", False),
        ("@", "mention", "", True),
    ],
)
def test_what_is_wanted_at_the_end_of_a_line(line: str, kind: str, word: str, first: bool) -> None:
    found = completion_target(line, len(line), first_line=True)
    assert found is not None
    assert (found.kind, found.word, found.first) == (kind, word, first)


@pytest.mark.parametrize("line", ["", "plain words", "mail@host", "/etc/hosts", "/help me", "@a b", "a /help"])
def test_nothing_is_completed_in_plain_words(line: str) -> None:
    assert completion_target(line, len(line), first_line=True) is None


def test_a_command_is_only_one_on_the_first_line() -> None:
    assert completion_target("/help", 5, first_line=False) is None


def test_names_are_ranked_by_how_well_they_fit() -> None:
    names = ["docs/main.md", "src/main.py", "main.py", "src/domain.py", "m/a/i/n"]
    assert rank("main", names) == ["main.py", "src/main.py", "docs/main.md", "src/domain.py", "m/a/i/n"]
    assert rank("zzz", names) == []


def test_the_choice_stays_where_it_was_while_one_types_on() -> None:
    choices = Choices()
    target = completion_target("@m", 2, first_line=True)
    choices.show(target, [Candidate("@main"), Candidate("@my")])
    choices.move(1)
    choices.show(target, [Candidate("@my"), Candidate("@mz")])
    assert choices.chosen == Candidate("@my")
    choices.move(-1)
    assert choices.chosen == Candidate("@mz")


async def test_files_that_git_ignores_are_not_offered(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("secret.txt\n")
    for name in ("seen.txt", "secret.txt"):
        (tmp_path / name).write_text("x")
    assert await ProjectFiles(tmp_path).like("se", 8) == ["seen.txt"]


@pytest.mark.parametrize("text", ["/model gpt", "/clear", "/frontend:button\nin red", "/a1"])
def test_a_command_is_recognised(text: str) -> None:
    assert parse_call(text) is not None


@pytest.mark.parametrize("text", ["/etc/hosts is odd", "//x", "/", "hello", " /clear"])
def test_what_is_no_command_is_said(text: str) -> None:
    assert parse_call(text) is None


# In an app


class Bench(App[None]):
    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self.prompt = prompt
        self.sent: list[str] = []
        self.left: list[str] = []

    def compose(self):
        yield self.prompt.popup
        yield self.prompt

    def on_mount(self) -> None:
        self.prompt.focus()

    def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        self.sent.append(message.text)

    def on_prompt_leaving(self, message: Prompt.Leaving) -> None:
        self.left.append(message.key)


async def none(_):
    return []


async def test_enter_sends_and_ctrl_j_begins_a_line(tmp_path: Path) -> None:
    app = Bench(Prompt(PromptHistory(tmp_path / "h"), none))
    async with app.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "enter", "enter")
        await pilot.pause()
        assert app.sent == ["a\nb\nc"]
        assert app.prompt.text == ""


async def test_up_and_down_walk_through_history_and_an_empty_prompt_leaves_downwards(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "h")
    history.add("first")
    history.add("se\ncond")
    app = Bench(Prompt(history, none))
    async with app.run_test() as pilot:
        await pilot.press("up")
        assert app.prompt.text == "se\ncond"
        await pilot.press("up", "up")
        assert app.prompt.text == "first"
        await pilot.press("down", "down")
        assert app.prompt.text == ""
        await pilot.press("down", "left")
        await pilot.pause()
        assert app.left == ["down", "left"]


async def test_a_long_paste_goes_with_one_backspace(tmp_path: Path) -> None:
    app = Bench(Prompt(PromptHistory(tmp_path / "h"), none))
    async with app.run_test() as pilot:
        app.prompt.post_message(events.Paste("x\n" * 30))
        await pilot.pause()
        assert app.prompt.text == "[Pasted text #1 +31 lines]"
        await pilot.press("backspace")
        assert app.prompt.text == ""
        app.prompt.post_message(events.Paste("x\n" * 30))
        await pilot.pause()
        await pilot.press("!", "enter")
        await pilot.pause()
        assert app.sent == ["x\n" * 30 + "!"]


async def test_completion_opens_while_typing_and_tab_takes_it(tmp_path: Path) -> None:
    async def complete(place):
        return [Candidate("@src/app.py", "a file"), Candidate("@src/api.py")]

    app = Bench(Prompt(PromptHistory(tmp_path / "h"), complete))
    async with app.run_test() as pilot:
        await pilot.press(*"see @ap")
        await pilot.pause()
        assert app.prompt.popup.display
        await pilot.press("down", "tab")
        assert app.prompt.text == "see @src/api.py "
        assert not app.prompt.popup.display
        await pilot.press(*"@x")
        await pilot.pause()
        await pilot.press("escape")
        assert not app.prompt.popup.display
        assert app.prompt.text.endswith("@x")


async def test_enter_on_a_chosen_command_runs_it(tmp_path: Path) -> None:
    async def complete(place):
        return [Candidate("/help")] if place.kind == "command" else []

    app = Bench(Prompt(PromptHistory(tmp_path / "h"), complete))
    async with app.run_test() as pilot:
        await pilot.press(*"/he")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert app.sent == ["/help"]


async def test_enter_completes_what_several_commands_could_mean_and_runs_none_of_them(tmp_path: Path) -> None:
    async def complete(place):
        return [Candidate("/clear"), Candidate("/compact")] if place.kind == "command" else []

    app = Bench(Prompt(PromptHistory(tmp_path / "h"), complete))
    async with app.run_test() as pilot:
        await pilot.press(*"/c")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert (app.sent, app.prompt.text) == ([], "/clear ")
        app.prompt.text = ""
        await pilot.press(*"/c")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.sent == ["/compact"]


async def test_what_comes_too_late_is_not_offered(tmp_path: Path) -> None:
    slow = asyncio.Event()

    async def complete(place):
        await slow.wait()
        return [Candidate("@late")]

    app = Bench(Prompt(PromptHistory(tmp_path / "h"), complete))
    async with app.run_test() as pilot:
        await pilot.press("@", "x", "space")
        slow.set()
        await pilot.pause()
        assert not app.prompt.popup.display


async def test_enter_sends_what_was_typed_though_the_list_is_still_for_its_first_letter(tmp_path: Path) -> None:
    app = Bench(Prompt(PromptHistory(tmp_path / "h.jsonl"), none))
    async with app.run_test() as pilot:
        first = completion_target("/", 1, first_line=True)
        assert first is not None
        app.prompt.put("/settings web")
        await pilot.pause()
        app.prompt.choices.show(first, [Candidate("/agents")])
        await pilot.press("enter")
        assert app.sent == ["/settings web"]
