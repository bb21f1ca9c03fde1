"""Google's Gemini format: streamGenerateContent as server-sent events."""

from __future__ import annotations

from typing import Any

from retinue.core.messages import AssistantMessage, Content, Message, Text, ToolCall, ToolMessage, ToolResult
from retinue.core.outcome import Failure
from retinue.core.usage import Usage
from retinue.models.draft import FRESH, MessageDraft, TextDraft, replace_usage
from retinue.models.efforts import gemini_config, level_of, version_of
from retinue.models.failures import Wire, from_error
from retinue.models.protocol import (
    NOTHING,
    ModelInfo,
    ModelRequest,
    join_turns,
    joined_text,
    own,
    sent_arguments,
    visible,
    visible_files,
)
from retinue.models.retry import RequestRefusal
from retinue.models.tool_schema import gemini_parameters, portable_schema
from retinue.models.wire import StreamReader, WireModel

SKIP_CHECK = "skip_thought_signature_validator"
"""What Google says to put where a signature is required and none exists: on calls that another
model made."""


def build_contents(messages: tuple[Message, ...], info: ModelInfo, stale: set[str]) -> list[dict[str, Any]]:
    """Alternating turns; the results of one turn stand together, in call order."""
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            turns.append(("model", _assistant(message, info, stale)))
        elif isinstance(message, ToolMessage):
            turns.append(("user", _results(message, info)))
        else:
            turns.append(("user", [_part(part) for part in visible(message.content, info)]))
    return join_turns(turns, "parts")


def signs_calls(info: ModelInfo) -> bool:
    """Gemini 3 and later require a signature on the first call of a turn."""
    return (version_of(info.id, "gemini") or (0, 0)) >= (3, 0)


def _part(part: Content) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}}


def _assistant(message: AssistantMessage, info: ModelInfo, stale: set[str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    same = own(message, info)
    first_call = True
    for part in message.content:
        sent: dict[str, Any]
        if isinstance(part, ToolCall):
            sent = {"functionCall": {"name": part.name, "args": sent_arguments(part), **_id(part.id)}}
        elif isinstance(part, Text) and (part.text or (same and part.signature)):
            sent = {"text": part.text}
        else:
            continue
        if part.signature and same and part.signature not in stale:
            sent["thoughtSignature"] = part.signature
        elif isinstance(part, ToolCall) and first_call and signs_calls(info):
            sent["thoughtSignature"] = SKIP_CHECK
        first_call = first_call and not isinstance(part, ToolCall)
        parts.append(sent)
    return parts


def _results(message: ToolMessage, info: ModelInfo) -> list[dict[str, Any]]:
    parts = [_result(result, info) for result in message.results]
    if not signs_calls(info):
        # Before Gemini 3 a function cannot return files: they stand beside the results.
        for result in message.results:
            parts += map(_part, visible_files(result, info))
    return parts


def _result(result: ToolResult, info: ModelInfo) -> dict[str, Any]:
    text = joined_text(visible(result.content, info)) or NOTHING
    response: dict[str, Any] = {
        "name": result.name,
        "response": {"error" if result.is_error else "output": text},
        **_id(result.call_id),
    }
    files = [_part(file) for file in visible_files(result, info)]
    if files and signs_calls(info):
        response["parts"] = files
    return {"functionResponse": response}


def _id(id: str) -> dict[str, str]:
    """Only ids that Gemini gave: one we made would be unknown to it."""
    if id.startswith(FRESH):
        return {}
    return {"id": id}


_REFUSALS = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR"}
)
_GARBLED = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_ONE_RESPONSE = 65_536
"""Tokens of output that one response has at most; a larger limit is reached over several."""


class GeminiModel(WireModel):
    auth_header = "x-goog-api-key"

    def url(self) -> str:
        name = self._info.id if "/" in self._info.id else f"models/{self._info.id}"
        return self._endpoint(f"/{name}:streamGenerateContent", "v1beta") + "?alt=sse"

    def reader(self, draft: MessageDraft) -> StreamReader:
        return GeminiReader(draft, self._wire)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"contents": build_contents(request.messages, self._info, self._stale)}
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
            mode = _MODES[request.tool_choice]
            if mode == "AUTO" and self._info.thinking:
                # The same, with the server checking calls against their schemas.
                mode = "VALIDATED"
            if mode != "AUTO":
                body["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        config: dict[str, Any] = {}
        if request.max_output is not None:
            config["maxOutputTokens"] = request.max_output
        elif self._info.max_output > _ONE_RESPONSE:
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
        """Leave out a signature that this model does not accept (the model changed, say)."""
        about_signatures = "signature" in refusal.said
        return (about_signatures and self.forget_signatures(request)) or super().adapt(request, body, refusal)

    def continuation(self, reader: StreamReader, draft: MessageDraft) -> dict[str, Any] | None:
        """Return the same request with the token of an answer that reached the limit of one response and
        goes on (ai.google.dev "Long decode")."""
        assert isinstance(reader, GeminiReader)
        token = reader.take_token()
        if token is None or draft.failure is not None:
            return None
        draft.stop = None
        return {"continuationToken": token}


class GeminiReader:
    """Every event is a small answer of the same shape; the last has a finish reason."""

    done = False

    def __init__(self, draft: MessageDraft, wire: Wire) -> None:
        self._draft = draft
        self._wire = wire
        self._token: str | None = None
        self._tokens: set[str] = set()
        self._continues = False
        self._before = draft.usage

    def take_token(self) -> str | None:
        """Return the token with which the answer goes on, once; None where it has ended, or where the same
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
                for part in (candidate.get("content") or {}).get("parts") or ():
                    self._part(part)
                self._token = candidate.get("continuationToken") or self._token
                if reason := candidate.get("finishReason"):
                    self._stop(str(reason), str(candidate.get("finishMessage") or ""))

    def absorb_whole(self, answer: Any) -> None:
        """Without `alt=sse` the answer is a list of the same events."""
        for event in answer if isinstance(answer, list) else [answer]:
            self.absorb(event)

    def _part(self, part: Any) -> None:
        draft, signature = self._draft, part.get("thoughtSignature")
        if call := part.get("functionCall"):
            draft_call = draft.add_call(call.get("id"), call.get("name"))
            draft_call.give(call.get("args"))
            draft_call.signature = signature
        elif part.get("thought"):
            draft.thinking(part.get("text") or "")
        elif "text" in part:
            draft.text(part["text"])
            if signature:
                last = draft.parts[-1] if draft.parts else None
                text = last if isinstance(last, TextDraft) else draft.add_text()
                text.signature = signature
        elif signature:
            # A part that is nothing else goes back as it came.
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
        elif reason == "OTHER" and not self._draft.parts:
            self._draft.fail(Failure("server", f"{name} stopped without an answer or a reason. {message}".rstrip()))

    def _refuse(self, why: str) -> None:
        self._draft.stop = "refusal"
        self._draft.fail(Failure("refused", f"{self._draft.info.full_name} declined to answer: {why}."))

    def _count(self, usage: Any) -> None:
        prompt, read = usage.get("promptTokenCount"), usage.get("cachedContentTokenCount") or 0
        tools = usage.get("toolUsePromptTokenCount") or 0
        spoken, thought = usage.get("candidatesTokenCount"), usage.get("thoughtsTokenCount") or 0
        # Each response of a long answer is billed with the prompt and all that came before it.
        self._draft.usage = self._before + replace_usage(
            Usage(),
            input=max(0, prompt - read) + tools if isinstance(prompt, int) else None,
            output=(spoken or 0) + thought if spoken is not None or thought else None,
            cache_read=read,
        )
