"""Questions of runs and of trust on the terminal, and the options of `run` as the library takes them.

One question at a time is asked while the program runs in the foreground. What was typed before a
question appears does not answer it. When someone answers the same item elsewhere, from any process,
the question goes away.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TextIO

from retinue.core.inbox import InboxAnswer, InboxItem
from retinue.core.usage import Budget
from retinue.errors import UsageError
from retinue.faces.api import Retinue
from retinue.faces.cli.project import harmless

BY = "terminal"
_LOOK_SECONDS = 0.5
_KEYS = {"y": "allow", "r": "allow-run", "a": "allow-agent", "A": "always", "n": "deny"}
_WORDS = {
    "allow": "y once",
    "allow-run": "r for this run",
    "allow-agent": "a for this agent",
    "always": "A always",
    "deny": "n deny, or say why not",
}


def terminal() -> Terminal | None:
    """The terminal of this process; None where nobody sits at it, such as in a pipe."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return Terminal(sys.stdin, sys.stderr)


class Terminal:
    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self._out = out
        self._free = asyncio.Lock()
        self._rest = b""

    async def __call__(self, item: InboxItem) -> InboxAnswer | None:
        from retinue.faces.cli.inbox import body, headline

        async with self._free:
            await self._in_foreground()
            self._forget_typed()
            self._say("\n".join(["", f"? {headline(item)}", *(f"  {line}" for line in body(item)), *_choices(item)]))
            try:
                return await self._answer(item)
            except asyncio.CancelledError:
                self._say("  (answered elsewhere, or not needed any more)")
                raise

    async def _answer(self, item: InboxItem) -> InboxAnswer:
        while True:
            self._out.write("> ")
            self._out.flush()
            line = await self._line()
            if line is None:
                return InboxAnswer(item.default, "The terminal was closed.", BY)
            given = understood(item, line.strip())
            if given is not None:
                return given

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    async def _in_foreground(self) -> None:
        """A program that the shell runs in the background would be stopped if it read."""
        if not hasattr(os, "tcgetpgrp"):
            return
        while os.tcgetpgrp(self._source.fileno()) != os.getpgrp():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_SECONDS)

    def _forget_typed(self) -> None:
        self._rest = b""
        try:
            import termios
        except ImportError:
            return
        termios.tcflush(self._source.fileno(), termios.TCIFLUSH)

    async def _line(self) -> str | None:
        """The next line that is typed; None at the end of input."""
        loop, descriptor = asyncio.get_running_loop(), self._source.fileno()
        while b"\n" not in self._rest:
            readable = asyncio.Event()
            try:
                loop.add_reader(descriptor, readable.set)
            except NotImplementedError:  # Windows: a thread waits instead, and cannot be called off
                return await asyncio.to_thread(self._source.readline) or None
            try:
                await readable.wait()
            finally:
                loop.remove_reader(descriptor)
            data = os.read(descriptor, 65_536)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")


def understood(item: InboxItem, line: str) -> InboxAnswer | None:
    """What a typed line means; None for an empty one. Where approval is asked, any text that is
    no key denies, and is told to the agent."""
    if not line:
        return None
    if item.kind == "question":
        chosen = int(line) - 1 if line.isascii() and line.isdigit() else -1
        return InboxAnswer(item.options[chosen] if 0 <= chosen < len(item.options) else line, by=BY)
    key = _KEYS.get(line, _KEYS.get(line.lower()) if len(line) == 1 else None)
    word = {"yes": "allow", "no": "deny"}.get(line.lower(), line.lower())
    choice = key or (word if word in item.options else None)
    if choice in item.options and choice is not None:
        return InboxAnswer(choice, by=BY)
    return InboxAnswer("deny", "" if key is not None else line, BY)


def _choices(item: InboxItem) -> list[str]:
    if item.kind == "question":
        numbered = [f"  {number}. {option}" for number, option in enumerate(item.options, 1)]
        return [*numbered, f"  [{item.id}]"]
    words = " · ".join(_WORDS[option] for option in item.options if option in _WORDS)
    rule = f"\n  as a rule: {item.rule}" if item.rule else ""
    return [f"  {words}   [{item.id}]{rule}"]


def ask_for_trust(cwd: Path, source: TextIO | None = None, out: TextIO | None = None) -> bool:
    """Lists what nobody has decided on yet and asks for it; the answer is remembered for this
    content. True when everything was allowed for this process only. Asks nothing where nobody
    sits at a terminal: then what is not trusted has no effect."""
    source, out = source or sys.stdin, out or sys.stderr
    if source is None or out is None or not (source.isatty() and out.isatty()):
        return False
    from retinue.capabilities.trust.attach import subjects
    from retinue.runs.project import Project

    project = Project(cwd)
    new = [subject for subject in subjects(project) if subject.answer(project.trust) == "unknown"]
    if not new:
        return False
    lines = ["", "The files of this project bring these along:"]
    for subject in new:
        lines += [f"  {subject.path}", *(f"      {line}" for line in subject.what)]
    lines.append("Let them take effect? y yes, and remember it / o only this time / n no, and remember it")
    out.write("\n".join(lines) + "\n")
    while True:
        out.write("> ")
        out.flush()
        answer = source.readline()
        word = answer.strip().lower()
        if word in ("y", "yes"):
            for subject in new:
                project.trust.grant(subject.path, *subject.contents, what=subject.what)
            return False
        if word in ("n", "no"):
            for subject in new:
                project.trust.refuse(subject.path, *subject.contents, what=subject.what)
            return False
        if word in ("o", "once"):
            return True
        if not answer:  # the end of the input is no consent, and no decision either
            return False


def open_retinue(args: argparse.Namespace, cwd: Path) -> Retinue:
    """What needs a person is asked on the terminal, where one sits at it."""
    mode = getattr(args, "permission_mode", None)
    trust = getattr(args, "trust", False) or ask_for_trust(cwd)
    retinue = Retinue(cwd, agents=getattr(args, "agents", None), permission_mode=mode, approve=terminal(), trust=trust)
    if not getattr(args, "quiet", False):
        retinue.supervisor.project.on_wait = WaitLines().show
    return retinue


class WaitLines:
    """What a launch waits for, as lines on stderr: at once, and then every ten seconds."""

    def __init__(self) -> None:
        self._said: tuple[str, float] = ("", 0.0)

    def show(self, what: str, seconds: float) -> None:
        last, at = self._said
        if what == last and at <= seconds < at + 10:
            return
        self._said = (what, seconds)
        print(harmless(f"  … {what}, {round(seconds)} s"), file=sys.stderr, flush=True)


def limits_of(args: argparse.Namespace) -> dict[str, float | None]:
    """Only what was said on the command line; 0 turns means no limit."""
    limits: dict[str, float | None] = {}
    if args.max_turns is not None:
        limits["max_turns"] = args.max_turns or None
    if args.timeout is not None:
        limits["seconds"] = args.timeout
    if args.max_budget_usd is not None:
        limits["max_cost_usd"] = args.max_budget_usd
    return limits


def budget_of(args: argparse.Namespace) -> Budget | None:
    """`--budget tokens=200000,spawns=3`, as often as it was given. Raises UsageError."""
    given: dict[str, float] = {}
    for part in (part for each in args.budget or () for part in each.split(",")):
        kind, _, number = part.partition("=")
        try:
            value = float(number)
            given[kind.strip()] = int(value) if value == int(value) else value
        except (ValueError, OverflowError):
            raise UsageError(
                f"'{part}' is no --budget.", remedy="Say what and how much: --budget tokens=200000,spawns=3"
            ) from None
    return Budget.read(given, "--budget") if given else None
