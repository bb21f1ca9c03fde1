"""Words and statuses of many servers, as kinds."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.models.failures import Wire, from_error, from_status
from tests.models.scripts import RELAXED

WIRE = Wire("anthropic/claude", "http://user:pw@h/v1?key=secret", "the-secret-key")


def classify(status: int, body: Any, **headers: str) -> str:
    return from_status(WIRE, status, headers, orjson.dumps(body)).kind


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "Requested tokens exceed context window of 4096",
        "This endpoint's maximum context length is 32768 tokens.",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "Please reduce the length of the messages or completion.",
    ],
)
@pytest.mark.parametrize("status", [400, 422, 500])
def test_overflow_in_each_servers_words(message: str, status: int) -> None:
    assert classify(status, {"error": {"message": message, "type": "invalid_request_error"}}) == "context_overflow"
    assert classify(429, {"error": {"message": message}}) == "rate_limit"
    assert from_error(WIRE, {"type": "invalid_request_error", "message": message}).kind == "context_overflow"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "rate_limit_error", "message": "x"}, "rate_limit"),
        ({"type": "api_error", "message": "x"}, "server"),
        ({"type": "authentication_error", "message": "x"}, "authentication"),
        ({"type": "permission_error", "message": "x"}, "authentication"),
        ({"type": "not_found_error", "message": "x"}, "not_found"),
        ({"type": "timeout_error", "message": "x"}, "timeout"),
        ({"type": "invalid_request_error", "message": "x"}, "invalid_request"),
        ({"code": "content_filter", "message": "x"}, "refused"),
        ({"code": 502, "message": "Provider returned error"}, "server"),
        ({"code": 429, "message": "x"}, "rate_limit"),
        ({"code": 503, "status": "UNAVAILABLE", "message": "x"}, "overloaded"),
        ({"message": "no idea"}, "server"),
        ("just words", "server"),
        (None, "server"),
    ],
)
def test_errors_in_the_middle_of_a_stream(error: Any, expected: str) -> None:
    assert from_error(WIRE, error).kind == expected


def test_an_empty_account_is_not_a_rate_limit() -> None:
    body = {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota"}}
    failure = from_status(WIRE, 429, {}, orjson.dumps(body))
    assert failure.kind == "authentication" and not failure.transient and "credit" in failure.remedy
    low = {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}
    assert "ANTHROPIC_API_KEY" in from_status(WIRE, 402, {}, orjson.dumps(low)).remedy


def test_remedies_name_what_to_do() -> None:
    assert "ANTHROPIC_API_KEY" in from_status(WIRE, 401, {}, b"").remedy
    assert "retinue models list" in from_status(WIRE, 404, {}, b"").remedy
    other = Wire("vllm/m", "http://h")
    assert "'vllm'" in from_status(other, 401, {}, b"").remedy
    moved = from_status(WIRE, 308, {"location": "https://new.example/v1?token=abc"}, b"")
    assert "https://new.example/v1" in moved.message and "abc" not in moved.message


@RELAXED
@given(st.sampled_from([200, 301, 400, 401, 404, 429, 500, 503, 529, 999]), st.binary(max_size=3000))
def test_any_body_gives_a_short_clean_failure(status: int, body: bytes) -> None:
    failure = from_status(WIRE, status, {"retry-after": body.decode("latin-1")}, body + b" the-secret-key")
    text = failure.message + failure.remedy
    assert len(text) < 1200 and "\n" not in text
    assert "the-secret-key" not in text and "pw" not in failure.remedy and "secret" not in failure.remedy
