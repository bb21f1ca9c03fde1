"""The real program in a real terminal: keys in, screen out. tmux draws as terminals do."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

TIMEOUT = 40.0


class Terminal:
    """A window of its own tmux server. Use with `with`."""

    def __init__(self, folder: Path, cwd: Path, environment: Mapping[str, str], width: int = 100, height: int = 36):
        self._folder = folder
        self._cwd, self._environment = cwd, environment
        self._size = (width, height)

    def __enter__(self) -> Terminal:
        width, height = self._size
        words = [f"{name}={shlex.quote(value)}" for name, value in self._environment.items()]
        shell = f"env -i {' '.join(words)} TERM=tmux-256color LANG=C.UTF-8 PS1='ready$ ' sh -i"
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(self._cwd), shell)
        self.see("ready$")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def run(self, command: str) -> None:
        self.type(command)
        self.press("Enter")

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self, *, colours: bool = False) -> str:
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def see(self, *texts: str, gone: tuple[str, ...] = ()) -> str:
        """The screen, once it has all of these and none of those."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            shown = self.screen()
            if all(text in shown for text in texts) and not any(text in shown for text in gone):
                return shown
            if time.monotonic() > deadline:
                raise AssertionError(f"not seen: {texts}, gone: {gone}\n{shown}")
            time.sleep(0.05)

    def press_until(self, key: str, pattern: str, seconds: float = 0.5) -> None:
        """Presses a key again and again, each time after the screen had `seconds` to change."""
        for _ in range(40):
            self.press(key)
            for _ in range(int(seconds * 20)):
                if re.search(pattern, self.screen()):
                    return
                time.sleep(0.05)
        raise AssertionError(f"not seen: {pattern}\n{self.screen()}")

    def modes(self) -> str:
        """What the terminal was left in: the other screen, the cursor, the mouse, its line mode."""
        flags = "#{alternate_on}#{cursor_flag}#{mouse_any_flag}#{wrap_flag}"
        return self._tmux("display-message", "-p", flags).strip()

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-f", "/dev/null", "-S", str(self._folder / "tmux"), *arguments],
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder), "LANG": "C.UTF-8"},
            timeout=30,
        )
        return done.stdout
