"""Skill files (`SKILL.md`), read by the same reader as agents.

A skill is not an agent: it is read for its name, description, allowed tools and text, and its
`spec` serves only to carry them with the fates of all other keys.
"""

from __future__ import annotations

from retinue.agents.dialects.shared_rows import DESCRIPTION, NAME, unused
from retinue.agents.dialects.structures import HOOKS, MODEL
from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import SPACED_TOOLS
from retinue.agents.frontmatter import Frontmatter, Parsed, read, split
from retinue.agents.parse import finish, sealed, unusable
from retinue.agents.scan import MAX_FILE, too_large
from retinue.core.spec import Source

SKILL = Dialect(
    name="generic",
    title="Agent Skills",
    folders=("skills/NAME/SKILL.md",),
    name_rule="file",
    fields=(
        NAME,
        DESCRIPTION,
        FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow", ("allowed_tools", "allowedTools", "tools")),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("hooks", HOOKS, "hooks"),
        *unused("license", "compatibility", "metadata", "version", "author", "tags"),
        *unused("argument-hint", "disable-model-invocation", "user-invocable", "context", "agent", "when_to_use"),
    ),
)


def is_skill(path: str) -> bool:
    return path.replace("\\", "/").rpartition("/")[2].lower() == "skill.md"


def parse_skill(data: bytes, *, path: str, source: Source = "project") -> Parsed:
    """Pure, and never raises. A skill without a name is called after its folder."""
    if len(data) > MAX_FILE:
        return unusable(path, too_large(len(data)), "generic")
    parts = split(data)
    matter = Frontmatter() if parts.block is None else read(parts.block, SKILL.knows)
    return sealed(finish(SKILL, parts, matter, _named_after_folder(path), source))


def _named_after_folder(path: str) -> str:
    folder, slash, _ = path.replace("\\", "/").rpartition("/")
    return f"{folder}.md" if slash and is_skill(path) else path
