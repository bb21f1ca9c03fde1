"""`retinue serve` and `retinue open`: the HTTP API and the page."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.app.lookup import locate_run
from retinue.app.text import plural
from retinue.errors import MissingExtraError, StateError, UsageError
from retinue.frontends.cli.project import add_cwd, count, folder, say, write_json

if TYPE_CHECKING:
    from retinue.frontends.server import ServerInfo

DEFAULT_PORT = 4747
_MAX_PORT = 65535


def configure_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="the address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=count, default=DEFAULT_PORT, metavar="N", help="(default: %(default)s; 0: any that is free)"
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open the page")
    parser.add_argument("--json", action="store_true", help="print one JSON object when ready: url, port, token, pid")
    parser.add_argument(
        "--name", action="append", metavar="HOST", default=[], help="an additional host name of this machine"
    )
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="serve with TLS: the certificate")
    parser.add_argument("--key", type=Path, metavar="FILE", help="serve with TLS: the key of the certificate")
    parser.add_argument("--uds", type=Path, metavar="FILE", help="listen on a Unix socket instead of a port")
    parser.add_argument("--insecure", action="store_true", help="listen on other addresses without TLS")
    add_cwd(parser, "the project to serve (default: here)")


def execute_serve(args: argparse.Namespace) -> int:
    """Serve the HTTP API and the page of this project, until Ctrl-C.

        retinue serve                     http://127.0.0.1:4747, opened in the browser
        retinue serve --port 0 --json --no-browser

    All runs of the project are shown, whichever process runs them. At the end, runs that were
    started through the server are stopped, and can be resumed; runs of other processes continue.
    The printed address signs one browser in, once, within ten minutes; `retinue open` prints a new
    one. The token that --json prints is for programs: its holder can start agents.
    """
    if args.port > _MAX_PORT:
        raise UsageError(f"There is no port {args.port}.", remedy=f"Choose one up to {_MAX_PORT}.")
    try:
        from retinue.frontends.server import ServerOptions, run_server
    except ImportError as error:
        raise MissingExtraError("serve", "retinue serve") from error
    options = ServerOptions(
        cwd=folder(args.cwd),
        host=args.host,
        port=args.port,
        insecure=args.insecure,
        certificate=args.certificate,
        key=args.key,
        names=tuple(args.name),
        uds=args.uds,
    )

    def ready(info: ServerInfo) -> None:
        if args.json:
            write_json(info.address(), indent=None)
        else:
            print(info.link(), flush=True)
            say("Ctrl-C ends the server. Runs of other processes continue.")
        if info.port and not args.no_browser and sys.stdout.isatty():
            # In a thread, because some browsers run in the foreground while the page must be served.
            threading.Thread(target=info.open_page, args=(options.cwd,), daemon=True).start()

    stopped = asyncio.run(run_server(options, ready))
    if stopped:
        say(f"{plural(stopped, 'run')} of this server stopped. Resume with: retinue runs resume ID")
    return 0


def configure_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="id of the run to show, or a prefix of it")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument("--json", action="store_true", help="print one JSON object: url, port, token, pid")
    add_cwd(parser, "the project whose server is meant (default: here)")


def execute_open(args: argparse.Namespace) -> int:
    """Open the page of the running server, optionally at a run.

        retinue open
        retinue open 3f2a9c1d
        retinue open --json               for programs: with the token of the server

    The printed address signs one browser in, once, within ten minutes.
    """
    try:
        from retinue.frontends.server import running_server
    except ImportError as error:
        raise MissingExtraError("serve", "retinue open") from error
    cwd = folder(args.cwd)
    info = running_server(cwd)
    if info is None:
        raise StateError("No server of this project is running.", remedy="Start one with: retinue serve")
    run_id = ""
    if args.run is not None:
        _, row = locate_run(args.run, cwd)
        run_id = row.id
    if args.json:
        write_json(info.address(run_id), indent=None)
        return 0
    print(info.link(run_id), flush=True)
    if info.port and not args.no_browser and sys.stdout.isatty() and not info.open_page(cwd, run_id):
        say("No browser has opened the page. Open the address above.")
    return 0
