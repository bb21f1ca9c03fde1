from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from settings_home import Home

from retinue.settings.load import Loaded


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def load_project(place: Home) -> Callable[[Any], Loaded]:
    """The settings when the project's file holds exactly this."""

    def load(content: Any) -> Loaded:
        place.write(place.project_file, content)
        return place.load()

    return load
