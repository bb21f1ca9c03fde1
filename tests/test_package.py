"""The package as a whole: its public names, what importing it costs, how long its files are, its knots."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import retinue

SOURCE = Path(retinue.__file__).parent
TESTS = Path(__file__).parent


def test_the_public_names_are_these_and_all_of_them_load():
    assert retinue.__all__ == [
        "AgentSpec",
        "Event",
        "MapProgress",
        "Outcome",
        "Retinue",
        "RetinueError",
        "Run",
        "Usage",
        "run",
        "run_async",
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


def test_no_file_is_longer_than_600_lines():
    long = {
        str(path.relative_to(SOURCE)): count
        for path in SOURCE.rglob("*.py")
        if (count := len(path.read_text("utf-8").splitlines())) > 600
    }
    assert long == {}


def test_the_folders_of_tests_mirror_the_folders_of_the_source():
    """`docs`, `golden` and `program` are about the whole; a folder of Markdown or of one function needs no tests."""
    whole = {"docs", "golden", "program"}
    tests = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")} - {"."}
    sources = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")}
    assert {folder for folder in tests if folder not in sources} == whole
    packages = {folder for folder in sources if folder.count("/") == folder.startswith("capabilities/")} - {"."}
    tested = tests | {Path(folder).parts[0] for folder in tests}
    assert packages - tested == {"builtin", "capabilities/trust"}


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


def test_no_knot_of_modules_that_import_one_another_is_larger_than_eight():
    """Imports inside functions and those for types only count as well: a reader follows them, too."""
    knots = [sorted(knot) for knot in strongly_connected(imports()) if len(knot) > 8]
    assert knots == []


def imports() -> dict[str, set[str]]:
    modules = {module_name(path): path for path in SOURCE.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                named.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
            elif isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
        found[name] = {each for each in named if each in modules and each != name}
    # `from package import module` names the module, not the package that only holds it.
    return {name: {each for each in targets if each.count(".") > 0} for name, targets in found.items()}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def strongly_connected(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules each of which can be reached from every other one of its group."""
    reached = {name: reachable(graph, name) for name in graph}
    groups: list[set[str]] = []
    seen: set[str] = set()
    for name in graph:
        if name not in seen:
            group = {other for other in reached[name] if name in reached[other]} | {name}
            seen |= group
            groups.append(group)
    return groups


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in graph[waiting.pop()] - found:
            found.add(each)
            waiting.append(each)
    return found


def test_every_benchmark_can_be_started():
    """They are no part of the suite: names that are gone from the package would be found by nobody."""
    scripts = sorted(str(path) for path in (TESTS.parent / "bench").glob("*.py"))
    load = "import runpy, sys; sys.path.insert(0, 'bench'); [runpy.run_path(each) for each in sys.argv[1:]]"
    done = subprocess.run([sys.executable, "-c", load, *scripts], capture_output=True, text=True, cwd=TESTS.parent)
    assert scripts and done.returncode == 0, done.stderr


def test_test_files_outside_of_packages_have_names_of_their_own():
    """pytest imports a test file whose folder is no package by its name alone: of two with one name it loads one."""
    alone = [path for path in TESTS.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    names = Counter(path.name for path in alone)
    assert [name for name, count in names.items() if count > 1] == []


def test_modules_that_a_readme_names_exist():
    root = SOURCE.parent.parent
    paths = [
        f"/{path.relative_to(root).as_posix()}"
        for part in (SOURCE, TESTS, root / "bench", root / "tools")
        for path in part.rglob("*.py")
    ]
    missing = [
        f"{readme.relative_to(SOURCE)}: {name}"
        for readme in SOURCE.rglob("README.md")
        for name in re.findall(r"`([\w/]+\.py)`", readme.read_text("utf-8"))
        if not any(path.endswith(f"/{name}") for path in paths)
    ]
    assert missing == []
