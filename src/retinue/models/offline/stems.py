"""Words to stems, and identifiers to words.

`stem` is not a linguist: it only has to send the forms that programmers use of one word
(parse, parses, parser, parsing) to one string, and different words to different strings. The
question and the code go through the same function, so an odd looking stem does no harm.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

_IRREGULAR = {
    "written": "write", "wrote": "write", "rewritten": "rewrite", "built": "build", "sent": "send", "found": "find",
    "drawn": "draw", "bound": "bind", "kept": "keep", "shown": "show", "chosen": "choose", "ran": "run",
    "hidden": "hide", "thrown": "throw", "undone": "undo", "redone": "redo", "held": "hold", "bought": "buy",
    "told": "tell", "lost": "lose", "met": "meet", "left": "leave", "got": "get", "made": "make", "taken": "take",
    "given": "give", "known": "know", "begun": "begin", "stolen": "steal", "frozen": "freeze", "woken": "wake",
    "storage": "store", "indices": "index", "vertices": "vertex", "matrices": "matrix", "children": "child",
    "choice": "choose", "choices": "choose", "analyses": "analysis", "people": "person",
}  # fmt: skip

_WHOLE = frozenset(
    "setting string thing during nothing something ping ring king spring sibling ceiling always class access process "
    "address status bus alias bias canvas axis basis this these those less cross across news series species lens "
    "media data user super over under after never ever other number never enter inner outer upper lower layer order "
    "letter matter center water power proper buffer shed need speed feed seed embed exceed hundred sacred red bed "
    "version station nation bring".split()
)

_SUFFIXES: tuple[tuple[str, str, int], ...] = (
    # suffix, replacement, least length of what is left; the first that fits is taken
    ("ization", "iz", 3), ("isation", "iz", 3), ("izing", "iz", 3), ("ising", "iz", 4), ("ized", "iz", 3),
    ("ised", "iz", 4), ("izer", "iz", 3), ("iser", "iz", 4), ("ize", "iz", 3), ("ise", "iz", 4),
    ("ibility", "", 4), ("ability", "", 4), ("ersion", "ert", 3), ("ension", "end", 3),
    ("ations", "", 4), ("ation", "", 4), ("ating", "", 4), ("ated", "", 4), ("ator", "", 4), ("ative", "", 4),
    ("ate", "", 4), ("ively", "", 4), ("ive", "", 4), ("ically", "ic", 3), ("fully", "", 4), ("ful", "", 4),
    ("ment", "", 6), ("tion", "t", 3), ("sion", "s", 3), ("able", "", 4), ("ible", "", 4), ("ness", "", 4),
    ("ings", "", 3), ("ing", "", 3), ("ied", "y", 2), ("eed", "eed", 1), ("ed", "", 3), ("ers", "", 4), ("er", "", 4),
    ("tor", "t", 3), ("sor", "s", 3), ("ly", "", 4),
)  # fmt: skip

_WIDE = r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
"""Scripts that are written without spaces: they end a word of another script."""
_LOWER = rf"[^\W\d_A-Z{_WIDE}]"
_WORD = re.compile(rf"[A-Z]+(?!{_LOWER})|[A-Z]?{_LOWER}+|\d+|[{_WIDE}]+")
_NAME = re.compile(r"\w+")
_VOWEL = re.compile(r"[aeiouy]")


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of one lower-case word. `stem(stem(w))` need not be `stem(w)`."""
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3 or not word.isascii():
        return word
    word = _singular(word)
    word = _IRREGULAR.get(word, word)
    if word in _WHOLE:
        return _ending(word)
    for suffix, replacement, least in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= least:
            rest = word[: len(word) - len(suffix)]
            if _VOWEL.search(rest + replacement):
                return _ending(_undouble(rest) + replacement)
    return _ending(word)


def subwords(text: str) -> list[str]:
    """`HTTPBasicAuth_v2` → http, basic, auth, v, 2. Other scripts stay in one piece."""
    return [part.lower() for part in _WORD.findall(text)]


@lru_cache(maxsize=50_000)
def stems_of(text: str) -> tuple[str, ...]:
    """The stems of all words, and of neighbours in one name taken together: `OpenAPI` and
    `open_api` are also `openapi`, as people write it."""
    found: list[str] = []
    for name in _NAME.findall(text):
        parts = subwords(name)
        found += [stem(part) for part in parts]
        found += [stem(first + second) for first, second in pairwise(parts)]
    return tuple(found)


def _singular(word: str) -> str:
    if word in _WHOLE or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


_SINGLE = frozenset(
    "cancel label control model signal level marshal channel tunnel travel total panel propel equal unravel".split()
)


def _undouble(word: str) -> str:
    if word[:-1] in _SINGLE and word.endswith("ll"):
        return word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        return word[:-1]
    return word


def _ending(word: str) -> str:
    """The last letter that inflection changes: y becomes i, a silent e goes."""
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    if len(word) > 3 and word.endswith("y") and word[-2] not in "aeiou":
        word = word[:-1] + "i"
    return word
