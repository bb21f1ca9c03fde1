"""What went wrong with a request, as a `Failure`: from a status, an error object or the wire.

Statuses decide before words, so that a rate limit is never read as a full context window. Texts
are shortened and scrubbed: a message never holds a key or an Authorization header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from retinue.domain.failure import Failure, FailureKind
from retinue.domain.lean import dataclass
from retinue.models.address import display_url
from retinue.models.partial_json import parse_event
from retinue.models.retry_after import retry_after
from retinue.models.transport import TransportError

KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}

_LIMIT = 600

_OVERFLOW = (
    "prompt is too long",
    "input is too long",
    "context_length_exceeded",
    "context length exceeded",
    "maximum context length",
    "maximum prompt length",
    "exceed context limit",
    "exceeds the context",
    "exceed the context",
    "exceeds the available context",
    "exceed_context_size",
    "exceeds the maximum number of tokens",
    "exceeds the maximum allowed number of input tokens",
    "exceeds the model's context",
    "exceeds model context",
    "context window exceeds",
    "context window",
    "context the overflows",
    "context overflow",
    "too large for model with",
    "reduce the length of the messages",
    "reduce the length of the input",
    "reduce your prompt",
    "request_too_large",
    "too many tokens in the prompt",
)
_QUOTA = ("insufficient_quota", "billing", "credit balance", "insufficient balance", "enforced_spend_limit")

# First match wins; searched in the error's type, code and status words, never in its prose.
_WORDS: tuple[tuple[str, FailureKind], ...] = (
    ("overloaded", "overloaded"),
    ("unavailable", "overloaded"),
    ("insufficient_system_resource", "overloaded"),
    ("rate_limit", "rate_limit"),
    ("resource_exhausted", "rate_limit"),
    ("too_many_requests", "rate_limit"),
    ("authentication", "authentication"),
    ("unauthenticated", "authentication"),
    ("permission", "authentication"),
    ("invalid_api_key", "authentication"),
    ("billing", "authentication"),
    ("insufficient_quota", "authentication"),
    ("not_found", "not_found"),
    ("timeout", "timeout"),
    ("deadline_exceeded", "timeout"),
    ("content_filter", "refused"),
    ("content_policy", "refused"),
    ("policy_violation", "refused"),
    ("bio_policy", "refused"),
    ("invalid", "invalid_request"),
    ("failed_precondition", "invalid_request"),
    ("unsupported", "invalid_request"),
)

_SECRETS = (
    r"(?i)\b(?:sk|pk|rk|xai|gsk|key)-[A-Za-z0-9_*.\-]{8,}|\bAIza[0-9A-Za-z_\-]{20,}"
    r"|\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=\-]{8,}|(?:authorization|x-api-key|api-key|x-goog-api-key)\"?\s*[:=]\s*\S+"
)


@dataclass(frozen=True, slots=True)
class Wire:
    """What failures may name: who was asked, where, and which variable holds the key."""

    name: str
    url: str
    key: str | None = None
    key_variable: str | None = None

    @property
    def provider(self) -> str:
        return self.name.partition("/")[0]

    def scrub(self, text: str) -> str:
        """One line, short, and without secrets."""
        text = " ".join(text.split())
        if self.key and len(self.key) >= 4:
            text = text.replace(self.key, "[key]")
        text = re.sub(_SECRETS, "[redacted]", text)
        return text if len(text) <= _LIMIT else text[:_LIMIT].rstrip() + " …"


def from_status(wire: Wire, status: int, headers: Mapping[str, str], body: bytes, now: float | None = None) -> Failure:
    """An answer whose status is not success."""
    said, words, details = _read(body)
    kind = _kind(status, said.lower(), words)
    text = wire.scrub(said)
    failure = _failure(wire, kind, f"{wire.name} answered {status}" + (f": {text}" if text else "."), status)
    if kind == "authentication" and _no_credit(said, words):
        variable = wire.key_variable or KEY_VARIABLES.get(wire.provider) or "this key"
        return replace(failure, remedy=f"The account behind {variable} has no credit left.")
    if 300 <= status < 400:
        place = wire.scrub(display_url(headers.get("location", "elsewhere")))
        return replace(failure, message=f"{wire.name} answered {status}: moved to {place}.", remedy=_BASE_URL)
    if failure.transient:
        failure = replace(failure, retry_after=retry_after(headers, details, now))
    return failure


def from_error(wire: Wire, error: Any) -> Failure:
    """An error object in the middle of a stream that began well."""
    said, words, details = _parts(error)
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    kind = _kind(status, said.lower(), words)
    text = wire.scrub(said or words)
    failure = _failure(wire, kind, f"{wire.name} broke off: {text or 'without a reason'}", status)
    return replace(failure, retry_after=retry_after({}, details, None)) if failure.transient else failure


def from_transport(wire: Wire, error: TransportError) -> Failure:
    """No answer at all, or one that stopped on the way."""
    place = display_url(wire.url)
    text = wire.scrub(error.message)
    match error.problem:
        case "refused":
            remedy = f"Start the server, or correct the base URL of '{wire.provider}' ({place})."
            return Failure("dropped", text, remedy)
        case "unreachable":
            return Failure("dropped", text, f"Check the network, the proxy and the base URL of '{wire.provider}'.")
        case "certificate":
            remedy = "If your network re-signs traffic, name its certificate in SSL_CERT_FILE."
            return Failure("invalid_request", text, remedy)
        case "url":
            remedy = f"Correct the base URL, headers or key of '{wire.provider}'."
            return Failure("invalid_request", text, remedy)
        case "connect_timeout" | "idle":
            return Failure("timeout", text, "Try again; if it stays, the server is stuck.")
        case "dropped":
            return Failure("dropped", text)
        case "garbage":
            return Failure("malformed", text, _BASE_URL)


def malformed(wire: Wire, what: str) -> Failure:
    return Failure("malformed", f"{wire.name} sent {wire.scrub(what)}", _BASE_URL)


_BASE_URL = "Check that the base URL leads to the API of a model server."


def _failure(wire: Wire, kind: FailureKind, message: str, status: int | None) -> Failure:
    variable = wire.key_variable or KEY_VARIABLES.get(wire.provider)
    remedies: dict[FailureKind, str] = {
        "authentication": f"Set {variable} to a valid key." if variable else f"Check the key of '{wire.provider}'.",
        "rate_limit": "Wait, or run fewer agents at once.",
        "context_overflow": "Shorten the conversation, or use a model with a larger window.",
        "not_found": f"See the models with: retinue models list. The base URL is {display_url(wire.url)}.",
    }
    return Failure(kind, message, remedies.get(kind, ""), status)


def _kind(status: int | None, said: str, words: str) -> FailureKind:
    """The status first; words where several things share a status, or there is none."""
    if status == 429:
        return "authentication" if _no_credit(said, words) else "rate_limit"
    if status in (401, 402, 403):
        return "authentication"
    if status == 413 or any(phrase in said or phrase in words for phrase in _OVERFLOW):
        return "context_overflow"
    if status in (404, 405):
        return "not_found"
    if status in (503, 529):
        return "overloaded"
    if status in (408, 504):
        return "timeout"
    named = next((kind for word, kind in _WORDS if word in words), None)
    if status is not None and status >= 500:
        return named if named in ("overloaded", "rate_limit") else "server"
    if status is not None and status >= 400:
        return named if named in ("authentication", "not_found", "refused", "overloaded") else "invalid_request"
    if status is not None:
        return "invalid_request"
    return named or "server"


def _no_credit(said: str, words: str) -> bool:
    return any(word in f"{words} {said.lower()}" for word in _QUOTA)


def _read(body: bytes) -> tuple[str, str, Any]:
    """What an error body says, the words that classify it, and its details."""
    try:
        data = parse_event(body)
    except ValueError:
        text = body.decode("utf-8", "replace")
        looks_like_page = text.lstrip()[:1] == "<"
        return ("a web page, not an answer of an API" if looks_like_page else text), "", None
    if isinstance(data, list) and data:
        data = data[0]
    if isinstance(data, dict) and isinstance(data.get("error"), (dict, str)):
        return _parts(data["error"])
    return _parts(data)


def _parts(error: Any) -> tuple[str, str, Any]:
    if not isinstance(error, dict):
        return (str(error) if error is not None else ""), "", None
    said = next((error[key] for key in ("message", "detail", "msg", "error") if error.get(key)), "")
    words = " ".join(str(error[key]) for key in ("type", "code", "status") if error.get(key) is not None)
    return str(said), words.lower(), error.get("details")
