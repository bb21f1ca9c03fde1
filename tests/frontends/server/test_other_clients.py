"""Clients of other people: the `openai` SDK, AG-UI's own types, and a client that is made from the OpenAPI document."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.server.conftest import Served
from tests.npm_packages import npm_modules
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Serving = Callable[..., Served]
EDIT = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})


def sdk(server: Served) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{server.base}/v1", api_key=server.token, max_retries=0)


def test_the_openai_sdk_lists_agents_and_talks_to_one(project: Project, serve: Any, serving: Serving) -> None:
    model = serve(lambda request: Reply(text="It is in f0.txt."))
    client = sdk(serving())
    assert {"main", "Explore"} <= {each.id for each in client.models.list()}
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello, who are you?"},
        {"role": "user", "content": [{"type": "text", "text": "Where is alpha?"}]},
    ]
    answer = client.chat.completions.create(model="Explore", messages=messages)
    assert answer.choices[0].message.content == "It is in f0.txt."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens > 0
    first = json.dumps(model.requests[0].body["messages"][0])
    assert "who are you?" in first and "Where is alpha?" in first


def test_the_openai_sdk_streams_an_answer(project: Project, serve: Any, serving: Serving) -> None:
    def reads(request: Request) -> Reply:
        return (
            Reply(text="I look.", calls=[("read", {"path": "f0.txt"})]) if request.turn == 0 else Reply(text="Found.")
        )

    serve(reads)
    client = sdk(serving())
    chunks = list(
        client.chat.completions.create(
            model="main",
            messages=[{"role": "user", "content": "Where?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "I look.\n\nFound."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens > 0


def test_the_openai_sdk_hears_of_errors(project: Project, serve: Any, serving: Serving) -> None:
    import openai

    serve(lambda request: Reply(status=401, text="no"))
    client = sdk(serving())
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="Nobody", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.chat.completions.create(model="Explore", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "RUN_FAILED" and "retinue runs show" in str(caught.value)
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="Explore", messages=[{"role": "system", "content": "x"}])


def test_the_openai_sdk_gets_an_answer_that_fits_its_schema(project: Project, serve: Any, serving: Serving) -> None:
    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(text="I count.", calls=[("read", {"path": "f0.txt"})])
        return Reply(calls=[("submit_result", {"count": 3})])

    serve(answer)
    client = sdk(serving())
    properties = {"count": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["count"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "counted", "strict": True, "schema": schema}}
    asked = {"model": "main", "messages": [{"role": "user", "content": "How many?"}], "response_format": form}
    whole = client.chat.completions.create(**asked)
    assert json.loads(whole.choices[0].message.content) == {"count": 3}
    chunks = client.chat.completions.create(**asked, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert json.loads(text) == {"count": 3}


TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"tools": [TOOL]}, "`tools`"),
        ({"n": 2}, "`n`"),
        ({"logprobs": True}, "`logprobs`"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "`modalities`"),
        ({"response_format": {"type": "json_schema"}}, "schema"),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, "image_url"),
    ],
    ids=["tools", "n", "logprobs", "sound", "no-schema", "picture"],
)
def test_the_openai_sdk_is_refused_what_an_agent_cannot_do(
    project: Project, serve: Any, serving: Serving, asked: dict[str, Any], word: str
) -> None:
    import openai

    model = serve(lambda request: Reply(text="Hello there."))
    client = sdk(serving())
    order = {"model": "Explore", "messages": [{"role": "user", "content": "x"}], **asked}
    with pytest.raises(openai.UnprocessableEntityError, match=word):
        client.chat.completions.create(**order)
    assert not model.requests


def test_a_streamed_answer_begins_with_its_first_word(project: Project, serve: Any, serving: Serving) -> None:
    def reads(request: Request) -> Reply:
        return Reply(calls=[("read", {"path": "f0.txt"})]) if request.turn == 0 else Reply(text="Found.")

    serve(reads)
    asked = [{"role": "user", "content": "Where?"}]
    chunks = sdk(serving()).chat.completions.create(model="main", messages=asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Found."


def test_the_openai_sdk_asks_for_one_model(project: Project, serve: Any, serving: Serving) -> None:
    import openai

    client = sdk(serving())
    assert [client.models.retrieve(name).id for name in ("main", "Explore")] == ["main", "Explore"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("Nobody")


def test_a_client_that_leaves_a_chat_stops_its_run(project: Project, serve: Any, serving: Serving) -> None:
    serve(lambda request: Reply(text="Thinking", hang=True))
    server = serving()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = {"model": "Explore", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    headers = {**server.headers, "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    (run,) = server.until("/v1/runs?state=running", lambda found: found["runs"])
    response.close()
    connection.close()
    assert "Stopped by openai." in server.ended(run["id"])["outcome"]["failure"]["message"]


def talk(server: Served, agent: str, **given: Any) -> list[Any]:
    """Send a RunAgentInput and return the events, each checked by the types of AG-UI's own package."""
    import pydantic
    from ag_ui import core

    messages = [{"id": "m", "role": "user", "content": text} for text in given.pop("said", [])]
    body = {"threadId": "t1", "runId": "r1", "state": {}, "messages": messages, "tools": [], "context": []}
    body |= {"forwardedProps": {}, **given}
    core.RunAgentInput.model_validate(body)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {**server.headers, "Content-Type": "application/json", "Accept": "text/event-stream"}
    connection.request("POST", f"/ag-ui/{agent}", json.dumps(body), headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    adapter = pydantic.TypeAdapter(core.Event)
    lines = response.read().decode().split("\n\n")
    connection.close()
    return [adapter.validate_json(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def delegates(request: Request) -> Reply:
    first = json.dumps(request.body["messages"][0])
    if "CHILD" in first and "DELEGATE" not in first:
        return Reply(text="Child done.")
    if request.turn == 0:
        call = {"prompt": "CHILD: look", "description": "look around", "subagent_type": "Explore"}
        return Reply(text="I ask.", calls=[("Agent", {**call, "run_in_background": False})])
    return Reply(text="The child is done.")


def test_ag_ui_shows_the_agents_below_a_run(project: Project, serve: Any, serving: Serving) -> None:
    serve(delegates)
    server = serving()
    events = talk(server, "main", said=["DELEGATE it"])
    kinds = [event.type.value for event in events]
    assert (kinds[0], kinds[-1]) == ("RUN_STARTED", "RUN_FINISHED")
    assert events[-1].outcome.type == "success" and events[-1].result == "The child is done."
    (started,) = [event for event in events if event.type.value == "SUBAGENT_STARTED"]
    (call,) = [event for event in events if event.type.value == "TOOL_CALL_START"]
    assert (started.name, started.description) == ("Explore", "look around")
    assert started.parent_tool_call_id == call.tool_call_id
    texts = [(event.delta, event.subagent_run_id) for event in events if event.type.value == "TEXT_MESSAGE_CONTENT"]
    assert texts == [("I ask.", None), ("Child done.", started.subagent_run_id), ("The child is done.", None)]
    assert kinds.count("SUBAGENT_FINISHED") == 1 and kinds.count("TOOL_CALL_RESULT") == 1
    assert kinds.count("TEXT_MESSAGE_START") == kinds.count("TEXT_MESSAGE_END") == 3


def test_ag_ui_asks_with_an_interrupt_and_goes_on_with_the_answer(
    project: Project, serve: Any, serving: Serving
) -> None:
    project.mode = "default"
    serve(lambda request: Reply(calls=[EDIT]) if request.turn == 0 else Reply(text="Edited."))
    server = serving()
    asked = talk(server, "general-purpose", said=["Edit it"])
    outcome = asked[-1].outcome
    assert outcome.type == "interrupt"
    (interrupt,) = outcome.interrupts
    assert "+gamma" in interrupt.message and "allow" in interrupt.response_schema["enum"]
    (call,) = [event for event in asked if event.type.value == "TOOL_CALL_START"]
    assert interrupt.tool_call_id == call.tool_call_id
    answer = [{"interruptId": interrupt.id, "status": "resolved", "payload": "allow"}]
    done = talk(server, "general-purpose", said=["Edit it"], runId="r2", resume=answer)
    assert done[-1].outcome.type == "success" and done[-1].result == "Edited."
    assert "gamma" in (project.cwd / "f0.txt").read_text()
    assert len(server.get("/v1/runs")["runs"]) == 1
    (item,) = server.get("/v1/inbox?all=true")["items"]
    assert item["answer"]["by"] == "ag-ui"


async def test_ag_ui_passes_the_call_on_before_the_interrupt_however_late_it_reads(
    project: Project, serve: Any, serving: Serving
) -> None:
    """The run may wait for a person before anyone reads the first event of its thread."""
    from retinue.app.feed import Feed
    from retinue.frontends.server.ag_ui import AgentInput, Thread, stream_thread
    from retinue.settings.places import state_folder

    project.mode = "default"
    serve(lambda request: Reply(calls=[EDIT]) if request.turn == 0 else Reply(text="Edited."))
    server = serving()
    run = server.post("/v1/runs", {"agent": "general-purpose", "task": "Edit it"}, 201)
    (item,) = server.until("/v1/inbox", lambda found: found["items"])
    feed = Feed(project.cwd, state_folder(project.cwd, project.environment))
    given = AgentInput(thread_id="t", run_id="r", messages=[])
    sent = [chunk async for chunk in stream_thread(feed, given, Thread(run["id"]))]
    await feed.close()
    events = [json.loads(chunk.removeprefix(b"data: ")) for chunk in sent]
    kinds = [event["type"] for event in events]
    assert kinds.index("TOOL_CALL_END") < kinds.index("RUN_FINISHED") == len(kinds) - 1
    assert [each["id"] for each in events[-1]["outcome"]["interrupts"]] == [item["id"]]


def test_ag_ui_goes_on_in_the_same_thread_and_says_what_failed(project: Project, serve: Any, serving: Serving) -> None:
    from ag_ui.core import PROTOCOL_VERSION

    model = serve(lambda request: Reply(text="One."))
    server = serving()
    first = talk(server, "Explore", said=["First"])
    assert first[0].protocol_version == PROTOCOL_VERSION
    assert first[-1].result == "One."
    model.answer = lambda request: Reply(text="Two.")
    second = talk(server, "Explore", said=["First", "Second"], runId="r2")[-1]
    assert second.result == "Two."
    assert second.usage[0].output_tokens == first[-1].usage[0].output_tokens > 0
    assert second.usage[0].input_tokens == first[-1].usage[0].input_tokens > 0
    assert len(server.get("/v1/runs")["runs"]) == 1
    model.answer = lambda request: Reply(status=401, text="no")
    failed = talk(server, "Explore", said=["Third"], runId="r3")[-1]
    assert failed.type.value == "RUN_ERROR" and failed.message
    status, _, document = server.request("POST", "/ag-ui/Nobody", {"threadId": "x", "runId": "y", "messages": []})
    assert (status, document["code"]) == (422, "USAGE")


def test_the_client_of_ag_ui_understands_every_event(
    project: Project, serve: Any, serving: Serving, tmp_path: Path
) -> None:
    """It warned of the version at every run."""
    serve(lambda request: Reply(text="Two." if "Second" in json.dumps(request.body["messages"]) else "One."))
    server, modules = serving(), npm_modules()
    (tmp_path / "node_modules").symlink_to(modules)
    script = shutil.copy(Path(__file__).with_name("ag_ui_client.mjs"), tmp_path)
    command = [str(modules / ".bin" / "node"), script, f"{server.base}/ag-ui/Explore", server.token]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["warnings"] == []
    assert [run["result"] for run in told["runs"]] == [run["said"] for run in told["runs"]] == ["One.", "Two."]
    assert all((run["events"][0], run["events"][-1]) == ("RUN_STARTED", "RUN_FINISHED") for run in told["runs"])


class GeneratedClient:
    """A client that knows nothing but the OpenAPI document: one method for every operation."""

    def __init__(self, server: Served) -> None:
        document = server.get("/openapi.json")
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                setattr(self, operation["operationId"], self._make(server, method.upper(), path, operation))

    def _make(self, server: Served, method: str, path: str, operation: dict[str, Any]) -> Callable[..., Any]:
        import urllib.parse

        def call(body: Any = None, **given: Any) -> Any:
            address, query, headers = path, {}, {}
            for parameter in operation["parameters"]:
                name = parameter["name"]
                if name not in given:
                    assert not parameter["required"], name
                elif parameter["in"] == "path":
                    address = address.replace(f"{{{name}}}", urllib.parse.quote(str(given[name]), safe=""))
                elif parameter["in"] == "query":
                    query[name] = str(given[name])
                else:
                    headers[name] = str(given[name])
            if query:
                address += "?" + urllib.parse.urlencode(query)
            status, _, document = server.request(method, address, body, headers)
            assert str(status) in operation["responses"], (status, document)
            return document

        return call


def test_a_client_made_from_the_openapi_document_drives_the_server(
    project: Project, serve: Any, serving: Serving
) -> None:
    serve(lambda request: Reply(text="Done."))
    server = serving()
    client: Any = GeneratedClient(server)
    run = client.post_run({"agent": "Explore", "task": "Look"}, **{"Idempotency-Key": "one"})
    server.ended(run["id"])
    assert client.get_runs(agent="Explore", limit=5)["runs"][0]["id"] == run["id"]
    assert client.get_transcript(id=run["id"])["lines"][-1]["type"] == "assistant"
    assert client.post_stop({}, id=run["id"])["code"] == "CONFLICT"
    assert client.post_resume({"prompt": "More"}, id=run["id"])["id"] == run["id"]
    server.ended(run["id"])
    assert client.get_agent(name="Explore")["name"] == "Explore"
    assert client.get_run(id="nothing")["code"] == "UNKNOWN_RUN"


def test_ag_ui_asks_for_an_agent_below_and_names_it_again_when_it_goes_on(
    project: Project, serve: Any, serving: Serving
) -> None:
    project.mode = "default"

    def answer(request: Request) -> Reply:
        first = json.dumps(request.body["messages"][0])
        if "CHILD" in first and "DELEGATE" not in first:
            return Reply(calls=[EDIT]) if request.turn == 0 else Reply(text="Child edited.")
        if request.turn == 0:
            call = {"prompt": "CHILD: edit", "description": "edit it", "subagent_type": "general-purpose"}
            return Reply(calls=[("Agent", {**call, "run_in_background": False})])
        return Reply(text="All done.")

    serve(answer)
    server = serving()
    asked = talk(server, "main", said=["DELEGATE"])
    (started,) = [event for event in asked if event.type.value == "SUBAGENT_STARTED"]
    (suspended,) = [event for event in asked if event.type.value == "SUBAGENT_FINISHED"]
    (interrupt,) = asked[-1].outcome.interrupts
    assert suspended.outcome.type == "suspended" and suspended.outcome.interrupt_ids == [interrupt.id]
    assert interrupt.subagent_run_id == started.subagent_run_id == suspended.subagent_run_id
    resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": {"answer": "allow"}}]
    done = talk(server, "main", said=["DELEGATE"], runId="r2", resume=resume)
    (again,) = [event for event in done if event.type.value == "SUBAGENT_STARTED"]
    assert (again.subagent_run_id, again.name) == (started.subagent_run_id, "general-purpose")
    assert [event.outcome.type for event in done if event.type.value == "SUBAGENT_FINISHED"] == ["success"]
    assert done[-1].result == "All done."
