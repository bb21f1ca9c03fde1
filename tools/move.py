"""Carry out a table of moves: modules, merged modules and top-level names, with everything that names them.

    python tools/move.py TABLE          carry it out
    python tools/move.py TABLE --check  only say what is wrong with it

A table has one instruction a line; `#` starts a comment:

    move domain.clock core.clock                      one module, or a package with all below it
    merge supervisor.purse supervisor.pot runs.budget several modules become one; the last name is the target
    rename supervisor.crew:Crew Supervisor            a top-level name of a module, named as it is before the moves
    file tools/read/prompt.md tools/prompts/read.md   a file that is no module
    drop tools.read                                   a module, or the `__init__.py` of a package, that is not needed

Modules are written without the leading `retinue.`; of two lines that name a module, the first counts. Imports, dotted
strings and paths are changed in src, tests, docs, bench, tools, examples, the README files, pyproject.toml and the
Makefile. Nothing is changed when two merged modules define the same top-level name.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PLACES = ("src", "tests", "docs", "bench", "tools", "examples")
SINGLE = ("README.md", "CONTRIBUTING.md", "pyproject.toml", "Makefile")
SUFFIXES = {".py", ".md", ".toml", ".txt", ".json"}
FROZEN = ("tests/golden/captures", "tests/log/fixtures", "tests/guard/permissions/cases.txt", "docs/screens/")


@dataclass
class Table:
    """What is to be done. `targets` maps every module to its new name; `merged` maps a target to its parts in order."""

    targets: dict[str, str] = field(default_factory=dict)
    merged: dict[str, list[str]] = field(default_factory=dict)
    renamed: dict[tuple[str, str], str] = field(default_factory=dict)
    files: dict[Path, Path] = field(default_factory=dict)
    dropped: list[Path] = field(default_factory=list)


def list_modules() -> dict[str, Path]:
    """Return every module of the package with its file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = list(path.relative_to(SOURCE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def read_table(path: Path, modules: dict[str, Path]) -> Table:
    """Return the table. Raise SystemExit where a line names a module that does not exist."""
    table = Table()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        kind, *names = words
        if kind == "rename":
            module, _, name = names[0].partition(":")
            table.renamed[f"retinue.{module}", name] = names[1]
            continue
        if kind == "drop":
            table.dropped += [modules[f"retinue.{name}"] for name in names]
            continue
        if kind == "file":
            table.files[SOURCE / "retinue" / names[0]] = SOURCE / "retinue" / names[1]
            continue
        *old, new = [f"retinue.{name}" for name in names]
        for name in old:
            if name not in modules:
                raise SystemExit(f"{path.name}:{number}: there is no module {name}")
            for module in modules:
                if module == name or module.startswith(name + "."):
                    table.targets.setdefault(module, new + module.removeprefix(name))
        if kind == "merge":
            table.merged[new] = old
    return table


def add_exports(table: Table, modules: dict[str, Path]) -> None:
    """Let a new name hold also for modules that import it for others to import."""
    trees = {module: ast.parse(path.read_text("utf-8")) for module, path in modules.items()}
    grown = True
    while grown:
        before = len(table.renamed)
        for module, tree in trees.items():
            for node in tree.body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        new = table.renamed.get((node.module or "", alias.name))
                        if new is not None and alias.asname is None:
                            table.renamed.setdefault((module, alias.name), new)
        grown = len(table.renamed) > before


class Rewriter:
    """Changes the text of one file so that it names everything by its new name."""

    def __init__(self, table: Table, modules: dict[str, Path]) -> None:
        self._table = table
        self._modules = modules
        dotted = sorted(table.targets, key=len, reverse=True)
        self._dotted = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, dotted)) + r")(?![\w])") if dotted else None
        paths = {str(modules[old].relative_to(SOURCE)): self._new_path(old) for old in dotted}
        self._paths = paths
        ordered = sorted(paths, key=len, reverse=True)
        self._path = re.compile(r"(?<![\w/])((?:src/)?)(" + "|".join(map(re.escape, ordered)) + r")") if paths else None

    def _new_path(self, module: str) -> str:
        new = self._table.targets[module].replace(".", "/")
        if self._modules[module].name == "__init__.py":
            return f"{new}/__init__.py"
        return f"{new}.py"

    def rewrite(self, text: str, module: str | None) -> str:
        """Return the text of a Python file. `module` is the module it defines, None for a file outside the package."""
        names = self._names_in(text, module)
        text = self._rewrite_imports(text)
        if names:
            text = rename_tokens(text, names)
        return self.rewrite_text(text)

    def rewrite_text(self, text: str) -> str:
        """Return any text with dotted names and paths changed."""
        if self._dotted is not None:
            text = self._dotted.sub(lambda found: self._table.targets[found[1]], text)
        if self._path is not None:
            text = self._path.sub(lambda found: found[1] + self._paths[found[2]], text)
        return text

    def _names_in(self, text: str, module: str | None) -> dict[str, str]:
        """Return the renamed top-level names that this file uses under their own names."""
        names = {old: new for (home, old), new in self._table.renamed.items() if home == module}
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                new = self._table.renamed.get((node.module or "", alias.name))
                if new is not None and alias.asname is None:
                    names[alias.name] = new
        return names

    def _rewrite_imports(self, text: str) -> str:
        """Return the text with every `from … import …` pointing to the new modules."""
        lines = text.splitlines(keepends=True)
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level == 0]
        for node in sorted(nodes, key=lambda node: -node.lineno):
            if not (node.module or "").startswith("retinue"):
                continue
            new = self._new_statements(node)
            if new is None:
                continue
            indent = lines[node.lineno - 1][: node.col_offset]
            rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
            lines[node.lineno - 1 : node.end_lineno] = [indent + f"\n{indent}".join(new) + rest]
        return "".join(lines)

    def _new_statements(self, node: ast.ImportFrom) -> list[str] | None:
        """Return the statements that replace this one, None where it stays."""
        groups: dict[str, list[str]] = defaultdict(list)
        changed = False
        for alias in node.names:
            source, name, known = node.module, alias.name, alias.asname
            if (source, name) in self._table.renamed:
                name, changed = self._table.renamed[source, name], True
            if f"{source}.{name}" in self._table.targets:
                new = self._table.targets[f"{source}.{name}"]
                source, _, last = new.rpartition(".")
                known = known or (name if name != last else None)
                name, changed = last, True
            elif source in self._table.targets:
                source, changed = self._table.targets[source], True
            groups[source].append(f"{name} as {known}" if known else name)
        if not changed:
            return None
        return [f"from {source} import {', '.join(names)}" for source, names in groups.items()]


def rename_tokens(text: str, names: dict[str, str]) -> str:
    """Return the code with these names replaced, and in comments and strings where they stand in backticks."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    before = ""
    edits = []
    imports = lines_of_imports(text)
    for token in tokens:
        if token.type == tokenize.NAME and token.string in names and before != "." and token.start[0] not in imports:
            edits.append(token)
        before = token.string
    for token in reversed(edits):
        row, column = token.start
        line = lines[row - 1]
        lines[row - 1] = line[:column] + names[token.string] + line[column + len(token.string) :]
    done = "".join(lines)
    for token in tokens:
        # Before Python 3.12 a formatted string is one token.
        if token.type == tokenize.STRING and token.string[0] in "fF":
            renamed = token.string
            for old, new in names.items():
                renamed = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)(?=[^{{]*\}})", new, renamed)
            done = done.replace(token.string, renamed)
    for old, new in names.items():
        done = re.sub(rf"`{re.escape(old)}(?=[`(.])", f"`{new}", done)
        done = re.sub(rf"(cast\(\s*\"[^\"]*)\b{re.escape(old)}\b", rf"\g<1>{new}", done)
        done = re.sub(rf"(__all__ = \[[^]]*)\"{re.escape(old)}\"", rf'\g<1>"{new}"', done)
    return done


def lines_of_imports(text: str) -> set[int]:
    """Return the numbers of all lines that belong to an import statement."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {number for node in nodes for number in range(node.lineno, node.end_lineno + 1)}


@dataclass
class Parts:
    """One module taken apart: its docstring, its imports, what it imports for types only, the rest."""

    docstring: str
    imports: list[str]
    type_imports: list[str]
    body: str
    names: dict[str, str]
    """Each top-level name with the code that defines it."""


def take_apart(text: str, own: str) -> Parts:
    """Return the parts of a module; imports from `own`, the module it becomes part of, are left out."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    parts = Parts("", [], [], "", {})
    drop: set[int] = set()
    for index, node in enumerate(tree.body):
        rows = set(range(node.lineno - 1, node.end_lineno))
        if index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.docstring = str(node.value.value)
            drop |= rows
        elif isinstance(node, ast.Import | ast.ImportFrom):
            parts.imports.append(ast.unparse(node))
            drop |= rows
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts.type_imports += [ast.unparse(inner) for inner in node.body]
            drop |= rows
        else:
            parts.names |= dict.fromkeys(names_defined(node), ast.unparse(node))
    parts.body = "".join(line for row, line in enumerate(lines) if row not in drop).strip("\n")
    parts.imports = [line for line in parts.imports if not line.startswith(f"from {own} import")]
    parts.type_imports = [line for line in parts.type_imports if not line.startswith(f"from {own} import")]
    return parts


def names_defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def drop_local_imports(text: str, own: str) -> str:
    """Return the code without imports, inside functions, of the module it now is part of."""
    return re.sub(rf"^[ \t]+from {re.escape(own)} import (?:\([^)]*\)|[^\n]*)\n", "", text, flags=re.M)


def sort_parts(parts: list[str], modules: dict[str, Path]) -> list[str]:
    """Return the modules in such an order that what one imports from another stands before it."""
    needs = {}
    for name in parts:
        tree = ast.parse(modules[name].read_text("utf-8"))
        needs[name] = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)} & set(parts)
    ordered: list[str] = []
    while len(ordered) < len(parts):
        ready = [name for name in parts if name not in ordered and needs[name] <= set(ordered)]
        if not ready:
            raise SystemExit(f"These import one another: {parts}")
        ordered.append(ready[0])
    return ordered


def join(target: str, texts: dict[str, str]) -> str:
    """Return one module made of several. Raise ValueError where two define the same name."""
    parts = {name: take_apart(text, target) for name, text in texts.items()}
    homes: dict[str, list[str]] = defaultdict(list)
    codes: dict[str, str] = {}
    for name, part in parts.items():
        for defined, code in part.names.items():
            if codes.setdefault(defined, code) == code and homes[defined] and code in part.body:
                part.body = part.body.replace(code, "", 1)
            else:
                homes[defined].append(name)
    for name, bound in names_imported(parts).items():
        if len(bound) > 1 or name in codes:
            homes[name] += [*sorted(bound), *homes[name]]
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    if twice:
        raise ValueError(
            "\n".join(f"rename {where[-1]}:{name}  # also in {where[:-1]}" for name, where in twice.items())
        )
    imports = sorted({line for part in parts.values() for line in part.imports})
    types = sorted({line for part in parts.values() for line in part.type_imports})
    head = [docstring_of(parts), ""]
    head += sorted(imports, key=lambda line: not line.startswith("from __future__"))
    if types:
        head += ["", "if TYPE_CHECKING:", *[f"    {line}" for line in types]]
    bodies = [part.body for part in parts.values() if part.body]
    return drop_local_imports("\n".join(head) + "\n\n\n" + "\n\n\n".join(bodies) + "\n", target)


def names_imported(parts: dict[str, Parts]) -> dict[str, set[str]]:
    """Return every name that the parts import, with where it comes from."""
    found: dict[str, set[str]] = defaultdict(set)
    for part in parts.values():
        for line in {*part.imports, *part.type_imports}:
            for node in ast.parse(line).body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        found[alias.asname or alias.name].add(f"{node.module}:{alias.name}")
    return found


def docstring_of(parts: dict[str, Parts]) -> str:
    """Return the first docstring, followed by the others for a person to rewrite."""
    texts = [part.docstring.strip() for part in parts.values() if part.docstring]
    whole = "\n\n".join(texts).replace("\\", "\\\\")
    return f'"""{whole}\n"""'


def list_files() -> list[Path]:
    """Return every file that may name a module."""
    done = subprocess.run(["git", "ls-files", *PLACES, *SINGLE], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in done.stdout.splitlines() if not line.startswith(FROZEN)]
    return [path for path in paths if path.is_file() and (path.suffix in SUFFIXES or path.name == "Makefile")]


def carry_out(table: Table, modules: dict[str, Path]) -> None:
    """Rewrite every file, then put the modules where they belong."""
    rewriter = Rewriter(table, modules)
    homes = {path: module for module, path in modules.items()}
    texts: dict[Path, str] = {}
    for path in list_files():
        text = path.read_text("utf-8")
        if path.suffix == ".py" and path != Path(__file__):
            texts[path] = rewriter.rewrite(text, homes.get(path))
        else:
            texts[path] = rewriter.rewrite_text(text)
    written = place_modules(table, modules, texts)
    for path, text in written.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    move_data(table, modules)


def place_modules(table: Table, modules: dict[str, Path], texts: dict[Path, str]) -> dict[Path, str]:
    """Return the texts under their new paths. Old files are removed with git, so that history follows them."""
    written = dict(texts)
    problems = []
    for target, parts in table.merged.items():
        ordered = {name: written.pop(modules[name]) for name in sort_parts(parts, modules)}
        try:
            written[SOURCE / f"{target.replace('.', '/')}.py"] = join(target, ordered)
        except ValueError as error:
            problems.append(f"{target}:\n{error}".replace("retinue.", ""))
    if problems:
        raise SystemExit("Names that are defined twice. Add lines such as these:\n" + "\n".join(problems))
    for path in table.dropped:
        subprocess.run(["git", "rm", "-q", str(path)], cwd=ROOT, check=True)
        written.pop(path)
    merged = {name for parts in table.merged.values() for name in parts}
    for old, new in table.targets.items():
        if old in merged:
            subprocess.run(["git", "rm", "-q", "--cached", str(modules[old])], cwd=ROOT, check=True)
            modules[old].unlink()
            continue
        package = modules[old].name == "__init__.py"
        path = SOURCE / (new.replace(".", "/") + ("/__init__.py" if package else ".py"))
        if path == modules[old]:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", str(modules[old]), str(path)], cwd=ROOT, check=True)
        written[path] = written.pop(modules[old])
    for path in list(written):
        make_packages(path, written)
    return written


def make_packages(path: Path, written: dict[Path, str]) -> None:
    """Give every folder of the package on the way to `path` its `__init__.py`."""
    if SOURCE not in path.parents or path.suffix != ".py":
        return
    for folder in path.parents:
        if folder == SOURCE:
            return
        init = folder / "__init__.py"
        if init not in written and not init.exists():
            written[init] = ""


def move_data(table: Table, modules: dict[str, Path]) -> None:
    """Move what is no Python file (prompts, templates) along with the package it lies in; remove empty folders."""
    for old_path, new_path in table.files.items():
        new_path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", str(old_path), str(new_path)], cwd=ROOT, check=True)
    for old, new in table.targets.items():
        if modules[old].name != "__init__.py":
            continue
        folder = modules[old].parent
        for path in sorted(folder.glob("*")) if folder.exists() else []:
            if path.is_file() and path.suffix != ".py":
                target = SOURCE / new.replace(".", "/") / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["git", "mv", str(path), str(target)], cwd=ROOT, check=True)
    for folder in sorted(SOURCE.rglob("*"), key=lambda path: -len(path.parts)):
        if folder.is_dir() and not any(path.name != "__pycache__" for path in folder.iterdir()):
            subprocess.run(["rm", "-rf", str(folder)], check=True)


def main() -> int:
    """Carry out the table that is named on the command line."""
    modules = list_modules()
    table = read_table(Path(sys.argv[1]), modules)
    add_exports(table, modules)
    if "--check" in sys.argv:
        return 0
    carry_out(table, modules)
    for words in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *words, *PLACES], cwd=ROOT, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
