"""`retinue settings schema` and `retinue agents schema`: the schemas with which editors check and
complete such files."""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from typing import Any

from retinue.errors import UsageError
from retinue.frontends.cli.project import write_json


def _schema(name: str) -> Any:
    return json.loads(files("retinue.builtin").joinpath("schemas", f"{name}.schema.json").read_text("utf-8"))


def configure_settings(parser: argparse.ArgumentParser) -> None:
    """This command has no arguments."""


def execute_settings(args: argparse.Namespace) -> int:
    """Print the JSON Schema of settings files.

        retinue settings schema > .retinue/settings.schema.json

    Then write `"$schema": "./settings.schema.json"` into .retinue/settings.json: editors check and complete it.
    """
    write_json(_schema("settings"))
    return 0


def configure_agents(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dialect", metavar="NAME", help="only one dialect: claude, pi, …")


def execute_agents(args: argparse.Namespace) -> int:
    """Print the JSON Schema of the frontmatter of agent files.

        retinue agents schema > .retinue/agent.schema.json
        retinue agents schema --dialect claude

    Then write `# yaml-language-server: $schema=../agent.schema.json` as the first line of the frontmatter.
    """
    schema = _schema("agent")
    if args.dialect is not None:
        schemas = schema["$defs"]
        if args.dialect not in schemas:
            raise UsageError(f"There is no dialect '{args.dialect}'.", remedy=f"Choose one of: {', '.join(schemas)}")
        schema = {"$schema": schema["$schema"], **schemas[args.dialect]}
    write_json(schema)
    return 0
