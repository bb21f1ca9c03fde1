"""A key that is wrong, expired, without credit, over its cap or for another region, and a server that is none: each
names the cause in the provider's words and what to do, at once, in the outcome, on the terminal and as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from retinue import Retinue
from tests.fork_server import run_program
from tests.models.servers import Reply, Server, failing, listening, raw_server

KEYS = {
    **{f"{name}_API_KEY": "key-secret-123" for name in ("ANTHROPIC", "OPENAI", "GEMINI", "DEEPSEEK", "OPENROUTER")},
    **{f"{name}_API_KEY": "key-secret-123" for name in ("XAI", "AZURE_OPENAI", "GROQ", "MOONSHOT", "ZAI", "DASHSCOPE")},
    "MINIMAX_API_KEY": "key-secret-123",
}
VARIABLES = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "gemini": "GEMINI_BASE_URL",
    "azure": "AZURE_OPENAI_ENDPOINT",
}


class Bad(NamedTuple):
    """What a server answers, the kind of failure it is, and words of the remedy. `said`: words of the message."""

    what: str
    model: str
    reply: Reply
    kind: str
    said: str
    remedy: str


def anthropic(status: int, type: str, message: str, **more: Any) -> Reply:
    return failing(status, {"type": "error", "error": {"type": type, "message": message, **more}})


def openai(status: int, message: str, code: str | None = None) -> Reply:
    return failing(status, {"error": {"message": message, "type": "invalid_request_error", "code": code}})


def gemini(status: int, message: str, name: str, **more: Any) -> Reply:
    return failing(status, {"error": {"code": status, "message": message, "status": name, **more}})


def text(status: int, body: bytes, type: str) -> Reply:
    return Reply([body], status, {"content-type": type}, "length")


CLAUDE, GPT, FLASH, ROUTED = (
    "anthropic/claude-sonnet-5-5",
    "openai/gpt-4.1",
    "gemini/gemini-3.8-flash",
    "openrouter/anthropic/claude-sonnet-5.5",
)
CREDIT, CAP, BASE = "has no credit left", "The spend limit of", "Check that the base URL leads to the API of a model"
INVALID = {"details": [{"reason": "API_KEY_INVALID"}]}
ENTRA = (
    "Unauthorized. Access token is missing, invalid, audience is incorrect (https://cognitiveservices.azure.com), "
    "or have expired."
)
PAGE = b"<!DOCTYPE html><html><body>Welcome to nginx!</body></html>"
CASES = (
    # The sources of the texts stand beside their rows in failures.py.
    Bad(
        "wrong",
        CLAUDE,
        anthropic(401, "authentication_error", "invalid x-api-key"),
        "authentication",
        "invalid x-api",
        "Set ANTHROPIC_API_KEY to a valid key.",
    ),
    Bad(
        "wrong",
        GPT,
        openai(401, "Incorrect API key provided: sk-abc.", "invalid_api_key"),
        "authentication",
        "Incorrect API key",
        "Set OPENAI_API_KEY",
    ),
    Bad(
        "wrong",
        FLASH,
        gemini(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", **INVALID),
        "authentication",
        "API key not valid",
        "Set GEMINI_API_KEY",
    ),
    Bad(
        "wrong",
        "xai/grok-4.7",
        failing(400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***zz."}),
        "authentication",
        "Incorrect API key",
        "Set XAI_API_KEY",
    ),
    Bad(
        "expired",
        FLASH,
        gemini(400, "API key expired. Please renew the API key.", "INVALID_ARGUMENT", **INVALID),
        "authentication",
        "API key expired",
        "GEMINI_API_KEY has expired: make a new one",
    ),
    Bad(
        "expired",
        "groq/qwen/qwen3-32b",
        openai(401, "Expired API Key", "expired_api_key"),
        "authentication",
        "Expired API Key",
        "GROQ_API_KEY has expired",
    ),
    Bad(
        "expired",
        "azure/gpt-4.1",
        failing(401, {"statusCode": 401, "message": ENTRA}),
        "authentication",
        "have expired",
        "let apiKeyHelper fetch it",
    ),
    Bad(
        "no credit",
        CLAUDE,
        anthropic(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
        "quota",
        "credit balance",
        CREDIT,
    ),
    Bad(
        "no credit",
        GPT,
        openai(429, "You exceeded your current quota, please check your plan.", "insufficient_quota"),
        "quota",
        "current quota",
        CREDIT,
    ),
    Bad(
        "no credit",
        FLASH,
        gemini(429, "Your prepayment credits are depleted. Please go to AI Studio.", "RESOURCE_EXHAUSTED"),
        "quota",
        "prepayment",
        CREDIT,
    ),
    Bad(
        "no credit",
        "deepseek/deepseek-v4-pro",
        openai(402, "Insufficient Balance"),
        "quota",
        "Insufficient Balance",
        CREDIT,
    ),
    Bad(
        "no credit",
        ROUTED,
        openai(402, "This request requires more credits, or fewer max_tokens."),
        "quota",
        "requires more credits",
        CREDIT,
    ),
    Bad(
        "no credit",
        "zai/glm-5.3",
        openai(429, "Insufficient balance or no resource package. Please recharge.", "1113"),
        "quota",
        "no resource package",
        CREDIT,
    ),
    Bad(
        "cap",
        CLAUDE,
        anthropic(400, "invalid_request_error", "You have reached your specified API usage limits."),
        "quota",
        "usage limits",
        CAP,
    ),
    Bad(
        "cap",
        CLAUDE,
        anthropic(
            429,
            "rate_limit_error",
            "This would exceed your limit.",
            details={"error_code": "enforced_spend_limit_reached"},
        ),
        "quota",
        "exceed",
        CAP,
    ),
    Bad("cap", ROUTED, openai(403, "Key limit exceeded (total limit)."), "quota", "Key limit exceeded", CAP),
    Bad(
        "cap",
        GPT,
        openai(429, "Billing hard limit has been reached", "billing_hard_limit_reached"),
        "quota",
        "hard limit",
        CAP,
    ),
    Bad(
        "cap",
        FLASH,
        gemini(429, "Your project has exceeded its monthly spending cap.", "RESOURCE_EXHAUSTED"),
        "quota",
        "spending cap",
        CAP,
    ),
    Bad(
        "region",
        GPT,
        openai(403, "Country, region, or territory not supported", "unsupported_country_region_territory"),
        "authentication",
        "Country",
        "does not serve this place",
    ),
    Bad(
        "region",
        FLASH,
        gemini(400, "User location is not supported for the API use.", "FAILED_PRECONDITION"),
        "authentication",
        "location",
        "does not serve this place",
    ),
    Bad(
        "region",
        CLAUDE,
        anthropic(403, "forbidden", "Request not allowed"),
        "authentication",
        "Request not allowed",
        "does not serve this place",
    ),
    Bad(
        "region",
        "moonshot/kimi-k3",
        openai(401, "Invalid Authentication"),
        "authentication",
        "Invalid Authentication",
        "api.moonshot.cn/v1 works only there",
    ),
    Bad(
        "region",
        "qwen/qwen3.8-max",
        openai(401, "Incorrect API key provided.", "invalid_api_key"),
        "authentication",
        "Incorrect",
        "dashscope.aliyuncs.com",
    ),
    Bad(
        "region",
        "minimax/MiniMax-M3",
        failing(200, {"base_resp": {"status_code": 2049, "status_msg": "invalid api key"}}),
        "authentication",
        "invalid api key",
        "api.minimaxi.com",
    ),
    Bad("no server", GPT, text(200, PAGE, "text/html"), "malformed", "a web page instead of an answer", BASE),
    Bad("no server", GPT, text(404, PAGE, "text/html"), "not_found", "answered 404", BASE),
    Bad("no server", GPT, text(405, PAGE, "text/html"), "not_found", "answered 405", BASE),
    Bad("no server", GPT, text(501, b"Unsupported method ('POST')", "text/plain"), "not_found", "answered 501", BASE),
    Bad("no server", GPT, failing(200, {"status": "ok"}), "malformed", "not an answer of its format", BASE),
    Bad("no server", CLAUDE, failing(200, {"status": "ok"}), "malformed", "not an answer of its format", BASE),
    Bad("no server", FLASH, failing(200, {"status": "ok"}), "malformed", "not an answer of its format", BASE),
    Bad("no server", GPT, text(200, b"OK", "text/plain"), "malformed", "not an answer of its format", BASE),
)


def make_environment(folder: Path, model: str, url: str) -> dict[str, str]:
    """The variables of a user whose provider is at `url`."""
    provider = model.partition("/")[0]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "RETINUE_HOME": str(folder / "home"), **KEYS}
    if provider in VARIABLES:
        environment[VARIABLES[provider]] = url if provider != "openai" else f"{url}/v1"
    else:
        (folder / "home").mkdir()
        settings = {"providers": {provider: {"baseUrl": f"{url}/v1"}}}
        (folder / "home" / "settings.json").write_text(json.dumps(settings))
    return environment


@pytest.mark.parametrize("bad", CASES, ids=lambda bad: f"{bad.what} at {bad.model.partition('/')[0]}")
async def test_the_outcome_names_the_cause_and_the_remedy_after_one_request(bad: Bad, tmp_path: Path) -> None:
    async with Server(bad.reply, bad.reply) as server:
        environment = make_environment(tmp_path, bad.model, server.url)
        async with Retinue(tmp_path, model=bad.model, environment=environment) as supervisor:
            outcome = await (await supervisor.spawn("Explore", "hi")).wait()
    failure = outcome.failure
    assert failure is not None
    assert failure.kind == bad.kind
    assert bad.said in failure.message and "key-secret" not in failure.message
    assert bad.remedy in failure.remedy
    assert len(server.seen) == 1, "no retry could help"


async def retinue(folder: Path, environment: dict[str, str], *words: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(run_program, words, folder, environment)
    return done.returncode, done.stdout, done.stderr


EACH = [next(bad for bad in CASES if bad.what == what) for what in dict.fromkeys(bad.what for bad in CASES)]


@pytest.mark.parametrize("bad", EACH, ids=lambda bad: bad.what)
async def test_the_terminal_and_json_say_the_same(bad: Bad, tmp_path: Path) -> None:
    async with Server(bad.reply, bad.reply, bad.reply) as server:
        environment = make_environment(tmp_path, bad.model, server.url)
        asked = ("--model", bad.model)
        code, _, seen = await retinue(tmp_path, environment, "run", "Explore", "hi", *asked)
        assert code == 1 and bad.said in seen and bad.remedy in seen
        code, out, _ = await retinue(tmp_path, environment, "run", "Explore", "hi", "--json", *asked)
        said = json.loads(out)["details"]["results"][0]["error"]
        assert code == 1 and bad.said in said and bad.remedy in said
        code, out, _ = await retinue(tmp_path, environment, "-p", "hi", "--output-format", "json", *asked)
        error = json.loads(out)["error"]
        assert (code, error["code"]) == (1, bad.kind)
        assert bad.said in error["message"] and bad.remedy in error["remedy"]


# ------------------------------------------------------------------ the way there
async def failure_over(tmp_path: Path, **variables: str) -> Any:
    base = {"HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home"), "ANTHROPIC_API_KEY": "key-secret-123"}
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "settings.json").write_text(json.dumps({"retry": {"maxAttempts": 1}}))
    program = await retinue(
        tmp_path,
        {"PATH": os.environ["PATH"], **base, **variables},
        *("-p", "hi", "--output-format", "json", "--model", CLAUDE),
    )
    return json.loads(program[1])["error"]


PROXY = "Correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9", "The proxy http://127.0.0.1:9 does not answer"),
        ("socks5://127.0.0.1:1080", "speaks socks5; only http and https proxies can be used"),
    ],
)
async def test_a_dead_proxy_is_named_and_not_the_base_url(url: str, said: str, tmp_path: Path) -> None:
    error = await failure_over(tmp_path, HTTPS_PROXY=url)
    assert said in error["message"] and PROXY in error["remedy"]


@pytest.mark.parametrize(("status", "attempts"), [(407, 1), (403, 1), (502, 2)])
async def test_a_proxy_that_refuses_is_not_asked_again_and_one_that_fails_is(
    status: int, attempts: int, tmp_path: Path
) -> None:
    asked = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT")
        writer.write(f"HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()

    async with listening(refuse) as port:
        base = {"HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home"), "ANTHROPIC_API_KEY": "key-secret-123"}
        environment = {"PATH": os.environ["PATH"], **base, "HTTPS_PROXY": f"http://127.0.0.1:{port}"}
        environment["RETINUE_RETRY_MAX_ATTEMPTS"] = "2"
        words = ("-p", "hi", "--output-format", "json", "--model", CLAUDE)
        _, out, _ = await retinue(tmp_path, environment, *words)
    error = json.loads(out)["error"]
    assert f"answered {status}" in error["message"] and PROXY in error["remedy"]
    assert asked == attempts


async def test_a_server_that_does_not_speak_http_is_said_to_be_none(tmp_path: Path) -> None:
    async with raw_server(*[b"SSH-2.0-OpenSSH_9.6\r\n"] * 4) as url:
        error = await failure_over(tmp_path, ANTHROPIC_BASE_URL=url)
    assert "did not answer in HTTP" in error["message"] and BASE in error["remedy"]
