"""The shell of an isolated run where no sandbox can hold it, if its user wants it all the same.

Every command is taken apart as the permissions take it apart, and refused when it leaves the
worktree: by its folder, by a file it writes, by git's own ways to another repository, or because
nobody can tell. This stops what agents do by mistake. It does not stop a program that the command
starts: only a sandbox does, and without one the default is to have no shell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.effects import ToolEffect
from retinue.core.permission import ToolUse
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, failed

if TYPE_CHECKING:
    from retinue.capabilities.worktree.attach import Isolation
    from retinue.guard.permissions.call import Call
    from retinue.guard.permissions.shell import Step

_AUTHOR = ("GIT_AUTHOR_", "GIT_COMMITTER_")
_ELSEWHERE = ("-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--exec-path")
_FREE = ("/tmp", "/var/tmp", "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")  # noqa: S108 - names, not files


class CheckedShell:
    """A shell tool behind the check."""

    def __init__(self, tool: Tool, isolation: Isolation) -> None:
        self._tool = tool
        self._isolation = isolation

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        why = next(objections(arguments, self._isolation, context), None)
        if why is None:
            return await self._tool.run(call_id, arguments, context)
        said = f"Not run: {why}. You work in {self._isolation.top}; rewrite the command so that it plainly stays there."
        return failed(said, ToolEffect(status="failed", denied=why))


def objections(arguments: Mapping[str, Any], isolation: Isolation, context: ToolContext) -> Iterator[str]:
    """Why a command may not run; nothing when it keeps to the worktree as far as can be seen."""
    from retinue.guard.permissions.call import Call
    from retinue.guard.permissions.locations import Place
    from retinue.guard.permissions.matching import starts_others
    from retinue.guard.permissions.shell.commands import edited_paths

    place = Place.of(context.root, [str(isolation.top)], context.environment.get("HOME", ""))
    call = Call(ToolUse("bash", arguments), place)
    text = " ".join(str(value) for value in arguments.values())
    if str(isolation.main) in text:
        yield f"it names the main checkout {isolation.main}, of which {isolation.top} is your copy"
    for doubt in call.script.doubts:
        yield f"it cannot be understood beforehand ({doubt})"
    for base in call.bases:
        if not place.inside(base):
            yield "it changes into a folder outside of the worktree, or into one that is not written out"
    yield from _writes(call)
    for step in call.script.all_steps():
        yield from _git(step, call)
        if starts_others(step):
            yield f"nobody can see what {step.name} will start"
        elif step.opaque and edited_paths(step) is None and not _names_author(step):
            yield f"nobody can see what it will do ({step.opaque})"


def _names_author(step: Step) -> bool:
    """Whether the only strange thing about a call of git is that it says who the author is."""
    names = [name for name, _ in step.assigned]
    return step.name == "git" and bool(names) and all(each.startswith(_AUTHOR) for each in names)


def _writes(call: Call) -> Iterator[str]:
    from retinue.guard.permissions.rule import shown

    for path, writes in call.touched:
        free = any(path == each or path.startswith(f"{each}/") for each in _FREE) and ".." not in Path(path).parts
        if writes and not free and not all(call.place.inside(path, base) for base in call.bases):
            yield f"it may write to {shown(path)}, which is not in the worktree"


def _git(step: Step, call: Call) -> Iterator[str]:
    for name, value in step.assigned:
        if name.startswith("GIT_") and not name.startswith(_AUTHOR):
            yield f"it sets {name}={value}, which leads git elsewhere"
    words = step.words[1:]
    if step.name in ("export", "declare", "env", "typeset") and any(word.startswith("GIT_") for word in words):
        yield "it sets variables of git, which lead it elsewhere"
    if step.name != "git":
        return
    for number, word in enumerate(words):
        option = next((each for each in _ELSEWHERE if word == each or word.startswith(f"{each}=")), None)
        value = word.partition("=")[2] or (words[number + 1] if number + 1 < len(words) else "")
        if option is not None and not all(call.place.inside(value, base) for base in call.bases):
            yield f"`git {option}` leads out of the worktree"
    if "core.worktree" in " ".join(words):
        yield "it moves git's work tree"
