"""What a person at a terminal sees of a main agent and its agents."""

import os
import pty
import re
import subprocess

from tests.runs.model_server import Reply, Request


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
        env=project.environment | {"COLUMNS": "200", "TERM": "xterm"},
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


def test_a_pipe_gets_the_answer_whatever_the_terminal_has_shown(project, serve):
    serve(answer)
    assert project.retinue("-p", "Review this").stdout == "The answer.\n"
