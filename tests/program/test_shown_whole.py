"""A question shows all of what is approved, and takes no yes before it has shown all of it."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import threading
import time

import pytest

from tests.program.model_server import Reply

LONG = "echo " + " ".join(f"--flag{number}=value" for number in range(60)) + "; touch EVIL-TAIL"
MANY = "echo start\n" + "\n".join(f"# line {number}" for number in range(200)) + "\ntouch EVIL-TAIL"


class Person:
    """Someone at a terminal of 80 columns in which the program runs."""

    def __init__(self, project, *words: str) -> None:
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*project.program, *words],
            cwd=project.cwd,
            env=project.environment,
            stdin=side,
            stdout=subprocess.PIPE,
            stderr=side,
            preexec_fn=own_terminal,
        )
        os.close(side)
        self._seen = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self.main, 65536):
                self._seen += data
        except OSError:
            pass

    @property
    def seen(self) -> str:
        return self._seen.decode("utf-8", "replace").replace("\r\n", "\n")

    def until(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + 60
        while self.seen.count(text) < times:
            assert time.monotonic() < deadline and self.process.poll() is None, self.seen
            time.sleep(0.05)

    def type(self, line: str) -> None:
        os.write(self.main, f"{line}\n".encode())

    def end(self) -> None:
        self.process.communicate(timeout=60)
        os.close(self.main)


@pytest.fixture
def asking(project, serve):
    project.mode = "default"
    settings = project.home / ".retinue" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"permissions": {"ask": ["Bash"]}}))

    def ask(command: str) -> None:
        serve(lambda request: Reply("", [("bash", {"command": command})]) if request.turn == 0 else Reply("done"))

    return ask


def test_a_long_line_is_shown_whole_on_the_terminal_and_in_the_list(project, asking):
    asking(LONG)
    person = Person(project, "run", "general-purpose", "x")
    person.until("y once")
    listed = project.retinue("inbox", "list").stdout
    person.type("n")
    person.end()
    for shown in (person.seen, listed):
        assert "".join(LONG.split()) in "".join(shown.split()), shown
    assert not (project.cwd / "EVIL-TAIL").exists()


@pytest.mark.parametrize("at_the_end", ["y", "n"])
def test_yes_counts_only_after_all_was_shown(project, asking, at_the_end):
    asking(MANY)
    person = Person(project, "run", "general-purpose", "x")
    person.until("more lines")
    assert "y once" not in person.seen and "EVIL-TAIL" not in person.seen
    for early in ("y", "yes"):
        before = person.seen.count("> ")
        person.type(early)
        person.until("> ", before + 1)
    assert project.json("inbox", "list", "--json")["items"][0]["state"] == "waiting"
    while "y once" not in person.seen:
        before = person.seen.count("> ")
        person.type("")
        person.until("> ", before + 1)
    assert all(f"# line {number}\n" in person.seen for number in range(200)) and "touch EVIL-TAIL" in person.seen
    person.type(at_the_end)
    person.end()
    assert (project.cwd / "EVIL-TAIL").exists() == (at_the_end == "y")


def test_a_denial_needs_no_reading(project, asking):
    asking(MANY)
    person = Person(project, "run", "general-purpose", "x")
    person.until("more lines")
    person.type("Use make instead")
    person.end()
    (item,) = project.json("inbox", "list", "--all", "--json")["items"]
    assert (item["answer"]["choice"], item["answer"]["message"]) == ("deny", "Use make instead")


def test_consent_is_asked_for_after_the_whole_list_was_shown(project, serve):
    serve(lambda request: Reply("done"))
    hooks = [{"type": "command", "command": f"true {number}"} for number in range(200)]
    evil = {"type": "command", "command": "touch HOOK-RAN"}
    settings = project.cwd / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"SessionStart": [{"hooks": [evil, *hooks]}]}}))
    person = Person(project, "run", "general-purpose", "x")
    person.until("more lines")
    assert "Let them take effect" not in person.seen and "touch HOOK-RAN" in person.seen
    before = person.seen.count("> ")
    person.type("y")
    person.until("> ", before + 1)
    assert project.json("trust", "--json")["files"][0]["state"] == "unknown"
    person.type("n")
    person.end()
    assert project.json("trust", "--json")["files"][0]["state"] == "refused"
    assert not (project.cwd / "HOOK-RAN").exists()
