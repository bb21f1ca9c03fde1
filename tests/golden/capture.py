"""Play every scene with the real program and write what it printed, sent and recorded.

    python -m tests.golden.capture            compare with captures/, print the differences
    python -m tests.golden.capture --write    write captures/ again, after a change that is meant

What differs from one run to the next (ids, times, folders, ports) is replaced by placeholders. Fields of agents
that have their default values are left out, so that a new field changes no capture. Captures are written only where
everything is installed that they were written with: otherwise a missing extra would delete lines of them.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from retinue.core.spec import AgentSpec
from retinue.guard.sandbox.policy import masks_work, namespaces_work
from tests.golden.scenes import LISTINGS, SCENES, Scene
from tests.program.conftest import Project
from tests.program.model_server import ModelServer

CAPTURES = Path(__file__).parent / "captures"
ENVIRONMENT = CAPTURES / "environment.txt"
"""What was installed where the captures were written, a line each."""
OPTIONAL_MODULES = ("ddgs", "trafilatura", "markitdown", "lsprotocol", "pydantic_ai", "starlette", "dbos", "psycopg")
OPTIONAL_PROGRAMS = ("git", "bwrap")
SPEC_DEFAULTS = json.loads(json.dumps(to_builtins(AgentSpec(name=""))))
VARIABLE_KEYS = {
    "age_seconds",
    "at",
    "created_at",
    "duration",
    "duration_ms",
    "elapsed_ms",
    "ended_at",
    "first_at",
    "first_token_ms",
    "hash",
    "last_at",
    "milliseconds",
    "next_at",
    "ms",
    "pid",
    "seconds",
    "spec_hash",
    "started_at",
    "updated_at",
    "wall_seconds",
}
"""Keys whose values are times, lengths of time or hashes of what contains them."""
PATTERNS = [
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{3,4}(?:-[0-9a-f]{4}-[0-9a-f]{12})?\b"), "id"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "commit"),
    (re.compile(r"(?<=[-/])[0-9a-f]{8}\b"), "short"),
]


class Placeholders:
    """Names for what varies, numbered in the order in which they are met."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def clean(self, value: Any) -> Any:
        """Return `value` with every variable part replaced."""
        if isinstance(value, dict):
            if isinstance(value.get("spec"), dict):
                value = {**value, "spec": without_defaults(value["spec"])}
            return {self.clean(key): self._clean_item(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.clean(item) for item in value]
        if isinstance(value, str):
            return self._clean_text(value)
        return value

    def _clean_item(self, key: str, item: Any) -> Any:
        if key == "id" and isinstance(item, str) and re.fullmatch("[0-9a-f]{8}", item):
            return self._name(item, "short")
        if key in VARIABLE_KEYS and isinstance(item, int | float | str):
            return f"<{key}>"
        return self.clean(item)

    def _clean_text(self, text: str) -> str:
        for folder, name in self._folders.items():
            text = text.replace(folder, name)
        for pattern, kind in PATTERNS:
            text = pattern.sub(lambda found, kind=kind: self._name(found[0], kind), text)
        text = re.sub(r"(?<=<duration_ms>)\d+", "<time>", text)
        text = re.sub(r"\d{4}-\d\d-\d\d(T[\d:.+Z]+)?", "<date>", text)
        return re.sub(r"\b\d+(\.\d+)? ?(ms|s)\b", "<time>", text)

    def _name(self, found: str, kind: str) -> str:
        if found not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[found] = f"<{kind} {self._counts[kind]}>"
        return self._known[found]


def without_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an agent that say something."""
    return {name: value for name, value in spec.items() if name not in SPEC_DEFAULTS or value != SPEC_DEFAULTS[name]}


def play(scene: Scene, folder: Path) -> dict[str, Any]:
    """Return what the scene printed, which requests the model got and what the listings say afterwards."""
    cwd, home = folder / "project", folder / "home"
    cwd.mkdir(parents=True)
    home.mkdir()
    for name, text in scene.files.items():
        path = cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    if scene.git:
        make_repository(cwd)
    with ModelServer(scene.answer) as server:
        project = Project(cwd, home, server, scene.mode)
        first = project.retinue(*scene.command, env=scene.env)
        run_id = json.loads(first.stdout.splitlines()[0])["run_id"]
        listings = {
            " ".join(line): project.retinue(*(word.replace("{run}", run_id) for word in line)).stdout
            for line in (*scene.after, *LISTINGS)
        }
        requests = shorten([request.body for request in server.requests])
        port = server.url.rsplit(":", 1)[1]
    flat = str(cwd).strip("/").replace("/", "-")
    names = Placeholders(
        {
            str(cwd): "<project>",
            str(home): "<home>",
            flat: "<flat>",
            f"127.0.0.1:{port}": "<server>",
            str(Path(__file__).parents[2]): "<retinue>",
        }
    )
    return {
        "exit": first.returncode,
        "events": names.clean(group_by_run([json.loads(line) for line in first.stdout.splitlines()])),
        "messages": names.clean(first.stderr.splitlines()),
        "requests": names.clean(requests),
        "listings": {line: names.clean(read_json(text)) for line, text in listings.items()},
    }


def make_repository(cwd: Path) -> None:
    identity = ["-c", "user.name=Scene", "-c", "user.email=scene@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Start"]):
        subprocess.run(["git", *identity, *words], cwd=cwd, check=True)


def shorten(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the requests agent by agent: the first one whole, of further ones what is new."""
    ordered = sorted(requests, key=lambda body: (json.dumps(body.get("system")), len(body["messages"])))
    found: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for body in ordered:
        same = [key for key in body if key != "messages" and before.get(key) == body[key]]
        found.append({key: value for key, value in body.items() if key not in same})
        before = body
    return found


def group_by_run(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each run in order. Events of different runs may arrive in any order.

    Pieces of text are left out: how many there are depends on how fast they arrive.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["type"] != "text.delta":
            groups.setdefault(event.get("run_id", ""), []).append(event)
    return groups


def read_json(text: str) -> Any:
    """Return the document, or the documents one per line."""
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def capture(scene: Scene) -> str:
    """Return the capture of one scene as text, the same whenever the behaviour is the same."""
    with tempfile.TemporaryDirectory() as folder:
        return json.dumps(play(scene, Path(folder).resolve()), indent=1, ensure_ascii=False) + "\n"


def compare(scene: Scene) -> list[str]:
    """Return the lines that differ from the stored capture, as a unified difference."""
    stored = (CAPTURES / f"{scene.name}.json").read_text("utf-8").splitlines()
    return list(difflib.unified_diff(stored, capture(scene).splitlines(), "captured", "now", lineterm="", n=1))


def environment() -> list[str]:
    """Return what is installed here of all that changes a capture."""
    modules = [f"module {name}" for name in OPTIONAL_MODULES if importlib.util.find_spec(name)]
    programs = [f"program {name}" for name in OPTIONAL_PROGRAMS if shutil.which(name)]
    sandbox = [
        f"sandbox {name}" for name, works in (("namespaces", namespaces_work()), ("masks", masks_work())) if works
    ]
    return [*modules, *programs, *sandbox]


def missing_here() -> list[str]:
    """Return what the captures were written with and is not here."""
    here = environment()
    return [line for line in ENVIRONMENT.read_text("utf-8").splitlines() if line not in here]


def main() -> int:
    write = "--write" in sys.argv
    if write and (missing := missing_here()):
        print(
            f"Nothing was written: the captures were made with {', '.join(missing)}. Install that first (make setup)."
        )
        return 2
    if write:
        ENVIRONMENT.write_text("\n".join(environment()) + "\n", "utf-8")
    failed = 0
    for scene in SCENES:
        if write:
            (CAPTURES / f"{scene.name}.json").write_text(capture(scene), "utf-8")
            continue
        for line in compare(scene):
            failed = 1
            print(line[:400])
    return failed


if __name__ == "__main__":
    sys.exit(main())
