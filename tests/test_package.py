"""The package as a whole: its public names, what importing it costs, how long its files are."""

import re
import subprocess
import sys
from pathlib import Path

import retinue

SOURCE = Path(retinue.__file__).parent


def test_the_public_names_are_these_and_all_of_them_load():
    assert retinue.__all__ == [
        "AgentSpec",
        "Event",
        "Outcome",
        "Retinue",
        "RetinueError",
        "Run",
        "Usage",
        "run",
        "tool",
    ]
    for name in retinue.__all__:
        assert getattr(retinue, name) is not None
    assert set(retinue.__all__) <= set(dir(retinue))


def loaded_by(*arguments: str) -> set[str]:
    code = (
        "import sys\n"
        f"sys.argv = ['retinue', *{list(arguments)!r}]\n"
        "from retinue.__main__ import main\n"
        "main()\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def loaded_by_python() -> set[str]:
    code = "import sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_help_imports_nothing_heavy():
    loaded = loaded_by("--help")
    heavy = {
        "argparse",
        "asyncio",
        "dataclasses",
        "inspect",
        "json",
        "orjson",
        "pathlib",
        "re",
        "sqlite3",
        "typing",
        "yaml",
    }
    assert loaded & heavy == loaded_by_python() & heavy


def test_importing_the_package_imports_nothing_else_of_it():
    code = "import retinue, sys; print([name for name in sys.modules if name.startswith('retinue.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_is_longer_than_400_lines():
    long = {
        str(path.relative_to(SOURCE)): count
        for path in SOURCE.rglob("*.py")
        if (count := len(path.read_text("utf-8").splitlines())) > 400
    }
    assert long == {}


def test_every_exception_of_the_tree_has_a_code_and_is_drawn_in_the_docstring():
    from retinue import errors

    codes = {}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.RetinueError):
            assert re.search(rf"\b{name}\b", errors.__doc__), name
            codes.setdefault(kind.code, name)
    assert len(codes) == len(
        [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.RetinueError)]
    )
