"""An agent that writes an agent: what it is told, and what is looked at when it says it is done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import retinue.builtin
from retinue.agents.dialects import DIALECTS
from retinue.agents.lint.finding import Finding
from retinue.agents.lint.runner import lint_paths
from retinue.agents.parse import parse_file
from retinue.core.lean import dataclass

TURNS = 5
"""How many turns the writing agent gets."""


@dataclass(frozen=True, slots=True)
class WrittenAgent:
    """What was found in the file. `problem` says why it is no agent of that name; then the file,
    if there is one, stays for the person to look at."""

    path: Path
    problem: str = ""
    findings: tuple[Finding, ...] = ()


def brief(name: str, description: str, path: Path, tools: Iterable[str]) -> str:
    """The task for the writing agent: every field there is, and the one file it may write."""
    text = (Path(retinue.builtin.__file__).parent / "prompts" / "new-agent.md").read_text(encoding="utf-8")
    values = {
        "path": str(path),
        "name": name,
        "description": "\n".join(f"> {line}" for line in description.strip().splitlines()),
        "fields": fields(),
        "tools": ", ".join(f"`{tool}`" for tool in tools),
        "turns": str(TURNS),
    }
    head, *pieces = text.strip().split("{")
    filled = [head]
    for piece in pieces:  # one pass: what a person wrote is never looked at for marks
        key, _, rest = piece.partition("}")
        filled.append(values[key] + rest)
    return "".join(filled)


def fields() -> str:
    """Every key of Retinue's own files, one a line, from the table that reads them."""
    return "\n".join(
        f"- `{row.key}`: {row.type}" + (f" ({row.note})" if row.note else "") for row in DIALECTS["retinue"].fields
    )


def look(path: Path, name: str) -> WrittenAgent:
    """Whether `path` is an agent called `name` now."""
    if not path.is_file():
        return WrittenAgent(path, f"{path} was not written.")
    parsed = parse_file(path, dialect="retinue", source="project")
    if parsed.spec is None:
        reason = parsed.error.message if parsed.error is not None else "it cannot be read."
        return WrittenAgent(path, f"{path} is no agent: {reason}")
    findings = tuple(lint_paths([path]).findings)
    if parsed.spec.name != name:
        return WrittenAgent(path, f"{path} calls itself '{parsed.spec.name}', not '{name}'.", findings)
    return WrittenAgent(path, findings=findings)
