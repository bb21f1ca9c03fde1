"""What a person at a terminal sees of a main agent and its agents."""

import json
import os
import pty
import re
import subprocess

import pytest

from tests.program.model_server import Reply, Request


def first(request: Request) -> str:
    content = request.body["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def answer(request: Request) -> Reply:
    if "angle" in first(request):
        return Reply("a finding")
    if request.turn == 0:
        calls = [{"prompt": f"angle {n}", "description": f"Review {n}", "subagent_type": "Explore"} for n in range(2)]
        return Reply("I start two. ", [("Agent", call) for call in calls])
    return Reply("The answer." if str(request.body["messages"]).count("<task-notification>") == 2 else "Not yet.")


def at_a_terminal(project, *arguments: str) -> tuple[int, str]:
    """The exit code and all that a terminal of 200 columns shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*project.program, *arguments],
        cwd=project.cwd,
        env=project.environment | {"COLUMNS": "200", "TERM": "xterm", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)
    return process.wait(timeout=60), shown.decode().replace("\r\n", "\n")


def test_the_answer_is_shown_once_and_every_agent_has_its_lines(project, serve):
    serve(answer)
    code, shown = at_a_terminal(project, "-p", "Review this")
    assert code == 0, shown
    assert shown.count("The answer.") == 1
    assert len(re.findall(r"^  ▸ Explore \w{8}: Review \d$", shown, re.MULTILINE)) == 2
    assert len(re.findall(r"^  Explore \w{8} ✓ completed", shown, re.MULTILINE)) == 2
    assert "with its agents" in shown
    assert max(map(len, shown.splitlines())) < 120
    (run_id,) = re.findall(r"· (\w{8})$", shown, re.MULTILINE)
    _, again = at_a_terminal(project, "-p", "And now?", "--resume", run_id)
    assert "Explore" not in again  # only what is new
    assert again.count("The answer.") == 1


def cut_in_two(request: Request) -> Reply:
    if len(request.body["messages"]) == 1:
        return Reply("One half, and ano", stop="max_tokens")
    return Reply("ther one.")


@pytest.mark.parametrize("arguments", [("-p", "Tell"), ("run", "Explore", "Tell")], ids=["-p", "run"])
def test_an_answer_that_went_on_after_the_output_limit_is_shown_once_and_whole(project, serve, arguments):
    serve(cut_in_two)
    code, shown = at_a_terminal(project, *arguments)
    assert code == 0, shown
    assert shown.count("One half, and another one.") == 1
    assert shown.count("One half") == 1
    assert project.retinue(*arguments).stdout == "One half, and another one.\n"


def test_documents_have_an_answer_that_went_on_once_and_whole(project, serve):
    serve(cut_in_two)
    whole = "One half, and another one."
    document = project.json("run", "Explore", "Tell", "--json")
    assert document["content"] == [{"type": "text", "text": whole}]
    assert document["details"]["results"][0]["output"] == whole
    assert project.json("-p", "Tell", "--output-format", "json")["result"] == whole
    last = project.retinue("-p", "Tell", "--output-format", "stream-json").stdout.splitlines()[-1]
    assert json.loads(last)["text"] == whole


def test_a_pipe_gets_the_answer_whatever_the_terminal_has_shown(project, serve):
    serve(answer)
    assert project.retinue("-p", "Review this").stdout == "The answer.\n"
