"""The base of the wire formats: send a request, read its stream, and end with one complete message.

A format is a subclass with three methods: `url`, `body` and `reader`. Everything else, such as failures and the reuse
of connections, is the same for all formats and is here.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from hashlib import blake2b
from operator import is_
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlencode, urlsplit
from weakref import WeakKeyDictionary

import orjson
from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message
from retinue.core.outcome import Failure
from retinue.http.transport import Events, Response, Transport, TransportError
from retinue.models import failures
from retinue.models.draft import MessageDraft, parse_event
from retinue.models.failures import Wire
from retinue.models.keys import KeyHelperError, forget_key, helped_key
from retinue.models.known import Quirks
from retinue.models.protocol import Alive, ModelInfo, ModelRequest, Noted, Part, has_documents
from retinue.models.retry import Repairs, RequestRefusal, SharedLessons, read_refusal

if TYPE_CHECKING:
    from retinue.models.keys import KeyHelper

_ALIVE = (Alive(),)
_NO_SIGNATURES: frozenset[str] = frozenset()
_LESSONS: WeakKeyDictionary[Transport, dict[tuple[str, str], SharedLessons]] = WeakKeyDictionary()
"""The parameters that servers do not accept, shared by all models over one transport."""
_ABOUT_DOCUMENTS = re.compile(r"\bpdfs?\b|document|input_file|file_data|mime.?type|filename")
_OTHER_FORMAT_TEXT = "something that is not an answer of its format."
_DRAIN_SECONDS = 0.25
_KEYED = frozenset({"openai", "openai-responses", "azure"})
"""Providers that take `prompt_cache_key`."""


class StreamReader(Protocol):
    """Turns the events of one stream into a draft."""

    @property
    def done(self) -> bool:
        """Whether the stream has sent its end mark. Further events are not read."""
        ...

    def absorb(self, event: Any) -> None:
        """Merge one event into the draft. May raise KeyError, TypeError, AttributeError or ValueError for an event of
        another format."""
        ...

    def absorb_whole(self, answer: Any) -> None:
        """Merge an answer of a server that cannot stream."""
        ...


class WireModel:
    """A `Model` over HTTP. It reads nothing from the environment: the caller passes all it needs."""

    auth_header = "bearer"

    def __init__(
        self,
        info: ModelInfo,
        base_url: str,
        api_key: str | None,
        transport: Transport,
        *,
        headers: Mapping[str, str] | None = None,
        quirks: Quirks | Mapping[str, Any] | None = None,
        key_variable: str | None = None,
        helper: KeyHelper | None = None,
    ) -> None:
        self._info = info
        self._base = base_url.strip().rstrip("/")
        self._transport = transport
        self._quirks = Quirks.of(quirks)
        key = (api_key or "").strip() or None
        self._helper = helper
        self._own_headers = {k.lower(): v for k, v in (headers or {}).items()}
        self._headers = {**self._fixed_headers(key), **self._own_headers}
        self._wire = Wire(info.full_name, self._base, key, key_variable)
        lessons = _LESSONS.setdefault(transport, {})
        self._repairs = Repairs(lessons.setdefault((info.full_name, self._base), SharedLessons()))
        self._cache_key: tuple[object, str, str] | None = None
        """The first message and the system prompt of a conversation, with its key."""
        self._stale: frozenset[str] = _NO_SIGNATURES
        """Signatures that the provider no longer accepts."""
        self._has_reported_usage = False
        self._encoded = EncodedTurns()

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """Nothing to do: connections belong to the transport."""

    # The methods of a format

    def url(self) -> str:
        raise NotImplementedError

    def body(self, request: ModelRequest) -> dict[str, Any]:
        raise NotImplementedError

    def reader(self, draft: MessageDraft) -> StreamReader:
        raise NotImplementedError

    def document(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request as this server takes it."""
        return self._repairs.apply(self.body(request))

    def adapt(self, request: ModelRequest, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Learn from a refused request. Return True if `body` will be different now."""
        return self._withhold_documents(request, refusal) or self._repairs.learn(body, refusal)

    def _withhold_documents(self, request: ModelRequest, refusal: RequestRefusal) -> bool:
        """Stop sending PDFs after a refusal that is about one (too many pages, a password, a model without PDFs). A
        refused PDF in the history would fail every later request."""
        if not self._info.documents or not _ABOUT_DOCUMENTS.search(refusal.text) or not has_documents(request):
            return False
        self._info = replace(self._info, documents=False)
        self._repairs.notes.append(
            f"did not take a PDF ({refusal.message.strip().rstrip('.')[:200]}): it is read as text"
        )
        return True

    def continuation(self, reader: StreamReader, draft: MessageDraft) -> dict[str, Any] | None:
        """Return the fields of a request for the rest of the answer; None if the answer is complete."""
        return None

    def forget_signatures(self, request: ModelRequest) -> bool:
        """Stop sending the signatures of this conversation. Return True if there were any. A signature is no longer
        accepted if the history before it has changed, as by a compaction."""
        before = len(self._stale)
        signatures = {""}
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    signatures.update((block.signature or "", getattr(block, "redacted", None) or ""))
        self._stale |= signatures - {""}
        return len(self._stale) > before

    # The exchange

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        draft = MessageDraft(self._info, request.messages)
        response: Response | None = None
        try:
            response = await self._open(request, draft)
            for note in self._notes():
                yield note
            reader = self.reader(draft)
            while response is not None:
                data, events = await response.read(), Events()
                if looks_like(data) != "events":
                    await self._read_whole(response, data, reader, draft)
                    data = b""
                while data:
                    at_end = absorb(events.feed(data), reader, draft)
                    for event in draft.shown() or _ALIVE:
                        yield event
                    if at_end:
                        await response.drain(_DRAIN_SECONDS)
                        break
                    data = await response.read()
                else:
                    absorb_rest(events, reader, draft)
                    self._check_events(events, draft)
                response = await self._continue_answer(request, response, reader, draft)
        except TransportError as error:
            draft.fail_unfinished(failures.from_transport(self._wire, error))
        except (KeyError, TypeError, AttributeError, ValueError, IndexError):
            draft.fail_unfinished(failures.malformed(self._wire, _OTHER_FORMAT_TEXT))
        finally:
            if response is not None:
                response.close()
        for event in draft.shown():
            yield event
        finished = draft.finished()
        if draft.uncounted and not self._has_reported_usage:
            self._has_reported_usage = True
            yield Noted("model-usage", f"{self._info.full_name} sent no usage: tokens and cost are not known.")
        yield finished

    def _check_events(self, events: Events, draft: MessageDraft) -> None:
        """Fail without a retry if the stream has no events: it comes from another kind of server."""
        if events.foreign and not draft.blocks:
            draft.fail_unfinished(failures.malformed(self._wire, _OTHER_FORMAT_TEXT, again=False))

    async def _open(self, request: ModelRequest, draft: MessageDraft) -> Response | None:
        """Return a response that succeeded, or None with the failure in the draft. If the server refuses a parameter,
        the request is sent again without it, and so are all later ones."""
        body = RequestBody(self, request)
        renewed = False
        while True:
            if self._helper is not None and not await self._fetch_key(draft):
                return None
            headers = {**self._headers, **request.headers} if request.headers else self._headers
            response = await self._transport.post(self._address(), headers, body)
            if 200 <= response.status <= 203:
                return response
            try:
                text = await response.body()
            finally:
                response.close()
            failure = failures.from_status(self._wire, response.status, response.headers, text)
            if failure.kind == "authentication" and self._helper is not None and not renewed:
                renewed = True
                forget_key(self._helper)
                continue
            refusal = read_refusal(text, failure.message)
            if failure.kind == "invalid_request" and self.adapt(request, body.document(), refusal):
                self._encoded = EncodedTurns()
                body = RequestBody(self, request)
                continue
            draft.fail(failure)
            return None

    async def _continue_answer(
        self, request: ModelRequest, response: Response, reader: StreamReader, draft: MessageDraft
    ) -> Response | None:
        """Return the next response of an answer that its provider sends in several; None after the last one, which is
        nearly always the first."""
        fields = self.continuation(reader, draft)
        response.close()
        if fields is None:
            return None
        return await self._open(replace(request, options={**request.options, **fields}), draft)

    async def _read_whole(self, response: Response, data: bytes, reader: StreamReader, draft: MessageDraft) -> None:
        """Read an answer of a server that cannot stream, or a web page at a wrong address."""
        if looks_like(data) == "page":
            # A retry would return the same page.
            draft.fail(failures.malformed(self._wire, "a web page instead of an answer.", again=False))
            return
        pieces = [data, *[piece async for piece in response]]
        answer = parse_event(b"".join(pieces))
        try:
            reader.absorb_whole(answer)
        except (KeyError, TypeError, AttributeError):
            draft.fail_unfinished(failures.malformed(self._wire, _OTHER_FORMAT_TEXT, again=False))
        if draft.stop is None and not draft.blocks:
            draft.fail(failures.malformed(self._wire, _OTHER_FORMAT_TEXT, again=False))

    # Keys of helpers

    async def _fetch_key(self, draft: MessageDraft) -> bool:
        """Put the key of a helper into the headers. Return False, with the failure in the draft, if there is none."""
        assert self._helper is not None
        try:
            key = await helped_key(self._helper)
        except KeyHelperError as error:
            remedy = f"Try `{self._helper.command}`, and correct the entry of '{self._wire.provider}' in your settings."
            draft.fail(Failure("authentication", f"{self._info.full_name} was not asked: {error}.", remedy))
            return False
        if key != self._wire.key:
            self._wire = replace(self._wire, key=key)
            self._headers = {**self._fixed_headers(key), **self._own_headers}
        return True

    # URL, headers and body

    @property
    def _sends_cache_key(self) -> bool:
        setting = self._quirks.cache_key
        if setting is None:
            return self._info.provider in _KEYED
        return setting

    def cache_key(self, request: ModelRequest) -> str:
        """Return the key by which the provider sends the requests of a conversation to the machine that has cached its
        beginning. A fork has the same key. The key is a digest, so it reveals no text."""
        first = request.messages[0] if request.messages else None
        if self._cache_key is None or self._cache_key[0] is not first or self._cache_key[1] is not request.system:
            text = request.system + getattr(first, "text", "")
            digest = blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
            self._cache_key = (first, request.system, f"retinue-{digest}")
        return self._cache_key[2]

    def _notes(self) -> list[Noted]:
        """Return the notes for people since the last call."""
        messages, self._repairs.notes = self._repairs.notes, []
        return [Noted("model-parameter", f"{self._info.full_name} {text}.") for text in messages]

    def _fixed_headers(self, key: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream", "user-agent": "retinue"}
        auth = (self._quirks.auth or self.auth_header).lower()
        if key and auth == "bearer":
            headers["authorization"] = f"Bearer {key}"
        elif key and auth != "none":
            headers[auth] = key
        return headers

    def _address(self) -> str:
        url = self.url()
        if self._quirks.query:
            url += ("&" if "?" in url else "?") + urlencode(dict(self._quirks.query))
        return url

    def _endpoint(self, path: str, version: str, *, always: bool = True) -> str:
        """Return the base URL with the path, which may be complete already. Unless `always`, the version is only added
        to a base URL without any path."""
        if self._base.endswith(path):
            return self._base
        folder = urlsplit(self._base).path.strip("/")
        last = folder.rpartition("/")[2]
        versioned = last[:1] == "v" and last[1:2].isdecimal()
        if versioned or (folder and not always):
            return self._base + path
        return f"{self._base}/{version}{path}"

    def _finish_body(self, body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
        body.update(self._quirks.extra_body)
        body.update(request.options)
        return body


EncodedTurn = tuple[str, list[dict[str, Any]]]
"""The role and the blocks of one message."""


class EncodedTurns:
    """The messages of a conversation as a format encodes them. Every request repeats those of the one before, so each
    message is encoded once. Of a first request nothing is kept: thousands of runs may wait for their first answer."""

    __slots__ = ("_messages", "_turns")

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._turns: tuple[EncodedTurn, ...] = ()

    def turns(self, messages: tuple[Message, ...], encode: Callable[[Message], EncodedTurn]) -> tuple[EncodedTurn, ...]:
        """Return a turn for each message. The caller must not change the turns."""
        same = len(self._messages)
        if not all(map(is_, self._messages, messages)) or same > len(messages):
            # The conversation was shortened.
            same = 0
        turns = (*self._turns[:same], *map(encode, messages[same:]))
        if len(messages) > 1:
            self._messages, self._turns = messages, turns
        return turns


class RequestBody:
    """The body of a request, for the transport. The document is dropped when it is sent and made again where it is
    needed again, which is rare: it would be 2 kB in each of thousands of runs that wait for an answer."""

    __slots__ = ("_document", "_model", "_request")

    def __init__(self, model: WireModel, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._document: dict[str, Any] | None = model.document(request)

    def __call__(self) -> bytes:
        document, self._document = self.document(), None
        return encode(document)

    def document(self) -> dict[str, Any]:
        return self._model.document(self._request) if self._document is None else self._document


def encode(body: dict[str, Any]) -> bytes:
    """Return the body as JSON. Characters that UTF-8 cannot encode, such as half a surrogate pair, are replaced."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, ensure_ascii=False, default=_plain).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def absorb(payloads: list[bytes], reader: StreamReader, draft: MessageDraft) -> bool:
    """Merge events into the draft. Return True if no more events are needed."""
    for payload in payloads:
        if payload == b"[DONE]":
            draft.stop = draft.stop or "end"
            return True
        reader.absorb(parse_event(payload))
    return reader.done or draft.failure is not None


def absorb_rest(events: Events, reader: StreamReader, draft: MessageDraft) -> None:
    """Merge an event that only the end of the stream completes. An incomplete last event is ignored: the draft then
    reports that the stream was dropped."""
    with contextlib.suppress(ValueError):
        absorb(events.finish(), reader, draft)


def looks_like(data: bytes) -> Literal["events", "json", "page"]:
    """Return the kind of a body by its first character, because the content types of servers are unreliable."""
    first = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first in (b"{", b"["):
        return "json"
    return "page" if first == b"<" else "events"
