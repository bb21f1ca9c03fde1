"""A secret that arrives in pieces is hidden as if it had come whole, and words are not kept waiting."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.guard.redact import Redactor

S32 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + ("MIIEowIBAAKCAQEA" * 4 + "\n") * 5 + "-----END RSA PRIVATE KEY-----"
SECRETS = [
    f"api_key={S32}",
    f"api_key : '{S32}'",
    f'{{"access_token": "{S32}"}}',
    f"Authorization: Bearer {S32}",
    f"Authorization: Basic {S32}",
    f"bearer\t{S32}",
    f"export THING={S32}",
    f"OPENAI_API_KEY = {S32}",
    f"postgres://user:{S32}@host/db",
    f"https://x.example/?a=1&token={S32}",
    "sk-ant-api03-" + S32,
    "ghp_" + S32 + "abcd",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{S32}",
    KEY,
    "hunter2, the $ecret",
]
WORDS = [
    "the",
    "log: ",
    "key",
    "is",
    "好的",
    "a=b",
    "-----",
    "x\n\n",
    "Bearer of news",
    "don't",
    "1.5",
    "-----BEGIN ",
    "é",
]
redact = Redactor({"MY_PASSWORD": "hunter2,the$ecret"})


def cut(text, places):
    places = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[begin:end] for begin, end in itertools.pairwise(places)]


@given(
    st.lists(st.one_of(st.sampled_from(WORDS), st.sampled_from(SECRETS)), min_size=1, max_size=8),
    st.lists(st.integers(0, 10**6), max_size=60),
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pieces_say_what_the_whole_says(parts, places):
    text = " ".join(parts)
    stream = redact.stream()
    shown = [stream.feed(piece) for piece in cut(text, places)]
    shown.append(stream.finish())
    assert "".join(shown) == redact(text)


@pytest.mark.parametrize("secret", SECRETS[:-1])
def test_letter_by_letter_nothing_of_a_secret_is_shown(secret):
    text = f"look here {secret} and there"
    stream = redact.stream()
    shown = "".join(stream.feed(letter) for letter in text) + stream.finish()
    assert S32[:8] not in shown
    assert "MIIEow" not in shown
    assert shown.startswith("look here ")
    assert shown.endswith(" and there")


def test_words_follow_at_once():
    stream = redact.stream()
    assert [stream.feed(word) for word in ("Hello ", "wor", "ld, ", "all ", "is ", "well")] == [
        "Hello ",
        "",
        "world, ",
        "all ",
        "is ",
        "",
    ]
    assert stream.finish() == "well"
    assert stream.finish() == ""


def test_own_secrets_with_odd_characters_are_held_together():
    stream = redact.stream()
    shown = "".join(stream.feed(letter) for letter in "pw hunter2,the$ecret!") + stream.finish()
    assert shown == "pw [REDACTED]!"


def test_text_without_spaces_is_not_held_for_ever():
    stream = redact.stream()
    shown = sum(len(stream.feed("x" * 1000)) for _ in range(100))
    assert shown > 90_000
    token = "eyJ" + "a1" * 3000
    stream = redact.stream()
    shown = stream.feed(token[:4500]) + stream.feed(token[4500:]) + stream.feed(" end") + stream.finish()
    assert shown.endswith(" end")


def test_the_rest_of_a_very_long_secret_does_not_follow():
    stream = redact.stream()
    shown = stream.feed("ghp_" + "a1" * 3000) + stream.feed("b2" * 50) + stream.feed(" end") + stream.finish()
    assert shown == "[GITHUB_TOKEN_REDACTED] end"
