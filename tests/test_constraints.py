"""constraints.txt pins everything that `make setup` installs, at versions that go together."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line]
    return {canonicalize_name(name): version for name, version in pairs}


def read_wanted() -> list[Requirement]:
    """Return what pyproject.toml asks for: the package, all its extras, the developers' group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    lines = [*project["project"]["dependencies"], *groups["check"]]
    lines += [line for line in groups["dev"] if isinstance(line, str)]
    for name, wanted in extras.items():
        if name != "all":
            lines += wanted
    return [Requirement(line) for line in lines]


def requirements_of(name: str) -> list[str]:
    """Return what an installed package asks for; nothing of one that this environment lacks yet."""
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def collect_needs(wanted: list[Requirement]) -> list[tuple[str, Requirement]]:
    """Return every requirement that is reached from `wanted` on this machine, with who asks for it."""
    found, queue, seen = [], [("pyproject.toml", one) for one in wanted], set()
    while queue:
        asker, need = queue.pop()
        found.append((asker, need))
        key = (canonicalize_name(need.name), frozenset(need.extras))
        if key in seen:
            continue
        seen.add(key)
        for line in requirements_of(need.name):
            further = Requirement(line)
            extras = need.extras or {""}
            if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append((need.name, further))
    return found


def test_every_package_that_setup_installs_is_pinned_at_a_version_all_who_need_it_accept():
    # A missing or contradictory pin makes pip search for a solution for half an hour and give up.
    pins = read_pins()
    wrong = []
    for asker, need in collect_needs(read_wanted()):
        pin = pins.get(canonicalize_name(need.name))
        if pin is None or not need.specifier.contains(pin, prereleases=True):
            wrong.append(f"{asker} needs {need}, pinned: {pin}")
    assert wrong == []


def test_what_an_old_pip_leaves_out_of_the_web_extra_is_named():
    # jusText asks for lxml[html_clean], which the pip of a fresh Python 3.11 takes for an extra that is not there.
    assert "lxml-html-clean" in {canonicalize_name(wanted.name) for wanted in read_wanted()}


def test_no_mcp_is_accepted_that_lacks_what_servers_over_http_need():
    # Before 2.3 `streamable_http_client` does not take `max_sse_event_size`; pip keeps what is installed.
    (mcp,) = (wanted for wanted in read_wanted() if wanted.name == "mcp")
    assert not mcp.specifier.contains("2.2.0")


def imported_packages() -> Iterator[str]:
    """Yield the top of every name that the package imports, its own and Python's among them."""
    for path in (ROOT / "src" / "retinue").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                yield node.module.partition(".")[0]


def test_every_package_that_is_imported_is_named():
    named = {canonicalize_name(wanted.name) for wanted in read_wanted()}
    owners = metadata.packages_distributions()
    foreign = set(imported_packages()) - sys.stdlib_module_names - {"retinue"}
    lacking = []
    for package in sorted(foreign & owners.keys()):
        if not named & {canonicalize_name(owner) for owner in owners[package]}:
            lacking.append(package)
    assert lacking == []
