"""A person who follows a page from its beginning to its end, in a small project of their own.

Each language of the blocks has one way to be followed: commands are run by a shell that finds the real program, Python
is executed, agent files are linted, settings are given to the program, and what other programs read is checked against
our options. What a page's ids and addresses stand for is said by its scene (`scenes.py`), in `words`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.docs.pages import Block
from tests.program.conftest import Project

# A server that a page tells the reader to start works on in another terminal: this returns when it is ready.
# Before the next server of the project is started, a reader ends the one before.
PROGRAM = """#!/bin/sh
case "$1" in
serve | worker)
    case " $* " in *" serve "*) for server in $(cat "{folder}/servers"); do
        kill "$server"
        while kill -0 "$server"; do sleep 0.1; done
    done 2> /dev/null ;; esac
    case " $* " in *" --port "* | *" --uds "* | *worker*) ;; *) set -- "$@" --port "{port}" ;; esac
    log="{folder}/said-$$"
    "{python}" -m retinue "$@" > "$log" 2>&1 &
    echo $! >> "{folder}/servers"
    for _ in $(seq 600); do
        grep -q . "$log" && break
        sleep 0.1
    done
    cat "$log"
    ;;
*) exec "{python}" -m retinue "$@" ;;
esac
"""
# A stream of events has no end: a reader presses Ctrl-C.
CURL = """#!/bin/sh
/usr/bin/env -u NOTHING PATH="{path}" curl --silent --show-error --fail --max-time 2 "$@"
code=$?
[ "$code" = 28 ] || exit "$code"
"""


class Reader:
    """Follow blocks with `follow`. `words` are replaced in every block before it is followed."""

    def __init__(self, project: Project, folder: Path, fixture: Callable[[str], Any]) -> None:
        self.project, self.fixture = project, fixture
        self.port = free_port()
        self.settings: list[str] = []
        self.cwd, self.home, self.folder = project.cwd, project.home, folder
        self.words: dict[str, str] = {}
        self.said = ""
        folder.mkdir()
        path = os.environ["PATH"]
        for name, text in (("retinue", PROGRAM), ("curl", CURL)):
            tool = folder / name
            tool.write_text(text.format(python=sys.executable, folder=folder, path=path, port=self.port))
            tool.chmod(0o755)
        self.environment = project.environment | {
            "PATH": f"{folder}:{Path(sys.executable).parent}:{path}",
            "BROWSER": "true",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }

    def close(self) -> None:
        """End the servers that the page has started."""
        started = self.folder / "servers"
        for number in started.read_text().split() if started.exists() else ():
            try:
                os.kill(int(number), signal.SIGTERM)
            except ProcessLookupError:
                continue

    def put(self, path: str, text: str) -> Path:
        """Write a file where a page wants it: below the project, or below the home for `~/`."""
        file = self.home / path[2:] if path.startswith("~/") else self.cwd / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run(self, *words: str, code: int = 0) -> str:
        """Run a program as the reader would, and return what it wrote to standard output."""
        done = subprocess.run(
            words,
            cwd=self.cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def put_files(self, blocks: list[Block]) -> None:
        """Put the files of a page in place: pages use some before they show them."""
        for block in blocks:
            if block.file:
                self.put(block.file, block.text)

    def finish(self) -> None:
        """Run the tests that the page showed, all at once."""
        shown = sorted((self.cwd / "examples").glob("test_*.py"))
        if shown:
            out = self.run(sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "examples")
            assert f"{len(shown)} passed" in out

    def follow(self, block: Block) -> None:
        """Do what the block says, and fail where it does not work as it stands."""
        text = block.text
        for before, after in self.words.items():
            text = text.replace(before, after)
        getattr(self, f"follow_{block.language}")(block, text)

    def follow_console(self, block: Block, text: str) -> None:
        """Run the commands in one shell. Lines without `$` are what they print, `…` stands for anything."""
        commands, printed = split_console(text)
        kept = self.folder / "environment"
        script = "\n".join(["set -e", *commands, f'env -0 > "{kept}"'])
        failing = any(line.startswith("✗") for line in printed)
        if failing:
            script = script.replace("set -e\n", "")
        out = self.run("bash", "-c", script)
        for entry in kept.read_text().split("\0"):
            name, _, value = entry.partition("=")
            if name and name not in ("PWD", "OLDPWD", "SHLVL", "_"):
                self.environment[name] = value
        assert_printed(printed, out, block)

    def follow_python(self, block: Block, text: str) -> None:
        """Run a program, keep tests for `finish`, and compile what is a file of its own."""
        if block.file:
            compile(text, str(block), "exec")
        elif re.search(r"^(async )?def test_", text, re.MULTILINE):
            self.put(f"examples/test_line_{block.line}.py", text)
        else:
            self.said = self.run(sys.executable, "-c", text)

    def follow_markdown(self, block: Block, text: str) -> None:
        assert self.run("retinue", "agents", "lint", "--strict", block.file) is not None

    def follow_json(self, block: Block, text: str) -> None:
        """Give settings to the program as the user's own, and start the servers of editors."""
        data = json.loads(text)
        if "agent_servers" in data:
            return self.start_editor_server(data["agent_servers"])
        self.settings.append(text)
        file = self.put("~/.retinue/settings.json", text)
        done = self.project.retinue("settings", "list", "--json")
        assert done.returncode == 0, done.stderr
        assert str(file) not in done.stderr, done.stderr
        file.unlink()
        return None

    def start_editor_server(self, servers: dict[str, Any]) -> None:
        """Start what an editor would start, and expect an answer in its protocol."""
        (server,) = servers.values()
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        done = subprocess.run(
            [server["command"], *server["args"]],
            cwd=self.cwd,
            env=self.environment | server["env"],
            input=json.dumps(hello) + "\n",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert json.loads(done.stdout.splitlines()[0])["result"]["protocolVersion"] == 1, done

    def follow_toml(self, block: Block, text: str) -> None:
        """Install the entry points of a `pyproject.toml` as an installer would write them."""
        import tomllib

        (group, entries), *_ = tomllib.loads(text)["project"]["entry-points"].items()
        folder = self.folder / "site" / "example-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
        for value in entries.values():
            module = (folder.parent / value.replace(".", "/")).with_suffix(".py")
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text("tools = []\n")
        environment = {"PYTHONPATH": f"{folder.parent}:{self.environment.get('PYTHONPATH', '')}"}
        process = self.project.start("plugins", "list", "--json", env=environment)
        out, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert set(entries) <= {each["name"] for each in json.loads(out)["plugins"]}

    def follow_yaml(self, block: Block, text: str) -> None:
        from tests.docs.documents import check_document

        check_document(self, text)


def split_console(text: str) -> tuple[list[str], list[str]]:
    """Return the commands of a block and what it shows as their output."""
    commands: list[str] = []
    printed: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(line[2:])
        elif commands and commands[-1].endswith("\\"):
            commands[-1] += "\n" + line
        elif line:
            printed.append(line)
    return commands, printed


def assert_printed(printed: list[str], out: str, block: Block) -> None:
    """Fail unless the output has these lines in this order; times may differ."""
    lines = iter(re.sub(r"\d+\.\d+s", "0s", out).splitlines())
    for shown in printed:
        parts = (re.escape(part) for part in re.sub(r"\d+\.\d+s", "0s", shown).split("…"))
        pattern = ".*".join(parts)
        assert any(re.fullmatch(pattern, line) for line in lines), f"{block}: {shown!r} is not in\n{out}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
