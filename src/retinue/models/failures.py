"""What went wrong with a request, as a `Failure`: from a status, an error object or the wire.

Statuses decide before words, so that a rate limit is never read as a full context window. Texts
are shortened and scrubbed: a message never holds a key or an Authorization header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.outcome import Failure, FailureKind
from retinue.http.address import display_url
from retinue.http.transport import TransportError
from retinue.models.draft import parse_event
from retinue.models.failure_causes import CAUSES, OTHER_REGION, OVERFLOW, WORDS, Cause
from retinue.models.retry import retry_after

_KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}

_LIMIT = 600

_SECRETS = (
    r"(?i)\b(?:sk|pk|rk|xai|gsk|key)-[A-Za-z0-9_*.\-]{8,}|\bAIza[0-9A-Za-z_\-]{20,}"
    r"|\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=\-]{8,}|(?:authorization|x-api-key|api-key|x-goog-api-key)\"?\s*[:=]\s*\S+"
)


class Wire(Struct, frozen=True):
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
        if len(text) <= _LIMIT:
            return text
        return text[:_LIMIT].rstrip() + " …"


def from_status(wire: Wire, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """Return the failure for an answer whose status is not success."""
    said, words, details = _read(body)
    if status < 300:
        return Failure("invalid_request", f"{wire.name} answered {status} without an answer.", _BASE_URL, status)
    if status < 400:
        place = wire.scrub(display_url(headers.get("location", "elsewhere")))
        message = f"{wire.name} answered {status}: moved to {place}."
        return Failure("invalid_request", message, _BASE_URL, status)
    text = wire.scrub(said)
    message = f"{wire.name} answered {status}" + (f": {text}" if text else ".")
    failure = _failure(wire, message, status, said, words, details)
    if status == 403 and body.lstrip()[:1] == b"<":
        failure = replace(failure, remedy=_BLOCKED)
    if failure.kind == "not_found" and body.lstrip()[:1] not in (b"", b"{", b"["):
        # Nothing that speaks for a model: the address is wrong, not the model's name.
        failure = replace(failure, remedy=f"{_BASE_URL} It is {display_url(wire.url)}.")
    again = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())
    if again is not None and failure.kind not in ("quota", "authentication", "context_overflow"):
        failure = replace(failure, again=again)
    if failure.transient:
        failure = replace(failure, retry_after=retry_after(headers, details, None, said))
    return failure


def from_error(wire: Wire, error: Any) -> Failure:
    """Return the failure for an error object in the middle of a stream that began well."""
    said, words, details = _parts(error)
    status = None
    if isinstance(error, dict) and isinstance(error.get("code"), int) and 400 <= error["code"] < 600:
        status = error["code"]
    text = wire.scrub(said or words)
    failure = _failure(wire, f"{wire.name} broke off: {text or 'without a reason'}", status, said, words, details)
    if failure.transient:
        return replace(failure, retry_after=retry_after({}, details, None, said))
    return failure


def from_transport(wire: Wire, error: TransportError) -> Failure:
    """No answer at all, or one that stopped on the way."""
    place = display_url(wire.url)
    text = wire.scrub(error.message)
    match error.problem:
        case "refused":
            remedy = f"Start the server, or correct the base URL of '{wire.provider}' ({place})."
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


def _failure(wire: Wire, message: str, status: int | None, said: str, words: str, details: Any) -> Failure:
    """Return the failure: its kind by status and words, its remedy by the cause that the provider names."""
    everything = f"{said} {words} {_flat(details)}".lower()
    cause = _find_cause(everything)
    kind = _kind(status, said.lower(), words)
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
            known = wire.key_variable or _KEY_VARIABLES.get(wire.provider)
            remedy = f"Set {key} to a valid key." if known else f"Check {key}."
            if other := OTHER_REGION.get(wire.provider):
                place = f"providers.{wire.provider}.baseUrl"
                remedy += f" A key of {display_url(other)} works only there: set it as {place}."
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


def _kind(status: int | None, said: str, words: str) -> FailureKind:
    """Return the kind by status; by words where several things share a status, or none came."""
    if status == 429:
        return "rate_limit"
    if status == 402:
        return "quota"
    if status in (401, 403, 407):
        return "authentication"
    if status == 413 or any(phrase in said or phrase in words for phrase in OVERFLOW):
        # Groq says 413 "… on tokens per minute (TPM): Limit 6000, Requested 7193 …" to one that never fits.
        found = re.search(r"limit (\d+).*?requested (\d+)", said)
        if "tokens per minute" in said and found is not None and int(found[2]) <= int(found[1]):
            return "rate_limit"
        return "context_overflow"
    if status in (404, 405, 501):
        return "not_found"
    if status in (503, 529):
        return "overloaded"
    if status in (408, 504):
        return "timeout"
    if status == 409:
        # A lock that was not free in time: the makers' SDKs repeat it.
        return "server"
    return _kind_by_words(status, words)


def _kind_by_words(status: int | None, words: str) -> FailureKind:
    """Return the kind that the words of an error name, if the status leaves it open."""
    named = None
    for word, kind in WORDS:
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
    """Codes and reasons inside an error's details, wherever the provider put them."""
    if isinstance(details, dict):
        details = list(details.values())
    if isinstance(details, list):
        return " ".join(_flat(value) for value in details[:20])
    if isinstance(details, str):
        return details[:200]
    return ""


def _read(body: bytes) -> tuple[str, str, Any]:
    """Return what an error body says, the words that classify it, and its details."""
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
    said = error.get("message") or error.get("detail") or error.get("msg") or error.get("error") or ""
    words = " ".join(str(error[key]) for key in ("type", "code", "status") if error.get(key) is not None)
    return str(said), words.lower(), error.get("details") or error.get("metadata")
