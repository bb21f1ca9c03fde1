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
    assert failure.kind == "quota" and not failure.transient and "credit" in failure.remedy
    low = {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}
    assert "ANTHROPIC_API_KEY" in from_status(WIRE, 402, {}, orjson.dumps(low)).remedy


CAUSES = [
    # who says it, status, body, kind, a word of the remedy
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is "
      "too low to access the Anthropic API."}}, "quota", "no credit left"),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "You have reached your "
      "specified API usage limits. You will regain access on 2026-08-01 at 00:00 UTC."}}, "quota", "spend limit"),
    ("anthropic", 429, {"type": "error", "error": {"type": "rate_limit_error", "message": "Rate limited", "details":
      {"error_code": "enforced_spend_limit_reached"}}}, "quota", "spend limit"),
    ("anthropic", 429, {"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed "
      "your account's monthly spend limit. Please try again later."}}, "quota", "spend limit"),
    ("openai", 401, {"error": {"message": "Incorrect API key provided: sk-proj-abcdefghijkl. You can find your API key"
      " at https://platform.openai.com/account/api-keys.", "type": "invalid_request_error", "code": "invalid_api_key"}},
      "authentication", "OPENAI_API_KEY"),
    ("openai", 403, {"error": {"code": "unsupported_country_region_territory", "message": "Country, region, or "
      "territory not supported", "param": None, "type": "request_forbidden"}}, "authentication", "does not serve"),
    ("openai", 404, {"error": {"message": "Your organization must be verified to use the model `gpt-6-astra`.", "type":
      "invalid_request_error", "code": "model_not_found"}}, "authentication", "Verify the organization"),
    ("gemini", 400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status":
      "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}, "authentication", "GEMINI_API_KEY"),
    ("gemini", 400, {"error": {"code": 400, "message": "API key expired. Please renew the API key.", "status":
      "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}, "authentication", "has expired"),
    ("gemini", 400, {"error": {"code": 400, "message": "User location is not supported for the API use.", "status":
      "FAILED_PRECONDITION"}}, "authentication", "does not serve"),
    ("openrouter", 402, {"error": {"message": "This request requires more credits, or fewer max_tokens. You requested "
      "up to 32000 tokens, but can only afford 0.", "code": 402}}, "quota", "no credit left"),
    ("openrouter", 403, {"error": {"message": "Key limit exceeded (total limit). Manage it using "
      "https://openrouter.ai/settings/keys", "code": 403}}, "quota", "spend limit"),
    ("deepseek", 402, {"error": {"message": "Insufficient Balance", "type": "unknown_error", "code":
      "invalid_request_error"}}, "quota", "no credit left"),
    ("moonshot", 401, {"error": {"message": "Invalid Authentication", "type": "invalid_authentication_error"}},
      "authentication", "api.moonshot.cn"),
    ("ollama", 400, {"error": {"message": "registry.ollama.ai/library/gemma3:latest does not support tools", "type":
      "api_error"}}, "invalid_request", "can call tools"),
    ("openai", 403, b"<!DOCTYPE html><title>Just a moment...</title>", "authentication", "firewall"),
    ("groq", 413, {"error": {"message": "Request too large for model `llama-3.3-70b` on tokens per minute (TPM): Limit "
      "6000, Requested 7193", "type": "tokens", "code": "rate_limit_exceeded"}}, "context_overflow", "tier"),
    ("moonshot", 400, {"error": {"message": "Invalid request: Your request exceeded model token limit: 262144 "
      "(requested: 269030)", "type": "invalid_request_error"}}, "context_overflow", "window"),
    ("qwen", 400, {"error": {"message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be "
      "[1, 204800]", "code": "invalid_parameter_error"}}, "context_overflow", "window"),
]  # fmt: skip
"""Texts as users reported them; `failures.py` names the reports."""


@pytest.mark.parametrize(("provider", "status", "body", "kind", "remedy"), CAUSES)
def test_what_is_wrong_with_a_key_an_account_or_a_model_is_named_with_its_remedy(
    provider: str, status: int, body: Any, kind: str, remedy: str
) -> None:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    failure = from_status(Wire(f"{provider}/m", "https://h/v1"), status, {}, data)
    assert failure.kind == kind
    assert remedy in failure.remedy
    assert not failure.transient, "no retry would help"
    assert "sk-proj" not in failure.message


def test_the_server_itself_says_whether_to_try_again() -> None:
    """The makers' SDKs obey x-should-retry and repeat a 409 (anthropic _base_client.py)."""
    body = orjson.dumps({"error": {"type": "api_error", "message": "x"}})
    assert not from_status(WIRE, 500, {"x-should-retry": "false"}, body).transient
    assert from_status(WIRE, 400, {"x-should-retry": "true"}, body).transient
    assert from_status(WIRE, 409, {}, body).transient


def test_a_limit_in_the_middle_of_a_stream_names_its_wait_in_prose() -> None:
    said = "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000. Please try again in 11.054s."
    failure = from_error(WIRE, {"type": "tokens", "code": "rate_limit_exceeded", "message": said})
    assert (failure.kind, failure.retry_after) == ("rate_limit", 11.054)


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


@pytest.mark.parametrize("status", [409, 500, 503, 529])
def test_a_server_that_fails_or_is_overloaded_comes_with_a_remedy(status: int) -> None:
    failure = from_status(WIRE, status, {}, b"{}")
    assert failure.kind in ("server", "overloaded") and "fallbackModels" in failure.remedy
