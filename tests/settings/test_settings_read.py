"""A setting is read, or it is not there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import retinue
from retinue.settings.table import fields

SOURCE = Path(retinue.__file__).parent
LAYER_VALUES_GET = ast.dump(ast.parse("layer.values.get", mode="eval").body)


@cache
def names_read() -> frozenset[str]:
    """Attributes taken of something called `settings` (of anything, where the name is of several
    words), and texts that a layer's values are asked for by; in the whole package but the folder
    that declares and loads settings."""
    # It decides where the log is before any settings are loaded: `settings.database` reads it by itself.
    found: set[str] = {"database"}
    for path in SOURCE.rglob("*.py"):
        if path.parent != SOURCE / "settings":
            for node in ast.walk(ast.parse(path.read_text())):
                found |= _names(node)
    return frozenset(found)


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Attribute):
        of_settings = "_" in node.attr or _last_name(node.value).strip("_") == "settings"
        return {node.attr} if of_settings else set()
    if isinstance(node, ast.Call) and ast.dump(node.func) == LAYER_VALUES_GET:
        return {each.value for each in node.args if isinstance(each, ast.Constant)}
    if isinstance(node, ast.Dict):  # a table of the settings that become parts of one thing
        words = [each.value for each in (*node.keys, *node.values) if isinstance(each, ast.Constant)]
        return {word for word in words if isinstance(word, str) and "_" in word}
    return set()


def _last_name(node: ast.AST) -> str:
    """Return `c` of `a.b.c`, and nothing of what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("field", fields().values(), ids=lambda field: field.name)
def test_something_outside_the_table_reads_every_setting(field) -> None:
    assert field.attribute in names_read(), f"nothing reads {field.name}: make it work, or take it out of the table"


def test_the_walk_would_notice_a_setting_that_nothing_reads() -> None:
    assert not {"remember_agents", "report_usage", "rollup_child_usage"} & names_read()
