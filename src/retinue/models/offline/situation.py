"""Where a conversation stands: what is asked, and what the tools have said since it was asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from retinue.core.lean import dataclass
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage

Turn = tuple[tuple[ToolCall, ToolResult], ...]
Wish = Literal["find", "act", "judge", "talk"]
"""find: what the planner can do. act: change or run something. judge: write, explain, review.
talk: nothing that could be searched for."""

LONG = 60
"""Words from which on a task is searched for its question."""
LONGEST = 2_000
"""Characters of a question that are looked at."""

_TASK = re.compile(r"(?im)^#{0,6}[ \t]*your task(?: \(below\))?:?[ \t]*$|^task:[ \t]*")
_CLOSING = re.compile(r"</([a-z][\w-]*)>")
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
_ASKS = re.compile(
    r"(?i)^\W*(?:where|which|what|how|who|why|when|find|locate|search|look|show|list|is there|does|do)\b"
)
_GREETING = re.compile(
    r"(?i)^\W*(?:hi|hello|hey|thanks|thank you|good (?:morning|evening|day)|ok(?:ay)?|yes|no|bye|test|ping"
    r"|who are you|how are you)\b[\s\w]{0,12}\W*$"
)
_POLITE = r"(?i)^\W*(?:please |can you |could you |now |then )*"
_ACT = re.compile(
    _POLITE + r"(?:write|implement|add|fix|refactor|create|delete|remove|rename|change|update|edit|modify|replace|run"
    r"|execute|commit|deploy|install|build|make|migrate|rewrite|move|convert|optimi[sz]e|apply|generate|format|set up"
    r"|upgrade|debug|solve)\b"
)
_JUDGE = re.compile(
    _POLITE + r"(?:summari[sz]e|explain|describe|review|translate|compare|evaluate|assess|analy[sz]e|plan|design"
    r"|suggest|propose|brainstorm|tell me (?:a|about)|what do you think|why|critique|calculate|compute|prove|draft"
    r"|compose|document)\b"
)


@dataclass(frozen=True, slots=True)
class Situation:
    task: str
    turns: tuple[Turn, ...] = ()
    """The tool turns since the task was last said or steered."""
    last_call: bool = False
    """A limit is reached: answer now."""
    wish: Wish = "find"


def read(messages: Sequence[Message]) -> Situation:
    """Pure. Later tasks replace earlier ones; steering is read together with its task."""
    task = earlier = ""
    turns: list[Turn] = []
    last_call = False
    waiting: tuple[ToolCall, ...] = ()
    for message in messages:
        if isinstance(message, UserMessage):
            if message.origin in ("task", "follow-up"):
                task, earlier = _own_words(message.text), task
                turns, last_call = [], False
            elif message.origin == "steer":
                task = f"{task}\n{_own_words(message.text)}"
                turns = []
            elif message.origin == "wrap-up":
                last_call = True
        elif isinstance(message, AssistantMessage):
            waiting = message.tool_calls
        elif isinstance(message, ToolMessage):
            results = {result.call_id: result for result in message.results}
            turns.append(tuple((call, results[call.id]) for call in waiting if call.id in results))
            waiting = ()
    question = the_question(task)
    wish = wish_of(question)
    if wish == "find" and earlier and len(question.split()) < 4:  # "and the tests?" needs what came before
        question = f"{question} {the_question(earlier)}"
    return Situation(question, tuple(turns), last_call, wish)


def the_question(task: str) -> str:
    """The task, or of a long one the sentences that ask for something."""
    if len(task.split()) <= LONG:
        return task.strip()[:LONGEST]
    sentences = [found.group().strip() for found in _SENTENCE.finditer(task)]
    asking = [text for text in sentences if text.endswith(("?", "？")) or _ASKS.match(text)]
    words = " ".join(asking or sentences).split()
    return " ".join(words[:LONG])[:LONGEST]


def wish_of(question: str) -> Wish:
    if not re.search(r"[^\W\d_]{2}", question) or _GREETING.match(question):
        return "talk"
    if _ACT.match(question):
        return "act"
    return "judge" if _JUDGE.match(question) else "find"


def _own_words(text: str) -> str:
    """Without what a harness puts around a task: blocks in tags, the parent's conversation."""
    own = _TASK.split(text)[-1]
    for name in list(dict.fromkeys(_CLOSING.findall(own)))[:20]:
        start, end = own.find(f"<{name}"), own.rfind(f"</{name}>")
        if 0 <= start < end:
            own = f"{own[:start]} {own[end + len(name) + 3 :]}"
    return own.strip() or text.strip()
