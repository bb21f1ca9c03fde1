"""Every table of every page is made from the code, compared with it, measured by a script, or its rows have tests."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from tests.capabilities.telemetry.sink import Collector
from tests.docs.documents import parse_command
from tests.docs.pages import PAGES, ROOT, Table, tables
from tests.docs.test_compatibility import faults
from tests.docs.test_inline import problem_of
from tests.program.compatibility_scene import calling_agent, told
from tests.program.conftest import Project
from tests.program.model_server import Reply

from retinue import Retinue
from retinue.errors import LaunchError

CODE = re.compile(r"`([^`]+)`")
ROWS = {
    (table["page"], table["head"]): table["rows"]
    for table in tomllib.loads((Path(__file__).parent / "tables.toml").read_text("utf-8"))["table"]
}
# Tables that another test is about: of the whole page, or of its rows.
ELSEWHERE = {
    "docs/coming-from-": "test_coming_from.py",
    "docs/models.md provider": "test_models_page.py",
    "docs/testing.md name": "tests/testing/test_testing_docs.py",
    "docs/trust.md kept back": "tests/guard/sandbox/test_policy.py",
    "docs/context.md agent": "made by docs/generate.py",
    "docs/runs.md event": "test_readme.py",
}


def names(text: str) -> list[str]:
    """Return the words between backticks."""
    return CODE.findall(text)


def first_names(table: Table) -> list[str]:
    return [name for row in table.rows for name in names(row[0])]


def check_links(table: Table) -> None:
    """Every row leads to a page or shows a picture that is there."""
    folder = (ROOT / table.page).parent
    for row in table.rows:
        targets = re.findall(r"\]\(([^)#]+)\)", " ".join(row))
        assert targets and all((folder / target).exists() for target in targets), row


def check_measured(table: Table) -> None:
    """The page names the scripts that measure it, and they are there."""
    scripts = re.findall(r"bench/(\w+\.py)", PAGES[table.page])
    assert scripts and all((ROOT / "bench" / script).is_file() for script in scripts)


def check_commands(table: Table) -> None:
    """Every command of the first column can be read with its options."""
    for name in first_names(table):
        if name.startswith("retinue "):
            assert problem_of(name) == "", name


def check_inputs(table: Table) -> None:
    inputs = yaml.safe_load((ROOT / "action" / "action.yml").read_text("utf-8"))["inputs"]
    found = {names(row[0])[0]: (names(row[1]) or [""])[0] for row in table.rows}
    assert found == {name: each["default"] for name, each in inputs.items()}


def check_files(table: Table) -> None:
    assert all((ROOT / "examples" / name).exists() for name in first_names(table))


def check_methods(table: Table) -> None:
    from retinue.runs.capability import Capability

    methods = {name.partition("(")[0] for row in table.rows for name in names(row[1]) if "/" not in name}
    assert methods <= set(dir(Capability))


def check_tests(table: Table) -> None:
    for row in table.rows:
        assert names(row[2]) and all((ROOT / name).exists() for name in names(row[2])), row


def check_hook_events(table: Table) -> None:
    from retinue.core.permission import HookEvent

    assert set(first_names(table)) == set(get_args(HookEvent))


def check_hosts(table: Table) -> None:
    from retinue.app.mcp_hosts import HOSTS

    shown = {names(row[0])[0]: row for row in table.rows}
    assert set(shown) == set(HOSTS)
    for name, host in HOSTS.items():
        assert Path(host.file).name in shown[name][1], name
        entry = (names(shown[name][2]) or [""])[0]
        if entry.startswith("{"):
            command = ["/path/to/retinue", "mcp", "--cwd", "/your/project"] if host.shared else ["retinue", "mcp"]
            assert json.loads(entry) == {host.key: {"retinue": host.entry(command)}}, name


def check_host_tools(table: Table) -> None:
    from retinue.frontends.mcp.tools import HOST_TOOLS

    shown = {name.partition("(")[0] for name in first_names(table)}
    assert shown == {tool.name for tool in HOST_TOOLS}


def check_messages(table: Table) -> None:
    """What a person sees is a text of the program."""
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "retinue" / "models").rglob("*.py"))
    for name in first_names(table):
        for part in name.split(" … "):
            assert part.strip(" …") in source, name


def check_tools(table: Table) -> None:
    from retinue.tools.delegation.base import DELEGATION_TOOL_NAMES

    assert set(first_names(table)) == set(DELEGATION_TOOL_NAMES["claude"])


def check_options(table: Table) -> None:
    """Both the headless prompt and `run` take every option."""
    values = {
        "RULE": "Edit",
        "DIR": ".",
        "FILE": "x",
        "JSON": "{}",
        "M": "m",
        "LEVEL": "high",
        "N": "3",
        "SECONDS": "9",
    }
    for name in first_names(table):
        words = [values.get(word, word) for word in name.replace(" …", "").replace("'", "").split()]
        if words[0].startswith("--"):
            parse_command(f"retinue -p x {' '.join(words)}")


def check_modes(table: Table) -> None:
    from retinue.core.spec import PermissionMode

    assert [names(row[0])[0] for row in table.rows] == list(get_args(PermissionMode))


def check_case_keys(table: Table) -> None:
    from retinue.recordings.case_file import Case

    assert set(first_names(table)) == set(Case.__struct_fields__)


def check_expectations(table: Table) -> None:
    from retinue.recordings.case_file import Expectations

    found = {name.partition(":")[0] for name in first_names(table)}
    assert found == set(Expectations.__struct_fields__)


def check_glossary(table: Table) -> None:
    """Each row has all its cells, and each class that it names exists."""
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    classes = set(re.findall(r"^class (\w+)", source, re.MULTILINE))
    for row in table.rows:
        assert all(row), row
        assert {name for name in names(" ".join(row)) if name[0].isupper()} <= classes, row


CHECKS: dict[str, Callable[[Table], None]] = {
    "CONTRIBUTING.md noun": check_glossary,
    "CONTRIBUTING.md verb": check_glossary,
    "README.md measured in November 2026": check_measured,
    "README.md to": check_links,
    "action/README.md input": check_inputs,
    "docs/architecture.md": check_tests,
    "docs/architecture.md moment": check_methods,
    "docs/architecture.md path": check_measured,
    "docs/comparison.md": check_measured,
    "docs/hooks.md event": check_hook_events,
    "docs/hosts.md host": check_hosts,
    "docs/hosts.md tool": check_host_tools,
    "docs/index.md to": check_links,
    "docs/models.md what you see": check_messages,
    "docs/runs.md": check_commands,
    "docs/runs.md tool": check_tools,
    "docs/scripts.md option": check_options,
    "docs/testing-agents.md": check_commands,
    "docs/testing-agents.md key": check_case_keys,
    "docs/testing-agents.md `expect`": check_expectations,
    "docs/trust.md mode": check_modes,
    "examples/README.md": check_files,
}


def head(table: Table) -> str:
    return " | ".join(cell for cell in table.head if cell)


def written() -> list[Table]:
    """Return the tables that nothing makes from the code."""
    pages = [page for page, text in PAGES.items() if "Generated by `make docs`" not in text]
    found = [table for page in pages for table in tables(page)]
    return [table for table in found if not f"{table.page} {head(table)}".startswith(tuple(ELSEWHERE))]


def find_check(table: Table) -> Callable[[Table], None] | None:
    """Return the check of a table: that of its head, of the first words of its head, or of tables without a head."""
    if table.rows[0][0].startswith("!["):
        return check_links
    for key in (f"{table.page} {head(table)}", f"{table.page} {table.head[0]}".rstrip()):
        if key in CHECKS:
            return CHECKS[key]
    return check_measured if table.page == "docs/comparison.md" else None


@pytest.mark.parametrize("table", written(), ids=str)
def test_every_table_is_checked_or_its_rows_have_tests(table: Table) -> None:
    listed = ROWS.get((table.page, head(table)))
    if listed is None or table.rows[0][0].startswith("!["):
        check = find_check(table)
        assert check is not None, f"{table}: add a check here, or tests for its rows to tables.toml: {head(table)!r}"
        return check(table)
    assert [row[0] for row in listed] == [row[0] for row in table.rows]
    assert faults([[row[0], "as written", *row[1:]] for row in listed]) == []
    return None


def test_no_row_is_listed_for_a_table_that_is_gone() -> None:
    assert set(ROWS) <= {(table.page, head(table)) for table in written()}


def test_the_settings_place_background_agents_on_a_cluster(project: Project, serve: Any) -> None:
    server = serve(calling_agent("Explore", run_in_background=True))
    done = project.retinue("-p", "go", env={"RETINUE_PLACEMENT": "cluster"})
    assert done.returncode == 0, done.stderr
    # Without a cluster the agent does not start: the setting was read.
    assert "placed on a cluster" in told(server)


async def test_a_program_places_a_run_on_a_cluster(project: Project) -> None:
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        with pytest.raises(LaunchError, match="placed on a cluster"):
            await retinue.spawn("Explore", "go", placement="cluster:gpu")


def test_a_wait_for_a_person_is_a_span(project: Project, serve: Any) -> None:
    project.mode = ""
    serve(lambda request: Reply(calls=[("write", {"path": "new.txt", "content": "x"})] if request.turn == 0 else []))
    with Collector() as collector:
        env = collector.environment | {"RETINUE_PERMISSIONS_HEADLESS": "wait"}
        process = project.start("run", "general-purpose", "go", env=env)
        items: list[dict[str, Any]] = []
        while not items:
            items = project.json("inbox", "list", "--json")["items"]
        assert project.retinue("inbox", "answer", items[0]["id"], "allow").returncode == 0
        process.communicate(timeout=60)
        assert "retinue.wait" in {span.name for span in collector.spans()}
