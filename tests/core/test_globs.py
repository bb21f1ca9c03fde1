"""Patterns of file names: the same matches as pathspec's, and no pattern that takes long."""

import random
import re
import time

import pytest
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from retinue.core.globs import component_regex, gitignore_regex
from retinue.guard.permissions.locations import RunFolders, match_path
from retinue.guard.permissions.rule import NO, YES, Rule, match, parse_rule
from retinue.tools.search import compile_glob

PIECES = ("a", "b", "ab", ".env", "x.py", "*", "*", "?", "**", "[ab]", "[a-c]", "[]a]", r"\*", "*.py", "test_*", " ")
NAMES = ("a", "b", "ab", "ba", ".env", "x.py", "test_a.py", "*", "abc", "a b", "]", "src")


def expected(pattern: str, path: str) -> bool | None:
    """What pathspec says; None for a pattern that it takes for none."""
    try:
        source, include = GitIgnoreSpecPattern.pattern_to_regex(pattern)
    except ValueError:
        return None
    if source is None or not include:
        return None
    return re.search(source, path, re.DOTALL) is not None


def ordinary_pattern(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randint(1, 4)):
        part = "".join(rng.choices(PIECES, k=rng.randint(1, 3)))
        # Two stars between other letters are two stars; on their own they are any number of folders.
        parts.append("**" if rng.random() < 0.2 else part)
    return rng.choice(("", "", "/", "**/")) + "/".join(parts) + rng.choice(("", "", "", "/", "/**"))


def test_random_patterns_match_what_they_match_for_pathspec():
    rng = random.Random(31)
    compared = 0
    for _ in range(3_000):
        pattern = ordinary_pattern(rng)
        source = gitignore_regex(pattern)
        for path in ("/".join(rng.choices(NAMES, k=rng.randint(1, 5))) for _ in range(6)):
            wanted = expected(pattern, path)
            if wanted is not None:
                assert source is not None
                assert (re.match(source, path, re.DOTALL) is not None) == wanted, (pattern, path, source)
                compared += 1
    assert compared > 12_000


def test_random_components_match_what_they_match_without_atomic_groups():
    rng = random.Random(7)
    for _ in range(3_000):
        part = "".join(rng.choices(("a", "b", "*", "?", "[ab]", "."), k=rng.randint(1, 8)))
        text = "".join(rng.choices("ab.c", k=rng.randint(0, 10)))
        plain = "".join(
            {"*": ".*", "?": ".", "[ab]": "[ab]", ".": r"\."}.get(c, c) for c in re.findall(r"\[ab\]|.", part)
        )
        assert (re.fullmatch(component_regex(part), text) is None) == (re.fullmatch(plain, text) is None), (part, text)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("a[b", "a[b", True),
        ("a[b", "ab", False),
        (r"a\/b", "a/b", True),
        ("x[!a]y", "x/y", False),
        ("[z-a]", "z", True),
        ("**/", "a/b", True),
        ("**/", "a", False),
        ("!x", "!x", True),
        ("#x", "#x", True),
        ("/", "a", False),
        ("  ", "a", False),
    ],
)
def test_patterns_that_pathspec_discards_mean_what_is_written(pattern, path, matches):
    source = gitignore_regex(pattern)
    assert (source is not None and re.match(source, path) is not None) == matches


HOSTILE = (
    "*a" * 900 + "b",
    "a*" * 900 + "b",
    "**/" + "*a*" * 300 + "b",
    "/".join(["**", "*a*a*a*b"] * 60),
    "**/*a/" * 150 + "b",
    "?*" * 800 + "b",
    "[a-z]*" * 250 + "B",
    "**/a" * 400 + "/b",
    "/" + "*a" * 900 + "/**/c",
    "*" * 1900 + "b",
    "**" * 900 + "b",
)
LONG = ("a" * 4_000, "/".join(["a" * 20] * 190), "a/" * 2_000 + "a", "/".join(["aaab" * 10] * 90))


@pytest.mark.parametrize("pattern", HOSTILE, ids=range(len(HOSTILE)))
def test_no_pattern_takes_long(pattern, tmp_path):
    folders = RunFolders.of(tmp_path)
    for kind in ("deny", "ask", "allow"):
        rule = parse_rule(f"Read({pattern})", kind)
        assert isinstance(rule, Rule), rule
        for path in LONG:
            began = time.process_time()
            match_path(rule, folders, path)
            match(pattern, path)
            assert time.process_time() - began < 1.5
    glob = compile_glob(pattern)
    for path in LONG:
        began = time.process_time()
        glob(path)
        assert time.process_time() - began < 1.5


def test_a_rule_with_many_stars_still_protects(tmp_path):
    folders = RunFolders.of(tmp_path)
    rule = parse_rule("Read(*a*a*a*a*b)", "deny")
    assert isinstance(rule, Rule)
    assert match_path(rule, folders, "folder/xaxaxaxaxb") == YES
    assert match_path(rule, folders, "folder/xaxaxaxxb") == NO
