"""Asking, once and on the terminal, for consent to what a project's files bring."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO


def ask_for_trust(cwd: Path, source: TextIO | None = None, out: TextIO | None = None) -> bool:
    """Lists what nobody has decided on yet and asks for it; the answer is remembered for this
    content. True when everything was allowed for this process only. Asks nothing where nobody
    sits at a terminal: then what is not trusted has no effect."""
    source, out = source or sys.stdin, out or sys.stderr
    if source is None or out is None or not (source.isatty() and out.isatty()):
        return False
    from retinue.capabilities.trust.attach import subjects
    from retinue.runs.world import World

    world = World(cwd)
    new = [subject for subject in subjects(world) if subject.answer(world.trust) == "unknown"]
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
                world.trust.grant(subject.path, *subject.contents, what=subject.what)
            return False
        if word in ("n", "no"):
            for subject in new:
                world.trust.refuse(subject.path, *subject.contents, what=subject.what)
            return False
        if word in ("o", "once"):
            return True
        if not answer:  # the end of the input is no consent, and no decision either
            return False
