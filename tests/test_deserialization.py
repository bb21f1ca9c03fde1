"""No module reads a format that can start programs: such a value from elsewhere would be code."""

import ast
from pathlib import Path

import pytest

import retinue

SOURCE = Path(retinue.__file__).parent
FORBIDDEN = frozenset(
    {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "jsonpickle", "joblib", "marshal", "shelve"}
)
OWN_PLAN = {"guard/sandbox/box.py"}
"""The launcher's plan is a file of this process in a private folder, and `marshal` needs no import there."""
UNBOUNDED = frozenset(
    {"zlib.decompress", "gzip.decompress", "bz2.decompress", "lzma.decompress", "shutil.unpack_archive"}
)
"""What makes gigabytes of a small value. `decompressobj().decompress(data, most)` has a bound."""
OWN_LEDGER = {"capabilities/audit/ledger.py"}
"""A file of this machine that only this program writes."""
SAFE_LOADERS = ("SafeLoader", "CSafeLoader")


def violations(source: str) -> list[str]:
    """Return what a module reads in a format that can start programs."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Call):
            names = [
                argument.value for argument in node.args if _is_import(node) and isinstance(argument, ast.Constant)
            ]
            if _is_unsafe_yaml(node):
                lines.append(f"line {node.lineno}: yaml")
        lines += [f"line {node.lineno}: {name}" for name in names if name.partition(".")[0] in FORBIDDEN]
    return lines


def unbounded(source: str) -> list[str]:
    """Return where a module unpacks a value without a bound."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [(call.lineno, ast.unparse(call.func)) for call in calls]
    return [f"line {line}: {name}" for line, name in names if name in UNBOUNDED or name.endswith(".extractall")]


def test_no_module_unpacks_a_value_without_a_bound():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        lines = unbounded(path.read_text())
        if lines and name not in OWN_LEDGER:
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize("source", ["zlib.decompress(data)", "gzip.decompress(data)", "archive.extractall(folder)"])
def test_the_contract_sees_a_value_without_a_bound(source):
    assert unbounded(source)


def _is_import(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("__import__", "import_module", "importlib.import_module")


def _is_unsafe_yaml(call: ast.Call) -> bool:
    function = ast.unparse(call.func)
    if function in ("yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all"):
        return True
    loaders = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "Loader"]
    return function in ("yaml.load", "yaml.load_all") and not any(
        name in text for text in loaders for name in SAFE_LOADERS
    )


def test_no_module_reads_a_format_that_can_start_programs():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        lines = violations(path.read_text())
        if lines and name not in OWN_PLAN:
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import marshal as m",
        "def f():\n    import shelve",
        "importlib.import_module('dill')",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
    ],
)
def test_the_contract_sees(source):
    assert violations(source)


def test_dbos_cannot_unpickle_any_more():
    pytest.importorskip("dbos")
    from dbos import _serialization as serialization

    from retinue.cluster.dbos_json import RefusedValueError, json_serializer, load_dbos

    load_dbos()
    load_dbos()
    for read in (serialization.deserialize_value, serialization.deserialize_args, serialization.deserialize_exception):
        for serializer in (serialization.DefaultSerializer(), json_serializer()):
            with pytest.raises(RefusedValueError, match="pickled"):
                read("gASVAAAAAAAAAE4u", "py_pickle", serializer)
    ours = json_serializer()
    assert ours.deserialize(ours.serialize({"args": ("a", 1), "kwargs": {}})) == {"args": ["a", 1], "kwargs": {}}
    assert ours.deserialize(ours.serialize(ValueError("no"))) == "no"
    for text in ("gASVAAAAAAAAAE4u", "[" * 100_000, '"' + "x" * 2_000_000 + '"'):
        with pytest.raises(RefusedValueError):
            ours.deserialize(text)
