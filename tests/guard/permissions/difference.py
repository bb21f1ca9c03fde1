"""What bash starts against what the judge saw, for random shell texts.

Every text runs under the real bash, inside the read-only walls, with a PATH of programs that only
record how they were called. A call that the judge did not see, in a text that it claimed to have
read, is a hole. As a drill: `python -m tests.guard.permissions.difference --texts 200000 --seed 1`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from retinue.guard.permissions.rule import GLOB
from retinue.guard.permissions.shell_grammar import analyse
from retinue.guard.permissions.shell_step import Script
from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxPolicy

HERE = Path(__file__).parent
PROGRAMS = "ls rm cat git a b c X make npm touch id sudo timeout nice env xargs find sh2 [x =x a=b".split()
FILES = ("f1", "f 2", "-n", "a[0]", "$(rm y)", "rm", "x=1", "~", "#c", "{b}")

_PIECES = (
    *("ls", "rm", "cat", "git", "a", "b", "X", "rm X", "echo", "true", "false", "test", "[", "]", "eval", "command"),
    *("bash -c", "timeout 5", "nice", "env", "exec", "cd .", "set", "x=1", "x+=", "a=", "A=b ls", "printf", ":", "."),
    *("'", '"', "\\", "$'", '$"', "`", "$(", ")", "${", "}", "((", "))", "[[", "]]", "=~", "==", "$((", "$[", "(", "{"),
    *(
        "\n",
        "\\\n",
        ";",
        "&",
        "&&",
        "||",
        "|",
        "|&",
        ";;",
        "<",
        ">",
        ">>",
        "<<",
        "<<<",
        ">&",
        "2>",
        "&>",
        "<(",
        ">(",
        "2>&1",
    ),
    *(
        "!",
        "#",
        "~",
        "*",
        "?",
        "[a-z]",
        "=",
        ":",
        "-",
        "--",
        "%",
        "^",
        ",",
        "..",
        "$",
        "$x",
        "$@",
        "é",
        "\u00a0",
        "\t",
        "\r",
    ),
    *("if", "then", "fi", "for", "in", "do", "done", "case", "esac", "while", "function", "select", "time", "coproc"),
    *(
        "EOF",
        "<<EOF\n",
        "\nEOF\n",
        "/dev/null",
        "f1",
        "'a b'",
        '"c d"',
        "2",
        "1",
        "@(a|b)",
        "+(x)",
        "a{b,c}",
        "{}",
        "~/x",
    ),
)
_READABLE = (
    *("ls", "rm X", "cat f1", "git push", "echo hi", "a b", "npm run x", "timeout 5 rm y", "bash -c 'rm z'", "nice ls"),
    *(
        "env rm X",
        "eval 'a b'",
        "true",
        "cd .",
        "command ls",
        "'rm' \"X\"",
        "r\\m X",
        "ls *",
        "cat [a-f]1",
        "echo 'a;rm X'",
    ),
)
_JOINS = (
    " ; ",
    " && ",
    " || ",
    " | ",
    "\n",
    " & ",
    ";",
    "|",
    " |& ",
    " >o ",
    " 2>/dev/null ; ",
    " 2>&1 | ",
    "\t;\t",
    "\n\n",
)
_NOISE = (
    "'",
    '"',
    "\\",
    "\n",
    "$",
    "`",
    "#",
    "~",
    "=",
    "(",
    "{",
    "!",
    " ",
    "[",
    "*",
    ">",
    "<",
    "&",
    "2",
    ";",
    "\\\n",
    "=~ ",
)

HOME = "/no-such-home"
_DRIVER = r"""
import json, os, subprocess, sys, time
texts, stubs, work = json.load(open(sys.argv[1])), sys.argv[2], os.environ["TMPDIR"]
os.mkdir(work + "/records")
for number, text in enumerate(texts):
    # One file for each text: what a text leaves in the background may record later.
    environment = {"PATH": stubs, "RECORD": f"{work}/records/{number}", "HOME": sys.argv[5], "LC_ALL": "C.UTF-8"}
    try:
        subprocess.run([sys.argv[3], "-c", text], env=environment, cwd=work + "/files", stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=1)
    except (subprocess.TimeoutExpired, ValueError):
        pass
time.sleep(0.5)
found = []
for number in range(len(texts)):
    path = f"{work}/records/{number}"
    calls = open(path, errors="surrogateescape").read().split("\x02")[:-1] if os.path.exists(path) else []
    found.append([call.split("\x01") for call in calls])
json.dump(found, open(sys.argv[4], "w"))
"""
_STUB = """#!/bin/sh
line=${0##*/}
for word in "$@"; do line="$line\x01$word"; done
printf '%s\002' "$line" >> "$RECORD"
"""


def texts(count: int, dice: random.Random) -> list[str]:
    """Return random texts: of pieces, of readable commands with noise, and mutated ones of the suite."""
    known = suite_texts()
    makers = (_pieces, _joined, lambda dice: _mutated(dice.choice(known), dice))
    return [dice.choice(makers)(dice) for _ in range(count)]


def suite_texts() -> list[str]:
    """Return every command line of the suite's own cases."""
    lines = HERE.joinpath("hidden.txt").read_text("utf-8").splitlines()[1:]
    cases = re.findall(r"^  \S+ +bash +(.*)$", HERE.joinpath("cases.txt").read_text("utf-8"), re.MULTILINE)
    return [line.partition(" :: ")[0].replace("⏎", "\n") for line in (*lines, *cases)]


def _pieces(dice: random.Random) -> str:
    blanks = ("", " ", " ")
    return "".join(dice.choice(_PIECES) + dice.choice(blanks) for _ in range(dice.randint(1, 10)))


def _joined(dice: random.Random) -> str:
    text = dice.choice(_READABLE)
    for _ in range(dice.randint(0, 3)):
        text += dice.choice(_JOINS) + dice.choice(_READABLE)
    return _mutated(text, dice) if dice.random() < 0.6 else text


def _mutated(text: str, dice: random.Random) -> str:
    for _ in range(dice.randint(0, 3)):
        at = dice.randint(0, len(text))
        width = dice.choice((0, 0, 1))
        text = text[:at] + dice.choice((*_NOISE, "")) + text[at + width :]
    return text


def run_all(given: list[str], folder: Path) -> list[list[list[str]]]:
    """Return, for each text, the calls of programs that bash made, inside the walls."""
    stubs = folder / "stubs"
    stubs.mkdir()
    for name in PROGRAMS:
        (stubs / name).write_text(_STUB)
        (stubs / name).chmod(0o755)
    (folder / "texts.json").write_text(json.dumps(given))
    bash = shutil.which("bash") or "/bin/bash"
    box = Box(SandboxPolicy(shown=(folder,)), "difference")
    try:
        files = box.scratch / "files"
        files.mkdir()
        for name in FILES:
            (files / name).write_text("x")
        result = box.scratch / "found.json"
        driver = [sys.executable, "-c", _DRIVER, str(folder / "texts.json"), str(stubs), bash, str(result), HOME]
        subprocess.run(box.wrap(driver, folder), env=box.environment({"PATH": "/usr/bin:/bin"}), check=True)
        return json.loads(result.read_text())
    finally:
        box.close()


def unseen(text: str, calls: list[list[str]]) -> Iterator[list[str]]:
    """Yield the calls that the judge did not see in a text that it claims to have read."""
    script = analyse(text)
    if script.doubts:
        return
    for call in calls:
        if not _seen(call, script):
            yield call


def _seen(call: list[str], script: Script) -> bool:
    return any(_fits(call, step.words) for step in script.all_steps())


def _fits(call: list[str], words: tuple[str, ...]) -> bool:
    """Return whether a call is a command of the script: its patterns may have become several names."""
    homed = [HOME + word[1:] if word == "~" or word.startswith("~/") else word for word in words[1:]]
    wanted = [words[0].rpartition("/")[2], *homed]
    if not any(GLOB in word for word in wanted):
        return wanted == call
    source = "".join(".*" if letter == GLOB else re.escape(letter) for letter in "\0".join(wanted))
    return re.fullmatch(source, "\0".join(call), re.DOTALL) is not None


def holes(given: list[str]) -> tuple[list[tuple[str, list[str]]], int, int]:
    """Return the texts with unseen calls, how many texts could be read, and how many calls were made."""
    with tempfile.TemporaryDirectory() as folder:
        made = run_all(given, Path(folder).resolve())
    found = [(text, call) for text, calls in zip(given, made, strict=True) for call in unseen(text, calls)]
    readable = sum(not analyse(text).doubts for text in given)
    return found, readable, sum(map(len, made))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=5_000)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    bad = readable = calls = 0
    for start in range(0, options.texts, options.batch):
        found, read, made = holes(texts(min(options.batch, options.texts - start), dice))
        bad, readable, calls = bad + len(found), readable + read, calls + made
        for text, call in found:
            print(f"unseen: {call!r} in {text!r}")
        print(f"{start + options.batch:,} texts, {readable:,} readable, {calls:,} calls, {bad} unseen", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
