"""The editor of several lines. Enter sends; Shift+Enter, Ctrl+J, or `\\` and Enter, begins a new line.

Pasted short text is inserted unchanged, long text as a placeholder that is expanded when sent, and the path of an
image as `@path`. (A terminal pastes the path of a dropped file: in quotes, with `\\` before its spaces, or as an
address.) The list above the editor has completions or, with Ctrl+R, earlier messages. Ctrl+G continues in the person's
own editor."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rich.console import Group
from rich.text import Text
from textual import events, work
from textual.message import Message
from textual.widgets import Static, TextArea
from textual.widgets.text_area import Selection

from retinue.app.project_files import is_image_file
from retinue.app.prompt_history import PromptHistory
from retinue.app.rich_text import STYLES, fit, one_line
from retinue.frontends.tui.editor.completion import Candidate, Choices, CompletionTarget, completion_target

LONG_LINES = 10
LONG_CHARACTERS = 1_000
_PLACEHOLDER = re.compile(r"\[Pasted text #(\d+)[^\]\n]*\]")


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._last = 0

    def take(self, text: str) -> str:
        """Return the text to insert for a paste: the pasted text, a placeholder for a long one, or for the path of an
        image the mention that attaches it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        mention = image_mention(text)
        if mention is not None:
            return mention
        lines = text.count("\n") + 1
        if lines <= LONG_LINES and len(text) <= LONG_CHARACTERS:
            return text
        self._last += 1
        self._texts[self._last] = text
        size = f"+{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[Pasted text #{self._last} {size}]"

    def whole(self, text: str) -> str:
        """Return the text with every placeholder replaced by its pasted text."""
        return _PLACEHOLDER.sub(lambda match: self._texts.get(int(match[1]), match[0]), text)

    def before(self, text: str) -> int:
        """Return the length of the placeholder at the end of `text`; 0 if there is none."""
        last = next((match for match in _PLACEHOLDER.finditer(text) if match.end() == len(text)), None)
        return len(last[0]) if last is not None and int(last[1]) in self._texts else 0

    def forget(self) -> None:
        self._texts.clear()


def image_mention(pasted: str) -> str | None:
    """Return `@path` for the path of an existing image, and None for any other text. The content of the file decides,
    not its name."""
    path = _path(pasted.strip())
    if path is None or not is_image_file(path):
        return None
    if any(map(str.isspace, str(path))):
        return f'@"{path}" '
    return f"@{path} "


def _path(text: str) -> Path | None:
    """Return the absolute path of which the whole text consists."""
    if not text or "\n" in text or len(text) > LONG_CHARACTERS or text[0] not in "/~'\"f":
        return None
    if text.startswith("file://"):
        path = Path(unquote(urlsplit(text).path))
    else:
        path = _unquoted(text)
    return path if path.is_absolute() else None


def _unquoted(text: str) -> Path:
    try:
        words = shlex.split(text)
        # A path with spaces and no quotes is also accepted, if the file exists.
        plain = Path(words[0] if len(words) == 1 else text)
        return plain.expanduser()
    except (ValueError, RuntimeError, IndexError):
        return Path(text)


class Popup(Static):
    """The list of completions, which has no rows while it is closed."""

    def __init__(self) -> None:
        super().__init__(id="popup")
        self.display = False

    def paint(self, choices: Choices) -> None:
        self.display = choices.open
        if choices.open:
            self.update(Group(*lines(choices, max(self.app.size.width - 4, 1))))


def lines(choices: Choices, width: int) -> list[Text]:
    column = min(max((len(candidate.text) for candidate in choices.candidates), default=0), max(width - 20, width // 2))
    drawn = []
    for number, candidate in enumerate(choices.candidates):
        chosen = number == choices.at
        line = Text(no_wrap=True)
        line.append("❯ " if chosen else "  ", STYLES["accent"])
        line.append(f"{fit(one_line(candidate.text), column):<{column}}", "bold" if chosen else "")
        if candidate.note:
            line.append(f"  {one_line(candidate.note)}", STYLES["dim"])
        line.truncate(width, overflow="ellipsis")
        drawn.append(line)
    return drawn


Complete = Callable[[CompletionTarget], Awaitable[Sequence[Candidate]]]
# Opens a draft in another editor and returns the edited text.
Edit = Callable[[str], Awaitable[str]]
NEW_LINE = ("shift+enter", "ctrl+j", "alt+enter")
# Keys of terminals and shells, in addition to those of the widget.
ACTIONS = {
    "ctrl+r": "search",
    "ctrl+g": "edit_outside",
    "alt+left": "cursor_word_left",
    "alt+b": "cursor_word_left",
    "alt+right": "cursor_word_right",
    "alt+f": "cursor_word_right",
    "alt+backspace": "delete_word_left",
    "alt+d": "delete_word_right",
    "ctrl+underscore": "undo",
}


class Prompt(TextArea):
    """An editor that grows with its text, up to a third of the screen. It posts sent text as `Submitted`."""

    class Submitted(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Leaving(Message):
        """A key that an empty prompt leaves to other widgets: `key` is its name."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class Scrolling(Message):
        """A request to scroll the conversation by `pages`."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    class TakingBack(Message):
        """A request to return queued messages to the editor, by Up in an empty prompt."""

    def __init__(
        self, past: PromptHistory | None = None, complete: Complete | None = None, edit: Edit | None = None
    ) -> None:
        super().__init__(id="prompt", soft_wrap=True, show_line_numbers=False, placeholder="Say what to do. /help")
        self.past = past
        self.choices = Choices()
        self.pastes = Pastes()
        self.popup = Popup()
        # Whether queued messages exist, which `up` in an empty prompt takes back.
        self.waiting = False
        # Whether the list shows earlier messages that contain the words in the editor.
        self._searching = False
        self._complete = complete
        self._edit = edit

    def put(self, text: str) -> None:
        """Replace the text, and put the cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    def submit(self) -> None:
        text = self.pastes.whole(self.text).strip()
        if not text:
            return
        if self.past is not None:
            self.past.add(text)
        self.close_choices()
        self.post_message(self.Submitted(text))
        self.text = ""
        self.pastes.forget()

    def close_choices(self) -> None:
        self._searching = False
        if self.choices.open:
            self.choices.close()
            self.popup.paint(self.choices)

    async def _on_key(self, event: events.Key) -> None:
        if self._handle(event.key):
            event.prevent_default().stop()
            return
        await super()._on_key(event)

    def _handle(self, key: str) -> bool:
        """Return whether the key has a function here. Other keys go to the text."""
        if self.choices.open and self._choose(key):
            return True
        if key == "enter":
            if not self._continue_line():
                self.submit()
        elif key in NEW_LINE:
            self.insert("\n")
        elif key in ACTIONS:
            getattr(self, f"action_{ACTIONS[key]}")()
        elif key in ("pageup", "pagedown"):
            self.post_message(self.Scrolling(-1 if key == "pageup" else 1))
        elif key == "backspace":
            return self._delete_placeholder()
        elif key in ("up", "down"):
            return self._up_down(key)
        elif key == "left" and not self.text:
            self.post_message(self.Leaving(key))
        elif key == "tab":
            self._look()
        else:
            return False
        return True

    def _choose(self, key: str) -> bool:
        if key in ("up", "down") or (key == "ctrl+r" and self._searching):
            self.choices.move(-1 if key == "up" else 1)
            self.popup.paint(self.choices)
        elif key == "escape":
            self.close_choices()
        elif key in ("tab", "enter"):
            if self._searching:
                return self._take_found()
            return self._accept(by_enter=key == "enter")
        else:
            return False
        return True

    def _continue_line(self) -> bool:
        """Replace a backslash before the cursor by a new line. Return False if there is none."""
        row, column = self.cursor_location
        if not self.document.get_line(row)[:column].endswith("\\"):
            return False
        self.replace("\n", (row, column - 1), (row, column))
        return True

    def action_search(self) -> None:
        """List earlier messages that contain the words in the editor. Further typing narrows the list."""
        if self.past is None:
            return
        candidates = [Candidate(entry) for entry in self.past.find(self.text)]
        if not candidates:
            candidates = [Candidate(self.text, "nothing that was said before has these words")]
        self._searching = True
        self.choices.show(CompletionTarget("history", self.text, 0, first=True), candidates)
        self.popup.paint(self.choices)

    def _take_found(self) -> bool:
        chosen = self.choices.chosen
        self.close_choices()
        if chosen is not None:
            self.put(chosen.text)
            self.close_choices()
        return True

    @work(exclusive=True, group="draft")
    async def action_edit_outside(self) -> None:
        """Continue the draft in $EDITOR. Agents continue meanwhile."""
        if self._edit is not None:
            self.put(await self._edit(self.pastes.whole(self.text)))

    def _accept(self, *, by_enter: bool) -> bool:
        chosen, target = self.choices.chosen, self.choices.target
        moved = self.choices.moved
        decided = moved or len(self.choices.candidates) == 1
        self.close_choices()
        if chosen is None or target is None:
            return False
        row, column = self.cursor_location
        # A fast typist is ahead of the list, whose candidates then belong to an earlier word.
        if completion_target(self.document.get_line(row), column, first_line=row == 0) != target:
            return False
        typed = self.document.get_line(row)[target.start : column]
        if by_enter and target.kind == "command" and typed == chosen.text:
            # The command is complete, so Enter sends it.
            return False
        if by_enter and target.kind == "model" and not moved:
            # `/model` accepts a part of a name, so the typed text is sent.
            return False
        self.replace(f"{chosen.text} ", (row, target.start), (row, column))
        # Enter on a command completes it, and sends it if the choice is unambiguous; on a name it only completes.
        return not (by_enter and target.kind in ("command", "model") and decided)

    def _up_down(self, key: str) -> bool:
        if key == "down" and not self.text and (self.past is None or self.past.recalled is None):
            self.post_message(self.Leaving(key))
            return True
        if key == "up" and not self.text and self.waiting:
            self.post_message(self.TakingBack())
            return True
        if self.past is None:
            return False
        if key == "up" and self.cursor_at_first_line:
            entry = self.past.older(self.text)
        elif key == "down" and self.cursor_at_last_line:
            entry = self.past.newer()
        else:
            return False
        if entry is not None:
            self.put(entry)
            self.close_choices()
        return True

    def _delete_placeholder(self) -> bool:
        if self.selection != Selection.cursor(self.cursor_location):
            return False
        row, column = self.cursor_location
        length = self.pastes.before(self.document.get_line(row)[:column])
        if length:
            self.delete((row, column - length), (row, column))
        return bool(length)

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default().stop()
        self.insert(self.pastes.take(event.text))

    def on_text_area_changed(self) -> None:
        self._look()

    def _look(self) -> None:
        if self._searching:
            self.action_search()
            return
        row, column = self.cursor_location
        target = completion_target(self.document.get_line(row), column, first_line=row == 0)
        recalled = self.past is not None and self.past.recalled == self.text
        if target is None or self._complete is None or recalled:
            self.close_choices()
        else:
            self._find(target)

    @work(exclusive=True, group="completion")
    async def _find(self, target: CompletionTarget) -> None:
        assert self._complete is not None
        candidates = await self._complete(target)
        row, column = self.cursor_location
        if completion_target(self.document.get_line(row), column, first_line=row == 0) != target:
            # The person typed more meanwhile.
            return
        if candidates:
            self.choices.show(target, candidates)
        else:
            self.choices.close()
        self.popup.paint(self.choices)
