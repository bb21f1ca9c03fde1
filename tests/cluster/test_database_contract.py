"""What is read from the shared database has a checked type, and no value is a word of a statement.

These are contracts over the source: a new table, column, field or statement is refused here until its values are
decoded into a type of `core/identifiers.py`, or its reason is in a list below.
"""

import ast
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import retinue
from retinue.cluster import cluster_tables
from retinue.cluster.cluster_tables import StoredWorkspace, _PlacementRow, _WorkerRow
from retinue.core.request import Attempt, RunNeeds, WorkerView

SOURCE = Path(retinue.__file__).parent
DECODED = {
    "workers": {_WorkerRow: {"heartbeat": "read as `silence`, a number"}},
    "placements": {_PlacementRow: {"offered_at": "compared by the server"}},
    "workspaces": {
        StoredWorkspace: dict.fromkeys(("project", "run_id", "kind"), "our own values of the query")
        | {"home_at": "compared by the server"},
    },
    "bundle_parts": {None: dict.fromkeys(("project", "commit", "part"), "our own values of the query")
                     | {"data": "bytes of a bounded size, checked by git or by a hash"}},
}  # fmt: skip
"""The tables, and the structs that their rows become, with the columns that none of them has, and why."""
DECODED_AGAIN = {"view": WorkerView, "needs": RunNeeds}
"""Columns with JSON, and what `decode_json` makes of it."""


def columns() -> dict[str, set[str]]:
    """Return the columns of each table of the schema `retinue`."""
    made: dict[str, set[str]] = {}
    for table, body in re.findall(
        r"CREATE TABLE IF NOT EXISTS retinue\.(\w+) \((.*?)\n\);", cluster_tables._SCHEMA, re.S
    ):
        words = re.sub(r"PRIMARY KEY \([^)]*\)", "", body)
        made[table] = {part.split()[0] for part in words.split(",") if part.strip()}
    for table, column in re.findall(
        r"ALTER TABLE retinue\.(\w+) ADD COLUMN IF NOT EXISTS (\w+)", cluster_tables._SCHEMA
    ):
        made[table].add(column)
    return made


def unchecked(kind: object, where: str) -> Iterator[str]:
    """Yield the parts of a type that any text, or any number of values, would fit."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            if name not in DECODED_AGAIN:
                yield from unchecked(hint, f"{kind.__name__}.{name}")
    elif typing.get_origin(kind) is typing.Annotated:
        inner, *metas = typing.get_args(kind)
        bounded = any(isinstance(meta, msgspec.Meta) and (meta.pattern or meta.max_length) for meta in metas)
        yield from unchecked(inner, where) if inner is not str else ()
        if not bounded and inner not in (int, float):
            yield f"{where}: {inner}"
    elif kind in (str, object, typing.Any, bytes):
        yield f"{where}: {kind}"
    elif isinstance(kind, types.UnionType) or typing.get_origin(kind) in (tuple, list, dict, set, typing.Union):
        for part in typing.get_args(kind):
            yield from unchecked(part, where) if part is not Ellipsis else ()


def test_every_column_becomes_a_field_of_a_checked_type():
    assert set(columns()) == set(DECODED)
    for table, names in columns().items():
        covered: set[str] = set()
        for kind, otherwise in DECODED[table].items():
            covered |= {*otherwise, *(kind.__struct_fields__ if kind is not None else ())}
        assert names <= covered, (table, names - covered)


@pytest.mark.parametrize("kind", [_WorkerRow, _PlacementRow, StoredWorkspace, WorkerView, RunNeeds, Attempt])
def test_no_field_takes_any_text(kind):
    assert list(unchecked(kind, "")) == []


def test_the_contract_sees_a_field_that_takes_any_text():
    for hint in (str, str | None, tuple[str, ...], dict[str, int], typing.Annotated[str, msgspec.Meta(title="x")]):
        assert list(unchecked(msgspec.defstruct("Row", [("name", hint)]), "")), hint


DECODERS = {"decode_row", "decode_json", "_read_attempt", "_living_worker", "_readable", "_is_readable"}
ONLY_ASKS = {
    "has_bundle": "whether there is one",
    "holds": "whether there is one",
    "_make_tables": "whether there are tables",
    "bundle": "bytes of a bounded size, checked by git or by a hash",
    "_select_placements": "both callers decode",
    "remove_bundles": "counts",
}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def called(node: ast.AST) -> set[str]:
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
    return found


def test_every_function_that_reads_a_row_decodes_it():
    reading = {}
    for path in sorted((SOURCE / "cluster").rglob("*.py")):
        for function in functions(path):
            if {"fetchone", "fetchall"} & called(function) or "SELECT" in ast.unparse(function):
                reading[function.name] = bool(DECODERS & called(function))
    assert {name for name, decodes in reading.items() if not decodes} == set(ONLY_ASKS)


# Statements

_STATEMENT = re.compile(r"\b(SELECT|INSERT INTO|UPDATE \w|DELETE FROM|CREATE |ALTER |DROP |NOTIFY|LISTEN|LOCK )")
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")
OWN_WORDS = {
    "marks": "question marks",
    "', '.join(columns)": "names of columns that the caller has as constants",
    "', '.join((*IDENTITY_COLUMNS, *CHANGING_COLUMNS))": "constants",
    "', '.join((f'{name}=?' for name in columns))": "names of columns that the caller has as constants",
    "', '.join(_COLUMNS)": "constants",
    "_lock_number(backend.schema)": "a number that is computed",
    "lock": "a number that is computed",
}
"""What stands in statements beside constants, and why it is no value of others."""
PARTS = {
    "cluster/cluster_tables.py": {"columns", "condition", "silent"},
    "log/activity.py": {"agent", "key", "task"},
    "log/follow.py": {"condition", "head", "order"},
    "log/postgres.py": {"numbered", "table"},
    "log/postgres_schema.py": {"table"},
    "log/prune.py": {"removed"},
    "log/query.py": {"conditions", "order"},
    "log/sqlite.py": {"names", "table", "values"},
}
"""Parts that are put together from literals in the same function, or that its callers give as literals."""


def words_of_statements(source: str) -> Iterator[str]:
    """Yield what is put into statements, and statements that are made by `%`, `+` or `format`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            literal = "".join(part.value for part in node.values if isinstance(part, ast.Constant))
            if _STATEMENT.search(literal):
                yield from (ast.unparse(part.value) for part in node.values if isinstance(part, ast.FormattedValue))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.Add)):
            if (
                isinstance(node.left, ast.Constant)
                and isinstance(node.left.value, str)
                and _STATEMENT.search(node.left.value)
            ):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            owner = node.func.value
            if isinstance(owner, ast.Constant) and isinstance(owner.value, str) and _STATEMENT.search(owner.value):
                yield ast.unparse(node)


def is_own(word: str, name: str = "") -> bool:
    return word in OWN_WORDS or word in PARTS.get(name, ()) or _CONSTANT.fullmatch(word) is not None


def test_no_statement_has_a_value_in_its_words():
    around = {}
    for package in ("log", "cluster"):
        for path in sorted((SOURCE / package).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            words = [word for word in words_of_statements(path.read_text("utf-8")) if not is_own(word, name)]
            if words:
                around[name] = words
    assert around == {}


@pytest.mark.parametrize(
    "line",
    [
        "connection.execute(f'SELECT * FROM {schema}.runs')",
        "connection.execute(f'DELETE FROM runs WHERE id={run_id}')",
        "raw.execute('CREATE SCHEMA \"%s\"' % project)",
        "raw.execute('LISTEN ' + channel)",
        "raw.execute('SELECT * FROM runs WHERE id={}'.format(run_id))",
    ],
)
def test_the_contract_sees_a_value_in_a_statement(line):
    assert any(not is_own(word) for word in words_of_statements(line))
