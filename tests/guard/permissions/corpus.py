"""Reads cases.txt, and builds the workspace that its cases are about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.core.permission import ToolUse
from retinue.core.spec import PermissionMode
from retinue.core.tool_names import TOOL_EFFECTS, canonical
from retinue.guard.permissions import PermissionPolicy
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.rule import Limit, Rule, parse_rule

FILE = Path(__file__).with_name("cases.txt")
_MAIN = {
    "bash": "command",
    "fetch_content": "url",
    "Agent": "subagent_type",
    "dispatch_agent": "agent",
    "subagent": "agent",
}


@dataclass
class Block:
    mode: PermissionMode
    rules: list[tuple[str, str]] = field(default_factory=list)
    agent: list[str] = field(default_factory=list)
    walls: bool = False


@dataclass
class Case:
    line: int
    block: Block
    expected: str
    tool: str
    argument: str
    more: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.line}-{self.block.mode}-{self.tool}-{self.argument[:40]}"


def cases() -> Iterator[Case]:
    block = Block("default")
    for number, line in enumerate(FILE.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            expected, tool, rest = line.split(maxsplit=2)
            argument, _, more = rest.partition(" :: ")
            yield Case(number, block, expected, tool, argument.replace("⏎", "\n"), json.loads(more or "{}"))
            continue
        key, _, value = line.partition(":")
        if key == "mode":
            block = Block(value.strip())  # type: ignore[arg-type]
        elif key == "walls":
            block.walls = True
        elif key == "agent":
            block.agent.append(value.strip())
        else:
            block.rules.append((key, value.strip()))


def workspace(folder: Path) -> tuple[Path, Path]:
    """The workspace and the home."""
    home, elsewhere, ws = folder / "home" / "user", folder / "elsewhere", folder / "work" / "project"
    for each in (home, elsewhere, ws / "src", ws / "secrets", ws / "sub" / "dir", ws / ".git" / "hooks"):
        each.mkdir(parents=True)
    for name in ("src/app.py", ".env", "secrets/key.txt", ".git/config"):
        (ws / name).write_text("x\n")
    (ws / "out").symlink_to(elsewhere)
    (ws / "envlink").symlink_to(ws / ".env")
    (ws / "inlink").symlink_to(ws / "src")
    return ws, home


def policy(block: Block, ws: Path, home: Path) -> PermissionPolicy:
    rules = []
    for kind, text in block.rules:
        rule = parse_rule(text, kind, source="cases.txt", base=str(ws))  # type: ignore[arg-type]
        assert isinstance(rule, Rule), (text, rule)
        rules.append(rule)
    limits = {}
    for entry in block.agent:
        if "(" in entry:
            rule = parse_rule(entry, "allow", source="agent.md", base=str(ws))
            assert isinstance(rule, Rule)
            for tool in rule.tools:
                limits.setdefault(tool, []).append(rule)
    made = [Limit(tool, tuple(each), "agent.md") for tool, each in limits.items()]
    return PermissionPolicy(
        block.mode, RunFolders.of(ws, home=str(home)), rules, limits=made, walls=block.walls, masks=block.walls
    )


def use(case: Case, ws: Path, home: Path) -> ToolUse:
    text = case.argument.replace("{ws}", str(ws)).replace("{home}", str(home))
    name = _MAIN.get(case.tool, "path" if case.tool in ("read", "write", "edit", "grep", "find", "ls") else "query")
    (tool,) = canonical(case.tool) or (case.tool,)
    return ToolUse(tool, {name: text, **case.more}, TOOL_EFFECTS.get(tool, frozenset({"network"})))
