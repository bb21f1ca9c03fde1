"""Questions as people see them: from agents, and from the main agent with `ask_user`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from retinue.app.markdown import plain_text
from retinue.app.rich_text import STYLES, clean, fit, one_line
from retinue.core.messages import ChildAsked, ToolCall

_TAG = re.compile(r"</?[a-z][a-z_-]*>")
OPTION_CELLS = 400


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """`agent_id` is the run that asks; it is empty for the main agent. `several`: more than one option may be
    chosen."""

    text: str
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """The note beside each option."""
    several: bool = False
    agent: str = ""
    agent_id: str = ""


def asked_question(asked: ChildAsked) -> AskedQuestion:
    """Return the question that an agent asked its parent."""
    return AskedQuestion(asked.question, asked.options, agent=asked.agent, agent_id=asked.run_id)


def questions_of(call: ToolCall) -> tuple[AskedQuestion, ...]:
    """Return the questions of a call of `ask_user` or `ask_parent`, in Retinue's form or in that of Claude Code."""
    arguments = call.arguments
    asked = arguments.get("questions")
    if not isinstance(asked, list) or not asked:
        asked = [arguments]
    questions = []
    for entry in asked:
        if isinstance(entry, Mapping):
            questions.append(_question(entry))
        elif isinstance(entry, str):
            questions.append(AskedQuestion(entry))
    return tuple(questions)


def _question(arguments: Mapping[str, Any]) -> AskedQuestion:
    options, notes = [], []
    entries = arguments.get("options")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping):
            options.append(str(entry.get("label", "")))
            notes.append(str(entry.get("description") or ""))
        else:
            options.append(str(entry))
            notes.append("")
    if isinstance(arguments.get("notes"), list):
        notes = list(map(str, arguments["notes"]))
    return AskedQuestion(
        str(arguments.get("question") or ""),
        tuple(options),
        tuple(notes),
        several=bool(arguments.get("several") or arguments.get("multiSelect")),
    )


def question_lines(asked: AskedQuestion) -> list[Text]:
    """Return the question and its options, one a line."""
    lines = [Text(row, "bold") for row in clean(plain_text(asked.text[:4_000])).split("\n")]
    for number, option in enumerate(asked.options, 1):
        sign = "☐" if asked.several else f"{number}."
        line = Text(f"  {sign} {fit(one_line(option), OPTION_CELLS)}")
        note = asked.notes[number - 1] if number <= len(asked.notes) else ""
        if note:
            line.append(f"  {fit(one_line(note), OPTION_CELLS)}", STYLES["dim"])
        lines.append(line)
    return lines


def without_frames(text: str) -> str:
    """Return a message from the harness to a model without the tags around it."""
    rows = []
    for row in text.split("\n"):
        bare = _TAG.sub("", row)
        # A line that consisted of a tag only has nothing to show.
        if bare.strip() or not row.strip():
            rows.append(unescape(bare))
    return "\n".join(rows).strip("\n")


def answers_of(result: str) -> str:
    """Return the person's answer from the result that the model reads."""
    return re.sub(r"\AAnswer of [^:\n]*: ", "", result)


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def settled_line(answer: str) -> Text:
    """Return the line below a question that has its answer."""
    return Text.assemble(("→ ", STYLES["success"]), fit(one_line(answer), OPTION_CELLS))


def hint_line(words: Sequence[str]) -> Text:
    return Text(" · ".join(filter(None, words)), STYLES["dim"])
