"""PDFs: how each provider gets them on the wire, and what a run does where it cannot send one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, Document, Text, ToolCall, ToolMessage, ToolResult, UserMessage, user
from retinue.models.protocol import estimate
from retinue.models.providers import Providers
from retinue.settings.table import Settings
from retinue.testing import ModelRequest, Noted
from tests.capabilities.convert.documents import pdf
from tests.models.scripts import anthropic_events, collect, known_model, model, request
from tests.models.servers import Reply, Server, sse
from tests.models.test_provider_quirks import refusal

PDF = pdf("Hello from page one", "And from page two")
DATA = base64.b64encode(PDF).decode()
REPORT = Document("application/pdf", DATA, "report.pdf", 2)
URL = f"data:application/pdf;base64,{DATA}"
WORDS = "[report.pdf: a PDF that this model does not take as a file. Read it again to get its text.]"


def read_it(provider: str) -> ModelRequest:
    """A tool has just given a PDF."""
    called = AssistantMessage((ToolCall("c1", "read", {"path": "report.pdf"}),), "tool_use", model=f"{provider}/m")
    given = ToolMessage((ToolResult("c1", "read", (Text("report.pdf: PDF"), REPORT)),))
    return request(user("Read it."), called, given)


def sent(provider: str, id: str, asked: ModelRequest, **changes: Any) -> Any:
    made = known_model(provider, id, "http://127.0.0.1:9", documents=True, **changes)
    return made.body(asked)


def test_anthropic_gets_a_document_block_in_the_result() -> None:
    """anthropic 2.8.0 types/tool_result_block_param.py and document_block_param.py."""
    body = sent("anthropic", "claude-sonnet-5-5", read_it("anthropic"))
    (result,) = body["messages"][-1]["content"]
    source = {"type": "base64", "media_type": "application/pdf", "data": DATA}
    assert result["content"] == [
        {"type": "text", "text": "report.pdf: PDF"},
        {"type": "document", "source": source, "title": "report.pdf"},
    ]


@pytest.mark.parametrize("provider", ["openai-responses", "azure"])
def test_the_responses_api_gets_an_input_file_in_the_output(provider: str) -> None:
    """openai 3.49.0 types/responses/response_function_call_output_item_param.py."""
    made = sent(provider, "gpt-6.1-sol", read_it(provider), api_by_model=provider == "azure")
    assert made["input"][-1]["output"] == [
        {"type": "input_text", "text": "report.pdf: PDF"},
        {"type": "input_file", "filename": "report.pdf", "file_data": URL},
    ]


@pytest.mark.parametrize(("provider", "id"), [("openai", "gpt-4.1"), ("openrouter", "anthropic/claude-sonnet-5.5")])
def test_chat_completions_get_a_file_after_the_results(provider: str, id: str) -> None:
    """openai 3.49.0 types/chat/chat_completion_content_part_param.py; openrouter.ai/docs "PDF inputs"."""
    tool, after = sent(provider, id, read_it(provider))["messages"][-2:]
    plain = tool["content"] if isinstance(tool["content"], str) else tool["content"][0]["text"]
    assert (tool["role"], plain) == ("tool", "report.pdf: PDF")
    assert after["role"] == "user"
    assert after["content"][0] == {"type": "text", "text": "Documents from the tool read:"}
    file = {key: value for key, value in after["content"][1].items() if key != "cache_control"}
    assert file == {"type": "file", "file": {"filename": "report.pdf", "file_data": URL}}


def test_mistral_gets_a_document_url() -> None:
    """pydantic-ai 2.66.0 models/mistral.py:796; docs.mistral.ai "Document QnA"."""
    last = sent("mistral", "mistral-large-4", read_it("mistral"))["messages"][-1]
    assert last["content"][1] == {"type": "document_url", "document_url": URL, "document_name": "report.pdf"}


@pytest.mark.parametrize(("id", "inside"), [("gemini-4-argon", True), ("gemini-2.5-flash", False)])
def test_gemini_gets_inline_data_inside_the_response_where_it_may_stand_there(id: str, inside: bool) -> None:
    """google-genai 3.1.0 types.FunctionResponseBlob; before Gemini 3 it stands beside the response."""
    parts = sent("gemini", id, read_it("gemini"))["contents"][-1]["parts"]
    blob = {"inlineData": {"mimeType": "application/pdf", "data": DATA}}
    holder = parts[0]["functionResponse"].get("parts", []) if inside else parts[1:]
    assert holder == [blob]


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses", "gemini"])
def test_a_model_that_takes_no_documents_gets_words(format: str) -> None:
    body = json.dumps(model(format, "http://x", documents=False).body(read_it(format)))
    assert DATA not in body
    assert WORDS in body


PROVIDERS = {
    "anthropic/claude-sonnet-5-5": True,
    "openai/gpt-4.1": True,
    "openai/gpt-6.1-sol": True,
    "azure/gpt-6.1-sol": True,
    "azure/gpt-4.1": False,
    "gemini/gemini-4-argon": True,
    "mistral/mistral-large-4": True,
    "openrouter/anthropic/claude-sonnet-5.5": True,
    "openrouter/deepseek/deepseek-v4-pro": False,
    "deepseek/deepseek-v4-pro": False,
    "groq/qwen/qwen3-32b": False,
    "xai/grok-4.7": False,
}


@pytest.mark.parametrize(("name", "takes"), PROVIDERS.items())
def test_which_models_are_given_pdfs_as_such(name: str, takes: bool) -> None:
    keys = {f"{each}_API_KEY": "k" for each in ("ANTHROPIC", "OPENAI", "GEMINI", "AZURE_OPENAI", "MISTRAL", "XAI")}
    keys |= {f"{each}_API_KEY": "k" for each in ("OPENROUTER", "DEEPSEEK", "GROQ")}
    keys["AZURE_OPENAI_ENDPOINT"] = "https://mine.openai.azure.com"
    head, _, model = name.partition("/")
    described = {"models": {f"{head}/mistral-large-4": {"images": True}}}
    providers = Providers(Settings(described), keys)
    provider = providers.get(head)
    assert provider is not None
    assert providers.info(provider, model).documents is takes


def test_settings_have_the_last_word_on_documents() -> None:
    entry = {
        "baseUrl": "http://127.0.0.1:1/v1",
        "quirks": {"documents": "file"},
        "models": [{"id": "m", "images": True}],
    }
    settings = Settings({"providers": {"mine": entry}, "models": {"gemini/gemini-4-argon": {"documents": False}}})
    providers = Providers(settings, {"GEMINI_API_KEY": "k"})
    gemini = providers.get("gemini")
    assert gemini is not None and not providers.info(gemini, "gemini-4-argon").documents


REFUSALS = [
    "messages.38.content.0.pdf.source.base64.data: A maximum of 100 PDF pages may be provided.",
    "messages.4.content.1.pdf.source.base64.data: The PDF specified is password protected.",
]


@pytest.mark.parametrize("said", REFUSALS)
async def test_a_refused_pdf_is_left_out_once_and_said_instead_of_failing_every_turn(said: str) -> None:
    """The texts of claude-code#6231, where every later request failed, and of claude-code#19013."""
    answer = Reply(sse(*anthropic_events({"type": "text", "text": "ok"})))
    async with Server(refusal(said), answer, answer) as server:
        made = known_model("anthropic", "claude-sonnet-5-5", server.url, documents=True)
        message, parts = await collect(made, read_it("anthropic"))
        again, _ = await collect(made, read_it("anthropic"))
        await made.close()
    assert message.failure is None and again.failure is None
    assert [DATA in seen.raw.decode() for seen in server.seen] == [True, False, False]
    assert WORDS in server.seen[-1].raw.decode()
    assert any(isinstance(part, Noted) and "did not take a PDF" in part.text for part in parts)
    assert not made.info.documents, "later reads give text"


def test_pages_count_in_the_window() -> None:
    whole = estimate([UserMessage((REPORT,))])
    hidden = estimate([UserMessage((Document("application/pdf", "A" * 400_000, "a.pdf"),))])
    assert (whole // 1000, hidden // 1000) == (6, 30)
