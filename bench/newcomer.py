"""How long a newcomer takes to the first answer of their own model, and how many commands they type.

A fresh virtual environment and an empty home stand for a fresh machine; a scripted server stands for OpenRouter, for
Ollama and for a server of one's own. No settings or keys of this machine are used, and no file is edited.

    python bench/newcomer.py              install into a fresh virtual environment first
    python bench/newcomer.py --here       measure the program of this interpreter
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.program.chat_server import ChatServer  # noqa: E402

from retinue.app.text import plural  # noqa: E402

KEY = "sk-or-v1-bench-key"
ANSWER = "Hello from a real model."
MOST_COMMANDS = 3


class Newcomer:
    """Types commands on a machine where nobody has used Retinue yet."""

    def __init__(self, program: Path, installed: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="retinue-newcomer-")
        self._program = program
        self.commands = installed
        self.seconds = 0.0

    def types(self, *words: str, input: str = "", **more: str) -> str:
        """Run one command, and return what it printed. Raise SystemExit where it fails."""
        folder = Path(self._folder.name)
        project = folder / "project"
        project.mkdir(exist_ok=True)
        environment = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"], **more}
        # No keyring of this machine gets the key.
        environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
        began = time.perf_counter()
        done = subprocess.run(
            [self._program, *words],
            cwd=project,
            env=environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.seconds += time.perf_counter() - began
        self.commands += 1
        if done.returncode:
            sys.exit(f"retinue {' '.join(words)} failed: {done.stderr}")
        edited = [path for path in project.rglob("*") if path.is_file()]
        if edited:
            sys.exit(f"files in the project: {edited}")
        return done.stdout

    def report(self, way: str, answer: str) -> bool:
        """Print one line, and return whether it is as it should be."""
        good = answer.strip() == ANSWER and self.commands <= MOST_COMMANDS
        mark = "ok" if good else "MISSED"
        print(f"{way:<34} {plural(self.commands, 'command'):<11} {self.seconds:5.2f} s  {mark}")
        self._folder.cleanup()
        return good


def with_a_key_of_openrouter(program: Path, installed: int) -> bool:
    """`models add` asks for the key; --url stands in for openrouter.ai, --key-stdin for typing it."""
    person = Newcomer(program, installed)
    with ChatServer("anthropic/claude-sonnet-5.5", "openai/gpt-5.5", key=KEY) as server:
        person.types("models", "add", "openrouter", "--url", server.url, "--key-stdin", input=KEY)
        return person.report("a key of OpenRouter", person.types("-p", "Say hello"))


def with_ollama(program: Path, installed: int) -> bool:
    person = Newcomer(program, installed)
    with ChatServer("qwen3:8b", says=ANSWER) as server:
        answer = person.types("-p", "Say hello", OLLAMA_HOST=f"127.0.0.1:{server.port}")
        return person.report("Ollama on this machine", answer)


def with_a_server_of_the_company(program: Path, installed: int) -> bool:
    person = Newcomer(program, installed)
    with ChatServer("corp-70b") as server:
        person.types("models", "add", "work", "--url", server.url)
        return person.report("a server by its address", person.types("-p", "Say hello"))


def install(folder: Path) -> Path:
    """Return the program of a fresh virtual environment."""
    began = time.perf_counter()
    venv.create(folder, with_pip=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
    subprocess.run(pip, check=True)
    print(f"{'installed':<34} 1 command   {time.perf_counter() - began:5.2f} s")
    return folder / "bin/retinue"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="measure the program beside this interpreter")
    here = parser.parse_args().here
    with tempfile.TemporaryDirectory(prefix="retinue-fresh-") as folder:
        program = Path(sys.executable).parent / "retinue"
        if not here:
            program = install(Path(folder))
        failed = 0
        for way in (with_a_key_of_openrouter, with_ollama, with_a_server_of_the_company):
            failed += not way(program, int(not here))
        return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
