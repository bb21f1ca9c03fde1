"""docs/coming-from-claude-code.md, row by row, with real files of Claude Code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.docs.coming_from import (
    assert_read,
    install,
    listed,
    needs_corpus,
    playing,
    ran,
    real_files,
    rows,
    said,
    shows,
)
from tests.docs.documents import parse_command
from tests.program.compatibility_scene import LIGHT, system, tools, write
from tests.program.conftest import Project
from tests.program.model_server import Reply

from retinue.guard.sandbox import kernel
from retinue.settings.table import fields

PAGE = "docs/coming-from-claude-code.md"
WRITE = ("write", {"path": "new.txt", "content": "x\n"})
HELPER = "---\nname: helper\ndescription: Helps with the code.\n{}---\nYou help with the code of this project.\n"


def shows_row(*cells: str) -> Any:
    return shows(PAGE, *cells)


@needs_corpus
@shows_row("`.claude/agents/**/*.md`, `~/.claude/agents`")
def test_ten_real_files_are_agents_in_the_project_and_at_home(project: Project) -> None:
    files = real_files("claude", 20)
    placed = install(project, ".claude/agents/team/deep", files[:10])
    placed |= install(project, ".claude/agents", files[10:], home=True)
    assert len(placed) == 20
    assert_read(project, placed, "claude")


@shows_row("`.claude/commands`, `~/.claude/commands`")
@pytest.mark.parametrize("home", [False, True])
def test_a_command_is_called_by_its_name(project: Project, serve: Any, home: bool) -> None:
    write(project, ".claude/commands/fix-issue.md", "Fix issue $ARGUMENTS with care.\n", home=home)
    server = serve(lambda request: Reply("done"))
    ran(project, "-p", "/fix-issue 12")
    assert "Fix issue 12 with care." in said(server.requests[0])


@shows_row("`.claude/skills`, `~/.claude/skills`")
@pytest.mark.parametrize("home", [False, True])
def test_a_skill_is_loaded_when_needed_and_called_by_its_name(project: Project, serve: Any, home: bool) -> None:
    text = "---\nname: rel\ndescription: Makes a release.\n---\nTag it, then push: $ARGUMENTS\n"
    write(project, ".claude/skills/rel/SKILL.md", text, home=home)
    server = serve(playing(("skill", {"skill": "rel"})))
    ran(project, "-p", "Make a release")
    assert "Makes a release." in said(server.requests[0]) and "Tag it" not in said(server.requests[0])
    assert "Tag it, then push" in said(server.requests[1])
    ran(project, "-p", "/rel explain")
    assert "Tag it, then push: explain" in server.requests[2].body["messages"][0]["content"][0]["text"]


@shows_row("`CLAUDE.md`, `.claude/CLAUDE.md`, `CLAUDE.local.md`")
@pytest.mark.parametrize("name", ["CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md", "AGENTS.md"])
def test_instructions_reach_the_model(project: Project, serve: Any, name: str) -> None:
    write(project, name, "Indent with tabs in this project.\n")
    server = serve(lambda request: Reply("done"))
    ran(project, "-p", "hello")
    assert "Indent with tabs in this project." in said(server.requests[0])


@shows_row("`.claude/settings.json`: `permissions`", "project files")
def test_deny_counts_at_once_and_allow_after_consent(project: Project, serve: Any) -> None:
    project.mode = ""
    serve(playing(WRITE))
    write(project, ".claude/settings.json", json.dumps({"permissions": {"allow": ["Write"]}}))
    ran(project, "-p", "write it")
    assert not (project.cwd / "new.txt").exists()
    ran(project, "trust", "add", ".claude/settings.json")
    ran(project, "-p", "write it")
    assert (project.cwd / "new.txt").exists()
    (project.cwd / "new.txt").unlink()
    write(project, ".claude/settings.json", json.dumps({"permissions": {"deny": ["Write"]}}))
    ran(project, "-p", "write it", "--permission-mode", "bypassPermissions")
    assert not (project.cwd / "new.txt").exists()


@shows_row("`.claude/settings.json`: `hooks`")
def test_hooks_run_after_consent(project: Project, serve: Any) -> None:
    serve(playing(WRITE))
    hook = {"matcher": "Write", "hooks": [{"type": "command", "command": "touch hook.seen"}]}
    write(project, ".claude/settings.json", json.dumps({"hooks": {"PreToolUse": [hook]}}))
    ran(project, "-p", "write it")
    assert not (project.cwd / "hook.seen").exists()
    ran(project, "trust", "add")
    ran(project, "-p", "write it")
    assert (project.cwd / "hook.seen").exists()


@shows_row("`.mcp.json`, servers of `~/.claude.json`", "`claude mcp list`")
def test_servers_of_both_files_are_listed_and_a_projects_are_asked_after_consent(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    write(project, ".mcp.json", json.dumps({"mcpServers": {"one": LIGHT}}))
    write(project, ".claude.json", json.dumps({"mcpServers": {"two": LIGHT}}), home=True)
    found = project.json("servers", "list", "--json")["servers"]
    assert {each["name"]: each["trusted"] for each in found} == {"one": False, "two": True}
    ran(project, "-p", "hello")
    assert "mcp__two__add" in said(server.requests[0]) and "mcp__one__add" not in said(server.requests[0])
    ran(project, "trust", "add")
    ran(project, "-p", "hello")
    assert "mcp__one__add" in said(server.requests[1])


@shows_row("plugins")
def test_a_plugin_in_claude_codes_layout_brings_its_agents(project: Project) -> None:
    write(project, ".retinue/plugins/kit/.claude-plugin/plugin.json", json.dumps({"name": "kit"}))
    write(project, ".retinue/plugins/kit/agents/helper.md", HELPER.format(""))
    assert listed(project)["helper"]["source"] == "plugin"
    assert project.json("agents", "show", "kit:helper", "--json")["name"] == "helper"


@shows_row("`claude`")
def test_the_program_without_words_opens_the_app(project: Project) -> None:
    parse_command("retinue")
    screen, terminal = pty.openpty()
    environment = project.environment | {"TERM": "xterm-256color"}
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    process = subprocess.Popen(project.program, cwd=project.cwd, env=environment, **streams)
    os.close(terminal)
    seen = b""
    while b"\x1b[?1049h" not in seen:  # the app takes the whole screen
        seen += os.read(screen, 65536)
    process.kill()
    process.wait()
    os.close(screen)


@shows_row('`claude -p "…"`, also with piped input')
def test_what_is_piped_in_joins_the_prompt(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    assert ran(project, "-p", "review this", input="+ a line\n").stdout.strip() == "done"
    assert "review this" in said(server.requests[0]) and "+ a line" in said(server.requests[0])


@shows_row("`-c`, `--continue`, `-r`, `--resume`")
@pytest.mark.parametrize("option", ["-c", "--continue", "-r", "--resume"])
def test_a_conversation_goes_on(project: Project, serve: Any, option: str) -> None:
    server = serve(lambda request: Reply("done"))
    ran(project, "-p", "the first prompt")
    run_id = project.json("runs", "list", "--json")["runs"][0]["id"]
    which = (option, run_id) if option in ("-r", "--resume") else (option,)
    ran(project, "-p", "the second prompt", *which)
    assert "the first prompt" in said(server.requests[1]) and "the second prompt" in said(server.requests[1])
    parse_command(f"retinue {' '.join(which)}")


@shows_row("`--model`, `--agents`, `--max-turns`, `--permission-mode`", "`--dangerously-skip-permissions`")
def test_options_of_a_run_have_their_effect(project: Project, serve: Any) -> None:
    project.mode = ""
    server = serve(playing(WRITE, WRITE))
    more = json.dumps({"extra": {"description": "Is brought by an option.", "prompt": "You help."}})
    limited = project.retinue("-p", "go", "--model", "haiku", "--agents", more, "--max-turns", "1")
    assert "haiku" in server.requests[0].body["model"] and "Is brought by an option." in said(server.requests[0])
    assert "The turn limit of 1 is reached." in limited.stderr and not (project.cwd / "new.txt").exists()
    ran(project, "-p", "go", "--permission-mode", "bypassPermissions")
    assert (project.cwd / "new.txt").exists()


@shows_row("`--allowedTools`, `--disallowedTools`, `--add-dir`, `--mcp-config`, `--settings`, `--append-system-prompt`")
def test_options_for_one_call_have_their_effect(project: Project, serve: Any, tmp_path: Path) -> None:
    project.mode = ""
    write(project, "CLAUDE.md", "Indent with tabs.\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "note.txt").write_text("from the other folder\n")
    server = serve(playing(WRITE, ("read", {"path": str(other / "note.txt")})))
    servers, settings = json.dumps({"mcpServers": {"light": LIGHT}}), json.dumps({"instructions": {"enabled": False}})
    ran(
        project,
        *("-p", "go", "--allowedTools", "Write", "--disallowedTools", "bash", "--add-dir", str(other)),
        *("--mcp-config", servers, "--settings", settings, "--append-system-prompt", "Answer in German."),
    )
    first, last = server.requests[0], server.requests[-1]
    assert (project.cwd / "new.txt").exists() and "bash" not in tools(first)
    assert "from the other folder" in said(last)
    assert "Indent with tabs." not in said(first), "the setting of this call"
    assert "light__add" in said(first) and "Answer in German." in system(first)


@shows_row("`--output-format json`, `stream-json`")
def test_both_formats_of_output_are_json(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    assert json.loads(ran(project, "-p", "go", "--output-format", "json").stdout)["result"] == "done"
    lines = ran(project, "-p", "go", "--output-format", "stream-json").stdout.splitlines()
    assert json.loads(lines[-1])["type"] == "outcome"


@shows_row("`--system-prompt`")
def test_an_agent_file_stands_in_place_of_the_main_prompt(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    write(project, ".claude/agents/helper.md", HELPER.format(""))
    ran(project, "-p", "hello", "--agent", "helper")
    assert "You help with the code of this project." in system(server.requests[0])


@shows_row(
    "`/agents`, `/model`, `/context`, `/memory`, `/mcp`, `/permissions`, `/resume`, `/init`, `/compact`, `/export`, "
    "`/cost`"
)
def test_the_app_has_the_commands_of_the_page() -> None:
    import importlib

    from retinue.frontends.tui.frame import COMMANDS, SCREENS

    importlib.import_module("retinue.frontends.tui.app")
    known = set(COMMANDS) | {screen.command for screen in SCREENS.values()}
    (cell,) = [row for row in rows(PAGE) if "`/agents`" in row]
    assert {name.strip("` /") for name in cell.split(",")} <= known


@shows_row("models")
def test_sonnet_is_the_newest_that_keys_reach_and_a_run_says_what_it_got_instead(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    write(project, ".claude/agents/helper.md", HELPER.format("model: sonnet\n"))
    found = project.json("models", "resolve", "sonnet", "--json")
    ran(project, "run", "helper", "go")
    assert f"anthropic/{server.requests[0].body['model']}" == found["model"]
    write(project, ".claude/agents/helper.md", HELPER.format("model: gpt-5.6-sol\n"))
    note = ran(project, "run", "helper", "go").stderr
    assert "gpt-5.6-sol" in note and "claude-sonnet-4-5" in note


@shows_row("read-only")
@pytest.mark.parametrize("line", ["permissionMode: plan\n", "readonly: true\n"])
def test_a_read_only_shell_changes_nothing(project: Project, serve: Any, line: str) -> None:
    project.mode = ""
    serve(playing(("bash", {"command": "echo x > made.txt || python3 -c \"open('made.txt','w')\""})))
    write(project, ".claude/agents/helper.md", HELPER.format(line))
    ran(project, "run", "helper", "go")
    assert not (project.cwd / "made.txt").exists()
    if kernel.why_not() is None:
        assert "bash" in said(project.server.requests[0]), "it has a shell, inside the walls"
    done = ran(project, "run", "helper", "go", "--permission-mode", "bypassPermissions")
    replaced = "permission mode bypassPermissions of the parent replaces plan" in done.stderr
    assert (project.cwd / "made.txt").exists() is replaced is line.startswith("permissionMode")


@shows_row("agents in the background", "nested agents")
def test_the_defaults_of_delegation_are_those_of_the_page(project: Project, serve: Any) -> None:
    table = fields()
    assert table["backgroundByDefault"].default is True and table["maxConcurrent"].default == 4
    assert table["maxSubagentDepth"].default >= 1
    write(project, ".claude/agents/helper.md", HELPER.format("tools: Read\n"))
    write(project, ".claude/agents/leader.md", HELPER.replace("helper", "leader").format("tools: Read, Agent\n"))
    server = serve(lambda request: Reply("done"))
    for name, has in (("helper", False), ("leader", True)):
        ran(project, "run", name, "go")
        assert ("Agent" in tools(server.requests[-1])) is has


@shows_row("a bad key")
def test_a_bad_key_is_reported_with_its_line_and_one_that_limits_stops_the_agent(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    write(project, ".claude/agents/helper.md", HELPER.format("maxTurns: many\n"))
    done = project.retinue("run", "helper", "go")
    assert done.returncode == 2 and "helper.md:4:" in done.stderr and server.requests == []


@shows_row("a crash")
def test_after_kill_9_a_finished_call_is_not_repeated(project: Project, serve: Any) -> None:
    def answer(request: Any) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("bash", {"command": "echo once >> calls.txt"})])
        return Reply("done", hang=request.attempt == 0)

    server = serve(answer)
    process = project.start("run", "general-purpose", "go")
    while len(server.requests) < 2:
        assert process.poll() is None
    process.kill()
    process.communicate()
    run_id = project.json("runs", "list", "--json")["runs"][0]["id"]
    assert "done" in ran(project, "runs", "resume", run_id).stdout
    assert (project.cwd / "calls.txt").read_text() == "once\n"


@shows_row("undo")
def test_undo_puts_back_what_a_run_changed(project: Project, serve: Any) -> None:
    serve(playing(WRITE, ("edit", {"path": "f1.txt", "edits": [{"oldText": "beta", "newText": "gamma"}]})))
    ran(project, "run", "general-purpose", "go")
    assert "gamma" in (project.cwd / "f1.txt").read_text()
    ran(project, "runs", "undo", project.json("runs", "list", "--json")["runs"][0]["id"])
    assert not (project.cwd / "new.txt").exists() and "beta" in (project.cwd / "f1.txt").read_text()


@shows_row("not there")
def test_what_is_not_there_is_named_for_its_file(project: Project) -> None:
    write(project, ".claude/agents/helper.md", HELPER.format("criticalSystemReminder_EXPERIMENTAL: y\n"))
    fate = project.json("agents", "show", "helper", "--json")["fates"]["criticalSystemReminder_EXPERIMENTAL"]
    assert fate["fate"] == "ignored" and "not supported" in fate["why"]


@needs_corpus
def test_a_real_file_is_converted_and_what_is_lost_is_said(project: Project) -> None:
    placed = install(project, ".claude/agents", real_files("claude"))
    for name in placed:
        text = ran(project, "agents", "convert", name, "--to", "pi").stdout
        assert text.startswith("---\n"), name
    write(project, ".claude/agents/helper.md", HELPER.format("permissionMode: acceptEdits\n"))
    done = project.retinue("agents", "convert", "helper", "--to", "pi")
    assert "permission" in done.stderr.lower()
