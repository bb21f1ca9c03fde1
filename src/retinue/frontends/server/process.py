"""The server as a process: its socket, its token, the file with its address, and its end.

The file `serve.json` in the state folder of the project has the address and the token, readable only by its owner. It
is removed at a clean end. After a crash it remains, and the next server reuses its token, so that connected programs
and pages reconnect by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import uvicorn
from msgspec import Struct

from retinue.app.process import on_end
from retinue.app.projects import Projects, private_folder, state_folder
from retinue.core.programs import start_of
from retinue.errors import StateError, UsageError
from retinue.frontends.server.app import make_app
from retinue.frontends.server.connections import ACCEPT_BACKLOG, GuardedConnection, UnprovenConnections
from retinue.frontends.server.credentials import LINK_SECONDS, Credentials, new_secret
from retinue.frontends.server.launcher import LAUNCH_SECONDS, open_in_browser, remove_launch_file, remove_launch_files
from retinue.frontends.server.security import Access

SERVER_FILE_NAME = "serve.json"
LOOPBACK_ADDRESS = "127.0.0.1"
_BACKLOG = 256
_ENDING_SECONDS = 5


class ServerAddress(Struct, frozen=True):
    """The address of a server. On a Unix socket `url` is `unix:` and the path, and `port` is 0."""

    url: str
    port: int
    token: str
    pid: int


class ServerInfo(ServerAddress, frozen=True):
    """The file of a server. `started` distinguishes its process from a later one with the same number."""

    started: str = ""
    start_id: str = ""

    @property
    def alive(self) -> bool:
        return bool(self.started) and start_of(self.pid) == self.started

    def link(self, run_id: str = "") -> str:
        """Return an address that signs one page in, once, and optionally shows a run."""
        return self._link(Credentials(self.token, self.start_id).new_code(LINK_SECONDS), run_id)

    def address(self, run_id: str = "") -> ServerAddress:
        """Return the address as a document for programs."""
        return ServerAddress(self.link(run_id), self.port, self.token, self.pid)

    def open_page(self, cwd: Path, run_id: str = "") -> bool:
        """Open the page in the browser, which may take long. Return whether it was opened. See `open_in_browser`."""
        code = Credentials(self.token, self.start_id).new_code(LAUNCH_SECONDS)
        return open_in_browser(self._link(code, run_id), code, state_folder(cwd))

    def _link(self, code: str, run_id: str) -> str:
        if not self.port:
            return self.url
        # A fragment is never sent: the code reaches neither logs nor other sites.
        return f"{self.url}#code={code}" + (f"&run={run_id}" if run_id else "")


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Options of the server. `names` are additional host names under which it may be called."""

    cwd: Path
    host: str = LOOPBACK_ADDRESS
    port: int = 4747
    insecure: bool = False
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    uds: Path | None = None
    """A Unix socket to listen on instead of a port."""

    @property
    def tls(self) -> bool:
        return self.certificate is not None


def running_server(cwd: Path) -> ServerInfo | None:
    """Return the running server of the project in `cwd`, if any."""
    info = _read(state_folder(cwd) / SERVER_FILE_NAME)
    return info if info is not None and info.alive else None


async def run_server(options: ServerOptions, ready: Callable[[ServerInfo], None]) -> int:
    """Serve until SIGINT or SIGTERM. `ready` is called once requests are answered. Return the number of runs that were
    started here and stopped at the end. Raise UsageError or StateError."""
    check_host(options)
    state = state_folder(options.cwd)
    file = state / SERVER_FILE_NAME
    before = _read(file)
    if before is not None and before.alive:
        address = f"port {before.port}" if before.port else before.url
        raise StateError(
            f"A server of this project is running already: process {before.pid}, {address}.",
            remedy="Open it with: retinue open",
        )
    listener, port = open_listener(options, before.port if before is not None else 0)
    token = before.token if before is not None else new_secret()
    credentials = Credentials(token, new_secret())
    access = Access(credentials, _hosts(options, port), partial(remove_launch_file, state), tls=options.tls)
    projects = Projects(options.cwd)
    closing = asyncio.Event()
    server = _server(options, make_app(projects, access, closing))
    started = start_of(os.getpid()) or ""
    info = ServerInfo(_url(options, port), port, token, os.getpid(), started, credentials.start_id)
    _write(file, info)
    stopped = 0
    try:
        with on_end(lambda: _end(server, closing)):
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            # uvicorn reports its start only by a flag.
            while not server.started and not serving.done():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            if server.started:
                ready(info)
            await serving
            stopped = await projects.close()
    finally:
        file.unlink(missing_ok=True)
        remove_launch_files(state)
        if options.uds is not None:
            options.uds.unlink(missing_ok=True)
    return stopped


def check_host(options: ServerOptions) -> None:
    """Raise UsageError for an address that others can reach without TLS, unless `insecure` allows it."""
    if (options.certificate is None) != (options.key is None):
        raise UsageError("TLS needs a certificate and its key.", remedy="Give both --certificate and --key.")
    if options.uds is not None:
        if options.tls or options.host != LOOPBACK_ADDRESS:
            raise UsageError(
                "A Unix socket has no host and needs no TLS.", remedy="Leave --host and --certificate out."
            )
        return
    if is_loopback(options.host) or options.tls or options.insecure:
        return
    raise UsageError(
        f"{options.host} can be reached from other machines, and the connection would not be encrypted.",
        remedy="Leave --host out, give --certificate and --key, or insist with --insecure.",
    )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _hosts(options: ServerOptions, port: int) -> frozenset[str]:
    if options.uds is not None:
        # The host name that clients use for a Unix socket.
        return frozenset({"localhost"})
    names = {"127.0.0.1", "localhost", "[::1]", *options.names}
    if options.host not in ("0.0.0.0", "::"):  # noqa: S104 - no address that anyone calls
        names.add(_bracketed(options.host))
    hosts = {f"{name.lower()}:{port}" for name in names}
    if port == (443 if options.tls else 80):
        hosts |= {name.lower() for name in names}
    return frozenset(hosts)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _url(options: ServerOptions, port: int) -> str:
    if options.uds is not None:
        return f"unix:{options.uds.absolute()}"
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else _bracketed(options.host)  # noqa: S104
    scheme = "https" if options.tls else "http"
    return f"{scheme}://{host}:{port}/"


def _listen(options: ServerOptions) -> socket.socket:
    try:
        address_info = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        family, kind, protocol, _, address = address_info
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise StateError(
            f"Port {options.port} of {options.host} cannot be used ({error.strerror or error}).",
            remedy="Choose another with --port; --port 0 takes any that is free.",
        ) from error
    listener.setblocking(False)
    return listener


def open_listener(options: ServerOptions, last_port: int = 0) -> tuple[socket.socket, int]:
    """Return a listening socket and its port, 0 for a Unix socket. If any port is acceptable, use `last_port` if it is
    free: after a crash, the pages of the previous server reconnect to it. Raise StateError."""
    if options.uds is not None:
        return _listen_on_file(options.uds), 0
    listener = None
    if not options.port and last_port:
        with contextlib.suppress(StateError):
            listener = _listen(msgspec.structs.replace(options, port=last_port))
    listener = listener or _listen(options)
    return listener, int(listener.getsockname()[1])


def _listen_on_file(path: Path) -> socket.socket:
    """Return a Unix socket that only its owner can connect to. The socket of a crashed server is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StateError(
            f"{path} cannot be listened on ({error.strerror or error}).",
            remedy="Choose a path that does not exist yet, in a folder of yours.",
        ) from error
    listener.setblocking(False)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, because ours end the streams first."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


def _server(options: ServerOptions, app: object) -> _Server:
    connection = partial(GuardedConnection, UnprovenConnections(), _tls_context(options))
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=connection,  # type: ignore[arg-type]
        backlog=ACCEPT_BACKLOG,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_ENDING_SECONDS,
    )
    return _Server(config)


def _tls_context(options: ServerOptions) -> ssl.SSLContext | None:
    if options.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.certificate, options.key)
    except OSError as error:
        raise UsageError(
            f"The certificate {options.certificate} cannot be used ({error.strerror or error}).",
            remedy="--certificate and --key take files in PEM format that belong together.",
        ) from error
    return context


def _end(server: uvicorn.Server, closing: asyncio.Event) -> None:
    closing.set()
    # The second signal does not wait for requests that are being answered.
    server.force_exit = server.should_exit
    server.should_exit = True


def _read(file: Path) -> ServerInfo | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ServerInfo)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(file: Path, info: ServerInfo) -> None:
    private_folder(file.parent)
    draft = file.with_name(f"{SERVER_FILE_NAME}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(msgspec.json.encode(info))
    draft.replace(file)
