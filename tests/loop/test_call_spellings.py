"""Calls in the spellings of Claude Code, pi, codex, gemini, kimi, opencode and small models, through the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.capabilities.web.attach import FetchContentTool
from retinue.core.events import ToolEnded, ToolStarted
from retinue.core.tool import Todo, ToolContext, ToolOutput, ok
from retinue.guard.gate import GatedTool, PermissionGate
from retinue.testing import Call, FakeTool, ScriptedModel, ToolBench, Turn, drive
from retinue.tools.base import builtin_tools
from retinue.tools.delegation.agent import AgentTool
from retinue.tools.delegation.manage import GetSubagentResultTool, SteerSubagentTool

SEVEN = ("read", "write", "edit", "bash", "grep", "find", "ls")
PATCHED = "one TWO three\n"


class RunDialogue:
    """Keeps what todo writes."""

    def __init__(self) -> None:
        self.todos: tuple[Todo, ...] = ()

    def write_todos(self, todos: tuple[Todo, ...]) -> None:
        self.todos = todos


class Recorded:
    """A real tool's spec; keeps the arguments that would run."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.calls: list[dict[str, Any]] = []

    async def run(self, call_id: str, arguments: Any, context: ToolContext) -> ToolOutput:
        self.calls.append(dict(arguments))
        return ok("done")


def workspace(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("def start():\n    return 1\n\nstart()\n")
    (root / "notes.txt").write_text("one two three\n")
    return root


async def say(root: Path, *calls: Call, tools: Any = None) -> list[Any]:
    """The results of calls, one turn each, by the seven tools."""
    companion = RunDialogue()
    context = ToolContext("run-1", (root,), root.parent / "outputs", clearance="person")
    context.dialogue = companion  # type: ignore[assignment]
    bench = ToolBench(root)
    offered = tools or [bench.tool(name) for name in (*SEVEN, "todo")]
    model = ScriptedModel(*[Turn(call) for call in calls], "ok")
    run = await drive(model, tools=offered, context=context)
    return [*run.of(ToolEnded)]


READS = "1\tone two three"
TABLE: list[tuple[str, str, dict[str, Any], str]] = [
    # Claude Code
    ("Claude Code", "Read", {"file_path": "notes.txt"}, READS),
    ("Claude Code", "Read", {"file_path": "src/app.py", "offset": 2, "limit": 1}, "2\t    return 1"),
    ("Claude Code", "Edit", {"file_path": "notes.txt", "old_string": "two", "new_string": "TWO"}, "Made the edit"),
    (
        "Claude Code",
        "MultiEdit",
        {"file_path": "notes.txt", "edits": [{"old_string": "two", "new_string": "TWO", "replace_all": False}]},
        "Made the edit",
    ),
    ("Claude Code", "Write", {"file_path": "new.txt", "content": "x\n"}, "Created new.txt"),
    ("Claude Code", "Bash", {"command": "echo hi", "description": "Say hi"}, "hi"),
    ("Claude Code", "Bash", {"command": "echo hi", "timeout": 120000}, "hi"),
    ("Claude Code", "Grep", {"pattern": "start", "output_mode": "files_with_matches"}, "src/app.py"),
    ("Claude Code", "Grep", {"pattern": "RETURN", "-i": True, "-n": True, "output_mode": "content"}, "app.py:2:"),
    ("Claude Code", "Grep", {"pattern": "return", "type": "py", "-C": 1, "head_limit": 5}, "app.py"),
    ("Claude Code", "Grep", {"pattern": "start", "glob": "*.py", "output_mode": "count"}, "app.py:2"),
    ("Claude Code", "Glob", {"pattern": "**/*.py"}, "src/app.py"),
    ("Claude Code", "LS", {"path": "."}, "src/"),
    (
        "Claude Code",
        "TodoWrite",
        {"todos": [{"content": "Fix", "status": "in_progress", "activeForm": "Fixing", "id": "1"}]},
        "In progress: Fix",
    ),
    ("Anthropic's text editor", "str_replace_based_edit_tool", {"command": "view", "path": "notes.txt"}, READS),
    (
        "Anthropic's text editor",
        "str_replace_based_edit_tool",
        {"command": "view", "path": "src/app.py", "view_range": [2, 2]},
        "2\t    return 1",
    ),
    (
        "Anthropic's text editor",
        "str_replace_based_edit_tool",
        {"command": "str_replace", "path": "notes.txt", "old_str": "two", "new_str": "TWO"},
        "Made the edit",
    ),
    (
        "Anthropic's text editor",
        "str_replace_based_edit_tool",
        {"command": "create", "path": "new.txt", "file_text": "x"},
        "Created new.txt",
    ),
    # pi
    ("pi", "edit", {"path": "notes.txt", "edits": [{"oldText": "two", "newText": "TWO"}]}, "Made the edit"),
    ("pi", "edit", {"path": "notes.txt", "oldText": "two", "newText": "TWO"}, "Made the edit"),
    ("pi", "grep", {"pattern": "Start", "ignoreCase": True, "literal": True}, "app.py"),
    ("pi", "find", {"pattern": "*.py", "path": "src", "limit": 3}, "src/app.py"),
    ("pi", "bash", {"command": "echo hi", "timeout": 5}, "hi"),
    ("Retinue of before", "edit", {"path": "notes.txt", "edits": [{"old": "two", "new": "TWO"}]}, "Made the edit"),
    # codex
    ("codex", "shell", {"command": ["bash", "-lc", "echo hi"]}, "hi"),
    ("codex", "shell", {"command": ["echo", "two words"]}, "two words"),
    ("codex", "shell", {"command": "pwd", "workdir": "src"}, "/src"),
    ("codex", "shell", {"command": "echo hi", "timeout_ms": 5000}, "hi"),
    ("codex", "read_file", {"file_path": "src/app.py", "offset": 1, "limit": 1}, "1\tdef start():"),
    ("codex", "list_dir", {"dir_path": "src"}, "app.py"),
    ("codex", "grep_files", {"pattern": "return", "include": "*.py"}, "app.py"),
    (
        "codex",
        "update_plan",
        {"explanation": "first", "plan": [{"step": "Look", "status": "in_progress"}]},
        "In progress: Look",
    ),
    # Gemini CLI
    ("Gemini CLI", "read_file", {"absolute_path": "notes.txt"}, READS),
    ("Gemini CLI", "run_shell_command", {"command": "echo hi", "directory": "src"}, "hi"),
    (
        "Gemini CLI",
        "replace",
        {"file_path": "notes.txt", "instruction": "capitals", "old_string": "two", "new_string": "TWO"},
        "Made the edit",
    ),
    ("Gemini CLI", "write_file", {"file_path": "new.txt", "content": "x"}, "Created new.txt"),
    ("Gemini CLI", "search_file_content", {"pattern": "return", "include": "*.py"}, "app.py"),
    ("Gemini CLI", "glob", {"pattern": "*.py", "respect_git_ignore": True}, "src/app.py"),
    ("Gemini CLI", "list_directory", {"dir_path": "src"}, "app.py"),
    # Kimi CLI
    ("Kimi CLI", "ReadFile", {"path": "notes.txt", "line_offset": 1, "n_lines": 1}, READS),
    ("Kimi CLI", "StrReplaceFile", {"path": "notes.txt", "edit": {"old": "two", "new": "TWO"}}, "Made the edit"),
    ("Kimi CLI", "WriteFile", {"path": "new.txt", "content": "x", "mode": "overwrite"}, "Created new.txt"),
    ("Kimi CLI", "Shell", {"command": "echo hi", "timeout": 60}, "hi"),
    ("Kimi CLI", "SetTodoList", {"todos": [{"title": "Look", "status": "In Progress"}]}, "In progress: Look"),
    # opencode, Copilot, Cursor
    ("opencode", "read", {"filePath": "notes.txt"}, READS),
    ("opencode", "edit", {"filePath": "notes.txt", "oldString": "two", "newString": "TWO"}, "Made the edit"),
    ("opencode", "grep", {"pattern": "return", "include": "*.py"}, "app.py"),
    ("opencode", "list", {"path": "src"}, "app.py"),
    ("opencode", "todowrite", {"todos": [{"content": "A", "status": "pending", "priority": "high"}]}, "0 of 1"),
    ("Copilot", "readFile", {"filePath": "src/app.py", "startLine": 2, "endLine": 2}, "2\t    return 1"),
    ("Copilot", "runInTerminal", {"command": "echo hi", "explanation": "say hi"}, "hi"),
    ("Copilot", "grep_search", {"query": "ret.rn", "isRegexp": True}, "app.py"),
    ("Cursor", "read_file", {"target_file": "notes.txt"}, READS),
    # small models
    ("small", "read", {"path": "src/app.py", "offset": "2", "limit": "1"}, "2\t    return 1"),
    ("small", "read", {"path": "notes.txt", "offset": None, "limit": ""}, READS),
    ("small", "functions.read", {"path": "notes.txt"}, READS),
    ("small", "READ", {"file": "notes.txt"}, READS),
    ("small", "read<|channel|>commentary", {"filename": "notes.txt"}, READS),
    ("small", "edit", {"path": "notes.txt", "edits": '[{"old_string": "two", "new_string": "TWO"}]'}, "Made the edit"),
    ("small", "edit", {"path": "notes.txt", "edits": {"old": "two", "new": "TWO"}}, "Made the edit"),
    ("small", "edit", {"path": "notes.txt", "old": "two", "new": "TWO", "edits": []}, "Made the edit"),
    ("small", "edit", {"path": "notes.txt", "old": "two", "new": "TWO", "all": "true"}, "Made the edit"),
    ("small", "bash", {"cmd": "echo hi"}, "hi"),
    ("small", "bash", {"command": "echo hi", "timeout": "5"}, "hi"),
    ("small", "grep", {"query": "return", "limit": "3"}, "app.py"),
    ("small", "find", {"glob": "*.py"}, "src/app.py"),
    ("small", "ls", {"directory": "src"}, "app.py"),
    ("small", "todo", {"todos": '[{"content": "A", "status": "done"}]'}, "1 of 1"),
    ("small", "todo", {"todos": ["Look", "Fix"]}, "0 of 2"),
]


@pytest.mark.parametrize(("system", "name", "arguments", "expected"), TABLE)
async def test_a_call_in_the_spelling_of_another_system_runs(
    tmp_path: Path, system: str, name: str, arguments: dict[str, Any], expected: str
) -> None:
    root = workspace(tmp_path)
    (ended,) = await say(root, Call(name, arguments))
    assert not ended.result.is_error, ended.result.text
    assert expected in ended.result.text
    assert "[Note:" not in ended.result.text
    assert ended.result.name == name, "providers want results under the name that was called"
    if "edit" in expected:
        assert (root / "notes.txt").read_text() == PATCHED


def test_the_table_has_at_least_sixty_calls() -> None:
    assert len(TABLE) >= 60


async def test_agents_are_started_asked_and_steered_in_other_spellings() -> None:
    tools = [Recorded(tool.spec) for tool in (AgentTool(None), GetSubagentResultTool(None), SteerSubagentTool(None))]  # type: ignore[arg-type]
    model = ScriptedModel(
        Turn(Call("Task", {"task": "look", "agent": "Explore", "description": "d", "background": "false"})),
        Turn(Call("task", {"prompt": "look", "subagent_type": "Plan", "description": "d", "maxTurns": "7"})),
        Turn(Call("get_subagent_result", {"task_id": "abc", "block": "true"})),
        Turn(Call("steer_subagent", {"to": "abc", "content": "stop there"})),
        "ok",
    )
    run = await drive(model, tools=tools)
    assert not any(ended.result.is_error for ended in run.of(ToolEnded)), run.of(ToolEnded)
    agent, result, steer = tools
    first = {"prompt": "look", "subagent_type": "Explore", "description": "d", "run_in_background": False}
    assert agent.calls[0] == first
    assert agent.calls[1]["max_turns"] == 7
    assert result.calls == [{"agent_id": "abc", "wait": True}]
    assert steer.calls == [{"agent_id": "abc", "message": "stop there"}]


async def test_a_page_is_fetched_as_claude_code_asks_for_it() -> None:
    tool = Recorded(FetchContentTool(lambda: None).spec)  # type: ignore[arg-type, return-value]
    model = ScriptedModel(Turn(Call("WebFetch", {"url": "https://a.example", "prompt": "Summarise"})), "ok")
    await drive(model, tools=[tool])
    assert tool.calls == [{"url": "https://a.example"}]


async def test_an_unknown_name_is_dropped_and_the_result_says_so(tmp_path: Path) -> None:
    (ended,) = await say(workspace(tmp_path), Call("bash", {"command": "echo hi", "foo": 1}))
    assert ended.result.text.startswith("hi")
    assert '[Note: "foo" was ignored: bash has no such parameter.]' in ended.result.text


async def test_a_name_that_would_have_held_the_call_back_is_refused_and_not_dropped(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    calls = [
        Call("bash", {"command": "rm notes.txt", "dry_run": True}),
        Call("write", {"path": "notes.txt", "content": "x", "append": True}),
        Call("WriteFile", {"path": "notes.txt", "content": "x", "mode": "append"}),
    ]
    ended = await say(root, *calls)
    assert all(each.result.is_error for each in ended)
    assert "dry_run is not a parameter" in ended[0].result.text
    assert "Use edit to add text at its end" in ended[1].result.text
    assert (root / "notes.txt").read_text() == "one two three\n"


async def test_of_two_spellings_of_one_parameter_the_tools_own_counts_and_the_other_is_named(tmp_path: Path) -> None:
    (ended,) = await say(workspace(tmp_path), Call("read", {"path": "notes.txt", "file_path": "src/app.py"}))
    assert READS in ended.result.text
    assert '"file_path" was ignored, because "path" was given too' in ended.result.text


async def test_the_record_names_the_tool_and_the_arguments_that_ran(tmp_path: Path) -> None:
    bench = ToolBench(workspace(tmp_path))
    model = ScriptedModel(Turn(Call("Read", {"file_path": "notes.txt"})), "ok")
    run = await drive(model, tools=map(bench.tool, SEVEN), context=bench.context)
    (started,) = run.of(ToolStarted)
    assert (started.call.name, dict(started.call.arguments)) == ("read", {"path": "notes.txt"})
    assert model.requests[1].messages[1].tool_calls[0].name == "Read", "the conversation keeps what the model wrote"


async def test_the_gate_judges_the_arguments_that_run_and_no_other_spelling(tmp_path: Path) -> None:
    judged: list[Any] = []

    class Watching(PermissionGate):
        def __init__(self) -> None:
            self.taint = None

        async def judge(self, tool: Any, use: Any, context: Any) -> Any:
            from retinue.guard.gate import Denied

            judged.append((use.tool, dict(use.arguments)))
            return Denied("policy", "No.")

        async def refused(self, use: Any, denied: Any) -> None:
            return None

    root = workspace(tmp_path)
    tools = [GatedTool(tool, Watching()) for tool in builtin_tools().values()]
    call = Call("Shell", {"cmd": ["bash", "-c", "rm notes.txt"], "cwd": "src", "command": "echo harmless"})
    await say(root, call, tools=tools)
    assert judged == [("bash", {"command": "cd src && {\necho harmless\n}"})]
    assert (root / "notes.txt").exists()


async def test_a_tool_that_exists_and_is_not_offered_says_why(tmp_path: Path) -> None:
    model = ScriptedModel(Turn(Call("Write", {"file_path": "a"}), Call("MultiEdit", {})), "ok")
    tools = [ToolBench(tmp_path).tool("read")]
    run = await drive(model, tools=tools, absent=lambda name: f"this run is read-only ({name}).")
    texts = [ended.result.text for ended in run.of(ToolEnded)]
    assert (
        texts[0] == "Not run: write is not among your tools: this run is read-only (write). The tools you have: read."
    )
    assert "edit is not among your tools" in texts[1]


async def test_a_name_that_means_several_offered_tools_is_asked_about(tmp_path: Path) -> None:
    bench = ToolBench(tmp_path)
    model = ScriptedModel(Turn(Call("search", {"pattern": "x"})), "ok")
    run = await drive(model, tools=[bench.tool("grep"), bench.tool("find")])
    assert "could be any of grep, find" in run.of(ToolEnded)[0].result.text


async def test_a_foreign_tool_gets_its_types_and_keeps_every_name() -> None:
    got: list[dict[str, Any]] = []
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": False,
    }
    tool = FakeTool("mcp__x__y", lambda **given: got.append(given) or "x", schema)
    calls = [Call("mcp__x__y", {"n": "5", "tags": '["a"]'}), Call("mcp__x__y", {"n": 1, "dry": True})]
    run = await drive(ScriptedModel(Turn(*calls), "ok"), tools=[tool])
    assert got == [{"n": 5, "tags": ["a"]}]
    refused = [ended.result.text for ended in run.of(ToolEnded) if ended.result.is_error]
    assert len(refused) == 1 and "dry is not a parameter" in refused[0]
