"""Every command, setting and variable that a message of the program names exists and does what is said.

Messages are found in the code: every text of every module but the documentation of its parts. What a message fills in
is a placeholder here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from tests.docs.documents import parse_command
from tests.program_main import run_main

from retinue.agents.dialects.tables import DIALECTS
from retinue.errors import UsageError
from retinue.frontends.cli.main import COMMANDS, Command, Group

SOURCE = Path(__file__).parents[2] / "src" / "retinue"
COMMAND = re.compile(r"(?<![\w./-])retinue ((?:-p|-c|--?[a-z]|[a-z])[^\n`;·)]*)")
SENTENCE_END = re.compile(r"[.:,](?:\s|$)|\s[—–]\s| {2,}")
SETTING = re.compile(
    r"\b(?:settings?|set|raise|lower|turn on|turn off):? `?([a-z]+(?:[A-Z]\w*)+|[a-z][A-Za-z]+\.[a-z][A-Za-z]+)\b"
)
VARIABLE = re.compile(r"\bRETINUE_[A-Z_]+\b")


class Message:
    """One text of the program, and where it stands."""

    def __init__(self, place: str, text: str) -> None:
        self.place = place
        self.text = text


@cache
def messages() -> list[Message]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) not in described and id(node) not in inner and (text := text_of(node)):
                found.append(Message(f"{path.relative_to(SOURCE)}:{node.lineno}", text))  # type: ignore[attr-defined]
    return found


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        # A number is accepted where a word is, but not the other way round.
        return "".join(part.value if isinstance(part, ast.Constant) else "3" for part in node.values)
    return ""


def commands_in(text: str) -> Iterator[str]:
    for found in COMMAND.findall(text):
        yield SENTENCE_END.split(found)[0].translate(str.maketrans("", "", "…[]")).strip()


NO_COMMANDS = {
    "found": "a variable of a script of a shell",
    "help": "another word for --help",
    "or": "names of dialects: `retinue or claude`",
    "sandbox": "the beginning of a message, not a command",
}
WRONG = re.compile(r"There is no option|unrecognized arguments|no command")
"""What the parser says of a command that does not exist so. Other refusals are about what a placeholder stands for."""


def refusal_of(command: str) -> str:
    """Return why the program would refuse a command; empty if it takes it. What follows in the sentence is left out,
    but no option."""
    words = command.replace("(", " ").split()
    entry: Command | Group | None = COMMANDS.get(words[0])
    if entry is None and not words[0].startswith("-"):
        return "" if words[0] in NO_COMMANDS else f"there is no command {words[0]!r}"
    least = 1
    if isinstance(entry, Group):
        if len(words) == 1:
            return ""
        if words[1] in entry.commands:
            least = 2
        elif entry.alone is None:
            return f"{words[0]!r} has no command {words[1]!r}"
    refusal = ""
    for end in range(len(words), least - 1, -1):
        try:
            with redirect_stdout(StringIO()):
                parse_command(" ".join(["retinue", *words[:end]]))
            return ""
        except SystemExit:
            return ""  # --help
        except ValueError:
            pass  # the end of a quotation is missing
        except UsageError as error:
            if not WRONG.search(str(error)):
                return ""
            refusal = refusal or str(error)
        if words[end - 1].startswith("-"):
            break
    return refusal


def test_every_command_that_a_message_names_is_one_of_the_program() -> None:
    named = {(message.place, command) for message in messages() for command in commands_in(message.text)}
    shells = {each for each in named if each[0].startswith("frontends/cli/completion.py")}
    assert {each: refusal_of(each[1]) for each in sorted(named - shells) if refusal_of(each[1])} == {}
    assert len(named) > 150


@cache
def known_settings() -> dict[str, set[str]]:
    """Return the variables of every setting, by its name and its aliases."""
    known = {}
    for row in json.loads(run_main("settings", "list", "--json").stdout)["settings"]:
        for name in (row["name"], *row["aliases"]):
            known[name] = set(row["variables"])
    return known


NO_SETTINGS = {
    "llama.cpp": "a program",
    "mcp.json": "a file",
    "retinue.agents": "a part of the library",
}


def test_every_setting_that_a_message_names_is_one() -> None:
    groups = {name.partition(".")[0] for name in known_settings() if "." in name}
    fields = {row.key for table in DIALECTS.values() for row in table.fields}
    unknown = {}
    count = 0
    for message in messages():
        for name in SETTING.findall(message.text):
            count += 1
            if name not in known_settings() and name not in groups | fields | NO_SETTINGS.keys():
                unknown[message.place] = name
    assert unknown == {}
    assert count > 20


def test_every_variable_that_a_message_names_is_read_or_given() -> None:
    named = {name for message in messages() for name in VARIABLE.findall(message.text)}
    alone = {message.text for message in messages()}
    variables = set().union(*known_settings().values())
    assert named - alone - variables == set()


READS = ("list", "show", "resolve", "lint", "doctor", "trust", "cost", "activity", "logs", "settings")


def test_commands_of_messages_that_only_look_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs no argument is done as it is written."""
    monkeypatch.chdir(tmp_path)
    named = {" ".join(each.split()[:2]) for message in messages() for each in commands_in(message.text)}
    refused, count = {}, 0
    for command in sorted(named):
        words = command.split()
        if refusal_of(command) or words[-1] not in READS or words[0] not in COMMANDS:
            continue
        done = run_main(*words, environment={"HOME": str(tmp_path)})
        count += 1
        if done.returncode == 2 and "arguments are required" not in done.stderr:
            refused[command] = done.stderr
    assert refused == {}
    assert count > 10
