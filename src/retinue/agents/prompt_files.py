"""Files whose text is sent when someone calls them by name: the reading that commands and skills share."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from retinue.agents.folders import levels
from retinue.agents.frontmatter import Split, read
from retinue.core.format import replace_unprintable


def project_folders(cwd: Path, names: Collection[str], user: Collection[Path]) -> Iterator[Path]:
    """Yield the folders of those names that a project may have, the nearest first. In the home folder of the user the
    folder of a project and that of the user are the same, and it is the user's."""
    for level in levels(cwd):
        for name in names:
            if level / name not in user:
                yield level / name


def read_keys(parts: Split, names: Collection[str], aliases: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return the values of the frontmatter by their keys in lower case, aliases replaced, and the reason why it cannot
    be read, or an empty text. `names` are the keys that end a text in a frontmatter that is not YAML."""
    if parts.block is None:
        return {}, ""
    matter = read(parts.block, names.__contains__)
    lowered = {item.key.lower(): item.value for item in matter.items}
    values = {aliases.get(key, key): value for key, value in lowered.items()}
    return values, matter.error.message if matter.error is not None else ""


def split_arguments(arguments: str) -> list[str]:
    """Return the words as a shell would split them; at blanks if quotes do not close."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def one_line(text: str) -> str:
    return " ".join(replace_unprintable(text).split())
