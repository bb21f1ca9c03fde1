"""The narrowest rule that would have allowed a call: what "always" writes down."""

from __future__ import annotations

import re

from retinue.guard.permissions.call import Call
from retinue.guard.permissions.commandline import Coverage
from retinue.guard.permissions.marks import HOLE, is_known
from retinue.guard.permissions.matching import allowed_form, starts_others
from retinue.guard.permissions.place import below
from retinue.guard.permissions.rule import WRITING
from retinue.guard.permissions.shell.step import Step
from retinue.guard.permissions.shell.wrappers import INTERPRETERS, SHELLS

_SPECIAL = re.compile(r"([*?\[\]\\!#])")
_DEPTH = {
    **dict.fromkeys(("git", "cargo", "go", "docker", "kubectl", "gh", "brew", "apt", "terraform", "helm"), 2),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun", "pip", "pip3", "uv", "poetry", "dotnet", "rustup", "make"), 2),
}
_RUNNING = frozenset({"npm run", "yarn run", "pnpm run", "bun run", "uv run", "poetry run", "docker compose"})
_ANYTHING = frozenset(
    "docker run|docker exec|kubectl exec|kubectl run|npm exec|npm x|pnpm exec|pnpm dlx|yarn exec|yarn dlx|bun x|uv tool"
    "|go run|gh api|gh alias|git config|git bisect|git submodule|git filter-branch".split("|")
)
"""What follows these words is a command itself, or can become one."""
_NEVER_WIDE = (
    SHELLS | INTERPRETERS.keys() | {"rm", "sudo", "doas", "su", "eval", "dd", "chmod", "chown", "curl", "wget"}
)


def suggestion(call: Call, coverage: Coverage | None) -> str | None:
    """None where no single rule would do, or where none should."""
    if call.is_shell:
        return _of_command(call, coverage) if coverage is not None else None
    if call.writes and call.tool in WRITING:
        return f"Edit({_pattern(call.paths[0], call)})" if len(call.paths) == 1 else None
    if call.hosts:
        return f"WebFetch(domain:{call.hosts[0]})" if len(call.hosts) == 1 and call.hosts[0] != HOLE else None
    return call.tool


def _of_command(call: Call, coverage: Coverage) -> str | None:
    if call.script.doubts:
        return None
    rules = {_of_step(step) for step in coverage.open_steps}
    tools = {True: "Edit", False: "Read"}
    rules |= {f"{tools[file.writes]}({_pattern(file.path, call)})" for file in coverage.open_files}
    return rules.pop() if len(rules) == 1 else None


def _of_step(step: Step) -> str | None:
    while step.transparent and len(step.inner) == 1:
        step = step.inner[0]
    text = allowed_form(step)
    if step.inner or step.assigned or starts_others(step) or not is_known(text) or not text.isprintable():
        return None
    name = step.plain_name
    depth = _DEPTH.get(name, 1)
    words = step.words[:depth]
    if " ".join(words) in _RUNNING:
        words = step.words[: depth + 1]
    plain = all(re.fullmatch(r"[\w.:/@+-]+", word) and not word.startswith("-") for word in words)
    exact = name in _NEVER_WIDE or " ".join(words) in _ANYTHING
    if exact or not name or not plain or depth == 1:
        return f"Bash({text})" if "*" not in text and ")" not in text[-1:] else None
    return f"Bash({' '.join(words)}:*)"


def _pattern(path: str, call: Call) -> str:
    """A path as a pattern for itself alone: from the working directory if it is in there."""
    absolute = call.place.absolute(path)
    inside = below(absolute, call.place.cwd)
    text = f"/{inside}" if inside else f"/{absolute}"
    return _SPECIAL.sub(r"\\\1", text)
