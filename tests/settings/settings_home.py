"""A user's home and a project, for the tests of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retinue.settings.load import Loaded, load_settings


class Home:
    """A user's home and a project in a repository, both temporary and both empty at first."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        (self.project / ".git").mkdir(parents=True)
        self.user_file = self.home / ".retinue" / "settings.json"
        self.project_file = self.project / ".retinue" / "settings.json"
        self.local_file = self.project / ".retinue" / "settings.local.json"
        self.environment = {"HOME": str(self.home)}

    def write(self, path: Path, content: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def load(self, cwd: Path | None = None, **more: Any) -> Loaded:
        return load_settings(
            cwd or self.project, environment={**self.environment, **more.pop("environment", {})}, **more
        )
