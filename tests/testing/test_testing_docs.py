"""docs/testing.md names what there is, and its fixtures do what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"


def pytest_in(folder):
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)], capture_output=True, text=True, cwd=folder
    )


def test_a_fixture_model_that_was_not_played_to_its_end_fails_the_test(tmp_path):
    (tmp_path / "test_unplayed.py").write_text("def test_it(scripted_model):\n    scripted_model('never asked for')\n")
    done = pytest_in(tmp_path)
    assert done.returncode == 1 and "never asked for" in done.stdout


def test_the_manual_names_everything_that_is_exported():
    import retinue.testing

    text = DOCS.read_text(encoding="utf-8")
    known = {"Repository", "SCRIPTED", "ScriptError", "script"}
    assert [name for name in retinue.testing.__all__ if name not in known and f"`{name}`" not in text] == []


def test_names_are_loaded_when_used_so_that_the_plugin_costs_other_projects_nothing():
    check = (
        "import retinue.testing.pytest_plugin, sys; print(sorted(m for m in sys.modules if m.startswith('retinue')))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['retinue', 'retinue.testing', 'retinue.testing.pytest_plugin']"


def test_every_exported_name_is_there_and_no_other():
    import retinue.testing

    for name in retinue.testing.__all__:
        assert getattr(retinue.testing, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = retinue.testing.nonsense
