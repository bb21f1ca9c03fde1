"""Who gets into the page: the browser that was given a link, in all its tabs, and nobody else on this machine."""

from __future__ import annotations

import http.client
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.server.conftest import Served, flooded, many_files
from tests.frontends.web.browser import FLAGS, why_no_browser
from tests.frontends.web.conftest import PATIENCE, Visit
from tests.frontends.web.story import Script, StoryServer
from tests.program.conftest import Project

Serving = Callable[..., Served]
Visiting = Callable[..., Visit]
Telling = Callable[[Script], StoryServer]
NOBODY = 65534
SIGN_IN = ".sign-in pre >> text=retinue open"


class Stranger(BaseHTTPRequestHandler):
    """A web server of somebody else: answers as the test says, and keeps what browsers send."""

    def do_GET(self) -> None:
        strange: StrangeServer = self.server  # type: ignore[assignment]
        strange.heard.append(f"{self.path}\n{self.headers}")
        self.send_response(strange.status)
        for name, value in strange.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(strange.page.encode())

    do_POST = do_GET  # noqa: N815 - a name of the standard library

    def log_message(self, *_: Any) -> None:
        pass


class StrangeServer(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Stranger)
        self.heard: list[str] = []
        self.status = 200
        self.page = ""
        self.headers = {"Content-Type": "text/html"}


@contextmanager
def stranger_on(port: int = 0) -> Iterator[StrangeServer]:
    with StrangeServer(port) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def status_with(server: Served, authorization: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/v1/runs", headers={"Authorization": authorization})
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_browser_stays_signed_in_through_reloads_tabs_and_history(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    story(lambda request: ["Found it."])
    server = serving()
    run = server.post("/v1/runs", {"agent": "Explore", "task": "Look around"}, 201)
    server.ended(run["id"])
    seen = visit(server)
    page = seen.page
    assert "code" not in page.url and seen.context.cookies() == []
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert server.token not in stored
    page.reload()
    seen.see(".connection.live")
    seen.go("run", run["id"])
    seen.see(".entry.answer", "Found it.")
    seen.go("cost")
    seen.see(".sums")
    page.go_back()
    seen.see(".entry.answer", "Found it.")
    page.go_back()
    page.go_forward()
    seen.see(".entry.answer", "Found it.")

    # A link that is opened in another tab, and an address that is typed.
    second = seen.context.new_page()
    second.goto(f"{server.base}/#/run/{run['id']}")
    second.wait_for_selector(".connection.live")
    second.wait_for_selector(".entry.answer >> text=Found it.")

    # Events arrive in both.
    later = server.post("/v1/runs", {"agent": "Explore", "task": "Look again"}, 201)
    server.ended(later["id"])
    for tab in (page, second):
        tab.evaluate("location.hash = '#/fleet'")
        tab.wait_for_selector(".row >> text=Look again")

    # Elsewhere and back: the browser has its key still.
    page.goto("about:blank")
    page.go_back()
    seen.see(".connection.live")


def test_a_link_works_once_and_the_page_says_how_to_get_another(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    server = serving()
    seen = visit(server)
    other = seen.context.browser.new_context()
    late = other.new_page()
    late.set_default_timeout(PATIENCE)
    late.goto(server.base)
    late.wait_for_selector(SIGN_IN)
    link = server.link()
    seen.page.goto("about:blank")
    seen.page.goto(link)
    seen.see(".connection.live")
    # Pasted into the address of a page that is open.
    late.goto(link)
    late.wait_for_selector(".sign-in .problem >> text=used already")
    late.wait_for_selector(SIGN_IN)
    assert "code" not in late.url
    # Where the browser is signed in already, a used link still opens the page.
    seen.page.goto("about:blank")
    seen.page.goto(link)
    seen.see(".connection.live")
    # A tab that waits for a link gets in as soon as another one does.
    third = other.new_page()
    third.goto(server.link())
    third.wait_for_selector(".connection.live")
    late.wait_for_selector(".connection.live")
    other.close()


def test_the_page_works_while_another_user_opens_connections_without_end(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    story(lambda request: ["Found it."])
    server = serving()
    with many_files(), flooded(server):
        seen = visit(server)
        seen.page.reload()
        seen.see(".connection.live")
        run = server.post("/v1/runs", {"agent": "Explore", "task": "Look around"}, 201)
        server.ended(run["id"])
        seen.see(".row", "Look around").click()
        seen.see(".entry.answer", "Found it.")


def test_a_server_on_another_port_gets_nothing(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    server = serving()
    seen = visit(server)
    key = seen.page.evaluate("localStorage.getItem('key')")
    with stranger_on() as stranger:
        stranger.page = "<title>strange</title>"
        tab = seen.context.new_page()
        tab.goto(f"http://127.0.0.1:{stranger.server_port}/")
        attempt = """async base => {
            const answers = [];
            for (const mode of ["cors", "no-cors"]) for (const path of ["/v1/runs", "/v1/session"]) {
                const found = await fetch(base + path, {mode, credentials: "include"}).then(r => r.text(), String);
                answers.push(found);
            }
            return JSON.stringify([answers, {...localStorage}, document.cookie]);
        }"""
        found = tab.evaluate(attempt, server.base)
        sent = "\n".join(stranger.heard)
    assert '"runs"' not in found and key not in found
    assert "Cookie" not in sent and "Authorization" not in sent and key not in sent and server.token not in sent


def test_who_takes_the_port_of_a_server_that_crashed_gets_nothing_that_the_next_one_accepts(
    project: Project, story: Telling, serving: Serving, visit: Visiting
) -> None:
    server = serving()
    seen = visit(server)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.communicate()
    with stranger_on(server.port) as stranger:
        stranger.status = 401
        stranger.headers = {"WWW-Authenticate": 'Bearer realm="retinue", start="chosen-by-the-stranger"'}
        deadline = time.monotonic() + 60
        while len(stranger.heard) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        seen.page.wait_for_selector(SIGN_IN)
        heard = set(re.findall(r"Authorization: (.*)", "\n".join(stranger.heard)))
        stored = seen.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert len(heard) == 2 and server.token not in f"{heard}{stored}"
    again = serving()
    assert (again.port, again.token) == (server.port, server.token)
    kept = {f"Bearer {value}" for value in re.findall(r"[0-9a-f]{64}", stored)}
    assert [status_with(again, each) for each in sorted(heard | kept)] == [401] * len(heard | kept)


# Opening the browser


def test_no_secret_is_in_the_list_of_processes_and_a_browser_in_the_foreground_gets_its_page(
    project: Project, story: Telling, tmp_path: Path
) -> None:
    missing = why_no_browser()
    if missing is not None:
        pytest.skip(missing)
    if os.geteuid() != 0:
        pytest.skip("only root can look as another user")
    profile, program = tmp_path / "profile", tmp_path / "browser"
    flags = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", *FLAGS]
    program.write_text(f'#!/bin/sh\nexec {shutil.which("chromium")} {" ".join(flags)} "$@"\n')
    program.chmod(0o755)
    with on_terminal(project, {"BROWSER": str(program)}, "serve", "--port", "0") as shown:
        link = shown.until(r"http://127\.0\.0\.1:\d+/#code=[\w.-]+")
        seen = arguments_seen_by_nobody(until=lambda found: "retinue-open-" in found and "type=renderer" in found)
        # In a thread: this one has a browser of other tests.
        page = ThreadPoolExecutor(1).submit(debugged_page, profile).result()
        state = next((project.home / ".retinue" / "projects").iterdir())
        token = project.json("open", "--json")["token"]
        assert str(page["url"]).startswith(link.partition("#")[0]) and "code" not in page["url"]
        assert page["title"] == "Retinue"
        assert token not in seen and "#code=" not in seen and link.partition("#code=")[2] not in seen
        assert list(state.glob("*.html")) == [], "the file is removed once its code was used"
    assert list(state.glob("*.html")) == []


def test_the_file_that_leads_a_browser_to_the_page_is_for_its_owner_and_for_a_while(
    project: Project, tmp_path: Path
) -> None:
    program, copy = tmp_path / "browser", tmp_path / "copy.txt"
    program.write_text(f'#!/bin/sh\nstat -c %a "${{1#file://}}" > {copy}\ncat "${{1#file://}}" >> {copy}\n')
    program.chmod(0o755)
    with on_terminal(project, {"BROWSER": str(program)}, "serve", "--port", "0") as shown:
        link = shown.until(r"http://127\.0\.0\.1:\d+/#code=[\w.-]+")
        deadline = time.monotonic() + 30
        while not (copy.exists() and "</a>" in copy.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
    mode, _, page = copy.read_text().partition("\n")
    assert mode == "600" and link.partition("#")[0] in page
    assert link not in page, "the printed link stays good for the person"
    assert list(project.home.rglob("*.html")) == []


class Shown:
    """What a program shows on a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._text = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self._descriptor, 4096):
                self._text += data.decode(errors="replace")
        except OSError:
            pass

    def until(self, pattern: str) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            match = re.search(pattern + r"(?=\s)", self._text)
            if match:
                return match[0]
            time.sleep(0.05)
        raise AssertionError(self._text)


@contextmanager
def on_terminal(project: Project, environment: dict[str, str], *arguments: str) -> Iterator[Shown]:
    ours, theirs = pty.openpty()
    env = {**project.environment, **environment}
    process = subprocess.Popen(
        [*project.program, *arguments], cwd=project.cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Shown(ours)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        # The browser belongs to this group too, and outlives the server.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        os.close(ours)


LOOK = """
import os, pathlib, sys, time
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
while True:
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            print(file.read_bytes().replace(b"\\0", b" ").decode(errors="replace"), flush=True)
        except OSError:
            pass
"""


def arguments_seen_by_nobody(until: Callable[[str], bool]) -> str:
    """Return the arguments of all programs as another user sees them, from now until a condition holds, and longer."""
    looking = subprocess.Popen([sys.executable, "-c", LOOK.format(nobody=NOBODY)], stdout=subprocess.PIPE, text=True)
    assert looking.stdout is not None
    lines: list[str] = []
    reading = threading.Thread(target=lambda: lines.extend(looking.stdout or ()), daemon=True)
    reading.start()
    deadline = time.monotonic() + 60
    while not until("".join(lines[-3000:])) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    looking.kill()
    looking.wait()
    reading.join()
    seen = "".join(lines)
    assert until(seen), "the browser was not seen"
    return seen


def debugged_page(profile: Path) -> dict[str, Any]:
    """Return address and title of the page in a browser, once it is signed in."""
    from playwright.sync_api import sync_playwright

    deadline = time.monotonic() + 60
    while not (file := profile / "DevToolsActivePort").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    port = file.read_text().split()[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
        page = browser.contexts[0].pages[0]
        page.wait_for_selector(".connection.live", timeout=PATIENCE)
        found = {"url": page.url, "title": page.title()}
        browser.close()
    return found
