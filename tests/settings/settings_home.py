"""A user's home and a project, for the tests of settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

from tests.git_folder import make_git_folder
from tests.program_main import run_main


class Home:
    """A user's home and a project in a repository, both temporary and both empty at first."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        make_git_folder(self.project)
        self.user_file = self.home / ".retinue" / "settings.json"
        self.project_file = self.project / ".retinue" / "settings.json"
        self.local_file = self.project / ".retinue" / "settings.local.json"
        self.environment = {"HOME": str(self.home)}

    def write(self, path: Path, content: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def retinue(self, *arguments: str, environment: Mapping[str, str] | None = None) -> CompletedProcess[str]:
        return run_main(*arguments, environment={**self.environment, **(environment or {})})

    def listed(self, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> ListedSettings:
        """Return what `retinue settings list --json` says."""
        where = str(cwd or self.project)
        done = self.retinue("settings", "list", "--json", "--cwd", where, environment=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return ListedSettings(json.loads(done.stdout))


class ListedSettings:
    """The settings of a project as the program prints them: `listed["maxConcurrent"]` is a value."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.rows = {row["name"]: row for row in document["settings"]}
        self.problems = [SimpleNamespace(**problem) for problem in document["problems"]]
        self.unused = [SimpleNamespace(**problem) for problem in document["unused"]]
        self.unknown = document["unknown"]

    def __getitem__(self, name: str) -> Any:
        return self.rows[name]["value"]

    @property
    def changed(self) -> dict[str, Any]:
        """What is not at its default."""
        return {name: row["value"] for name, row in self.rows.items() if row["value"] != row["default"]}

    @property
    def warnings(self) -> list[str]:
        """The problems, each in one line as people read them."""
        return [": ".join((each.where, f"{each.field} {each.message}".strip())) for each in self.problems]

    def layer(self, name: str) -> str:
        """Where the value comes from."""
        return self.rows[name]["origin"]["layer"]

    def layers(self, name: str) -> list[tuple[str, Any]]:
        """Every layer that says something, the strongest last."""
        return [(each["layer"], each["value"]) for each in self.rows[name]["layers"]]


Listed = Callable[[Any], ListedSettings]
"""Takes what the project's file holds."""
