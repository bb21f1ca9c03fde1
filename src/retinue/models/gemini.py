"""Google's Gemini format: streamGenerateContent as server-sent events."""

from __future__ import annotations

from typing import Any

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    text_of,
)
from retinue.core.outcome import Failure
from retinue.core.usage import Usage
from retinue.models.draft import OWN_ID_PREFIX, MessageDraft, TextDraft, replace_usage
from retinue.models.efforts import gemini_config, level_of, version_of
from retinue.models.failures import Wire, from_error
from retinue.models.protocol import (
    NO_OUTPUT,
    ModelInfo,
    ModelRequest,
    is_from_provider,
    join_turns,
    sent_arguments,
    visible,
    visible_files,
)
from retinue.models.retry import RequestRefusal
from retinue.models.tool_schema import gemini_parameters, portable_schema
from retinue.models.wire import EncodedTurn, StreamReader, WireModel

SKIP_CHECK = "skip_thought_signature_validator"
"""Google's placeholder for a required signature that does not exist: for calls that another model made."""


def encode_message(message: Message, info: ModelInfo, stale: frozenset[str]) -> EncodedTurn:
    """Return the role and the parts of a message. The results of one turn are in the order of the calls."""
    if isinstance(message, AssistantMessage):
        return "model", _assistant(message, info, stale)
    if isinstance(message, ToolMessage):
        return "user", _results(message, info)
    return "user", [_encode_block(block) for block in visible(message.content, info)]


def signs_calls(info: ModelInfo) -> bool:
    """Return whether a signature is required on the first call of a turn: since Gemini 3."""
    return (version_of(info.id, "gemini") or (0, 0)) >= (3, 0)


def _encode_block(block: Content) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"text": block.text}
    return {"inlineData": {"mimeType": block.media_type, "data": block.data}}


def _assistant(message: AssistantMessage, info: ModelInfo, stale: frozenset[str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    is_own = is_from_provider(message, info)
    is_first_call = True
    for block in message.content:
        sent: dict[str, Any]
        if isinstance(block, ToolCall):
            sent = {"functionCall": {"name": block.name, "args": sent_arguments(block), **_id(block.id)}}
        elif isinstance(block, Text) and (block.text or (is_own and block.signature)):
            sent = {"text": block.text}
        else:
            continue
        if block.signature and is_own and block.signature not in stale:
            sent["thoughtSignature"] = block.signature
        elif isinstance(block, ToolCall) and is_first_call and signs_calls(info):
            sent["thoughtSignature"] = SKIP_CHECK
        is_first_call = is_first_call and not isinstance(block, ToolCall)
        parts.append(sent)
    return parts


def _results(message: ToolMessage, info: ModelInfo) -> list[dict[str, Any]]:
    parts = [_result(result, info) for result in message.results]
    if not signs_calls(info):
        # Before Gemini 3 a function cannot return files: they follow the results.
        for result in message.results:
            parts += map(_encode_block, visible_files(result, info))
    return parts


def _result(result: ToolResult, info: ModelInfo) -> dict[str, Any]:
    text = text_of(visible(result.content, info)) or NO_OUTPUT
    response: dict[str, Any] = {
        "name": result.name,
        "response": {"error" if result.is_error else "output": text},
        **_id(result.call_id),
    }
    files = [_encode_block(file) for file in visible_files(result, info)]
    if files and signs_calls(info):
        response["parts"] = files
    return {"functionResponse": response}


def _id(id: str) -> dict[str, str]:
    """Return an id that Gemini made; nothing for one of ours, which Gemini does not know."""
    if id.startswith(OWN_ID_PREFIX):
        return {}
    return {"id": id}


_REFUSALS = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR"}
)
_GARBLED = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
_CALLING_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_MAX_RESPONSE_TOKENS = 65_536
"""The largest output of one response, in tokens. A longer answer takes several responses."""


class GeminiModel(WireModel):
    auth_header = "x-goog-api-key"

    def url(self) -> str:
        name = self._info.id if "/" in self._info.id else f"models/{self._info.id}"
        return self._endpoint(f"/{name}:streamGenerateContent", "v1beta") + "?alt=sse"

    def reader(self, draft: MessageDraft) -> StreamReader:
        return GeminiReader(draft, self._wire)

    def _encode(self, message: Message) -> EncodedTurn:
        return encode_message(message, self._info, self._stale)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        turns = self._encoded.turns(request.messages, self._encode)
        body: dict[str, Any] = {"contents": join_turns(turns, "parts")}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            declarations = []
            for tool in request.tools:
                described = portable_schema(tool.parameters).described(tool.description)
                declaration: dict[str, Any] = {"name": tool.name, "description": described}
                parameters = gemini_parameters(tool.parameters)
                if parameters is not None:
                    declaration["parametersJsonSchema"] = parameters
                declarations.append(declaration)
            body["tools"] = [{"functionDeclarations": declarations}]
            mode = _CALLING_MODES[request.tool_choice]
            if mode == "AUTO" and self._info.thinking:
                # As `AUTO`, and the server checks calls against their schemas.
                mode = "VALIDATED"
            if mode != "AUTO":
                body["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        config: dict[str, Any] = {}
        if request.max_output is not None:
            config["maxOutputTokens"] = request.max_output
        elif self._info.max_output > _MAX_RESPONSE_TOKENS:
            config["maxOutputTokens"] = self._info.max_output
        if request.temperature is not None and self._quirks.temperature:
            config["temperature"] = request.temperature
        level = level_of(request.thinking)
        if level is not None and self._info.thinking:
            config["thinkingConfig"] = gemini_config(self._info.id, level)
        if config:
            body["generationConfig"] = config
        return self._finish_body(body, request)

    def adapt(self, request: ModelRequest, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Leave out the signatures if this model does not accept one, for example because the model has changed."""
        about_signatures = "signature" in refusal.text
        return (about_signatures and self.forget_signatures(request)) or super().adapt(request, body, refusal)

    def continuation(self, reader: StreamReader, draft: MessageDraft) -> dict[str, Any] | None:
        """Return the token with which an answer continues that reached the limit of one response (ai.google.dev "Long
        decode")."""
        assert isinstance(reader, GeminiReader)
        token = reader.take_token()
        if token is None or draft.failure is not None:
            return None
        draft.stop = None
        return {"continuationToken": token}


class GeminiReader:
    """Reads a stream. All events have the shape of an answer; the last one has a finish reason."""

    done = False

    def __init__(self, draft: MessageDraft, wire: Wire) -> None:
        self._draft = draft
        self._wire = wire
        self._token: str | None = None
        self._tokens: set[str] = set()
        self._continues = False
        self._before = draft.usage

    def take_token(self) -> str | None:
        """Return the token with which the answer continues, once. Return None if the answer has ended, or if the same
        token came before and would bring the same text."""
        token, continues = self._token, self._continues
        self._token, self._continues = None, False
        if not continues or token is None or token in self._tokens:
            return None
        self._tokens.add(token)
        self._before = self._draft.usage
        return token

    def absorb(self, event: Any) -> None:
        if error := event.get("error"):
            self._draft.fail(from_error(self._wire, error))
            return
        if usage := event.get("usageMetadata"):
            self._count(usage)
        if block := (event.get("promptFeedback") or {}).get("blockReason"):
            self._refuse(f"the prompt was blocked ({block})")
        for candidate in event.get("candidates") or ():
            if candidate.get("index", 0) == 0:
                for block in (candidate.get("content") or {}).get("parts") or ():
                    self._add(block)
                self._token = candidate.get("continuationToken") or self._token
                if reason := candidate.get("finishReason"):
                    self._stop(str(reason), str(candidate.get("finishMessage") or ""))

    def absorb_whole(self, answer: Any) -> None:
        """Read an answer without `alt=sse`, which is a list of the same events."""
        for event in answer if isinstance(answer, list) else [answer]:
            self.absorb(event)

    def _add(self, block: Any) -> None:
        draft, signature = self._draft, block.get("thoughtSignature")
        if call := block.get("functionCall"):
            draft_call = draft.add_call(call.get("id"), call.get("name"))
            draft_call.give(call.get("args"))
            draft_call.signature = signature
        elif block.get("thought"):
            draft.thinking(block.get("text") or "")
        elif "text" in block:
            draft.text(block["text"])
            if signature:
                last = draft.blocks[-1] if draft.blocks else None
                text = last if isinstance(last, TextDraft) else draft.add_text()
                text.signature = signature
        elif signature:
            # A signature alone goes back in an empty text.
            draft.add_text().signature = signature

    def _stop(self, reason: str, message: str) -> None:
        message = self._wire.scrub(message)
        name = self._draft.info.full_name
        self._draft.stop = "length" if reason in ("MAX_TOKENS", "CONTINUATION") else "end"
        self._continues = reason == "CONTINUATION"
        if reason in _REFUSALS:
            self._refuse(message or f"it stopped for {reason}")
        elif reason in _GARBLED:
            self._draft.fail(
                Failure("malformed", f"{name} garbled its tool call ({reason}){': ' if message else '.'}{message}")
            )
        elif reason == "OTHER" and not self._draft.blocks:
            self._draft.fail(Failure("server", f"{name} stopped without an answer or a reason. {message}".rstrip()))

    def _refuse(self, why: str) -> None:
        self._draft.stop = "refusal"
        self._draft.fail(Failure("refused", f"{self._draft.info.full_name} declined to answer: {why}."))

    def _count(self, usage: Any) -> None:
        prompt, read = usage.get("promptTokenCount"), usage.get("cachedContentTokenCount") or 0
        tools = usage.get("toolUsePromptTokenCount") or 0
        spoken, thought = usage.get("candidatesTokenCount"), usage.get("thoughtsTokenCount") or 0
        # Each response of a long answer is billed with the prompt and all earlier responses.
        self._draft.usage = self._before + replace_usage(
            Usage(),
            input=max(0, prompt - read) + tools if isinstance(prompt, int) else None,
            output=(spoken or 0) + thought if spoken is not None or thought else None,
            cache_read=read,
        )
