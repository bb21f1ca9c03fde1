"""Documents that other programs read: what they tell them about Retinue is compared with what Retinue knows."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from typing import TYPE_CHECKING, Any

import yaml
from tests.docs.pages import ROOT

from retinue.frontends.cli.main import APP, COMMANDS, HEADLESS, Command, Group
from retinue.frontends.cli.project import Parser
from retinue.settings.table import fields

if TYPE_CHECKING:
    from tests.docs.reader import Reader

# Variables of the program that are no settings.
VARIABLES = {"RETINUE_HOME", "RETINUE_DATABASE", "RETINUE_DATABASE_PROJECT"}


def parse_command(line: str) -> argparse.Namespace:
    """Read a command line of the program as the program does; raise SystemExit where it would refuse it."""
    words = shlex.split(line, comments=True)[1:]
    entry: Command | Group = COMMANDS.get(words[0], HEADLESS) if words else APP
    if words and words[0] in COMMANDS:
        words = words[1:]
    if isinstance(entry, Group):
        if words and words[0] in entry.commands:
            entry, words = entry.commands[words[0]], words[1:]
        else:
            assert entry.alone is not None, f"{line}: a command of the group is missing"
            entry = entry.alone
    home, _, name = entry.home.partition(":")
    parser = Parser(prog="retinue")
    module = importlib.import_module(f"retinue.frontends.cli.{home}")
    getattr(module, f"configure{'_' + name if name else ''}")(parser)
    return parser.parse_args(words)


def check_document(reader: Reader, text: str) -> None:
    """Check a YAML document by what it is; a fragment is lines of an agent's frontmatter."""
    if not re.search(r"^(services|kind|jobs|cases|agents):", text, re.MULTILINE):
        return check_frontmatter(reader, text)
    data = yaml.safe_load(text)
    if "services" in data:
        return check_containers([each for each in data["services"].values() if "retinue" in each["image"]])
    if data.get("kind") == "Deployment":
        return check_containers(data["spec"]["template"]["spec"]["containers"])
    if "jobs" in data or True in data:
        return check_workflow(data)
    if "cases" in data:
        drafted = reader.cwd / f".retinue/agents/{data['agent']}.test.yaml"
        found = drafted.read_text()
        assert yaml.safe_load(found) == data, found
        return None
    return check_job(data["agents"])


def check_containers(containers: list[dict[str, Any]]) -> None:
    """The command can be read, and every variable of ours is one that the program reads."""
    assert containers
    known = VARIABLES | {name for field in fields().values() for name in field.variables}
    for container in containers:
        command = container.get("command") or shlex.join(container["args"])
        parse_command(command)
        given = container.get("environment") or {each["name"]: "" for each in container["env"]}
        assert {name for name in given if name.startswith("RETINUE_")} <= known, given


def check_workflow(data: dict[Any, Any]) -> None:
    """What a workflow gives to the action are inputs of the action."""
    inputs = yaml.safe_load((ROOT / "action" / "action.yml").read_text("utf-8"))["inputs"]
    steps = [step for job in data["jobs"].values() for step in job["steps"]]
    ours = [step["with"] for step in steps if "retinue/action" in step["uses"]]
    assert ours
    for given in ours:
        assert set(given) <= set(inputs), given


def check_job(job: dict[str, Any]) -> None:
    """The script that a job of another CI calls is there and reads the variables that it is given."""
    (line,) = [each for each in job["script"] if "run.sh" in each]
    script = ROOT / line.split()[-1].removeprefix("/tmp/retinue/")
    for name in re.findall(r"(\w+)=", line):
        assert name in script.read_text("utf-8")


def check_frontmatter(reader: Reader, text: str) -> None:
    """A whole frontmatter is right in an agent's file, and so is each line of a fragment by itself."""
    inside = re.sub(r"^---\n", "", text, flags=re.MULTILINE)
    heads = [f"name: line\ndescription: Tries one line.\n{line}\n" for line in inside.splitlines()]
    if re.search(r"^name:", inside, re.MULTILINE):
        heads = [inside]
    for head in heads:
        words = f"---\n{head}---\nYou try one line of the manual. Report what it does.\n"
        file = reader.put(".retinue/agents/line.md", words)
        reader.run("retinue", "agents", "lint", "--strict", str(file.relative_to(reader.cwd)))
        file.unlink()
