"""`retinue run`, `retinue -p` and `retinue runs` as a user drives them: contracts of the program."""

import json
import signal
from pathlib import Path

import pytest

from tests.program.model_server import Reply, Request


def answer(request: Request) -> Reply:
    if request.turn == 0:
        return Reply("Looking. ", [("read", {"path": "f0.txt"}), ("read", {"path": "f1.txt"})])
    return Reply("f0 holds alpha 0")


def test_run_prints_the_answer_on_stdout_and_progress_on_stderr(project, serve):
    serve(answer)
    done = project.retinue("run", "Explore", "What is in f0?")
    assert (done.returncode, done.stdout) == (0, "f0 holds alpha 0\n")
    assert "read f0.txt" in done.stderr
    assert "completed" in done.stderr


def test_run_json_is_one_document_of_the_contract(project, serve):
    serve(answer)
    done = project.retinue("run", "explore", "What is in f0?", "--json")
    document = json.loads(done.stdout)
    (result,) = document["details"]["results"]
    assert done.stderr == ""
    assert document["content"] == [{"type": "text", "text": "f0 holds alpha 0"}]
    assert document["details"]["mode"] == "single"
    assert (result["agent"], result["task"], result["exitCode"]) == ("Explore", "What is in f0?", 0)
    assert result["usage"]["turns"] == 2
    assert [item["type"] for item in result["displayItems"]] == ["text", "toolCall", "toolCall", "text"]
    lines = [json.loads(line) for line in Path(result["sessionFile"]).read_text().splitlines()]
    assert [line["type"] for line in lines][:2] == ["user", "assistant"]


def test_mode_json_streams_events_and_ends_with_the_outcome(project, serve):
    serve(answer)
    done = project.retinue("run", "Explore", "What is in f0?", "--mode", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all({"type", "run_id", "parent_id", "seq", "at"} <= line.keys() for line in lines)
    assert lines[0]["type"] == "run.created"
    assert (lines[-1]["type"], lines[-1]["ended"]) == ("outcome", "completed")
    ended = [line["call_id"] for line in lines if line["type"] == "tool.ended"]
    results = next(line for line in lines if line["type"] == "tools.ended")["message"]["results"]
    assert sorted(ended) == [result["call_id"] for result in results] == ["call-0-0", "call-0-1"]


def test_the_task_can_come_from_stdin_or_a_file(project, serve):
    server = serve(lambda request: Reply("ok"))
    (project.cwd / "task.md").write_text("from a file")
    assert project.retinue("run", "Explore", "-", input="from stdin").returncode == 0
    assert project.retinue("run", "Explore", "@task.md").returncode == 0
    said = [json.dumps(request.body["messages"]) for request in server.requests]
    assert "from stdin" in said[0]
    assert "from a file" in said[1]
    empty = project.retinue("run", "Explore", "-", input="  \n")
    assert (empty.returncode, "empty" in empty.stderr) == (2, True)
    assert project.retinue("run", "Explore", "@missing.md").returncode == 2


def test_what_cannot_start_exits_2_with_the_remedy_and_in_json_with_a_code(project, serve):
    serve(answer)
    done = project.retinue("run", "nobody", "x", "--json")
    details = json.loads(done.stdout)["details"]
    assert done.returncode == 2
    assert (details["error"]["code"], details["results"]) == ("UNKNOWN_AGENT", [])
    assert "Explore" in details["error"]["message"]
    assert "runId" not in details
    model = project.retinue("run", "Explore", "x", "--model", "no-such-model")
    assert (model.returncode, 'Model not found: "no-such-model"' in model.stderr) == (2, True)
    assert project.retinue("run", "Explore").returncode == 2
    assert project.retinue("nonsense").returncode == 2
    assert project.json("runs", "list", "--json") == {"runs": []}


def test_headless_formats(project, serve):
    serve(answer)
    assert project.retinue("-p", "What is in f0?").stdout == "f0 holds alpha 0\n"
    document = project.json("-p", "What is in f0?", "--output-format", "json")
    assert (document["status"], document["result"], document["is_error"]) == ("completed", "f0 holds alpha 0", False)
    stream = project.retinue("-p", "What is in f0?", "--output-format", "stream-json").stdout.splitlines()
    assert json.loads(stream[-1])["type"] == "outcome"


def test_headless_resume_goes_on_with_the_conversation(project, serve):
    server = serve(answer)
    first = project.json("-p", "What is in f0?", "--output-format", "json")
    again = project.json("-p", "Are you sure?", "--resume", first["run_id"][:8], "--output-format", "json")
    assert again["run_id"] == first["run_id"]
    said = json.dumps(server.requests[-1].body["messages"])
    assert said.index("What is in f0?") < said.index("f0 holds alpha 0") < said.index("Are you sure?")


def test_an_interrupt_stops_the_run_keeps_its_words_and_it_can_be_resumed(project, serve):
    hung = []

    def hang_once(request: Request) -> Reply:
        if request.turn == 2 and not hung:
            hung.append(True)
            return Reply("Half a", hang=True)
        return answer(request)

    server = serve(hang_once)
    process = project.start("run", "Explore", "What is in f0?")
    while len(server.requests) < 2:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (row,) = project.json("runs", "list", "--json")["runs"]
    assert (row["state"], row["ended"]) == ("ended", "stopped")
    done = project.retinue("runs", "resume", row["id"][:8])
    assert (done.returncode, done.stdout) == (0, "f0 holds alpha 0\n")


@pytest.mark.parametrize("words", [("run", "Explore", "Which line?"), ("-p", "Which line?")])
def test_schema_gives_a_typed_value_after_corrections(project, serve, words):
    (project.cwd / "schema.json").write_text(
        json.dumps({"type": "object", "required": ["line"], "properties": {"line": {"type": "integer"}}})
    )

    def submit(request: Request) -> Reply:
        return Reply(calls=[("submit_result", {"line": "one" if request.turn == 0 else 1})])

    server = serve(submit)
    done = project.retinue(*words, "--schema", "schema.json", "--json")
    (result,) = json.loads(done.stdout)["details"]["results"]
    assert (done.returncode, result["value"]) == (0, {"line": 1})
    assert len(server.requests) == 2
    assert server.requests[1].results[0]["is_error"]


def test_schema_corrects_answers_in_text_five_times_with_the_reason(project, serve):
    (project.cwd / "schema.json").write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    server = serve(lambda request: Reply('{"n": "5"}'))
    done = project.retinue("run", "Explore", "How many?", "--schema", "schema.json", "--json")
    assert done.returncode == 1 and "in 5 attempts" in json.loads(done.stdout)["details"]["error"]["message"]
    assert len(server.requests) == 5
    for request in server.requests[1:]:
        assert 'n: "5" is not of type "integer"' in json.dumps(request.body["messages"][-1]).replace("\\", "")


def test_turn_limit_wraps_up_once_and_says_so(project, serve):
    def never_done(request: Request) -> Reply:
        said = json.dumps(request.body["messages"][-1])
        if "final answer" in said:
            return Reply("this far I came")
        return Reply(calls=[("read", {"path": f"f{request.turn % 5}.txt"})])

    serve(never_done)
    done = project.retinue("run", "Explore", "Read for ever", "--max-turns", "2", "--json")
    (result,) = json.loads(done.stdout)["details"]["results"]
    assert (done.returncode, result["status"], result["limit"]) == (0, "steered", "turns")
    assert result["output"] == "this far I came"


def test_tools_work_in_all_grace_turns(project, serve):
    def tidy(request: Request) -> Reply:
        if request.turn == 5:
            return Reply("tidied up")
        return Reply(calls=[("write", {"path": f"made{request.turn}.txt", "content": "x"})])

    serve(tidy)
    done = project.retinue("run", "general-purpose", "Tidy up", "--max-turns", "1", "--json")
    (result,) = json.loads(done.stdout)["details"]["results"]
    assert (done.returncode, result["status"], result["output"]) == (0, "steered", "tidied up")
    assert all((project.cwd / f"made{number}.txt").exists() for number in range(5))


def test_tail_and_show_of_a_finished_run(project, serve):
    serve(answer)
    project.retinue("run", "Explore", "What is in f0?")
    (row,) = project.json("runs", "list", "--json")["runs"]
    tail = project.retinue("runs", "tail", row["id"][:8])
    assert tail.stdout == "f0 holds alpha 0\n"
    show = project.retinue("runs", "show", row["id"][:8]).stdout
    assert "Status   completed" in show
    assert "→ read f0.txt" in show
    assert project.retinue("runs", "show", "ffffffff").returncode == 2


def test_a_disabled_agent_does_not_start(project, serve):
    serve(answer)
    folder = project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "off.md").write_text("---\nname: off\ndescription: x\nenabled: false\n---\nBody\n")
    done = project.retinue("run", "off", "x", "--json")
    assert json.loads(done.stdout)["details"]["error"]["code"] == "SUBAGENT_DISABLED"
    assert done.returncode == 1


def test_worktree_isolation_is_refused_rather_than_ignored(project, serve):
    server = serve(answer)
    done = project.retinue("run", "Explore", "x", "--isolation", "worktree")
    assert (done.returncode, server.requests) == (1, [])


def test_a_home_that_cannot_be_written_is_a_clear_error(project, serve):
    serve(answer)
    (project.home / ".retinue").write_text("a file where a folder should be")
    done = project.retinue("run", "Explore", "x")
    assert done.returncode == 1
    assert "RETINUE_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_cannot_be_used_is_said_by_the_run(project, serve):
    serve(lambda request: Reply("ok"))
    (project.cwd / ".retinue").mkdir()
    (project.cwd / ".retinue" / "settings.json").write_text('{"maxConcurrent": 5000, "graceTurn": 3}')
    done = project.retinue("-p", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "maxConcurrent is ignored; it must be a whole number from 1 to 1024" in done.stderr
    assert "did you mean graceTurns?" in done.stderr


EVIL = "\x1b]0;title\x07\x1b[2J\u202e\x9b31m \x85 and \u2028 more"


def test_nothing_an_agent_chose_reaches_the_terminal_as_a_command(project, serve):
    def answer(request: Request) -> Reply:
        if "child" in json.dumps(request.body["messages"][0]):
            return Reply(EVIL)
        if request.turn == 0:
            call = {"prompt": f"child {EVIL}", "description": f"about {EVIL}", "run_in_background": False}
            return Reply(EVIL, [("Agent", call), ("read", {"path": EVIL})])
        return Reply(EVIL)

    serve(answer)
    done = project.retinue("-p", f"go {EVIL}")
    assert done.stdout == "\\u202e  and \\u2028 more\n", "a pipe may end at a terminal, too"
    seen = [done.stderr, project.retinue("runs", "list").stdout]
    for row in project.json("runs", "list", "--json")["runs"]:
        seen += [project.retinue("runs", verb, row["id"]).stdout for verb in ("show", "effects")]
        seen.append(project.retinue("runs", "tail", row["id"]).stderr)
    for text in seen:
        assert text
        assert not any(mark in text for mark in "\x1b\x07\x9b\x85\u2028\u202e"), text


def test_every_line_of_a_stream_is_one_line_for_every_reader(project, serve):
    serve(lambda request: Reply(EVIL))
    done = project.retinue("-p", EVIL, "--output-format", "stream-json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[-1]["type"], lines[-1]["text"]) == ("outcome", EVIL)
    (row,) = project.json("runs", "list", "--json")["runs"]
    tail = project.retinue("runs", "tail", row["id"], "--json").stdout.splitlines()
    assert [json.loads(line)["type"] for line in tail][-1] == "run.ended"


def test_numbers_that_make_no_sense_are_refused(project):
    for command in (("runs", "list"), ("inbox", "list")):
        for wrong in ("-3", "many", "1.5"):
            done = project.retinue(*command, "--limit", wrong)
            assert (done.returncode, f"not '{wrong}'" in done.stderr) == (2, True), done.stderr
    refused = project.retinue("run", "Explore", "x", "--max-budget-usd", "much")
    assert "must be a number, 0 or more, not 'much'" in refused.stderr
