"""Words, stems and kinds of files: what the search stands on."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.messages import user
from retinue.models.offline.planner import OfflineModel
from retinue.models.offline.question import (
    MAX_TERMS,
    Query,
    read,
    stem,
    stems_of,
    subwords,
    the_question,
    wish_of,
)
from retinue.models.offline.ranking import kind_of
from retinue.models.offline.search import definition_pattern, pattern_of
from retinue.testing import ModelRequest


@pytest.mark.parametrize(
    "family",
    [
        "parse parses parser parsing parsed",
        "authenticate authentication authenticator authenticated",
        "connect connects connection connector connecting",
        "format formatter formatting formatted",
        "query queries querying",
        "retry retries retried retrying",
        "serialize serializer serialization serialised serializing",
        "create creates creation creating creator",
        "write writes writer writing written wrote",
        "build builder building built",
        "stop stopped stopping stops",
        "try tries tried trying",
        "cancel cancels cancelled cancelling",
        "recursive recursively recursion",
        "convert converter conversion converts",
        "schedule scheduler scheduling scheduled",
        "setting settings",
        "class classes",
        "process processes processing",
    ],
)
def test_forms_of_one_word_have_one_stem(family: str) -> None:
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize(
    "pair", ["author auth", "setting set", "string strip", "status state", "routine route", "version verse"]
)
def test_different_words_keep_different_stems(pair: str) -> None:
    first, second = pair.split()
    assert stem(first) != stem(second)


def test_names_are_split_as_people_read_them() -> None:
    assert subwords("HTTPBasicAuth_v2") == ["http", "basic", "auth", "v", "2"]
    assert subwords("parseURLString") == ["parse", "url", "string"]
    assert subwords("OAuth认证résumé") == ["o", "auth", "认证", "résumé"]


@given(st.text())
def test_stems_of_any_text_are_lower_case_words(text: str) -> None:
    for part in stems_of(text):
        assert part
        assert not any(character in string.ascii_uppercase for character in part)


@given(st.text(max_size=500))
def test_any_text_makes_a_bounded_query_with_valid_patterns(text: str) -> None:
    query = Query.of(text)
    assert len(query.terms) <= MAX_TERMS
    assert query == Query.of(text)
    for term in query.terms:
        re.compile(pattern_of([term]))
    if query.terms:
        re.compile(pattern_of(query.terms))
        re.compile(definition_pattern(query.terms))


@settings(max_examples=500, deadline=None)
@given(st.from_regex(r"[a-z]{2,12}(ing|ed|s|er|ation|ies|ied|y)?", fullmatch=True))
def test_the_pattern_of_a_word_finds_the_word(word: str) -> None:
    for term in Query.of(f"where is the {word}?").terms:
        if term.word == word:
            assert re.search(pattern_of([term]), f"def {word}_x(): ...")
            assert re.search(pattern_of([term]), f"class My{word.capitalize()}:")


def test_a_question_gives_terms_exact_strings_and_places() -> None:
    query = Query.of('where is `resolve_redirects()` in src/requests/sessions.py called with "too many" hops?')
    assert [term.word for term in query.terms] == ["resolve", "redirects", "sessions", "many", "hops"]
    assert query.exact[:2] == ("resolve_redirects", "too many")
    assert query.places == ("src/requests/sessions.py",)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("src/app/auth.py", "source"),
        ("app/__init__.py", "facade"),
        ("tests/test_auth.py", "test"),
        ("pkg/auth_test.go", "test"),
        ("src/auth.spec.ts", "test"),
        ("docs/auth.md", "docs"),
        ("README.md", "docs"),
        ("examples/auth.py", "example"),
        ("vendor/lib/auth.go", "vendored"),
        ("src/pip/_vendor/requests/auth.py", "vendored"),
        ("dist/auth.min.js", "generated"),
        ("types/auth.d.ts", "generated"),
        ("CHANGELOG.md", "history"),
        ("package.json", "data"),
        ("yarn.lock", "generated"),
        ("setup.py", "script"),
        ("Makefile", "script"),
        ("", "script"),
    ],
)
def test_kinds_of_files(path: str, kind: str) -> None:
    assert kind_of(path) == kind


@pytest.mark.parametrize(
    ("task", "wish"),
    [
        ("where is the parser?", "find"),
        ("Find the code that writes files", "find"),
        ("How are errors fixed up?", "find"),
        ("please fix the parser", "act"),
        ("Could you add a flag?", "act"),
        ("Summarize the parser", "judge"),
        ("hello there", "talk"),
        ("", "talk"),
    ],
)
def test_wishes(task: str, wish: str) -> None:
    assert wish_of(task) == wish


def test_a_long_task_is_cut_to_what_it_asks() -> None:
    assert the_question("It rains. " * 50 + "Where is the parser? " + "It rains. " * 50) == "Where is the parser?"
    assert len(the_question("word " * 10_000).split()) == 60
    assert read(()).wish == "talk"


@pytest.mark.parametrize("piece", ["<a>", "a_", "a.", "A", "`", "</a>", "where ", "a/", "./", "#", "\n", "你"])
async def test_a_task_of_megabytes_is_decided_at_once(piece: str) -> None:
    """No pattern may take more than linear time: these would take hours."""
    request = ModelRequest(system="", messages=(user(piece * 500_000),))
    assert [part async for part in OfflineModel().stream(request)]
