"""Completion in real shells, and what the program answers them."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

from tests.program.model_server import Reply

SHELLS = {name: pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name} here") for name in ("zsh", "fish")}


@pytest.fixture
def shell_environment(project):
    """The environment of a person whose shell finds `retinue`."""
    folder = project.home / "bin"
    folder.mkdir()
    (folder / "retinue").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m retinue "$@"\n')
    (folder / "retinue").chmod(0o755)
    agents = project.cwd / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "paint.md").write_text("---\nname: painter\ndescription: Paints.\n---\nYou paint the house.")
    return {**project.environment, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "xterm"}


def answers(project, *words: str) -> list[str]:
    done = project.retinue("completion", "--answer", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_commands_options_and_choices(project):
    assert answers(project, "ru") == ["run", "runs"]
    assert "show" in answers(project, "runs", "")
    assert answers(project, "run", "--permission-m") == ["--permission-mode"]
    assert "plan" in answers(project, "run", "--permission-mode", "")
    assert answers(project, "run", "--permission-mode=pl") == ["--permission-mode=plan"]
    assert answers(project, "-p", "words", "--mode") == ["--mode", "--model"]
    assert answers(project, "help", "runs", "sh") == ["show"]
    assert answers(project, "attach", "--cwd", "") == [":folders"]
    assert answers(project, "no", "such", "command") == []
    assert answers(project) != []


def test_values_follow_what_is_there(project, serve, shell_environment):
    assert answers(project, "run", "pai") == ["painter"]
    (project.cwd / ".claude" / "agents" / "second.md").write_text("---\nname: paid\ndescription: d\n---\nYou work.")
    assert sorted(answers(project, "run", "pai")) == ["paid", "painter"]
    assert answers(project, "settings", "get", "maxConc") == ["maxConcurrent"]
    serve(lambda request: Reply("done"))
    assert "anthropic/claude-sonnet-4-5" in answers(project, "run", "--model", "anthropic/claude-s")
    project.retinue("run", "painter", "Paint it")
    found = answers(project, "runs", "show", "")
    assert len(found) == 1 and project.retinue("runs", "show", found[0]).returncode == 0


def test_a_tab_never_fails_and_never_speaks(project):
    (project.home / ".retinue").mkdir()
    (project.home / ".retinue" / "settings.json").write_text("{bad")
    (project.home / ".retinue" / "cache").write_text("a file where the folder should be")
    assert "general-purpose" in answers(project, "run", "general")


def test_bash(project, shell_environment):
    script = """
    eval "$(retinue completion bash)"
    ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _retinue; printf '%s ' "${COMPREPLY[@]}"; echo; }
    ask retinue ru; ask retinue run pai; ask retinue settings get maxConc
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=project.cwd, env=shell_environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("run runs \npainter \nmaxConcurrent \n", "")


@SHELLS["fish"]
def test_fish(project, shell_environment):
    script = 'retinue completion fish | source; complete -C "retinue run pai"; complete -C "retinue attach --cwd /us"'
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], cwd=project.cwd, env=shell_environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0] == "painter\tPaints." and "/usr/" in done.stdout, done.stderr


@SHELLS["zsh"]
def test_zsh(project, shell_environment):
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(project.cwd)
        os.execvpe("zsh", ["zsh", "-f", "-i"], shell_environment)
    try:
        os.write(terminal, b'autoload -Uz compinit; compinit -u -D; eval "$(retinue completion zsh)"; echo LOA""DED\n')
        read_until(terminal, "LOADED")
        os.write(terminal, b"retinue run pai\t")
        read_until(terminal, "painter")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def read_until(terminal: int, word: str) -> str:
    said, end = "", time.monotonic() + 60
    while word not in said:
        assert time.monotonic() < end, said
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 65536).decode(errors="replace")
    return said


def test_the_folders_of_xdg_are_used_where_there_is_no_older_one(project):
    env = {name: value for name, value in project.environment.items() if name != "RETINUE_HOME"}
    config, state = project.home / "config", project.home / "state"
    env |= {"XDG_CONFIG_HOME": str(config), "XDG_STATE_HOME": str(state)}

    def run(*words: str) -> None:
        subprocess.run([*project.program, *words], cwd=project.cwd, env=env, check=True, capture_output=True)

    run("settings", "set", "maxConcurrent", "3", "--user")
    run("run", "Explore", "Where is alpha?")
    assert (config / "retinue" / "settings.json").is_file() and not (project.home / ".retinue").exists()
    assert list((state / "retinue" / "projects").glob("*/log.db"))
    (project.home / ".retinue").mkdir()
    run("settings", "set", "maxConcurrent", "4", "--user")
    assert (project.home / ".retinue" / "settings.json").is_file()


def test_schemas_accept_what_the_program_accepts(project):
    import jsonschema_rs

    settings = jsonschema_rs.validator_for(project.json("settings", "schema"))
    assert settings.is_valid({"$schema": "x", "maxConcurrent": 2, "permissions": {"allow": ["Edit"]}, "hooks": {}})
    assert not settings.is_valid({"maxConcurrent": "two"})
    assert not settings.is_valid({"permissions": {"defaultMode": "yolo"}})
    agent = jsonschema_rs.validator_for(project.json("agents", "schema", "--dialect", "claude"))
    assert agent.is_valid({"name": "a", "description": "b", "tools": "Read, Grep", "model": "opus"})
    assert not agent.is_valid({"name": "a", "description": "b", "permissionMode": "yolo"})
    assert project.retinue("agents", "schema", "--dialect", "clod").returncode == 2
    (project.cwd / ".retinue").mkdir()
    (project.cwd / ".retinue" / "settings.json").write_text('{"$schema": "./x.json", "maxConcurrent": 2}')
    done = project.retinue("settings", "get", "maxConcurrent")
    assert (done.stdout, done.stderr) == ("2\n", "")
