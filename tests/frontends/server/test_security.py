"""The eight rules of a server on localhost, each tried over a raw socket as an attacker would."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.server.conftest import Served
from tests.program.conftest import Project

from retinue.errors import UsageError
from retinue.frontends.server import security
from retinue.frontends.server.credentials import Credentials
from retinue.frontends.server.process import ServerOptions, check_host, is_loopback
from retinue.frontends.server.security import MAX_BODY_BYTES, MAX_FAILURES

EVERY_ROUTE = (
    "/",
    "/openapi.json",
    "/v1/runs",
    "/v1/events",
    "/static/app/main.js",
    "/static/index.html",
    "/nothing",
    "/ag-ui/Explore",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    project = Project(folder / "project", folder / "home")
    project.cwd.mkdir()
    project.home.mkdir()
    (folder / "secret.txt").write_text("the secret of another folder")
    process: subprocess.Popen[str] = project.start("serve", "--port", "0", "--json", "--no-browser")
    yield Served(process, project)
    process.terminate()
    process.communicate(timeout=30)


def send(
    server: Served, lines: list[str], body: bytes = b"", *, half: bool = False
) -> tuple[int, dict[str, str], bytes]:
    """Send a request line and headers as they are; return status, headers and body of the first response."""
    answer = server.raw("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    return parse(answer)


def parse(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in rest:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return int(first.split()[1]), headers, body


def code_of(body: bytes) -> str:
    found: str = json.loads(body)["code"]
    return found


def asked(server: Served, path: str = "/v1/runs", method: str = "GET", **headers: str) -> list[str]:
    """A right request, with these headers besides or instead; an empty one is left out."""
    given = {"Host": f"127.0.0.1:{server.port}", "Authorization": f"Bearer {server.token}", "Connection": "close"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value)]


# 1: reach


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.nip.io"])
def test_an_address_that_others_can_reach_needs_tls_or_insistence(project: Project, host: str) -> None:
    done = project.retinue("serve", "--host", host, "--port", "0", "--json", "--no-browser")
    assert done.returncode == 2
    assert "--insecure" in done.stderr and done.stdout == ""
    check_host(ServerOptions(cwd=Path(), host=host, insecure=True))
    check_host(ServerOptions(cwd=Path(), host=host, certificate=Path("c"), key=Path("k")))
    with pytest.raises(UsageError, match="--key"):
        check_host(ServerOptions(cwd=Path(), host=host, certificate=Path("c")))


def test_loopback_is_what_the_numbers_say() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("", "0.0.0.0", "::", "localhost.example", "10.0.0.1")] == [False] * 5


def test_the_socket_is_bound_to_this_machine_alone(server: Served) -> None:
    other = socket.gethostbyname(socket.gethostname())
    if other.startswith("127."):
        pytest.skip("this host has no other address")
    with pytest.raises(OSError):
        socket.create_connection((other, server.port), timeout=5).close()


# 2: host


@pytest.mark.parametrize("path", EVERY_ROUTE)
@pytest.mark.parametrize(
    "host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost:{port}.evil.example", ""]
)
def test_a_name_that_was_rebound_to_this_machine_reaches_no_route(server: Served, path: str, host: str) -> None:
    status, headers, body = send(server, asked(server, path, Host=host.format(port=server.port)))
    assert status in (400, 403), body
    assert "access-control-allow-origin" not in headers
    if status == 403:
        assert code_of(body) == "HOST"


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_its_own_names_are_accepted(server: Served, host: str) -> None:
    assert send(server, asked(server, Host=host.format(port=server.port)))[0] == 200


# 3: other sites


@pytest.mark.parametrize("path", EVERY_ROUTE)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_a_request_from_another_site_is_refused_even_with_the_token(
    server: Served, path: str, headers: dict[str, str]
) -> None:
    status, found, body = send(server, asked(server, path, **headers))
    assert (status, code_of(body)) == (403, "ORIGIN")
    assert not [name for name in found if name.startswith("access-control")]


def test_a_request_of_its_own_page_is_accepted_and_no_cors_header_is_sent(server: Served) -> None:
    own = {"Origin": f"http://127.0.0.1:{server.port}", "Sec_Fetch_Site": "same-origin"}
    status, headers, _ = send(server, asked(server, **own))
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control")]


def test_a_preflight_gets_no_permission(server: Served) -> None:
    lines = asked(server, method="OPTIONS", Authorization="", Origin="https://evil.example")
    status, headers, _ = send(server, [*lines, "Access-Control-Request-Method: POST"])
    assert status == 403
    assert not [name for name in headers if name.startswith("access-control")]


# 4: token, codes and keys of pages


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer x", "Basic {token}", "{token}", "Bearer {token}x", "Bearer {half}"]
)
def test_nothing_is_answered_without_the_token(server: Served, authorization: str) -> None:
    given = authorization.format(token=server.token, half=server.token[:20])
    for path in ("/v1/runs", "/openapi.json", "/v1/events", "/nothing"):
        status, _, body = send(server, asked(server, path, Authorization=given))
        assert (status in (401, 429), code_of(body) in ("TOKEN", "ATTEMPTS")) == (True, True)


@pytest.mark.parametrize(
    "path", ["/v1/runs?token={token}", "/?token={token}", "/v1/runs?TOKEN=x", "/v1/runs?a=1&token=x"]
)
def test_a_token_in_an_address_is_refused(server: Served, path: str) -> None:
    for authorization in (f"Bearer {server.token}", ""):
        lines = asked(server, path.format(token=server.token), Authorization=authorization)
        status, _, body = send(server, lines)
        assert (status, code_of(body)) == (400, "TOKEN_IN_ADDRESS")


def sign_in(server: Served, authorization: str, path: str = "/v1/session", **headers: str) -> tuple[int, Any]:
    common = {"Authorization": authorization, "Content_Type": "application/json", "Content_Length": "2"}
    status, found, body = send(server, asked(server, path, "POST", **{**common, **headers}), b"{}")
    assert "set-cookie" not in found
    return status, json.loads(body)


def code_in(link: str) -> str:
    return link.partition("#code=")[2].partition("&")[0]


def test_a_code_signs_one_page_in_once(server: Served) -> None:
    code = code_in(server.link())
    assert sign_in(server, f"Code {code}", "/v1/runs")[0] in (401, 429), "a code is for signing in alone"
    status, session = sign_in(server, f"Code {code}")
    assert status == 200 and server.token not in json.dumps(session)
    assert send(server, asked(server, Authorization=f"Bearer {session['key']}"))[0] == 200
    for second in (f"Code {code}", f"Bearer {code}"):
        status, refused = sign_in(server, second)
        assert status == 429 or refused["code"] in ("CODE", "TOKEN")
        assert "key" not in refused


def test_of_two_that_use_one_code_at_once_one_gets_in(project: Project, serving: Any) -> None:
    own = serving()
    code = code_in(own.info["url"])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: sign_in(own, f"Code {code}")[0], range(8)))
    assert sorted(found) == [200] + [401] * 7


def test_codes_that_are_too_old_or_of_another_start_or_forged_are_refused(project: Project, serving: Any) -> None:
    own = serving()
    start = str(send(own, asked(own, Authorization=""))[1]["www-authenticate"]).split('start="')[1].rstrip('"')
    genuine = Credentials(own.token, start)
    nonce, expiry, signature = genuine.new_code(60).split(".")
    refused = [
        genuine.new_code(-1),
        Credentials(own.token, "another start").new_code(60),
        Credentials("another token", start).new_code(60),
        f"{nonce}.{int(expiry, 16) + 60:x}.{signature}",
        f"{nonce}.{expiry}.",
        f"..{signature}",
        nonce,
        "",
    ]
    for code in refused:
        assert sign_in(own, f"Code {code}")[0] == 401, code
    assert sign_in(own, f"Code {nonce}.{expiry}.{signature}")[0] == 200


def test_the_key_of_a_page_holds_for_its_host_and_for_this_start_alone(project: Project, serving: Any) -> None:
    own = serving()
    names = [f"127.0.0.1:{own.port}", f"localhost:{own.port}"]
    keys = [sign_in(own, f"Bearer {own.token}", Host=name)[1]["key"] for name in names]
    found = [[send(own, asked(own, Host=name, Authorization=f"Bearer {key}"))[0] for name in names] for key in keys]
    assert found == [[200, 401], [401, 200]]
    own.process.kill()
    own.process.communicate()
    again = serving()
    assert (again.port, again.token) == (own.port, own.token)
    assert send(again, asked(again, Authorization=f"Bearer {keys[0]}"))[0] == 401
    assert send(again, asked(again))[0] == 200


def test_a_link_of_another_site_opens_the_page_and_reaches_nothing_else(server: Served) -> None:
    opened = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert send(server, asked(server, "/", Authorization="", **opened))[0] == 200
    for path in EVERY_ROUTE[1:]:
        assert send(server, asked(server, path, **opened))[0] == 403
    for other in ({"Sec_Fetch_Dest": "iframe"}, {"Sec_Fetch_Mode": "no-cors"}, {"Origin": "https://evil.example"}):
        assert send(server, asked(server, "/", **{**opened, **other}))[0] == 403


def test_wrong_tokens_are_counted_and_the_right_one_still_works(project: Project, serving: Any) -> None:
    own = serving()
    found = [send(own, asked(own, Authorization="Bearer wrong"))[0] for _ in range(MAX_FAILURES + 3)]
    assert found == [401] * MAX_FAILURES + [429] * 3
    assert send(own, asked(own))[0] == 200


# 5: bodies


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_that_another_site_could_post_is_no_request(server: Served, kind: str) -> None:
    body = b'{"task":"x"}'
    for authorization in (f"Bearer {server.token}", ""):
        lines = asked(
            server, method="POST", Authorization=authorization, Content_Type=kind, Content_Length=str(len(body))
        )
        status, _, answer = send(server, lines, body)
        assert (status, code_of(answer)) in ((415, "NOT_JSON"), (401, "TOKEN"))
        assert status == 415 or not authorization


def test_a_body_that_is_too_large_is_not_read(server: Served) -> None:
    json_kind = "application/json"
    lines = asked(server, method="POST", Content_Type=json_kind, Content_Length=str(MAX_BODY_BYTES + 1))
    status, _, answer = send(server, lines, b"{")
    assert (status, code_of(answer)) == (413, "TOO_LARGE")
    lines = asked(server, method="POST", Content_Type=json_kind, Transfer_Encoding="chunked")
    chunk = b"%x\r\n%b\r\n" % (65536, b" " * 65536)
    status, _, answer = send(server, lines, chunk * (MAX_BODY_BYTES // 65536 + 1))
    assert (status, code_of(answer)) == (413, "TOO_LARGE")


async def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from retinue.frontends.server.problem import RequestError

    monkeypatch.setattr(security, "BODY_SECONDS", 0.05)

    async def receive() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    bounded = security._bounded(receive)
    with pytest.raises(RequestError) as caught:
        for _ in range(100):
            await bounded()
    assert caught.value.status == 408


def test_slow_requests_of_others_hold_up_nobody(server: Served) -> None:
    slow = []
    for _ in range(30):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        connection.sendall("\r\n".join(asked(server, method="POST")).encode())
        slow.append(connection)
    assert send(server, asked(server))[0] == 200
    for connection in slow:
        connection.close()


# 6: headers of responses


@pytest.mark.parametrize(
    "path", ["/", "/v1/runs", "/nothing", "/openapi.json", "/static/app/main.js", "/static/style/base.css", "/static/x"]
)
def test_every_response_has_the_strict_headers(server: Served, path: str) -> None:
    for authorization in (f"Bearer {server.token}", ""):
        _, headers, _ = send(server, asked(server, path, Authorization=authorization))
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


# 7: paths


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2fetc/passwd",
        "/static//etc/passwd",
        "/static/%2e%2e/%2e%2e/secret.txt",
        "/static/app/../../../secret.txt",
        "/static/app/..\\..\\..\\secret.txt",
        "/static/__init__.py",
        "/static/vendor/versions.json",
        "/static/app/",
        "/static/",
        "/static/app/main.js%00.css",
        "/static/%61pp/%2e%2e/__init__.py",
        "/v1/agents/..%2f..%2fsecret.txt",
        "/v1/runs/..%2f..%2fsecret.txt",
        "/v1/runs?project=../../secret.txt",
        "/v1/runs?project=%00",
        "/v1/runs/%00/transcript",
    ],
)
def test_no_path_leads_out_of_the_projects(server: Served, path: str) -> None:
    status, _, body = send(server, asked(server, path))
    assert status in (400, 404, 422)
    assert b"secret of another" not in body and b"root:" not in body


def test_no_route_takes_a_folder_or_a_command() -> None:
    from retinue.frontends.server.routes import ROUTES

    names: set[str] = set()
    for route in ROUTES:
        names.update(route.params.__struct_fields__)
        if route.body is not None:
            names.update(route.body.__struct_fields__)
    assert not names & {"cwd", "path", "folder", "file", "command", "environment", "env", "permission_mode", "trust"}


# The page: its files hold nothing, so anyone on this machine may read them, and nothing else


def test_files_of_the_page_are_typed_and_need_no_token(server: Served) -> None:
    kinds = {"": "text/html", "static/app/main.js": "text/javascript", "static/style/base.css": "text/css"}
    for path, kind in kinds.items():
        status, headers, body = send(server, asked(server, f"/{path}", Authorization=""))
        assert status == 200 and headers["content-type"].startswith(kind) and body
        assert server.token.encode() not in body


@pytest.mark.parametrize("path", ["/", "/static/app/main.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_files_of_the_page_are_only_read(server: Served, path: str, method: str) -> None:
    status, _, _ = send(server, asked(server, path, method, Content_Type="application/json", Content_Length="0"))
    assert status == 405
    status, _, _ = send(server, asked(server, path, method, Authorization="", Content_Length="0"))
    assert status == 401


def test_the_policy_lets_no_inline_script_or_style_of_the_page_run(server: Served) -> None:
    _, headers, body = send(server, asked(server, "/", Authorization=""))
    policy = headers["content-security-policy"]
    assert "script-src 'self';" in policy and "style-src 'self';" in policy
    assert b"<script>" not in body and b"<style" not in body and b"onload" not in body


def test_a_unix_socket_is_for_its_owner_alone(project: Project, serving: Any, tmp_path: Path) -> None:
    path = tmp_path / "retinue.sock"
    own = serving("--uds", str(path))
    assert own.info["url"] == f"unix:{path}" and own.info["port"] == 0
    assert path.stat().st_mode & 0o777 == 0o600

    def ask(host: str, token: str) -> int:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(path))
            lines = ["GET /v1/runs HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}", "Connection: close"]
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            return int(connection.recv(4096).split()[1])

    assert (ask("localhost", own.token), ask("localhost", "x"), ask("evil.example", own.token)) == (200, 401, 403)
    second = project.retinue("serve", "--uds", str(tmp_path / "other.sock"), "--no-browser")
    assert second.returncode != 0 and str(path) in second.stderr
    own.process.kill()
    own.process.communicate()
    again = serving("--uds", str(path))
    assert ask("localhost", again.token) == 200
    assert again.end()[0] == 0 and not path.exists()
    refused = project.retinue("serve", "--uds", str(path), "--host", "0.0.0.0", "--no-browser")
    assert refused.returncode == 2


# Smuggling


@pytest.mark.parametrize(
    "extra",
    [
        ["Host: evil.example"],
        ["Content-Length: 0", "Content-Length: 5"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: -1"],
        ["Content-Length: 1e3"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Authorization: Bearer other"],
        ["Origin: http://a", "Origin: http://b"],
        ["Content-Type : application/json"],
        [" Folded: line"],
    ],
)
def test_a_request_that_two_servers_would_read_differently_is_refused(server: Served, extra: list[str]) -> None:
    lines = asked(server, "/v1/runs", "POST", Content_Type="application/json") + extra
    answer = server.raw("\r\n".join([*lines, "", ""]).encode() + b"0\r\n\r\nGET /v1/runs HTTP/1.1\r\n\r\n")
    status, _, _ = parse(answer)
    assert 400 <= status < 500
    assert answer.count(b'"runs":') == 0


def test_a_web_socket_is_refused(server: Served) -> None:
    lines = asked(server, "/v1/runs", Connection="Upgrade", Upgrade="websocket")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    answer = server.raw("\r\n".join([*lines, key, "Sec-WebSocket-Version: 13", "", ""]).encode())
    assert b"101" not in answer.split(b"\r\n")[0]


# 8: secrets


def test_what_is_shown_went_through_the_redactor(project: Project, serve: Any, serving: Any) -> None:
    from tests.program.model_server import Reply

    secret = "sk-ant-api03-" + "A1b2C3d4" * 11
    call = ("write", {"path": "key.txt", "content": f"KEY={secret}\n"})
    serve(lambda request: Reply(calls=[call]) if request.turn == 0 else Reply(text=f"It is {secret}."))
    own = serving()
    run = own.post("/v1/runs", {"agent": "general-purpose", "task": f"Write {secret}"}, 201)
    own.ended(run["id"])
    shown = [own.request("GET", path)[2] for path in ("/v1/runs", "/v1/search?q=KEY%3D", "/v1/inbox?all=true")]
    for part in ("", "/tree", "/transcript", "/effects", "/diff"):
        shown.append(own.get(f"/v1/runs/{run['id']}{part}"))
    events = own.stream(f"/v1/runs/{run['id']}/events")
    shown.append(events.until("run.ended"))
    events.close()
    assert (project.cwd / "key.txt").read_text() == f"KEY={secret}\n"
    assert secret not in json.dumps(shown)
    assert "key.txt" in json.dumps(shown[-2])
