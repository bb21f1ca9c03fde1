"""The HTTP API end to end: a real server, real processes beside it, a model over HTTP."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest
from tests.frontends.server.conftest import Served
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_mcp import agent, configure, once, sdk, text_of

EDIT = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})
Serving = Callable[..., Served]


def edits(request: Request) -> Reply:
    return Reply(calls=[EDIT]) if request.turn == 0 else Reply(text="Edited.")


def test_the_server_says_where_it_is_and_ends_on_ctrl_c(project: Project, serving: Serving) -> None:
    server = serving()
    assert set(server.info) == {"url", "port", "token", "pid"}
    assert server.info["url"].startswith(f"{server.base}/#code=") and server.token not in server.info["url"]
    assert server.info["pid"] == server.process.pid
    (file,) = (project.home / ".retinue" / "projects").glob("*/serve.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert project.json("open", "--json") == {**server.info, "url": ANY}
    links = {server.info["url"], server.link(), project.retinue("open").stdout.strip()}
    assert len(links) == 3
    assert server.end() == (0, "")
    assert not file.exists()
    refused = project.retinue("open")
    assert refused.returncode == 1 and "retinue serve" in refused.stderr


def test_long_answers_are_compressed_for_clients_that_take_it(serving: Serving) -> None:
    server = serving()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def get(**headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request("GET", "/openapi.json", headers={**server.headers, **headers})
        response = connection.getresponse()
        return response, response.read()

    plain, whole = get()
    packed, short = get(**{"Accept-Encoding": "gzip, br"})
    connection.close()
    assert plain.headers["content-encoding"] is None and packed.headers["content-encoding"] == "gzip"
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert gzip.decompress(short) == whole and len(short) * 4 < len(whole)


def test_only_one_server_serves_a_project(project: Project, serving: Serving) -> None:
    server = serving()
    second = project.retinue("serve", "--port", "0", "--json", "--no-browser")
    assert second.returncode == 1
    assert f"process {server.process.pid}" in second.stderr


def test_a_port_that_is_taken_is_said(project: Project, serving: Serving, tmp_path: Any) -> None:
    server = serving()
    other = tmp_path / "other"
    other.mkdir()
    done = project.retinue("serve", "--cwd", str(other), "--port", str(server.port), "--json")
    assert done.returncode == 1
    assert "--port 0" in done.stderr


def test_a_run_of_another_process_is_listed_shown_and_followed(project: Project, serve: Any, serving: Serving) -> None:
    serve(lambda request: Reply(text="It is here."))
    server = serving()
    events = server.stream("/v1/events")
    assert project.retinue("run", "Explore", "Where is it?").returncode == 0
    heard = events.until("run.ended")
    events.close()
    (run,) = server.get("/v1/runs")["runs"]
    assert (run["task"], run["state"], run["ended"]) == ("Where is it?", "ended", "completed")
    assert [event["type"] for _, event in heard][:3] == ["run.created", "run.started", "message.added"]
    assert {event["run_id"] for _, event in heard} == {run["id"]}
    detail = server.get(f"/v1/runs/{run['id'][:6]}")
    assert detail["outcome"]["text"] == "It is here."
    lines = server.get(f"/v1/runs/{run['id']}/transcript")["lines"]
    assert [line["type"] for line in lines] == ["user", "assistant"]
    assert server.get("/v1/search?q=is%20here")["hits"][0]["run_id"] == run["id"]
    assert server.get("/v1/cost")["total"]["runs"] == 1
    assert server.get("/v1/projects")["projects"][0]["runs"] == 1


def test_a_run_is_started_with_a_key_only_once(project: Project, serve: Any, serving: Serving) -> None:
    serve(lambda request: Reply(text="Done."))
    server, body, key = serving(), {"agent": "Explore", "task": "Look"}, {"Idempotency-Key": "k"}
    first = server.post("/v1/runs", body, 201, **key)
    assert server.post("/v1/runs", body, 201, **key)["id"] == first["id"]
    refused = server.post("/v1/runs", {**body, "task": "Other"}, 409, **key)
    assert refused["code"] == "CONFLICT" and refused["remedy"]
    server.ended(first["id"])
    assert len(server.get("/v1/runs")["runs"]) == 1
    assert server.get(f"/v1/runs/{first['id']}")["asked_by"] == "web"


def test_a_run_with_a_schema_and_a_budget_returns_a_value(project: Project, serve: Any, serving: Serving) -> None:
    serve(lambda request: Reply(text='{"number": 7}'))
    server = serving()
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    body = {"agent": "Explore", "task": "Count", "schema": schema, "budget": {"turns": 5}}
    run = server.post("/v1/runs", body, 201)
    assert server.ended(run["id"])["outcome"]["value"] == {"number": 7}
    assert server.post("/v1/runs", {**body, "budget": {"euro": 5}}, 422)["code"] == "USAGE"
    assert server.post("/v1/runs", {**body, "schema": {"type": 5}}, 422)["code"] == "USAGE"


def test_a_field_of_a_form_is_skipped_with_an_empty_answer(project: Project, serve: Any, serving: Serving) -> None:
    configure(project, {"sdk": sdk()})
    agent(project, "worker", "")
    model = serve(once("mcp__sdk__order", {}))
    server = serving()
    run = server.post("/v1/runs", {"agent": "worker", "task": "Ask."}, 201)
    for answer in ("Small", "Milk", "", ""):
        (item,) = server.until("/v1/inbox", lambda found: found["items"])
        server.post(f"/v1/inbox/{item['id']}", {"answer": answer})
    server.ended(run["id"])
    assert text_of(model.requests[-1].results[0]) == "accept {'size': 's', 'extras': ['m'], 'note': None, 'cups': 2}"


def test_an_approval_is_answered_with_its_diff_and_only_once(project: Project, serve: Any, serving: Serving) -> None:
    project.mode = "default"
    serve(edits)
    server = serving()
    run = server.post("/v1/runs", {"agent": "general-purpose", "task": "Edit"}, 201)
    (item,) = server.until("/v1/inbox", lambda found: found["items"])
    assert "+gamma" in item["detail"] and item["run_id"] == run["id"]
    assert server.post(f"/v1/inbox/{item['id']}", {"answer": ""}, 422)["code"] == "USAGE"
    answered = server.post(f"/v1/inbox/{item['id']}", {"answer": "allow"}, **{"X-Retinue-By": "phone"})
    assert answered["answer"]["by"] == "phone"
    late = server.post(f"/v1/inbox/{item['id']}", {"answer": "deny"}, 409)
    assert late["code"] == "ALREADY_ANSWERED" and "by phone" in late["detail"]
    server.ended(run["id"])
    (file,) = server.get(f"/v1/runs/{run['id']}/diff")["files"]
    assert file["status"] == "changed" and "-beta\n+gamma" in file["diff"]
    (effects,) = server.get(f"/v1/runs/{run['id']}/effects")["runs"]
    assert effects["turns"][0]["calls"][0]["approval"] == "allow by phone"


def test_a_run_of_another_process_asks_here_too(project: Project, serve: Any, serving: Serving) -> None:
    project.mode = "default"
    serve(edits)
    server = serving()
    process = project.start("run", "general-purpose", "Edit", env={"RETINUE_PERMISSIONS_HEADLESS": "wait"})
    (item,) = server.until("/v1/inbox", lambda found: found["items"])
    refusal = {"answer": "deny", "message": "Not this file."}
    server.post(f"/v1/inbox/{item['id']}", refusal)
    process.communicate(timeout=60)
    detail = server.get(f"/v1/runs/{item['run_id']}")
    assert detail["outcome"]["evidence"]["denials"]


def test_runs_of_another_process_are_stopped_and_taken_up_here(project: Project, serve: Any, serving: Serving) -> None:
    model = serve(lambda request: Reply(text="Thinking", hang=True))
    server = serving()
    process = project.start("run", "Explore", "Work")
    (run,) = server.until("/v1/runs?state=running", lambda found: found["runs"])
    assert server.post(f"/v1/runs/{run['id']}/steer", {"message": "Look here"})["text"].startswith("Delivered")
    server.post(f"/v1/runs/{run['id']}/stop", {})
    assert process.communicate(timeout=60)[1].count("Stopped by web.") == 1
    assert server.post(f"/v1/runs/{run['id']}/stop", {}, 409)["code"] == "CONFLICT"
    model.answer = lambda request: Reply(text="Went on.")
    again = server.post(f"/v1/runs/{run['id']}/resume", {"prompt": "Go on"})
    assert again["pid"] == server.process.pid
    assert server.ended(run["id"])["outcome"]["text"] == "Went on."


def test_a_server_that_was_killed_comes_back_and_clients_miss_nothing(
    project: Project, serve: Any, serving: Serving
) -> None:
    serve(lambda request: Reply(text="Done."))
    server = serving()
    events = server.stream("/v1/events")
    project.retinue("run", "Explore", "One")
    before = [number for number, _ in events.until("run.ended") if number is not None]
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    project.retinue("run", "Explore", "Two")
    again = serving()
    assert (again.token, again.port) == (server.token, server.port)
    events = again.stream("/v1/events", last=before[-1])
    after = [number for number, _ in events.until("run.ended") if number is not None]
    events.close()
    assert before + after == list(range(1, len(before + after) + 1))
    assert len(before) == len(after)


def test_the_end_of_the_server_stops_its_own_runs_and_no_others(project: Project, serve: Any, serving: Serving) -> None:
    serve(lambda request: Reply(text="Thinking", hang=True))
    server = serving()
    other = project.start("run", "Explore", "Theirs")
    server.until("/v1/runs?state=running", lambda found: found["runs"])
    mine = server.post("/v1/runs", {"agent": "Explore", "task": "Mine"}, 201)
    server.until("/v1/runs?state=running", lambda found: len(found["runs"]) == 2)
    stream = server.stream("/v1/events")
    code, said = server.end()
    stream.close()
    assert (code, said) == (0, "1 run of this server stopped. Resume with: retinue runs resume ID\n")
    states = {run["task"]: run["state"] for run in project.json("runs", "list", "--json")["runs"]}
    assert states == {"Mine": "ended", "Theirs": "running"}
    assert mine["task"] == "Mine"
    other.terminate()
    other.communicate(timeout=30)


def test_pages_of_runs_follow_each_other(project: Project, serve: Any, serving: Serving) -> None:
    serve(lambda request: Reply(text="Done."))
    for number in range(5):
        project.retinue("run", "Explore" if number % 2 else "Plan", f"Task {number}")
    server = serving()
    seen, before = [], ""
    while True:
        page = server.get(f"/v1/runs?limit=2{before}")
        seen += [run["task"] for run in page["runs"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert seen == [f"Task {number}" for number in (4, 3, 2, 1, 0)]
    assert len(server.get("/v1/runs?agent=Plan")["runs"]) == 3
    assert server.get("/v1/runs?state=running")["runs"] == []


def test_every_get_route_answers_with_its_document(project: Project, serve: Any, serving: Serving) -> None:
    """What the OpenAPI document promises is what comes, field by field."""
    import jsonschema_rs

    serve(lambda request: Reply(text="Done."))
    project.retinue("run", "Explore", "Look")
    server = serving()
    document = server.get("/openapi.json")
    (run,) = server.get("/v1/runs")["runs"]
    values = {"id": run["id"], "name": "Explore"}
    checked = 0
    for path, operations in document["paths"].items():
        schema = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        if "application/json" not in schema:
            continue
        address = path.format(**values) + ("?q=Look" if path == "/v1/search" else "")
        found = server.get(address)
        whole = {**schema["application/json"]["schema"], "components": document["components"]}
        jsonschema_rs.validator_for(whole).validate(found)
        checked += 1
    assert checked == 22


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/runs/nothing", None, 404, "UNKNOWN_RUN"),
        ("GET", "/v1/agents/Nobody", None, 404, "UNKNOWN_AGENT"),
        ("GET", "/v1/runs?project=..", None, 404, "UNKNOWN_PROJECT"),
        ("GET", "/v1/runs?limit=0", None, 422, "INVALID"),
        ("GET", "/v1/runs?limit=1&limit=2", None, 422, "INVALID"),
        ("GET", "/v1/runs?nonsense=1", None, 422, "INVALID"),
        ("GET", "/v1/runs?state=dancing", None, 422, "INVALID"),
        ("GET", "/v1/runs/", None, 404, "NOT_FOUND"),
        ("GET", "/v2/runs", None, 404, "NOT_FOUND"),
        ("POST", "/v1/projects", {}, 405, "METHOD"),
        ("POST", "/v1/runs", {"task": ""}, 422, "INVALID"),
        ("POST", "/v1/runs", {"task": "x", "cwd": "/"}, 422, "INVALID"),
        ("POST", "/v1/runs", {"task": "x", "agent": "Nobody"}, 404, "UNKNOWN_AGENT"),
        ("POST", "/v1/runs", b"{", 400, "INVALID"),
        ("POST", "/v1/runs", b"\xff\xfe", 400, "INVALID"),
        ("POST", "/v1/inbox/nothing", {"answer": "allow"}, 404, "UNKNOWN_ITEM"),
        ("POST", "/v1/runs/nothing/stop", {}, 404, "UNKNOWN_RUN"),
    ],
)
def test_errors_are_problems_with_a_code(
    shared_server: Served, method: str, path: str, body: Any, status: int, code: str
) -> None:
    found, headers, document = shared_server.request(method, path, body)
    assert (found, headers["content-type"]) == (status, "application/problem+json")
    assert (document["code"], document["status"]) == (code, status)
    assert document["title"] and document["detail"] and document["type"] == f"urn:retinue:error:{code}"


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("shared")
    project = Project(folder / "project", folder / "home")
    project.cwd.mkdir()
    project.home.mkdir()
    process: subprocess.Popen[str] = project.start("serve", "--port", "0", "--json", "--no-browser")
    yield Served(process, project)
    process.terminate()
    process.communicate(timeout=30)


def test_streams_refuse_a_last_event_that_is_no_number(shared_server: Served) -> None:
    status, _, document = shared_server.request("GET", "/v1/events", headers={"Last-Event-ID": "x"})
    assert (status, document["code"]) == (422, "INVALID")


def test_starlette_and_uvicorn_are_loaded_by_serve_alone() -> None:
    code = "import sys, retinue.app.retinue, retinue.frontends.cli.serve; print(json.dumps([*sys.modules]))"
    done = subprocess.run(
        [os.sys.executable, "-c", f"import json; {code}"],  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"starlette", "uvicorn"} & set(json.loads(done.stdout))


def test_prometheus_gets_sums_and_never_an_id(project: Project, serve: Any, serving: Serving) -> None:
    serve(lambda request: Reply(text="It is here."))
    server = serving()
    assert project.retinue("run", "Explore", "Where is it?").returncode == 0
    status, headers, _ = server.request("GET", "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    said = server.raw(
        f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        "Connection: close\r\n\r\n".encode()
    ).decode()
    assert '\nretinue_runs_total{agent="Explore"} 1\n' in said and "\nretinue_inbox_waiting 0\n" in said
    assert 'retinue_tokens_total{model="anthropic/claude-haiku-5-5",type="output"}' in said
    (run,) = server.get("/v1/runs")["runs"]
    assert run["id"] not in said
    refused = server.raw(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    assert refused.startswith(b"HTTP/1.1 401")


def test_a_wrong_method_is_told_before_a_wrong_body_and_every_right_one_is_named(serving: Serving) -> None:
    server = serving()
    refused, headers, problem = server.request("POST", "/v1/cost", b"x", {"Content-Type": "text/plain"})
    assert (refused, problem["code"], headers["allow"]) == (405, "METHOD", "GET, HEAD")
    refused, headers, _ = server.request("DELETE", "/v1/runs")
    assert (refused, headers["allow"]) == (405, "GET, HEAD, POST")
    refused, _, problem = server.request("POST", "/v1/runs", b"x", {"Content-Type": "text/plain"})
    assert (refused, problem["code"]) == (415, "NOT_JSON")


def test_null_in_a_query_is_a_word(serving: Serving) -> None:
    server = serving()
    assert server.request("GET", "/v1/runs?state=null")[0] == 422
    assert server.request("GET", "/v1/runs?depth=null")[0] == 422
    assert server.request("GET", "/v1/runs?before=null")[2]["code"] == "UNKNOWN_RUN"
    assert server.get("/v1/runs?agent=null")["runs"] == []


def test_runs_are_found_by_a_file_that_they_touched(project: Project, serve: Any, serving: Serving) -> None:
    serve(edits)
    editing = project.retinue("run", "general-purpose", "Edit", "--permission-mode", "acceptEdits", "--json")
    run_id = json.loads(editing.stdout)["details"]["runId"]
    serve(lambda request: Reply(text="I only mention f0.txt."))
    assert project.retinue("run", "Explore", "Read nothing").returncode == 0
    server = serving()
    for path in ("f0.txt", str(project.cwd / "f0.txt")):
        (listed,) = project.json("runs", "list", "--touched", path, "--json")["runs"]
        (served,) = server.get(f"/v1/runs?touched={path}")["runs"]
        assert listed["id"] == served["id"] == run_id
    assert server.get("/v1/runs?touched=0.txt")["runs"] == []
