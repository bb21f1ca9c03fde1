"""What the wire formats share: send, read the stream, end with one whole message.

A format is a subclass with three methods: `url`, `body` and `reader`. Everything else, from
failures to reuse of the connection, is here and the same for all.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncGenerator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlencode, urlsplit
from weakref import WeakKeyDictionary

import orjson
from msgspec.structs import replace

from retinue.core.messages import AssistantMessage
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
"""How servers want their requests, shared by all models over one transport."""
_ABOUT_DOCUMENTS = re.compile(r"\bpdfs?\b|document|input_file|file_data|mime.?type|filename")
_OTHER_FORMAT = "something that is not an answer of its format."
_DRAIN_SECONDS = 0.25
_KEYED = frozenset({"openai", "openai-responses", "azure"})
"""Providers that take `prompt_cache_key`."""


class StreamReader(Protocol):
    """Turns the payloads of one stream into a draft."""

    @property
    def done(self) -> bool:
        """The stream's own end mark was seen: what follows is not waited for."""
        ...

    def absorb(self, event: Any) -> None:
        """Merge one event into the draft. May raise KeyError, TypeError, AttributeError or
        ValueError on an event that is not of the format."""
        ...

    def absorb_whole(self, answer: Any) -> None:
        """The same for an answer that was not streamed, from servers that cannot."""
        ...


class WireModel:
    """A `Model` over HTTP. Takes nothing from the environment: what it needs is handed in."""

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
        self._keyed: tuple[object, str, str] | None = None
        # Signatures that the provider no longer accepts.
        self._stale: frozenset[str] = _NO_SIGNATURES
        self._uncounted_said = False

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """Nothing to do: connections belong to the transport."""

    # ---------------------------------------------------------------- what a format defines
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
        """After a refused request: True if `body` will now come out differently."""
        return self._withhold_documents(request, refusal) or self._repairs.learn(body, refusal)

    def _withhold_documents(self, request: ModelRequest, refusal: RequestRefusal) -> bool:
        """Stop sending PDFs after a refusal that is about one (too many pages, a password, a model
        that takes none): in the history it would fail every later request."""
        if not self._info.documents or not _ABOUT_DOCUMENTS.search(refusal.text) or not has_documents(request):
            return False
        self._info = replace(self._info, documents=False)
        self._repairs.notes.append(
            f"did not take a PDF ({refusal.message.strip().rstrip('.')[:200]}): it is read as text"
        )
        return True

    def continuation(self, reader: StreamReader, draft: MessageDraft) -> dict[str, Any] | None:
        """Fields of a request for the rest of the answer; None if this was all of it."""
        return None

    def forget_signatures(self, request: ModelRequest) -> bool:
        """Stop returning the signatures of this conversation; True if there were any left.
        A signature goes stale when the history before it changes, as by a compaction."""
        before = len(self._stale)
        signatures = {""}
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                for part in message.content:
                    signatures.update((part.signature or "", getattr(part, "redacted", None) or ""))
        self._stale |= signatures - {""}
        return len(self._stale) > before

    # ---------------------------------------------------------------- the exchange
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
                    for part in draft.shown() or _ALIVE:
                        yield part
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
            draft.fail_unfinished(failures.malformed(self._wire, _OTHER_FORMAT))
        finally:
            if response is not None:
                response.close()
        for part in draft.shown():
            yield part
        finished = draft.finished()
        if draft.uncounted and not self._uncounted_said:
            self._uncounted_said = True
            yield Noted("model-usage", f"{self._info.full_name} sent no usage: tokens and cost are not known.")
        yield finished

    def _check_events(self, events: Events, draft: MessageDraft) -> None:
        """Fail on words that are no events: they come from another kind of server, and would again."""
        if events.foreign and not draft.parts:
            draft.fail_unfinished(failures.malformed(self._wire, _OTHER_FORMAT, again=False))

    async def _open(self, request: ModelRequest, draft: MessageDraft) -> Response | None:
        """Return a response that succeeded, or None with the failure in the draft. A parameter that
        the server refuses is left out and the request made again, here and from then on."""
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
                body = RequestBody(self, request)
                continue
            draft.fail(failure)
            return None

    async def _continue_answer(
        self, request: ModelRequest, response: Response, reader: StreamReader, draft: MessageDraft
    ) -> Response | None:
        """Return the response that goes on with an answer which its provider sends in several; None after
        the last, as in nearly all cases the first."""
        fields = self.continuation(reader, draft)
        response.close()
        if fields is None:
            return None
        return await self._open(replace(request, options={**request.options, **fields}), draft)

    async def _read_whole(self, response: Response, data: bytes, reader: StreamReader, draft: MessageDraft) -> None:
        """An answer in one piece, from a server that cannot stream; or a page of a wrong address."""
        if looks_like(data) == "page":
            # A server that sends pages would send them again: no retry would help.
            draft.fail(failures.malformed(self._wire, "a web page instead of an answer.", again=False))
            return
        pieces = [data, *[piece async for piece in response]]
        answer = parse_event(b"".join(pieces))
        try:
            reader.absorb_whole(answer)
        except (KeyError, TypeError, AttributeError):
            draft.fail_unfinished(failures.malformed(self._wire, _OTHER_FORMAT, again=False))
        if draft.stop is None and not draft.parts:
            draft.fail(failures.malformed(self._wire, _OTHER_FORMAT, again=False))

    # ---------------------------------------------------------------- keys on demand
    async def _fetch_key(self, draft: MessageDraft) -> bool:
        """Put the key of a helper into the headers; False with the failure in the draft."""
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

    # ---------------------------------------------------------------- small parts
    @property
    def _sends_cache_key(self) -> bool:
        setting = self._quirks.cache_key
        if setting is None:
            return self._info.provider in _KEYED
        return setting

    def cache_key(self, request: ModelRequest) -> str:
        """Name the conversation, so that its requests reach the machine that has its beginning
        in its cache. A fork begins alike and shares it; no text can be read from it."""
        first = None
        if request.messages:
            first = request.messages[0]
        if self._keyed is None or self._keyed[0] is not first or self._keyed[1] is not request.system:
            text = request.system + (getattr(first, "text", "") if first is not None else "")
            digest = blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
            self._keyed = (first, request.system, f"retinue-{digest}")
        return self._keyed[2]

    def _notes(self) -> list[Noted]:
        """Return what was learned since the last time, for people."""
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
        """Return the base URL, which may or may not end in the version or in the path, made whole. A
        base without `always` has the version added only if it has no path at all."""
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
    """Return the body as JSON. Text that UTF-8 cannot carry, as from a file read byte by byte, loses
    those characters instead of the request."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, ensure_ascii=False, default=_plain).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def absorb(payloads: list[bytes], reader: StreamReader, draft: MessageDraft) -> bool:
    """Merge events into the draft; return True when nothing more is to be waited for."""
    for payload in payloads:
        if payload == b"[DONE]":
            draft.stop = draft.stop or "end"
            return True
        reader.absorb(parse_event(payload))
    return reader.done or draft.failure is not None


def absorb_rest(events: Events, reader: StreamReader, draft: MessageDraft) -> None:
    """What the end of the stream completes. A last event that was cut in two is not garbage:
    the draft, which lacks its end, will say that the stream was dropped."""
    with contextlib.suppress(ValueError):
        absorb(events.finish(), reader, draft)


def looks_like(data: bytes) -> Literal["events", "json", "page"]:
    """Return what a body is, by how it begins: servers are careless with content types."""
    first = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first in (b"{", b"["):
        return "json"
    return "page" if first == b"<" else "events"
