"""The words in which providers name the cause of a failure, and what a person can do about it.

A row of `CAUSES` is looked for in the error's message, type, code, status and details, all in lower
case. The first row that matches wins; a row without a kind keeps the kind that the status implies.
`{key}` is the variable that holds the key, `{provider}` the provider's id.
"""

from __future__ import annotations

from typing import NamedTuple

from retinue.core.outcome import FailureKind


class Cause(NamedTuple):
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

WORDS: tuple[tuple[str, FailureKind], ...] = (
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
"""First match wins; searched in the error's type, code and status words, never in its prose."""

OTHER_REGION: dict[str, str] = {
    "moonshot": "https://api.moonshot.cn/v1",
    "qwen": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "minimax": "https://api.minimaxi.com/v1",
    "zai": "https://open.bigmodel.cn/api/paas/v4",
}
"""Providers with two services that refuse each other's keys."""
