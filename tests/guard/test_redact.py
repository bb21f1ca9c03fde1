"""Secrets never get through, nothing else changes, and no input makes it slow (AA09, guarantee 12)."""

import json
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.events import AssistantEnded, MessageAdded, RunCreated, ToolEnded, TurnEnded
from retinue.core.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResult, user
from retinue.core.permission import ToolEffect
from retinue.core.usage import Usage
from retinue.guard.redact import Redactor, contains_secret

S26 = "abcdefghijklmnopqrstuvwxyz"
S32 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
redact = Redactor()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"api_key={S32}", "api_key=[REDACTED]"),
        (f"access-token: '{S32}'", "access-token=[REDACTED]"),
        (f'auth_token = "{S32}"', "auth_token=[REDACTED]"),
        (f"secret_key:{S32}", "secret_key=[REDACTED]"),
        (f"AWS_SECRET_ACCESS_KEY={S32}", "AWS_SECRET_ACCESS_KEY=[REDACTED]"),
        (f"AWS_ACCESS_KEY_ID: {S32[:20]}", "AWS_ACCESS_KEY_ID=[REDACTED]"),
        (f"OPENAI_API_KEY={S32}", "OPENAI_API_KEY=[REDACTED]"),
        ("STRIPE_KEY='rk_l1ve_22'", "STRIPE_KEY=[REDACTED]"),
        ("Authorization: x", "Authorization: [REDACTED]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: [REDACTED]"),
        ("Authorization: Bearer a.b.c\nNext: 1", "Authorization: [REDACTED]\nNext: 1"),
        ("Bearer a.b.c", "Bearer [REDACTED]"),
        ("ghp_" + "a1" * 18, "[GITHUB_TOKEN_REDACTED]"),
        ("gho_" + "Z9" * 18 + ".", "[GITHUB_TOKEN_REDACTED]."),
        (f"https://x.example/?a=1&token={S26}", "https://x.example/?a=1&token=[REDACTED]"),
        (f"export FOO={S26}", "[ENV_VAR_REDACTED]"),
    ],
)
def test_the_patterns_of_the_seed(text, expected):
    assert redact(text) == expected


SHAPES = [
    "sk-ant-api03-" + S32,
    "sk-proj-" + S32,
    "AIza" + S32 + "abc",
    "xoxb-123456789012-" + S26,
    "github_pat_11" + S32,
    "AKIAABCDEFGHIJ123456",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
    "glpat-" + S32,
    "hf_" + S32,
    "npm_" + S32 + "abcd",
    "gsk_" + S32 + "01234567",
    "ya29." + S32,
    "sk_live_" + S26,
]


@pytest.mark.parametrize("secret", SHAPES)
@pytest.mark.parametrize("frame", ["{}", "key {} end", '"{}"', "a={}&b", "\n{}\n", "({})", "x\\n{}\\n", "`{}`,"])
def test_known_shapes_are_hidden_wherever_they_stand(secret, frame):
    text = frame.format(secret)
    assert secret not in redact(text)
    assert contains_secret(text)
    assert redact(redact(text)) == redact(text)


def test_private_keys_go_whole_and_leave_the_rest():
    key = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\n" + "MIIEow" * 40 + "\n-----END RSA PRIVATE KEY-----"
    assert redact(f"before\n{key}\nafter") == "before\n[PRIVATE_KEY_REDACTED]\nafter"
    cut = "-----BEGIN PRIVATE KEY-----\n" + ("A1b2" * 16 + "\n") * 3 + "A1b2A1b2=\n"
    assert redact(cut + "then words") == "[PRIVATE_KEY_REDACTED]\nthen words"
    assert "code = 1" in redact('if "-----BEGIN PRIVATE KEY-----" in text: code = 1')


def test_passwords_in_addresses():
    assert redact("postgres://me:hunter2@db:5432/x") == "postgres://[REDACTED]@db:5432/x"
    assert redact("redis://:hunter2@h") == "redis://[REDACTED]@h"
    assert redact("see https://example.org/a:b and c@d") == "see https://example.org/a:b and c@d"


@pytest.mark.parametrize(
    "text",
    [
        "plain output",
        "a task-0123456789abcdef0123456789",
        "api_key = os.environ['OPENAI_API_KEY']",
        "access_token = refresh_the_access_token_for_user(name)",
        "use a Bearer token in the Authorization header",
        "SORT_KEY = 'created_at'",
        "src/retinue/log/store.py:120: self._reader = Reader.open(self.folder)",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "git checkout 0123456789abcdef0123456789abcdef01234567",
        "export PATH=$HOME/bin:/usr/bin",
        "MAX_TOKENS = 4096",
        "a.eyJ",
    ],
)
def test_ordinary_text_stays_the_very_same_object(text):
    assert redact(text) is text


def test_the_detector_is_looser_than_the_redactor():
    assert contains_secret("api_key=maybe")
    assert not contains_secret("plain output")
    assert not contains_secret("api_key=[REDACTED]")
    assert not contains_secret(redact(f"api_key={S32} Bearer {S32} OPENAI_API_KEY={S32}"))


def test_values_of_secret_variables_are_known_by_heart():
    known = Redactor(
        {
            "MY_TOKEN": 'p4$$"w\\rd',
            "DB_PASSWORD": "correct-horse-battery",
            "CI_KEY": "short",
            "GOOGLE_APPLICATION_CREDENTIALS": "/home/u/key.json",
            "LANG": "en_US.UTF-8-and-more",
            "ANTHROPIC_API_KEY": "scripted",
        }
    )
    assert known('say p4$$"w\\rd now') == "say [REDACTED] now"
    assert known('{"a": "p4$$\\"w\\\\rd"}') == '{"a": "[REDACTED]"}'
    assert known("correct-horse-battery") == "[REDACTED]"
    text = "short /home/u/key.json en_US.UTF-8-and-more scripted"
    assert known(text) is text


def test_halves_of_characters_survive():
    assert redact(f"\ud83d api_key={S32} \udc00") == "\ud83d api_key=[REDACTED] \udc00"


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.integers(-(2**63), 2**63),
        st.text(max_size=12),
        st.sampled_from([f"api_key={S32}", f"x 'access_token': '{S32}' y", f"Bearer {S32}", *SHAPES]),
        st.sampled_from([f'{{"api_key": "{S32}", "n": [1]}}', f'auth_token="{S32}"', f"auth_token='{S32}", S32]),
        st.sampled_from([f"export A={S32}", f"export A='{S32}", "Authorization: x", '"Authorization": "Basic ab"']),
        st.sampled_from([f"TOKEN={S32}", f'"API_KEY":"{S32}', "https://u:pw@h/?key=" + S32, "\\", '"', "\\\\n"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.text(max_size=6), st.sampled_from(["api_key", "token", "password"])), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@given(JSON, st.integers(0, 2))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_JSON_stays_JSON_and_twice_is_once(value, layers):
    text = json.dumps(value)
    for _ in range(layers):
        text = json.dumps({"inner": text})
    clean = redact(text)
    json.loads(clean)
    assert redact(clean) == clean
    assert not any(secret in clean for secret in SHAPES)


@given(JSON)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_body_is_clean_in_whatever_form_it_is_looked_at(value):
    body = RunCreated("a", "task", {"value": value}, "h", "m", "/w")
    clean = redact.body(body, msgspec.json.encode(body))
    text = json.dumps(clean.spec)
    assert not any(secret in text for secret in SHAPES)
    again = redact.body(clean, msgspec.json.encode(clean))
    assert again == clean


def test_bodies_lose_secrets_everywhere_but_in_what_providers_need_back():
    signature = "sk-ant-api03-" + S32
    body = AssistantEnded(
        1,
        AssistantMessage(
            (
                Thinking(f"api_key={S32}", signature),
                Text(f"Bearer {S32}"),
                ToolCall(
                    "c1",
                    "bash",
                    {"command": f"curl -H 'Authorization: {S32}'", "signature": signature},
                    None,
                    signature,
                ),
            ),
            "tool_use",
        ),
    )
    clean = redact.body(body, msgspec.json.encode(body))
    thinking, text, call = clean.message.content
    assert (thinking.text, thinking.signature) == ("api_key=[REDACTED]", signature)
    assert text.text == "Bearer [REDACTED]"
    assert call.arguments == {"command": "curl -H 'Authorization: [REDACTED]'", "signature": "[REDACTED]"}
    assert call.signature == signature
    image = ToolEnded("c", "read", ToolResult("c", "read", (Image("image/png", signature),)), ToolEffect(), 1)
    assert redact.body(image, msgspec.json.encode(image)).result.content[0].data == signature


def test_members_are_hidden_by_their_name():
    body = RunCreated("a", "t", {"servers": [{"env": {"GITHUB_TOKEN": "abcd1234efgh", "MODE": "fast"}}]}, "h", "m", "/")
    clean = redact.body(body, msgspec.json.encode(body))
    assert clean.spec["servers"][0]["env"] == {"GITHUB_TOKEN": "[REDACTED]", "MODE": "fast"}


def test_a_clean_body_stays_the_very_same_object():
    for body in (MessageAdded(user("hello\nworld")), TurnEnded(1, Usage(), Usage())):
        assert redact.body(body, msgspec.json.encode(body)) is body


ADVERSARIES = {
    "letters": "a" * 10**6,
    "capitals": "A_" * 500_000,
    "names": "api_key=" * 125_000,
    "spaced names": 'api_key" ' * 110_000,
    "spaces": "api_key" + " " * 10**6,
    "escapes": "api_key=\\" * 110_000,
    "tabs": "api_key" + "\\t" * 500_000,
    "blocks": "-----BEGIN " * 90_000,
    "keys without end": "-----BEGIN PRIVATE KEY-----" * 38_000,
    "key then letters": "-----BEGIN PRIVATE KEY-----" + "A" * 10**6,
    "half tokens": "eyJaaaaaaaaaa." * 70_000,
    "prefixes": "sk-" * 333_333,
    "addresses": "://a:" * 200_000,
    "long address": "://" + "a" * 10**6,
    "bearers": "bearer " * 140_000,
    "authorizations": "authorization: " * 66_000,
    "quotes": '\\"' * 500_000,
    "queries": "?token=" * 140_000,
    "exports": "export A=" * 110_000,
}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_no_megabyte_takes_long(name):
    """Quadratic behaviour would take hours of processor time, on any machine."""
    begin = time.process_time()
    once = redact(ADVERSARIES[name])
    assert redact(once) == once
    contains_secret(ADVERSARIES[name])
    assert time.process_time() - begin < 60
