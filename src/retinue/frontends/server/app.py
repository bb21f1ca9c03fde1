"""The application: passes a request to the handler of its route, and converts the result to a response.

The files of the page are read once and served from memory. A request names one of them or gets 404; its path is never
used as a path of the file system.

`/mcp` offers agents to hosts that speak the Model Context Protocol over HTTP. The server's guard protects it, so the
SDK's own checks of host and origin are off. The SDK is imported with the first request to it.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

import retinue.frontends.web
from retinue.app.feed import Feed
from retinue.app.projects import Projects
from retinue.core.encode import dump
from retinue.errors import RetinueError
from retinue.frontends.server.openapi import openapi_document
from retinue.frontends.server.problem import PROBLEM_MEDIA_TYPE, RequestError, problem_of
from retinue.frontends.server.routes import ROUTES, ApiCall, Route
from retinue.frontends.server.security import Access, Guard

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


PAGE_FOLDER = Path(retinue.frontends.web.__file__).parent
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_FILE = "index.html"
_MIN_COMPRESSED_BYTES = 4_096
"""The size from which a body is compressed. No foreign page can make a signed-in request and learn from lengths."""
_GZIP_LEVEL = 5


class StaticFile(Struct, frozen=True):
    """One file of the page."""

    content: bytes
    media_type: str


@cache
def preload_header() -> str:
    """Return the `Link` header that lets a browser load all modules at once instead of one import after another."""
    links = []
    for name, file in static_files().items():
        if file.media_type == MEDIA_TYPES[".js"]:
            links.append(f"</static/{name}>; rel=modulepreload")
    return ", ".join(links)


@cache
def static_files() -> dict[str, StaticFile]:
    """Return every file of the page by its address below `/static/`."""
    files = {}
    for path in sorted(PAGE_FOLDER.rglob("*")):
        kind = MEDIA_TYPES.get(path.suffix)
        if kind is not None and path.is_file():
            files[path.relative_to(PAGE_FOLDER).as_posix()] = StaticFile(path.read_bytes(), kind)
    return files


PUBLIC_PATHS = frozenset({"/"})
STATIC_PREFIX = "/static/"
Endpoint = Callable[[Request], Awaitable[Any]]


def make_app(projects: Projects, access: Access, closing: asyncio.Event) -> ASGIApp:
    """Return the application for these projects. Streams end when `closing` is set."""
    routes = [StarletteRoute("/", _page, methods=["GET"])]
    routes.append(StarletteRoute(STATIC_PREFIX + "{name:path}", _guarded(_static), methods=["GET"]))
    routes.append(StarletteRoute("/openapi.json", _guarded(_openapi), methods=["GET"]))
    for route in ROUTES:
        endpoint = _endpoint(route, projects, access, closing)
        routes.append(StarletteRoute(route.path, _guarded(endpoint), methods=[route.method]))
    routes.append(StarletteRoute(MCP_PATH, McpRoute(projects.current, closing)))
    handlers_of_errors = {404: _not_found, 405: _wrong_method}
    app = Starlette(routes=routes, exception_handlers=handlers_of_errors)
    # An address with an additional slash gets 404, because a redirect would lose the method.
    app.router.redirect_slashes = False

    def takes_body(scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in routes)

    return Guard(app, access, PUBLIC_PATHS, STATIC_PREFIX, takes_body)


def _endpoint(route: Route, projects: Projects, access: Access, closing: asyncio.Event) -> Endpoint:
    decoder = msgspec.json.Decoder(route.body) if route.body is not None else None

    async def respond(request: Request) -> Any:
        params = read_params(route, request)
        body = None
        if decoder is not None:
            body = read_body(await request.body(), decoder)
        call = ApiCall(projects, params, body, _headers(request), closing, access.credentials)
        answer = await route.handle(call)
        if not isinstance(answer, Struct):
            return answer
        return await _whole(request, dump(answer), "application/json", status=route.status)

    return respond


async def _whole(
    request: Request, body: bytes, media_type: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a complete response, compressed if it is long and the client accepts that."""
    headers = {**(headers or {}), "vary": "accept-encoding"}
    if len(body) >= _MIN_COMPRESSED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        # In a thread, because every open stream needs the event loop.
        body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers, media_type=media_type)


def _guarded(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint that answers every error with a problem document."""

    async def answer(request: Request) -> Any:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except (RequestError, RetinueError) as error:
            return problem_response(error)
        except Exception as error:  # noqa: BLE001 - a defect must not end the server, and its text is for us alone
            traceback.print_exception(error, file=sys.stderr)
            return problem_response(error)

    return answer


def problem_response(error: Exception) -> Response:
    """Return the response for an error."""
    problem = problem_of(error)
    headers = dict(error.headers) if isinstance(error, RequestError) else None
    return Response(dump(problem), problem.status, headers, media_type=PROBLEM_MEDIA_TYPE)


def read_params(route: Route, request: Request) -> Any:
    """Return path and query as the parameters of the route. Raise RequestError."""
    values: dict[str, Any] = {}
    try:
        pairs = parse_qsl(request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise RequestError(400, "INVALID", "The query is not UTF-8.") from None
    for name, value in pairs:
        if name in values:
            raise RequestError(422, "INVALID", f"The parameter {name!r} occurs twice.")
        values[name] = value
    for name, value in request.path_params.items():
        if name in values:
            raise RequestError(422, "INVALID", f"{name!r} belongs in the path, not in the query.")
        values[name] = value
    try:
        params = msgspec.convert(values, route.params, strict=False)
        nulls = {name: value for name, value in values.items() if value.lower() == "null"}
        return msgspec.structs.replace(params, **_read_words(route.params, nulls))
    except msgspec.ValidationError as error:
        raise RequestError(422, "INVALID", f"{error}.", "See /openapi.json.") from None


def _read_words(params: type[Struct], words: Mapping[str, str]) -> dict[str, Any]:
    """Convert query values that msgspec would read as null: in a query, `null` is an ordinary word."""
    converted = {}
    for field in msgspec.structs.fields(params):
        if field.name in words:
            kinds = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
            kind: Any = Union[tuple(kind for kind in kinds if kind is not NoneType)]  # noqa: UP007 - made at run time
            converted[field.name] = msgspec.convert(words[field.name], kind, strict=False)
    return converted


def read_body(data: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode the body of a request. Raise RequestError."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise RequestError(422, "INVALID", f"{error}.", "See /openapi.json.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, "INVALID", f"The body is not JSON ({error}).") from None


def _headers(request: Request) -> Mapping[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}


async def _openapi(request: Request) -> Response:
    return await _whole(request, dump(openapi_document()), "application/json")


async def _page(request: Request) -> Response:
    page = static_files()[PAGE_FILE]
    return await _whole(request, page.content, page.media_type, headers={"link": preload_header()})


async def _static(request: Request) -> Response:
    file = static_files().get(request.path_params["name"])
    if file is None:
        return await _not_found(request, RequestError(404, "NOT_FOUND", ""))
    return await _whole(request, file.content, file.media_type)


async def _not_found(request: Request, error: Exception) -> Response:
    return problem_response(RequestError(404, "NOT_FOUND", "There is nothing at this address.", "See /openapi.json."))


async def _wrong_method(request: Request, error: Exception) -> Response:
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    allowed = {"allow": ", ".join(sorted(methods))}
    refused = RequestError(405, "METHOD", f"{request.method} is not for this address.", "See /openapi.json.", allowed)
    return problem_response(refused)


MCP_PATH = "/mcp"


class McpRoute:
    """Agents for hosts that speak MCP. Use from one event loop. Ends with `closing`."""

    def __init__(self, feed: Feed, closing: asyncio.Event) -> None:
        self._feed = feed
        self._closing = closing
        self._started: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._started), name="mcp over http")
            self._serving.add_done_callback(self._pass_on_failure)
        manager = await asyncio.shield(self._started)
        answering = asyncio.ensure_future(manager.handle_request(scope, receive, send))
        closing = asyncio.create_task(self._closing.wait())
        try:
            # A call may wait for hours and a stream never ends, so the server does not wait for them.
            await asyncio.wait({answering, closing}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await answering
        finally:
            answering.cancel()
            closing.cancel()
            await asyncio.wait({answering})

    def _pass_on_failure(self, serving: asyncio.Task[None]) -> None:
        error = None if serving.cancelled() else serving.exception()
        if error is not None and self._started is not None and not self._started.done():
            self._started.set_exception(error)

    async def _serve(self, started: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        from retinue.frontends.mcp import make_server

        server = make_server(self._feed)
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        manager = StreamableHTTPSessionManager(server, security_settings=unchecked)
        async with manager.run():
            started.set_result(manager)
            await self._closing.wait()
