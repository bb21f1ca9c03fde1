"""What a model server can do wrong, over real HTTP: the run recovers or says how it failed.

It never claims success.
"""

import json
import socket

import pytest

from tests.program.model_server import Reply, Request


def read_then_say(request: Request) -> Reply:
    if request.turn == 0:
        return Reply("Looking.", [("read", {"path": "f0.txt"})])
    return Reply("alpha 0 is in f0.txt")


def outcome(project, *more: str):
    done = project.retinue("run", "Explore", "What is in f0?", "--json", *more)
    return done, json.loads(done.stdout)["details"]


@pytest.mark.parametrize(
    ("status", "headers"),
    [(429, {"retry-after": "0"}), (529, {}), (500, {}), (503, {})],
    ids=["429 with Retry-After", "529", "500", "503"],
)
def test_a_passing_error_is_retried_and_the_run_completes(project, serve, status, headers):
    def answer(request: Request) -> Reply:
        if request.turn == 1 and request.attempt == 0:
            return Reply(status=status, headers=headers)
        return read_then_say(request)

    server = serve(answer)
    done, details = outcome(project)
    assert (done.returncode, details["results"][0]["output"]) == (0, "alpha 0 is in f0.txt")
    assert [request.turn for request in server.requests] == [0, 1, 1]


@pytest.mark.parametrize("cut", [1, 3, 6], ids=["at once", "in the text", "in the tool call"])
def test_a_stream_that_is_cut_is_asked_for_again(project, serve, cut):
    def answer(request: Request) -> Reply:
        reply = read_then_say(request)
        reply.cut = cut if request.turn == 0 and request.attempt == 0 else None
        return reply

    serve(answer)
    done, details = outcome(project)
    assert (done.returncode, details["results"][0]["output"]) == (0, "alpha 0 is in f0.txt")
    calls = [item for item in details["results"][0]["displayItems"] if item["type"] == "toolCall"]
    assert len(calls) == 1


def test_a_wrong_key_fails_at_once_and_names_the_variable(project, serve):
    server = serve(lambda request: Reply(status=401, text="invalid x-api-key"))
    done, details = outcome(project)
    assert done.returncode == 1
    assert details["error"]["code"] == "SUBAGENT_FAILED"
    assert "ANTHROPIC_API_KEY" in details["error"]["message"]
    assert "test-key" not in done.stdout + done.stderr
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_named(project, serve):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "RETINUE_MODEL": "anthropic/claude-sonnet-4-5",
        "RETINUE_RETRY_MAX_ATTEMPTS": "1",
    }
    done = project.retinue("run", "Explore", "x", "--json", env=env)
    error = json.loads(done.stdout)["details"]["error"]
    assert done.returncode == 1
    assert str(port) in error["message"]


def test_arguments_that_are_no_json_are_told_to_the_model_and_never_run(project, serve):
    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("read", '{"path": "f0.txt"')])
        return read_then_say(request)

    server = serve(answer)
    done, _ = outcome(project)
    assert done.returncode == 0
    (result,) = server.requests[1].results
    assert result["is_error"]
    assert "JSON" in json.dumps(result["content"])


def test_an_unknown_tool_is_answered_with_the_tools_there_are(project, serve):
    def answer(request: Request) -> Reply:
        return Reply(calls=[("teleport", {})]) if request.turn == 0 else read_then_say(request)

    server = serve(answer)
    assert outcome(project)[0].returncode == 0
    (result,) = server.requests[1].results
    assert result["is_error"]
    assert "read" in json.dumps(result["content"])


def test_a_model_that_hangs_ends_the_run_in_time_with_what_it_had_said(project, serve):
    serve(lambda request: Reply("Half a thought", hang=True))
    done, details = outcome(project, "--timeout", "1")
    result = details["results"][0]
    assert (done.returncode, result["status"], result["timeoutReason"]) == (124, "timeout", "runtime")
    assert details["error"]["code"] == "SUBAGENT_TIMEOUT"


def test_an_answer_of_five_megabytes_is_kept_whole_and_shown_in_part(project, serve):
    text = "word " * 1_000_000
    serve(lambda request: Reply(text))
    done, details = outcome(project)
    assert done.returncode == 0
    assert details["error"]["code"] == "SUBAGENT_OUTPUT_TRUNCATED"
    assert details["results"][0]["output"].strip() == text.strip()
    assert len(json.loads(done.stdout)["content"][0]["text"]) < 300_000


def test_an_empty_answer_is_no_output_and_not_an_invention(project, serve):
    serve(lambda request: Reply(""))
    done = project.retinue("run", "Explore", "x")
    assert (done.returncode, done.stdout) == (0, "No output.\n")


def test_the_same_failing_call_over_and_over_is_stopped_and_named(project, serve):
    serve(lambda request: Reply(calls=[("read", {"path": "missing.txt"})]))
    done, details = outcome(project)
    assert done.returncode == 1
    assert details["results"][0]["limit"] == "repeated_calls"


def test_another_model_takes_over_from_one_that_is_overloaded_and_the_outcome_says_so(project, serve):
    def answer(request: Request) -> Reply:
        if request.body["model"] != "claude-haiku-4-5" and request.turn == 1:
            return Reply(status=529)
        return read_then_say(request)

    serve(answer)
    folder = project.home / ".retinue"
    folder.mkdir(exist_ok=True)
    settings = {"fallbackModels": ["anthropic/claude-haiku-4-5"], "retry": {"maxAttempts": 1}}
    (folder / "settings.json").write_text(json.dumps(settings))
    done = project.retinue("run", "Explore", "What is in f0?", "--json")
    details = json.loads(done.stdout)["details"]
    assert (done.returncode, details["results"][0]["output"]) == (0, "alpha 0 is in f0.txt")
    assert any("claude-haiku-4-5 took over from" in note for note in details["results"][0]["notes"])
    summary = project.json("-p", "What is in f0?", "--output-format", "json")
    assert summary["model"] == "anthropic/claude-haiku-4-5", "the model that answered"
    assert any("claude-haiku-4-5 took over from anthropic/claude-sonnet-4-5" in note for note in summary["notes"])
    lines = project.retinue("run", "Explore", "What is in f0?", "--mode", "json").stdout.splitlines()
    assert json.loads(lines[-1])["model"] == "anthropic/claude-haiku-4-5"
