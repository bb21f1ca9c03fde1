"""The servers that are known: address, key variable, wire format and quirks of each.

`{"ollama": {}}` under `providers` in settings, or a model named `ollama/…`, is enough to use one. Every command needs
the names of the key variables, so this module imports nothing else of Retinue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Api = Literal["anthropic", "openai", "openai-responses", "gemini", "embedded"]


class Preset(NamedTuple):
    """A well-known server. `keys` and `urls` are environment variables, of which the first that is set is used.
    `needs_key` is False for servers that people run themselves."""

    api: Api
    url: str
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    needs_key: bool = True
    quirks: Mapping[str, Any] = {}


BUILT_IN: dict[str, Preset] = {
    "anthropic": Preset(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("ANTHROPIC_BASE_URL",),
    ),
    "openai": Preset(
        "openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",), quirks={"documents": "file"}
    ),
    "openai-responses": Preset(
        "openai-responses", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)
    ),
    "gemini": Preset(
        "gemini",
        "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
    ),
}

# api-docs.deepseek.com/guides/thinking_mode: "The `reasoning_content` in the thinking mode must be passed back";
# Kimi: "thinking is enabled but reasoning_content is missing in assistant tool call message" (openclaw#73417).
_REASONING_REQUIRED = {"reasoning_field": "reasoning_content", "reasoning_required": True}
# docs.z.ai preserved thinking: returned where there is any.
_REASONING_CONTENT = {"reasoning_field": "reasoning_content"}
# openrouter.ai/docs reasoning tokens: the details go back as they came.
# openrouter.ai/docs "PDF inputs": a `file` part.
_REASONING_DETAILS = {"reasoning_field": "reasoning_details", "documents": "file"}
# pydantic-ai models/mistral.py and #9096: a turn between tool and user, ids of nine letters or digits.
# docs.mistral.ai "Document QnA" and the same file: a PDF as `document_url`.
_MISTRAL = {"assistant_after_tools": True, "call_id_length": 9, "documents": "document_url"}
# platform.minimax.io "OpenAI API compatible": thoughts stand in the text unless they are split off.
_MINIMAX = {"reasoning_field": "reasoning_details", "extra_body": {"reasoning_split": True}}

PRESETS: dict[str, Preset] = {
    "ollama": Preset("openai", "http://localhost:11434/v1", (), ("OLLAMA_HOST",), needs_key=False),
    "vllm": Preset("openai", "http://localhost:8000/v1", ("VLLM_API_KEY",), ("VLLM_BASE_URL",), needs_key=False),
    "llama.cpp": Preset("openai", "http://localhost:8080/v1", ("LLAMA_API_KEY",), needs_key=False),
    "lmstudio": Preset("openai", "http://localhost:1234/v1", (), needs_key=False),
    "openrouter": Preset("openai", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), quirks=_REASONING_DETAILS),
    "deepseek": Preset("openai", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), quirks=_REASONING_REQUIRED),
    "azure": Preset("openai", "", ("AZURE_OPENAI_API_KEY",), ("AZURE_OPENAI_ENDPOINT",), quirks={"auth": "api-key"}),
    "groq": Preset("openai", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
    "mistral": Preset("openai", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), quirks=_MISTRAL),
    "together": Preset("openai", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
    "xai": Preset("openai", "https://api.x.ai/v1", ("XAI_API_KEY",)),
    "moonshot": Preset(
        "openai", "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY", "KIMI_API_KEY"), quirks=_REASONING_REQUIRED
    ),
    "zai": Preset("openai", "https://api.z.ai/api/paas/v4", ("ZAI_API_KEY", "Z_AI_API_KEY"), quirks=_REASONING_CONTENT),
    "qwen": Preset("openai", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", ("DASHSCOPE_API_KEY",)),
    "minimax": Preset("openai", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",), quirks=_MINIMAX),
    "fireworks": Preset("openai", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",)),
    "cerebras": Preset("openai", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",)),
}

OTHER_NAMES = {
    "google": "gemini",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "lm-studio": "lmstudio",
    "moonshotai": "moonshot",
    "x-ai": "xai",
    "z-ai": "zai",
    "dashscope": "qwen",
    "together-ai": "together",
    "azure-openai": "azure",
}
"""Ids of providers in other programs."""
