"""Failed requests as `Failure` values, from a status, an error object or an error of the transport.

`CAUSES` maps the words of providers to the kind of a failure and its remedy. The words are searched in the message,
type, code, status and details of an error, all in lower case, and the first row that matches is used. A row without a
kind keeps the kind that the status implies. `{key}` is the variable that holds the key, `{provider}` the provider's id.

A status has precedence over words, so that a rate limit is never read as a full context window. Messages are shortened,
and keys and Authorization headers are removed from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.outcome import Failure, FailureKind
from retinue.http.address import display_url
from retinue.http.transport import TransportError
from retinue.models.draft import parse_event
from retinue.models.retry import retry_after


class Cause(NamedTuple):
    """The words in which a provider names a cause, and its kind and remedy."""

    words: tuple[str, ...]
    kind: FailureKind | None
    remedy: str


_TOP_UP = "The account behind {key} has no credit left: add some at its provider, or use another key or model."
_RAISE = "The spend limit of {key} is reached: raise it at its provider, wait for its renewal, or use another model."
_RENEW = (
    "The key in {key} is wrong, of another resource, or a token that has expired: set a valid one, or let apiKeyHelper "
    "fetch it."
)
_REGION = "{provider} does not serve this place or account: use a provider that does, such as OpenRouter or Vertex."

CAUSES: tuple[Cause, ...] = (
    # ---------------------------------------------------------------- spend limits, before credit and rates
    # Anthropic: 429 with details.error_code (SDK 2.8 types); 400 with prose (screenpipe#5653, oh-my-pi#5418)
    Cause(("enforced_spend_limit", "specified api usage limits", "monthly spend limit"), "quota", _RAISE),
    # OpenRouter: 403 "Key limit exceeded (total limit)" (Roo-Code#515, MCPJam/inspector#1287)
    Cause(("key limit exceeded", "create a key with a higher"), "quota", _RAISE),
    # OpenAI: "billing_hard_limit_reached"; Cline's own code (cline#10207)
    Cause(("billing_hard_limit_reached", "spend_limit_exceeded", "spending limit"), "quota", _RAISE),
    # Gemini: 429 with the limit of a project (ai.google.dev "Rate limits", spend-based; the text is from memory)
    Cause(("monthly spending cap", "project spend cap"), "quota", _RAISE),
    # ---------------------------------------------------------------- no credit
    # Anthropic: a 400 (pydantic-ai anthropic/_errors.py); OpenAI: 429 insufficient_quota
    Cause(("credit balance is too low", "credit balance", "insufficient_quota"), "quota", _TOP_UP),
    # DeepSeek: 402 "Insufficient Balance"; OpenRouter: 402 "requires more credits" (opencode#12219)
    Cause(("insufficient balance", "requires more credits", "more credits are required"), "quota", _TOP_UP),
    # z.ai: 1113 "Insufficient balance or no resource package"; Moonshot: exceeded_current_quota_error
    Cause(("no resource package", "exceeded_current_quota", "insufficient_credits"), "quota", _TOP_UP),
    # Gemini: 429 "Your prepayment credits are depleted." (discuss.ai.google.dev/t/170539)
    Cause(("prepayment credits are depleted",), "quota", _TOP_UP),
    Cause(("billing_error", "billing_not_active", "payment required"), "quota", _TOP_UP),
    # ---------------------------------------------------------------- places and accounts
    # OpenAI: 403 unsupported_country_region_territory; Gemini: 400 FAILED_PRECONDITION
    Cause(("unsupported_country_region_territory", "user location is not supported"), "authentication", _REGION),
    # Anthropic: 403 forbidden "Request not allowed" (claude-code#453, #1613, agent.exe#15: countries and networks)
    Cause(("request not allowed",), "authentication", _REGION),
    # OpenAI: 403/404 "Your organization must be verified to use the model"
    Cause(
        ("organization must be verified", "verify organization"),
        "authentication",
        "Verify the organization at platform.openai.com/settings/organization, or use a model that needs no check.",
    ),
    # ---------------------------------------------------------------- keys
    # Azure: 401 for a wrong key and for an old token of Entra alike (langchain#17373, azure-search-openai-demo#458)
    Cause(("access token is missing, invalid",), "authentication", _RENEW),
    # Gemini says 400 for a bad or old key: API_KEY_INVALID
    Cause(("api key expired", "token has expired", "token expired", "expired_api_key"), "authentication", "expired"),
    # AWS: ExpiredTokenException "The security token included in the request is expired" (botocore)
    Cause(("expiredtoken", "security token included in the request is expired"), "authentication", "expired"),
    Cause(("api_key_invalid", "api key not valid", "invalid api key", "incorrect api key"), "authentication", ""),
    # ---------------------------------------------------------------- models
    # Ollama: 400 "registry.ollama.ai/library/gemma3:latest does not support tools"
    Cause(
        ("does not support tools", "tool use is not supported", "no endpoints found that support tool use"),
        "invalid_request",
        "Use a model that can call tools (`ollama show MODEL` lists its capabilities), or an agent without tools.",
    ),
)

OVERFLOW: tuple[str, ...] = (
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
    # Kimi (kimi-cli#2011)
    "exceeded model token limit",
    # LM Studio (pi overflow.ts)
    "greater than the context length",
    # GitHub Copilot (pi overflow.ts)
    "exceeds the limit of",
    # Qwen (qwen-code#98)
    "range of input length",
    # GLM at Volcano (dify#32221)
    "exceeds the maximum length",
    # Z.ai, code 1261.
    "prompt exceeds max length",
    # OpenRouter (opencode#12219)
    "prompt tokens limit exceeded",
)

KIND_WORDS: tuple[tuple[str, FailureKind], ...] = (
    ("overloaded", "overloaded"),
    ("unavailable", "overloaded"),
    ("insufficient_system_resource", "overloaded"),
    # Z.ai.
    ("network_error", "server"),
    ("rate_limit", "rate_limit"),
    ("resource_exhausted", "rate_limit"),
    ("too_many_requests", "rate_limit"),
    ("authentication", "authentication"),
    ("unauthenticated", "authentication"),
    ("permission", "authentication"),
    ("invalid_api_key", "authentication"),
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
"""Words in the type, code and status of an error, but not in its message. The first match is used."""

OTHER_REGION: dict[str, str] = {
    "moonshot": "https://api.moonshot.cn/v1",
    "qwen": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "minimax": "https://api.minimaxi.com/v1",
    "zai": "https://open.bigmodel.cn/api/paas/v4",
}
"""Providers with two services that refuse each other's keys."""


_KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}

_MAX_MESSAGE_CHARACTERS = 600

_SECRETS = (
    r"(?i)\b(?:sk|pk|rk|xai|gsk|key)-[A-Za-z0-9_*.\-]{8,}|\bAIza[0-9A-Za-z_\-]{20,}"
    r"|\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=\-]{8,}|(?:authorization|x-api-key|api-key|x-goog-api-key)\"?\s*[:=]\s*\S+"
)


class Wire(Struct, frozen=True):
    """The server of a model, for messages about failures. `name` is that of the model."""

    name: str
    url: str
    key: str | None = None
    key_variable: str | None = None

    @property
    def provider(self) -> str:
        return self.name.partition("/")[0]

    def scrub(self, text: str) -> str:
        """Return a text on one line, shortened and without secrets."""
        text = " ".join(text.split())
        if self.key and len(self.key) >= 4:
            text = text.replace(self.key, "[key]")
        text = re.sub(_SECRETS, "[redacted]", text)
        if len(text) <= _MAX_MESSAGE_CHARACTERS:
            return text
        return text[:_MAX_MESSAGE_CHARACTERS].rstrip() + " …"


def from_status(wire: Wire, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """Return the failure for a response whose status is not a success."""
    message, words, details = _read(body)
    if status < 300:
        return Failure("invalid_request", f"{wire.name} answered {status} without an answer.", _BASE_URL, status)
    if status < 400:
        address = wire.scrub(display_url(headers.get("location", "elsewhere")))
        return Failure("invalid_request", f"{wire.name} answered {status}: moved to {address}.", _BASE_URL, status)
    text = wire.scrub(message)
    sentence = f"{wire.name} answered {status}" + (f": {text}" if text else ".")
    failure = _failure(wire, sentence, status, message, words, details)
    if status == 403 and body.lstrip()[:1] == b"<":
        failure = replace(failure, remedy=_BLOCKED)
    if failure.kind == "not_found" and body.lstrip()[:1] not in (b"", b"{", b"["):
        # The answer is not that of a model server: the address is wrong, and not the name of the model.
        failure = replace(failure, remedy=f"{_BASE_URL} It is {display_url(wire.url)}.")
    again = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())
    if again is not None and failure.kind not in ("quota", "authentication", "context_overflow"):
        failure = replace(failure, again=again)
    if failure.transient:
        failure = replace(failure, retry_after=retry_after(headers, details, None, message))
    return failure


def from_error(wire: Wire, error: Any) -> Failure:
    """Return the failure for an error object in the middle of a stream."""
    message, words, details = _parts(error)
    status = None
    if isinstance(error, dict) and isinstance(error.get("code"), int) and 400 <= error["code"] < 600:
        status = error["code"]
    text = wire.scrub(message or words)
    failure = _failure(wire, f"{wire.name} broke off: {text or 'without a reason'}", status, message, words, details)
    if failure.transient:
        return replace(failure, retry_after=retry_after({}, details, None, message))
    return failure


def from_transport(wire: Wire, error: TransportError) -> Failure:
    """Return the failure for a request without a response, or with an incomplete one."""
    address = display_url(wire.url)
    text = wire.scrub(error.message)
    match error.problem:
        case "refused":
            remedy = f"Start the server, or correct the base URL of '{wire.provider}' ({address})."
            return Failure("dropped", text, remedy)
        case "proxy":
            remedy = "Correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or name the host in NO_PROXY."
            return Failure("dropped", text, remedy, again=error.passing)
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


def malformed(wire: Wire, what: str, *, again: bool | None = None) -> Failure:
    return Failure("malformed", f"{wire.name} sent {wire.scrub(what)}", _BASE_URL, again=again)


_BASE_URL = "Check that the base URL leads to the API of a model server."
_BLOCKED = (
    "Something between here and the provider answered (a firewall, a VPN, a bot check): try from another network, "
    "and check the proxy and the base URL."
)


def _failure(wire: Wire, message: str, status: int | None, text: str, words: str, details: Any) -> Failure:
    """Return a failure. Its kind follows from the status and the words, its remedy from the cause that they name."""
    everything = f"{text} {words} {_flat(details)}".lower()
    cause = _find_cause(everything)
    kind = _kind(status, text.lower(), words)
    if cause is not None and cause.kind is not None and kind != "context_overflow":
        kind = cause.kind
    key = wire.key_variable or _KEY_VARIABLES.get(wire.provider) or f"the key of '{wire.provider}'"
    remedy = _remedy(wire, kind, key)
    if cause is not None and cause.kind == kind:
        named = f"The key in {key} has expired: make a new one." if cause.remedy == "expired" else cause.remedy
        remedy = named.format(key=key, provider=wire.provider) or remedy
    if kind == "context_overflow" and "tokens per minute" in everything:
        remedy = "One request exceeds the tokens per minute of this account: raise its tier, or use another model."
    return Failure(kind, message, remedy, status)


def _find_cause(text: str) -> Cause | None:
    for cause in CAUSES:
        for word in cause.words:
            if word in text:
                return cause
    return None


def _remedy(wire: Wire, kind: FailureKind, key: str) -> str:
    match kind:
        case "authentication":
            variable = wire.key_variable or _KEY_VARIABLES.get(wire.provider)
            remedy = f"Set {key} to a valid key." if variable else f"Check {key}."
            if other := OTHER_REGION.get(wire.provider):
                setting = f"providers.{wire.provider}.baseUrl"
                remedy += f" A key of {display_url(other)} works only there: set it as {setting}."
            return remedy
        case "quota":
            return f"The account behind {key} may not spend more: add credit, raise its limit, or use another key."
        case "rate_limit":
            return "Wait, or run fewer agents at once."
        case "server" | "overloaded":
            return "It may pass: go on later, or name models that take over in the setting fallbackModels."
        case "context_overflow":
            return "Shorten the conversation, or use a model with a larger window."
        case "not_found":
            return f"See the models with: retinue models list. The base URL is {display_url(wire.url)}."
        case _:
            return ""


def _kind(status: int | None, message: str, words: str) -> FailureKind:
    """Return the kind by status; by words where several things share a status, or none came."""
    if status == 429:
        return "rate_limit"
    if status == 402:
        return "quota"
    if status in (401, 403, 407):
        return "authentication"
    if status == 413 or any(phrase in message or phrase in words for phrase in OVERFLOW):
        # Groq says 413 "… on tokens per minute (TPM): Limit 6000, Requested 7193 …" to one that never fits.
        match = re.search(r"limit (\d+).*?requested (\d+)", message)
        if "tokens per minute" in message and match is not None and int(match[2]) <= int(match[1]):
            return "rate_limit"
        return "context_overflow"
    if status in (404, 405, 501):
        return "not_found"
    if status in (503, 529):
        return "overloaded"
    if status in (408, 504):
        return "timeout"
    if status == 409:
        # A lock was not free in time: the providers' SDKs retry this.
        return "server"
    return _kind_by_words(status, words)


def _kind_by_words(status: int | None, words: str) -> FailureKind:
    """Return the kind that the words of an error name, if the status leaves it open."""
    named = None
    for word, kind in KIND_WORDS:
        if word in words:
            named = kind
            break
    if status is None:
        return named or "server"
    if status >= 500:
        if named in ("overloaded", "rate_limit"):
            return named
        return "server"
    if status >= 400 and named in ("authentication", "not_found", "refused", "overloaded"):
        return named
    return "invalid_request"


def _flat(details: Any) -> str:
    """Return the texts anywhere inside an error's details."""
    if isinstance(details, dict):
        details = list(details.values())
    if isinstance(details, list):
        return " ".join(_flat(value) for value in details[:20])
    if isinstance(details, str):
        return details[:200]
    return ""


def _read(body: bytes) -> tuple[str, str, Any]:
    """Return the message of an error body, the words that classify it, and its details."""
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
    message = error.get("message") or error.get("detail") or error.get("msg") or error.get("error") or ""
    words = " ".join(str(error[key]) for key in ("type", "code", "status") if error.get(key) is not None)
    return str(message), words.lower(), error.get("details") or error.get("metadata")
