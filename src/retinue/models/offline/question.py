"""The question of a task, and the words to search for.

`read` finds the current task in a conversation and the tool results that came since. `Query.of`
turns a task into terms (words with their stems and synonyms), exact strings (identifiers and
quotations) and places (paths the task names). `stem` is not a linguist's: it has to send the
forms programmers use of one word (parse, parses, parser) to one string, and question and code
go through it alike. A library's stemmer was measured and left out: snowballstemmer takes 0.2
seconds to import, keeps `parser` apart from `parse`, and joins `setting` with `set`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult

Wish = Literal["find", "act", "judge", "talk"]
"""find: search, which the planner can do. act: change or run something. judge: write, explain, review. talk: anything
else."""

VOCABULARY: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("vocabulary.toml").read_text("utf-8"))
PATTERNS = {name: re.compile(pattern) for name, pattern in VOCABULARY["patterns"].items()}
_STOP_WORDS = frozenset(VOCABULARY["stop"].split())
_UNCHANGED = frozenset(VOCABULARY["unchanged"].split())
_IRREGULAR: dict[str, str] = {}
for _word, _forms in VOCABULARY["irregular"].items():
    _IRREGULAR |= dict.fromkeys(_forms.split(), _word)

MAX_TERMS = 8
MAX_TASK_WORDS = 60
"""Words from which on a task is reduced to the sentences that ask."""
MAX_TASK_CHARACTERS = 2_000
SYNONYM_WEIGHT = 0.5
"""Compared with the word itself."""

_TASK = re.compile(r"(?im)^#{0,6}[ \t]*your task(?: \(below\))?:?[ \t]*$|^task:[ \t]*")
_CLOSING_TAG = re.compile(r"</([a-z][\w-]*)>")
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
_POLITE = r"(?i)^\W*(?:please |can you |could you |now |then )*"
_ACT = re.compile(_POLITE + "(?:" + VOCABULARY["actions"].replace("\n", "") + r")\b")
_JUDGE = re.compile(_POLITE + "(?:" + VOCABULARY["judgements"].replace("\n", "") + r")\b")

_QUOTED = re.compile(r"`([^`\n]{2,120})`|\"([^\"\n]{2,120})\"|(?<!\w)'([^'\n]{2,120})'(?!\w)")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*(?:\.|::)[A-Za-z_]\w*(?:(?:\.|::)\w+)*|_*[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+"
    r"|[a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b"
)
_FOLDER_PATH = re.compile(r"(?<![\w/])(?:\.{0,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*")
_FILE_NAME = re.compile(r"(?<![\w/.])[\w-]{2,}\.(?:[a-z]{1,5}|MD|C|H)\b(?![\w(])")
_WIDE_SCRIPTS = r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
"""Scripts written without spaces."""
_LOWER = rf"[^\W\d_A-Z{_WIDE_SCRIPTS}]"
_WORD = re.compile(rf"[A-Z]+(?!{_LOWER})|[A-Z]?{_LOWER}+|\d+|[{_WIDE_SCRIPTS}]+")
_ENDING = re.compile(
    "|".join(rf"(?<=.{{{least}}})(?:{'|'.join(words.split())})$" for least, words in VOCABULARY["endings"].items())
)
_TOKEN = re.compile(rf"[{_WIDE_SCRIPTS}]+|[^\W_{_WIDE_SCRIPTS}]+")


class Situation(Struct, frozen=True):
    """The current task, with the tool turns since it was last said or steered. `last_call`: a limit is reached."""

    task: str
    results: list[tuple[ToolCall, ToolResult]]
    turns: int
    last_call: bool
    wish: Wish


class Term(Struct, frozen=True):
    """One word of the task. `stems` maps what may stand for it in code to how much that counts."""

    word: str
    stems: dict[str, float]

    def match(self, name_stem: str) -> float:
        """Return how well one stem of a name stands for this word: 1 for the word itself. Names written without a
        break (`cookiejar`) still name their parts."""
        if name_stem in self.stems:
            return self.stems[name_stem]
        inside = [weight for stem, weight in self.stems.items() if len(stem) > 4 and stem in name_stem]
        return 0.7 * max(inside, default=0.0)


class Query(Struct, frozen=True):
    text: str
    terms: tuple[Term, ...]
    exact: tuple[str, ...]
    """Identifiers and quotations."""
    places: tuple[str, ...]
    """Paths that the task names."""

    @classmethod
    def of(cls, task: str) -> Query:
        text = " ".join(task.split())
        exact: dict[str, None] = {}
        for match in (*_QUOTED.finditer(text), *_IDENTIFIER.finditer(text)):
            item = match[match.lastindex or 0].strip().removesuffix("()")
            if len(item) > 3:
                exact[item] = None
        places = dict.fromkeys(path.rstrip(".,;:") for path in _FOLDER_PATH.findall(text))
        terms = _terms(_words(_FOLDER_PATH.sub(_words_of_path, text)))
        return cls(text, terms, tuple(exact)[:4], tuple(places)[:4])


def read(messages: Sequence[Message]) -> Situation:
    """Return what the conversation asks for now. Later tasks replace earlier ones; steering is read together with its
    task."""
    task = earlier = ""
    results: list[tuple[ToolCall, ToolResult]] = []
    calls: dict[str, ToolCall] = {}
    turns = 0
    last_call = False
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls = {call.id: call for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            turns += 1
            results += [(calls[result.call_id], result) for result in message.results if result.call_id in calls]
        elif message.origin in ("task", "follow-up"):
            task, earlier = _own_words(message.text), task
            results, turns, last_call = [], 0, False
        elif message.origin == "steer":
            task = f"{task}\n{_own_words(message.text)}"
            results, turns = [], 0
        elif message.origin == "wrap-up":
            last_call = True
    question = the_question(task)
    wish = wish_of(question)
    # "and the tests?" needs what came before.
    if wish == "find" and earlier and len(question.split()) < 4:
        question = f"{question} {the_question(earlier)}"
    return Situation(question, results, turns, last_call, wish)


def the_question(task: str) -> str:
    """Return the task, or of a long one the sentences that ask for something."""
    if len(task.split()) <= MAX_TASK_WORDS:
        return task.strip()[:MAX_TASK_CHARACTERS]
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(task)]
    asking = [text for text in sentences if text.endswith(("?", "？")) or PATTERNS["asks"].match(text)]
    words = " ".join(asking or sentences).split()
    return " ".join(words[:MAX_TASK_WORDS])[:MAX_TASK_CHARACTERS]


def wish_of(question: str) -> Wish:
    if not re.search(r"[^\W\d_]{2}", question) or PATTERNS["greeting"].match(question):
        return "talk"
    if _ACT.match(question):
        return "act"
    return "judge" if _JUDGE.match(question) else "find"


def _own_words(text: str) -> str:
    """Return a task without what a harness puts around it: blocks in tags, a conversation."""
    own = _TASK.split(text)[-1]
    for name in list(dict.fromkeys(_CLOSING_TAG.findall(own)))[:20]:
        start, end = own.find(f"<{name}"), own.rfind(f"</{name}>")
        if 0 <= start < end:
            own = f"{own[:start]} {own[end + len(name) + 3 :]}"
    return own.strip() or text.strip()


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return a lower-case word without what its forms differ in: plural, ending, a doubled last
    letter, a silent e, and y for i."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 3 or not word.isascii():
        return word
    word = re.sub(r"(?<=..)ie[sd]$|(?<=ss|sh|ch|.x|.z)es$|(?<=..[^sui])s$", _singular, word)
    word = _IRREGULAR.get(word, word)
    if word not in _UNCHANGED:
        word = _ENDING.sub("", word)
        word = re.sub(r"(?<=..)(.)\1$", r"\1", word)
    word = re.sub(r"(?<=...)e$", "", word)
    return re.sub(r"(?<=.[^aeiou])y$", "i", word)


def _singular(ending: re.Match[str]) -> str:
    return "y" if ending.group().startswith("ie") else ""


def subwords(text: str) -> list[str]:
    """`HTTPBasicAuth_v2` → http, basic, auth, v, 2. Other scripts stay in one piece."""
    return [word.lower() for word in _WORD.findall(text)]


@lru_cache(maxsize=50_000)
def stems_of(text: str) -> frozenset[str]:
    return frozenset(map(stem, subwords(text)))


def _words_of_path(match: re.Match[str]) -> str:
    """Return of a path in the tree its name; of one elsewhere (`/etc/ssh/config`) every part."""
    path = match.group()
    if path.startswith("/"):
        return path.replace("/", " ")
    return path.rpartition("/")[2]


def _words(text: str) -> list[str]:
    plain = _FILE_NAME.sub(lambda file: file.group().partition(".")[0], text).lower()
    for english, foreign in VOCABULARY["other_languages"].items():
        for word in foreign.split():
            plain = plain.replace(word, f" {english} ")
    for filler in VOCABULARY["fillers"].split():
        plain = plain.replace(filler, " ")
    words: list[str] = []
    for token in _TOKEN.findall(plain):
        # Overlapping pairs: the usual index unit of such scripts.
        if re.match(f"[{_WIDE_SCRIPTS}]{{2}}", token):
            words += [first + second for first, second in pairwise(token)]
        else:
            words.append(token)
    return words


def _terms(words: list[str]) -> tuple[Term, ...]:
    terms: dict[str, Term] = {}
    before = ""
    for word in words:
        root = stem(word)
        if word not in _STOP_WORDS and root not in terms and 1 < len(word) <= 40 and not word.isdigit():
            stems = {root: 1.0}
            if len(before) > 2 and before not in _STOP_WORDS:
                # "host name" is also written hostname.
                stems[stem(before + word)] = 1.0
            terms[root] = Term(word, stems | dict.fromkeys(_synonyms(root), SYNONYM_WEIGHT) | stems)
        before = word
    return tuple(terms.values())[:MAX_TERMS]


def _synonyms(root: str) -> list[str]:
    synonyms = _synonyms_by_stem()
    # A long word of another language: Authentifizierung.
    if root not in synonyms and len(root) >= 9:
        for other in synonyms:
            if len(other) >= 7 and root.startswith(other[:7]):
                return [other, *synonyms[other]]
    return synonyms.get(root, [])


@cache
def _synonyms_by_stem() -> dict[str, list[str]]:
    synonyms: dict[str, list[str]] = {}
    for group in VOCABULARY["synonyms"]:
        stems = dict.fromkeys(map(stem, group.split()))
        for member in stems:
            synonyms.setdefault(member, []).extend(other for other in stems if other != member)
    return synonyms
