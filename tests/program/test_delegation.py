"""Delegation with the real program and a real supervisor: what a model reads must be so."""

import json
import re
import time

import pytest

from tests.program.model_server import Reply, Request

CHEAP = (
    "---\nname: cheap\ndescription: Cheap.\nmodel: anthropic/claude-haiku-4-5\n---\nDo the task, and answer shortly.\n"
)
OFF = "---\nname: off\ndescription: Switched off.\nenabled: false\n---\nDo the task, and answer shortly.\n"


def first(request: Request) -> str:
    content = request.body["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def results(request: Request) -> list[str]:
    found = []
    for part in request.results:
        content = part["content"]
        found.append(content if isinstance(content, str) else "".join(each.get("text", "") for each in content))
    return found


class Play:
    """The main agent makes one message of calls after the other; each is a list, or a function
    that makes one of what it has read. Agents whose task begins with `child` answer at once."""

    def __init__(self, *steps, child=None) -> None:
        self.steps = steps
        self.child = child or (lambda request: Reply(f"answer to {last(request)}"))
        self.seen: list[str] = []

    def answer(self, request: Request) -> Reply:
        if "child" in first(request)[:80]:
            return self.child(request)
        self.seen = results(request)
        done = sum(each["role"] == "assistant" and "tool_use" in json.dumps(each) for each in messages(request))
        if done >= len(self.steps):
            return Reply("over")
        step = self.steps[done]
        return Reply("", step(self.seen) if callable(step) else step)


def messages(request: Request) -> list[dict]:
    return request.body["messages"]


def last(request: Request) -> str:
    content = messages(request)[-1]["content"]
    return content if isinstance(content, str) else content[-1].get("text", "")


def agent(prompt: str, **more):
    return ("Agent", {"prompt": prompt, **more})


def ids(seen: list[str]) -> list[str]:
    return [found for text in seen for found in re.findall(r"^Agent ID: (\S+)", text, re.MULTILINE)]


def written(project, **files: str) -> None:
    folder = project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text)


def settings(project, **values) -> None:
    (project.cwd / ".retinue").mkdir(exist_ok=True)
    (project.cwd / ".retinue" / "settings.json").write_text(json.dumps(values))


def test_a_quote_names_the_model_that_the_agents_would_use(project, serve):
    written(project, cheap=CHEAP)
    settings(project, quoteAbove=1)
    play = Play([agent(f"child {n}", subagent_type="cheap") for n in range(3)])
    serve(play.answer)
    assert project.retinue("-p", "Go").returncode == 0
    refused = [text for text in play.seen if text.startswith("Not started")]
    assert len(refused) == 2
    assert "2 × cheap on anthropic/claude-haiku-4-5" in refused[0]


def test_a_resumed_agent_works_where_the_setting_and_its_file_say(project, serve):
    written(project, pinned=CHEAP.replace("name: cheap", "name: pinned\nbackground: true"))
    settings(project, backgroundByDefault=False)
    play = Play(
        [agent("child one"), agent("child two", subagent_type="pinned", run_in_background=False)],
        lambda seen: [agent("more", resume=ids(seen)[0]), agent("more", resume=ids(seen)[1], run_in_background=False)],
    )
    serve(play.answer)
    assert project.retinue("-p", "Go").returncode == 0
    assert play.seen[1].startswith("Agent started in the background."), "V17: it began there, nobody moved it"
    assert "answer to more" in play.seen[2], "by the setting it is waited for"
    assert play.seen[3].startswith("Agent resumed in the background."), "its file says so"


def test_at_the_depth_limit_only_the_tool_that_the_file_names_is_said_to_be_missing(project, serve):
    written(project, boss="---\nname: boss\ndescription: d\ntools: Agent, Read, Bash\n---\nLead.")
    settings(project, maxSubagentDepth=1)
    play = Play([agent("child", subagent_type="boss", run_in_background=False)])
    serve(play.answer)
    assert project.retinue("-p", "Go").returncode == 0
    notes = [line for line in play.seen[0].splitlines() if "matched no tools" in line]
    assert notes == ["Note: Agent matched no tools in this session"]


@pytest.mark.parametrize(
    ("vocabulary", "tool", "argument"),
    [("codingcode", "dispatch_agent", "prompt"), ("devkit", "subagent", "task")],
)
def test_the_other_vocabularies_refuse_in_their_own_words(project, serve, vocabulary, tool, argument):
    written(project, off=OFF)
    deny = {"hooks": [{"type": "command", "command": "echo not today >&2; exit 2"}], "matcher": "Explore"}
    settings(project, delegationVocabulary=vocabulary, hooks={"SubagentSpawn": [deny]})
    calls = [(tool, {"agent": name, argument: "child"}) for name in ("off", "Explore", "nobody")]
    play = Play(calls)
    serve(play.answer)
    done = project.retinue("-p", "Go", "--trust", "--output-format", "stream-json")
    disabled, denied, unknown = play.seen
    assert denied == "Subagent spawn denied: not today"
    if vocabulary == "codingcode":
        assert disabled.startswith("Subagent 'off' is disabled")
        assert unknown.startswith("Unknown subagent: nobody. Available agents: ")
    else:
        ended = [json.loads(line) for line in done.stdout.splitlines()]
        codes = [line["effect"]["code"] for line in ended if line["type"] == "tool.ended"]
        assert sorted(codes) == ["SUBAGENT_DISABLED", "SUBAGENT_FAILED", "UNKNOWN_AGENT"], codes
        assert "nobody" in unknown and "Explore" in unknown


def test_what_cannot_be_corrected_is_not_to_be_tried_again(project, serve):
    deny = {"hooks": [{"type": "command", "command": "echo not today >&2; exit 2"}], "matcher": "Explore"}
    settings(project, hooks={"SubagentSpawn": [deny]}, fallbackSubagent=False)
    play = Play([agent("child", subagent_type="Explore"), agent("child", subagent_type="nobody")])
    serve(play.answer)
    assert project.retinue("-p", "Go", "--trust").returncode == 0
    denied, unknown = play.seen
    assert "not today" in denied and "retry" not in denied
    assert '{"retry": "retry-' in unknown


def test_a_name_stays_with_its_agent_after_a_restart(project, serve):
    play = Play(
        [agent("child one", name="scout", run_in_background=False)],
        [agent("child two", name="scout", run_in_background=False)],
        lambda seen: [("get_subagent_result", {"agent_id": "@scout"})],
    )
    serve(play.answer)

    def say(*options: str) -> None:
        steps, play.steps = play.steps, play.steps[: len(ids(play.seen)) + 1]
        assert project.retinue("-p", "Go", *options).returncode == 0
        play.steps = steps

    say()
    (main,) = (row["id"] for row in project.json("runs", "list", "--json")["runs"] if row["depth"] == 0)
    say("--resume", main)
    assert "Name: scout\n" in play.seen[0]
    assert "Name: scout-2\n" in play.seen[1]
    say("--resume", main)
    assert "answer to child one" in play.seen[2]


def test_maxConcurrent_applies_live_to_runs_of_another_process(project, serve):
    settings(project, maxConcurrent=1)
    wait = "while [ ! -f go ]; do sleep 0.02; done"

    def child(request: Request) -> Reply:
        mark = first(request).replace(" ", "-")
        return Reply("done") if request.turn else Reply("", [("bash", {"command": f"touch {mark}; {wait}"})])

    play = Play([agent(f"child {n}") for n in range(3)], child=child)
    serve(play.answer)
    process = project.start("-p", "Go")
    deadline = time.monotonic() + 60

    def until(count: int) -> None:
        while len(list(project.cwd.glob("child-*"))) < count:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)

    until(1)
    assert project.retinue("settings", "set", "maxConcurrent", "3").returncode == 0
    until(3)
    (project.cwd / "go").touch()
    assert process.wait(60) == 0
    process.communicate()


def test_an_interrupted_agent_is_not_called_finished_and_its_unknown_effects_are_named(project, serve):
    cut = {"off": False}

    def child(request: Request) -> Reply:
        if cut["off"]:
            return Reply(f"answer to {last(request)}")
        return Reply("Half of it. ", [("bash", {"command": "touch here; sleep 600"})])

    play = Play([agent("child one"), agent("child two")], child=child)
    server = serve(play.answer)
    process = project.start("-p", "Go")
    while not (project.cwd / "here").exists() or len(server.requests) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    cut["off"] = True
    (main,) = (row["id"] for row in project.json("runs", "list", "--json")["runs"] if row["depth"] == 0)
    assert project.retinue("-p", "Go on", "--resume", main).returncode == 0
    told = next(json.dumps(m) for m in messages(server.requests[-1]) if "Results of agents" in json.dumps(m))
    assert told.count("Interrupted") == 4
    assert "finished" not in told
    assert told.count("sleep 600") == 2, "what nobody knows the effect of is named"


def test_a_foreground_run_is_moved_to_the_background_by_another_process(project, serve):
    wait = "touch here; while [ ! -f go ]; do sleep 0.02; done"

    def child(request: Request) -> Reply:
        return Reply("found it") if request.turn else Reply("", [("bash", {"command": wait})])

    play = Play([agent("child", name="scout", run_in_background=False)], child=child)
    server = serve(play.answer)
    process = project.start("-p", "Go")
    while not (project.cwd / "here").exists():
        assert process.poll() is None
        time.sleep(0.02)
    moved = project.retinue("runs", "background", "@scout")
    assert (moved.returncode, "It continues in the background." in moved.stdout) == (0, True), moved.stderr
    assert "nothing to move" in project.retinue("runs", "background", "@scout").stdout
    (project.cwd / "go").touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "over\n"), err
    assert play.seen[0].startswith("Agent moved to the background: it goes on there.")
    heard = json.dumps(messages(server.requests[-1]))
    assert heard.count("<task-notification>") == 1 and "found it" in heard
    ended = project.retinue("runs", "background", "@scout")
    assert (ended.returncode, "has ended" in ended.stderr) == (1, True)


@pytest.mark.parametrize(
    ("vocabulary", "call", "said"),
    [
        ("claude", agent("child"), "Subagents are switched off"),
        ("devkit", ("subagent", {"agent": "Explore", "task": "child"}), "Subagents are switched off"),
        ("codingcode", ("dispatch_agent", {"agent": "Explore", "prompt": "child"}), "Subagent dispatch is disabled"),
    ],
)
def test_delegation_that_is_switched_off_meanwhile_is_refused(project, serve, vocabulary, call, said):
    settings(project, delegationVocabulary=vocabulary)

    def switch_off(seen):
        settings(project, delegationVocabulary=vocabulary, subagents={"enabled": False})
        return [call]

    play = Play([("bash", {"command": "true"})], switch_off)
    serve(play.answer)
    assert project.retinue("-p", "Go").returncode == 0
    assert said in play.seen[1], play.seen
    assert "retry" not in play.seen[1]


@pytest.mark.parametrize(
    ("settings", "tool", "why"),
    [
        ({"maxSubagentDepth": 1}, "Agent", "agents may be nested 1 deep at most, and you are at that depth."),
        ({"web": {"enabled": False}}, "web_search", "the setting web.enabled is false."),
    ],
    ids=["depth", "web"],
)
def test_a_tool_that_a_setting_takes_away_is_not_blamed_on_the_file(project, serve, settings, tool, why):
    heard = []
    asked = {"Agent": {"prompt": "deeper", "description": "deeper"}, "web_search": {"query": "x"}}

    def child(request):
        heard.extend(results(request))
        return Reply("done") if request.results else Reply("", [(tool, asked[tool])])

    (project.cwd / ".retinue").mkdir(exist_ok=True)
    (project.cwd / ".retinue" / "settings.json").write_text(json.dumps(settings))
    play = Play([agent("child: do it", subagent_type="general-purpose", run_in_background=False)], child=child)
    serve(play.answer)
    project.retinue("-p", "go")
    assert heard and heard[0].startswith(f"Not run: {tool} is not among your tools: {why}")


def test_the_main_agent_hears_that_agents_are_switched_off(project, serve):
    (project.cwd / ".retinue").mkdir(exist_ok=True)
    (project.cwd / ".retinue" / "settings.json").write_text(json.dumps({"subagents": {"enabled": False}}))
    play = Play([agent("child: do it")])
    serve(play.answer)
    project.retinue("-p", "go")
    assert play.seen[0].startswith("Not run: Agent is not among your tools: the setting subagents.enabled is false.")
