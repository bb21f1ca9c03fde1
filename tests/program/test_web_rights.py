"""Who may read the web unasked: a run that has nothing of this machine to send."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

BOTH = "---\nname: both\ndescription: Reads files and the web.\ntools: read, fetch_content\n---\nYou read.\n"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = b"The page says 42."
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site(project: Project) -> Iterator[str]:
    """A page on this machine that the settings let through the guard of addresses."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    settings = project.home / ".retinue" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"web": {"allowHosts": [address]}}))
    project.mode = "default"
    yield f"http://{address}/"
    server.shutdown()
    server.server_close()


def outcome_of(project: Project, serve: Any, agent: str, *calls: tuple[str, dict[str, str]]) -> dict[str, Any]:
    """The result of a run that makes the calls one after the other."""

    def answer(request: Request) -> Reply:
        return Reply(calls=[calls[request.turn]]) if request.turn < len(calls) else Reply("Done.")

    serve(answer)
    done = project.retinue("run", agent, "Look it up", "--json")
    (result,) = json.loads(done.stdout)["details"]["results"]
    return result


def test_a_run_that_cannot_read_the_project_fetches_unasked(project: Project, serve: Any, site: str) -> None:
    result = outcome_of(project, serve, "researcher", ("fetch_content", {"url": site}))
    assert "denials" not in result and "shortfall" not in result
    assert "The page says 42." in json.dumps(project.server.requests[-1].body)  # type: ignore[union-attr]


def test_addresses_of_this_machine_stay_out_of_reach(project: Project, serve: Any, site: str) -> None:
    outcome_of(project, serve, "researcher", ("fetch_content", {"url": "http://127.0.0.1:9/"}))
    assert project.server is not None and project.server.requests[-1].results[0]["is_error"]


def test_converting_a_file_is_a_read_and_ends_unasked_fetching(project: Project, serve: Any, site: str) -> None:
    calls = (("convert_content", {"path": "f0.txt"}), ("fetch_content", {"url": f"{site}?q=alpha"}))
    result = outcome_of(project, serve, "researcher", *calls)
    (denial,) = result["denials"]
    assert "fetch_content" in denial and "--allowedTools" in denial


def test_an_agent_that_reads_files_and_the_web_is_denied_with_the_option_that_allows_it(
    project: Project, serve: Any, site: str
) -> None:
    folder = project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "both.md").write_text(BOTH)
    result = outcome_of(project, serve, "both", ("fetch_content", {"url": site}))
    assert "--allowedTools 'WebFetch(domain:127.0.0.1)'" in result["denials"][0]
    assert result["shortfall"] == "with every call denied"


def test_a_researcher_that_another_agent_starts_is_asked(project: Project, serve: Any, site: str) -> None:
    def answer(request: Request) -> Reply:
        first = json.dumps(request.body["messages"][0])
        if "Look it up" in first:
            return Reply(calls=[("fetch_content", {"url": site})]) if request.turn == 0 else Reply("Done.")
        call = {"prompt": "Look it up", "description": "d", "subagent_type": "researcher", "run_in_background": False}
        return Reply(calls=[("Agent", call)]) if request.turn == 0 else Reply("Over.")

    server = serve(answer)
    assert project.retinue("-p", "Ask the researcher").returncode == 0
    assert not any("The page says 42." in json.dumps(request.body) for request in server.requests)
