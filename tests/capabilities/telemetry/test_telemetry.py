"""Traces and metrics of the real program, sent to a collector on loopback."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from tests.capabilities.telemetry.sink import Collector, attributes, tree
from tests.program.conftest import Project, project, serve
from tests.program.model_server import Reply, Request
from tests.program.test_mcp import configure, sdk

__all__ = ["project", "serve"]
KEY = "sk-ant-api03-" + "a1B2" * 20


@pytest.fixture
def collector() -> Any:
    with Collector() as found:
        yield found


def first_words(request: Request) -> str:
    content = request.body["messages"][0]["content"]
    return content if isinstance(content, str) else str(content)


def delegate(request: Request) -> Reply:
    """A main agent that reads a file, starts one agent and waits for it, and one in the background."""
    words = first_words(request)
    if "Look" in words and "Start" not in words:
        if request.turn == 0:
            return Reply("", [("read", {"path": "f0.txt"})])
        return Reply("Seen.")
    if request.turn:
        return Reply("Done.")
    call = {"subagent_type": "Explore", "prompt": "Look at it."}
    return Reply(
        "",
        [
            ("Agent", {**call, "description": "Wait for it", "run_in_background": False}),
            ("Agent", {**call, "description": "Go on", "run_in_background": True}),
        ],
    )


def test_a_tree_of_runs_is_one_trace_of_nested_spans(project: Project, serve: Any, collector: Collector) -> None:
    serve(delegate)
    done = project.retinue("-p", "Start agents", env=collector.environment)
    assert done.returncode == 0, done.stderr
    spans = collector.spans()
    assert {span.trace_id for span in spans} == {spans[0].trace_id}
    lines = tree(spans)
    assert lines[0] == "invoke_agent main"
    assert "  execute_tool Agent" in lines and "    invoke_agent Explore" in lines, "the one that is waited for"
    assert "  invoke_agent Explore" in lines, "the one in the background is below the agent that started it"
    assert "      execute_tool read" in lines and any(line.startswith("      chat ") for line in lines)
    background = next(span for span in spans if span.name == "invoke_agent Explore" and span.links)
    assert background.links[0].span_id in {span.span_id for span in spans if span.name == "execute_tool Agent"}
    main = attributes(spans[0])
    assert main["gen_ai.operation.name"] == "invoke_agent" and main["gen_ai.provider.name"] == "anthropic"
    assert main["retinue.ended"] == "completed" and main["gen_ai.usage.output_tokens"] > 0
    assert main["session.id"] == main["gen_ai.conversation.id"] == main["retinue.run.id"]
    names = collector.metric_names()
    assert {"gen_ai.client.operation.duration", "gen_ai.client.token.usage", "retinue.run.count"} <= names
    assert not any(b"Look at it" in body or b"Seen." in body for body in collector.bodies), "no content by default"


def test_content_is_sent_on_request_without_secrets(project: Project, serve: Any, collector: Collector) -> None:
    serve(lambda request: Reply(f"The key is {KEY}."))
    done = project.retinue("-p", f"Keep {KEY}", env={**collector.environment, "RETINUE_TELEMETRY": "content"})
    assert done.returncode == 0, done.stderr
    whole = b"".join(collector.bodies)
    assert b"The key is" in whole and KEY.encode() not in whole


def test_a_turn_of_calls_says_what_was_asked_and_called(project: Project, serve: Any, collector: Collector) -> None:
    serve(lambda request: Reply("", [("read", {"path": "f0.txt"})]) if not request.turn else Reply("Seen."))
    (project.cwd / "f0.txt").write_text("Rain.")
    done = project.retinue("-p", "Look at it", env={**collector.environment, "RETINUE_TELEMETRY": "content"})
    assert done.returncode == 0, done.stderr
    turns = [attributes(span) for span in collector.spans() if span.name.startswith("chat ")]
    asked = [json.loads(turn["gen_ai.input.messages"]) for turn in turns]
    (called,), (answered,) = (json.loads(turn["gen_ai.output.messages"]) for turn in turns)
    assert asked[0][-1]["role"] == "user" and "Look at it" in asked[0][-1]["parts"][-1]["content"]
    (call,) = called["parts"]
    assert (call["type"], call["name"], call["arguments"]) == ("tool_call", "read", {"path": "f0.txt"})
    (result,) = asked[1][-1]["parts"]
    assert (result["type"], result["id"]) == ("tool_call_response", call["id"]) and "Rain." in result["response"]
    assert answered["parts"] == [{"type": "text", "content": "Seen."}]
    reasons = [turn["gen_ai.response.finish_reasons"].values[0].string_value for turn in turns]
    assert reasons == [called["finish_reason"], answered["finish_reason"]] == ["tool_call", "stop"]
    assert b"telemetry.sdk.language" in b"".join(collector.bodies)


def test_a_run_that_was_killed_continues_its_trace(project: Project, serve: Any, collector: Collector) -> None:
    server = serve(lambda request: Reply("", [("read", {"path": "f0.txt"})]) if not request.turn else Reply(hang=True))
    process = project.start("run", "Explore", "Look", env=collector.environment)
    deadline = time.monotonic() + 60
    while len(server.requests) < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    # The log is written a moment later than the request is sent, because the tool only reads.
    while not (run := project.json("runs", "list", "--json")["runs"][0])["tool_uses"]:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.answer = lambda request: Reply("Here.")
    run_id = run["id"]
    done = project.retinue("runs", "resume", run_id, "Go on", env=collector.environment)
    assert done.returncode == 0, done.stderr
    agents = [span for span in collector.spans() if span.name == "invoke_agent Explore"]
    assert [attributes(span)["retinue.ended"] for span in agents] == ["interrupted", "completed"]
    assert [attributes(span)["retinue.attempt"] for span in agents] == [1, 2]
    assert agents[0].trace_id == agents[1].trace_id
    # The process died before it had sent them.
    below = [span.name.split()[0] for span in collector.spans() if span.parent_span_id == agents[0].span_id]
    assert sorted(set(below) - {"retinue.wait"}) == ["chat", "execute_tool"]


def test_a_trace_of_someone_else_is_continued_and_passed_on(project: Project, serve: Any, collector: Collector) -> None:
    serve(lambda request: Reply("", [("bash", {"command": "echo $TRACEPARENT"})]) if not request.turn else Reply("ok"))
    given = {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    done = project.retinue("-p", "Say it", env={**collector.environment, **given})
    assert done.returncode == 0, done.stderr
    top = next(span for span in collector.spans() if span.name == "invoke_agent main")
    assert top.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c" and top.parent_span_id.hex() == "b7ad6b7169203331"
    said = str(project.server.requests[-1].results)
    assert f"00-0af7651916cd43dd8448eb211c80319c-{top.span_id.hex()}-01" in said


def test_a_provider_is_told_the_span_of_its_request_only_where_the_setting_says_so(
    project: Project, serve: Any, collector: Collector
) -> None:
    model = serve(delegate)
    for more in ({}, {"RETINUE_TELEMETRY_MODEL_HEADER": "true", "RETINUE_TELEMETRY": "off"}):
        assert project.retinue("-p", "Start agents", env={**collector.environment, **more}).returncode == 0
    assert model.requests and not any("traceparent" in request.headers for request in model.requests)
    model.requests.clear()
    before = {span.span_id for span in collector.spans()}
    env = {**collector.environment, "RETINUE_TELEMETRY_MODEL_HEADER": "true"}
    assert project.retinue("-p", "Start agents", env=env).returncode == 0
    spans = [span for span in collector.spans() if span.span_id not in before and span.name.startswith("chat ")]
    sent = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in spans}
    assert {request.headers["traceparent"] for request in model.requests} == sent
    assert len(sent) == len(model.requests) > 4


def test_a_project_cannot_have_providers_told(project: Project, serve: Any, collector: Collector) -> None:
    model = serve(lambda request: Reply("Done."))
    (project.cwd / ".retinue").mkdir()
    (project.cwd / ".retinue" / "settings.json").write_text('{"telemetryModelHeader": true}')
    assert project.retinue("-p", "Go", env=collector.environment).returncode == 0
    assert "traceparent" not in model.requests[0].headers


def test_a_server_for_tools_is_told_the_place_in_the_trace(project: Project, serve: Any, collector: Collector) -> None:
    serve(lambda request: Reply("", [("mcp__sdk__trace", {})]) if not request.turn else Reply("ok"))
    configure(project, {"sdk": sdk()})
    done = project.retinue("-p", "Ask the server", env=collector.environment)
    assert done.returncode == 0, done.stderr
    top = next(span for span in collector.spans() if span.name == "invoke_agent main")
    said = str(project.server.requests[-1].results)
    assert f"00-{top.trace_id.hex()}-{top.span_id.hex()}-01" in said


@pytest.mark.parametrize("status", [400, 0])
def test_a_collector_that_fails_changes_no_run(project: Project, serve: Any, status: int) -> None:
    serve(lambda request: Reply("Fine."))
    with Collector(status or 200) as collector:
        environment = dict(collector.environment)
    if status:
        with Collector(status) as refusing:
            done = project.retinue("-p", "Go", env=refusing.environment)
    else:
        done = project.retinue("-p", "Go", env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "Fine.")
    assert done.stderr.count("Traces could not be sent to") == 1 and "Traceback" not in done.stderr


def test_nothing_is_loaded_while_it_is_off(project: Project, serve: Any, collector: Collector) -> None:
    serve(lambda request: Reply("Fine."))
    done = project.retinue("-p", "Go", env={**collector.environment, "RETINUE_TELEMETRY": "off"})
    assert done.returncode == 0 and not collector.bodies


def test_a_past_run_is_sent_with_the_spans_it_had_while_it_worked(
    project: Project, serve: Any, collector: Collector
) -> None:
    serve(delegate)
    done = project.retinue("-p", "Start agents", env=collector.environment)
    assert done.returncode == 0, done.stderr
    main = next(run for run in project.json("runs", "list", "--json")["runs"] if run["agent"] == "main")
    live = {(span.trace_id, span.span_id, span.parent_span_id, span.name) for span in collector.spans()}
    with Collector() as other:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": other.url}
        sent = project.retinue("runs", "export", main["id"], "--otel", "--json", env=environment)
        assert sent.returncode == 0, sent.stderr
        past = {(span.trace_id, span.span_id, span.parent_span_id, span.name) for span in other.spans()}
    assert past == live and json.loads(sent.stdout)["spans"] == len(live)
    gone = project.retinue("runs", "export", main["id"], "--otel", env=environment)
    assert gone.returncode != 0 and "OTEL_EXPORTER_OTLP_ENDPOINT" in gone.stderr and "Traceback" not in gone.stderr
