from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from settings_home import Home, Listed, ListedSettings


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def load_project(place: Home) -> Listed:
    """The settings when the project's file holds exactly this."""

    def load(content: Any) -> ListedSettings:
        place.write(place.project_file, content)
        return place.listed()

    return load
