"""A proxy outside of the sandbox, through which a confined program reaches the allowed hosts.

The program sees a port of its own loopback interface and nothing else of the network. The listening
socket is made inside and handed to the process outside, which asks for every connection whether
its host is on the list. It understands CONNECT and plain HTTP, and ends with the program:
`proxy HOSTS LAUNCHER …`.
"""

import array
import posix
import socket
import sys
import threading
from contextlib import suppress
from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_WEB_PORTS = (80, 443)
_MAX_HEAD_BYTES = 32_768
_TIMEOUT_SECONDS = 30
LISTENER_DESCRIPTOR = 3
"""The descriptor over which the launcher gives the socket away."""


def main(hosts: "list[str]", launcher: "list[str]") -> "NoReturn":
    """Start the launcher, serve its program, and then end as that did."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    child = posix.fork()
    if child == 0:
        posix.dup2(theirs.fileno(), LISTENER_DESCRIPTOR)
        posix.set_inheritable(LISTENER_DESCRIPTOR, True)
        posix.execve(launcher[0], launcher, posix.environ)
    theirs.close()
    for number in (SIGTERM, SIGINT, SIGHUP):
        # The program gets its own; this process stays until it has ended.
        signal(number, SIG_IGN)
    _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    if ancillary:
        numbers = array.array("i")
        numbers.frombytes(ancillary[0][2][:4])
        listener = socket.socket(fileno=numbers[0])
        threading.Thread(target=serve, args=(listener, hosts), daemon=True).start()
    _, status = posix.waitpid(child, 0)
    posix._exit(posix.WEXITSTATUS(status) if posix.WIFEXITED(status) else 128 + posix.WTERMSIG(status))


def serve(listener: socket.socket, hosts: "list[str]") -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=handle_client, args=(client, hosts), daemon=True).start()


def handle_client(client: socket.socket, hosts: "list[str]") -> None:
    try:
        client.settimeout(_TIMEOUT_SECONDS)
        head, body = read_head(client)
        pack_numbers = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(pack_numbers) != 3:
            refuse(client, 400, "not a request")
            return
        method, target, _ = pack_numbers
        tunnel = method == "CONNECT"
        host, port = address(target, tunnel)
        if not is_allowed(host, port, hosts):
            refuse(client, 403, f"{host}:{port} is not among the hosts that sandbox.network allows")
            return
        server = connect(host, port, hosts)
        if tunnel:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            server.sendall(body)
        else:
            server.sendall(origin_form(head, method, target) + b"\r\n\r\n" + body)
        client.settimeout(None)
        threading.Thread(target=copy_stream, args=(server, client), daemon=True).start()
        copy_stream(client, server)
    except (OSError, ValueError) as error:
        refuse(client, 502, str(error))


def read_head(client: socket.socket) -> "tuple[bytes, bytes]":
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(4096)
        if not piece or len(data) > _MAX_HEAD_BYTES:
            raise ValueError("the request is cut off or too long")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def address(target: str, tunnel: bool) -> "tuple[str, int]":
    """Host and port of `host:443` or `http://host/path`. Raise ValueError for anything else."""
    if not tunnel:
        if not target.lower().startswith("http://"):
            raise ValueError("only http:// and CONNECT are understood")
        target = target[7:].split("/", 1)[0].split("?", 1)[0]
    if "@" in target:
        raise ValueError("names and passwords do not belong into an address")
    host, colon, port = target.rpartition(":")
    if not colon or "]" in port:
        host, port = target, "80"
    return host.strip("[]").rstrip(".").lower(), int(port)


def is_allowed(host: str, port: int, hosts: "list[str]") -> bool:
    """`example.com` is that host, `*.example.com` what is below it, on the ports of the web;
    `example.com:8080` on that port only."""
    for entry in hosts:
        name, colon, allowed_port = entry.lower().rpartition(":")
        if not colon or not allowed_port.isdigit():
            name, allowed_port = entry.lower(), ""
        name = name.strip("[]")
        if port != int(allowed_port) if allowed_port else port not in _WEB_PORTS:
            continue
        if host == name or (name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1):
            return True
    return False


def connect(host: str, port: int, hosts: "list[str]") -> socket.socket:
    """A name that leads back to this machine is refused, unless it is one that says so."""
    named = host in ("localhost", "127.0.0.1", "::1")
    last = OSError(f"{host} has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        # A name may be pointed at this machine after it was put on the list.
        if not named and str(where[0]).startswith(("127.", "0.", "169.254.", "::1", "fe80:", "::ffff:127.")):
            last = OSError(f"{host} leads back to this machine")
            continue
        server = socket.socket(family, kind, protocol)
        try:
            server.settimeout(_TIMEOUT_SECONDS)
            server.connect(where)
        except OSError as error:
            server.close()
            last = error
            continue
        server.settimeout(None)
        return server
    raise last


def origin_form(head: bytes, method: str, target: str) -> bytes:
    """As the server wants it, and for one request only: the next may be for another host."""
    path = "/" + target[7:].partition("/")[2]
    lines = head.split(b"\r\n")[1:]
    headers = [line for line in lines if not line.lower().startswith((b"proxy-", b"connection:"))]
    return b"\r\n".join([f"{method} {path} HTTP/1.1".encode("latin-1"), *headers, b"Connection: close"])


def copy_stream(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def refuse(client: socket.socket, status: int, why: str) -> None:
    text = f"retinue sandbox: {why}\n".encode()
    head = f"HTTP/1.1 {status} SandboxError\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    with suppress(OSError):
        client.sendall(head.encode() + text)
    client.close()


if __name__ == "inside.proxy":
    main(sys.argv[1].split(","), sys.argv[2:])
