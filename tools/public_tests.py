"""Print how many tests go through public interfaces, and which files hold most of those that do not.

    python tools/public_tests.py           the share, and the share of each folder
    python tools/public_tests.py --files   the files with the most tests that use internals

A test is public when neither it nor any fixture, helper or constant that it uses takes a name from inside the package.
Public are the names of `retinue`, `retinue.testing` and `retinue.loop` (see docs/testing.md), the exceptions, the
program as a process or through its `main`, and `VALUES`: the types that public functions take and return. A dotted name
in a string counts as an import, because `monkeypatch.setattr("retinue.…")` reaches inside as well.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
ENTRIES = {
    "retinue",
    "retinue.testing",
    "retinue.errors",
    "retinue.loop",
    "retinue.__main__",
    "retinue.frontends.cli.main",
}
VALUES = {f"retinue.core.{name}" for name in ("events", "messages", "outcome", "permission", "spec", "tool", "usage")}
DOTTED = re.compile(r"retinue(?:\.[a-z_]+)+")


def is_public(module: str) -> bool:
    return module in ENTRIES | VALUES or module.startswith("retinue.testing.")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def definitions(path: Path) -> dict[str, list[ast.AST]]:
    """Return what defines each name of a module: functions, classes, assignments and imports."""
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                found.setdefault((alias.asname or alias.name).partition(".")[0], []).append(node)
    for node in parse(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (each for target in targets for each in ast.walk(target)):
                if isinstance(name, ast.Name):
                    found.setdefault(name.id, []).append(node)
    return found


@cache
def uses(node: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a piece of code uses, and the internals that it names in strings."""
    names: set[str] = set()
    dotted: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            names.add(each.id)
        elif isinstance(each, ast.arg):  # the parameters of a test are the names of fixtures
            names.add(each.arg)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and DOTTED.fullmatch(each.value):
            dotted.add(each.value)
    return frozenset(names), frozenset(text for text in dotted if not is_public(text.rpartition(".")[0]))


def internals(path: Path, name: str) -> set[str]:
    """Return the internal modules that a name of a test module leads to."""
    found: set[str] = set()
    seen: set[tuple[Path, str]] = set()
    waiting = [(path, name)]
    while waiting:
        where, what = waiting.pop()
        if (where, what) in seen:
            continue
        seen.add((where, what))
        for node in definitions(where).get(what, ()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= imported_internals(node, what)
                waiting += helpers(node, where, what)
                continue
            names, dotted = uses(node)
            found |= dotted
            waiting += [(where, used) for used in names]
        if what not in definitions(where):
            waiting += [(each, what) for each in fixture_files(where) if what in definitions(each)]
    return found


def imported_internals(node: ast.Import | ast.ImportFrom, name: str) -> set[str]:
    modules = {node.module} if isinstance(node, ast.ImportFrom) else {alias.name for alias in node.names}
    inside = {module for module in modules if module and module.partition(".")[0] == "retinue"}
    if inside == {"retinue"} and (ROOT / "src" / "retinue" / name).is_dir():
        return {f"retinue.{name}"}
    return {module for module in inside if not is_public(module)}


@cache
def helpers(node: ast.Import | ast.ImportFrom, where: Path, name: str) -> list[tuple[Path, str]]:
    """Return the helper module that an import takes a name from, if it is one of the tests'."""
    if not isinstance(node, ast.ImportFrom) or not node.module:
        return []
    original = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), name)
    for base in (ROOT, where.parent):
        file = base.joinpath(*node.module.split(".")).with_suffix(".py")
        if file.is_file() and TESTS in file.parents:
            return [(file, original)]
    return []


@cache
def fixture_files(path: Path) -> list[Path]:
    folders = [folder for folder in path.parents if folder == TESTS or TESTS in folder.parents]
    return [folder / "conftest.py" for folder in folders if (folder / "conftest.py").is_file()]


def main() -> None:
    public, total, inside = Counter[str](), Counter[str](), Counter[str]()
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.relative_to(TESTS).parts[0].removesuffix(".py")
        for node in parse(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                total[folder] += 1
                if internals(path, node.name):
                    inside[path.relative_to(ROOT).as_posix()] += 1
                else:
                    public[folder] += 1
    for folder, count in total.most_common():
        print(f"{folder:16} {public[folder]:5} of {count:5}  {public[folder] / count:5.0%}")
    share = public.total() / total.total()
    print(f"{'all':16} {public.total():5} of {total.total():5}  {share:5.1%}")
    if "--files" in sys.argv:
        for file, count in inside.most_common(40):
            print(f"{count:5}  {file}")


if __name__ == "__main__":
    main()
