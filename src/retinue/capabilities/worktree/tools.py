"""The tools of a run in a worktree: kept inside it, and the notice in its prompt that says so.

An inherited prompt or task names paths of the main checkout, and models follow them (field reports
agree on that). The notice, last in the system prompt, says which paths are right; the tools refuse
the others.

Where no sandbox can hold the shell, and the user wants one anyway, every command is parsed as the
permissions parse it, and refused when it leaves the worktree: by its folder, by a file it writes, by
git's own ways to another repository, or because nobody can tell. This stops mistakes of agents, not a
program that the command starts: only a sandbox does, and without one the default is no shell.

Tools of MCP servers, plugins and programs mostly work in the main checkout, where they were started.
So a run in a worktree must tell them plainly where to work: a path that leads into the main checkout,
or that they would resolve there, is refused. Tools that only read are not checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.permission import ToolEffect, ToolUse
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.tool_names import TOOLS
from retinue.guard.permissions.call import JudgedCall
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.match import starts_others
from retinue.guard.permissions.rule import shown
from retinue.guard.permissions.shell_commands import edited_paths
from retinue.runs.prompt import shipped

if TYPE_CHECKING:
    from retinue.guard.permissions.call import JudgedCall
    from retinue.guard.permissions.shell_step import Step
    from retinue.runs.guard import Isolation


_IDENTITY = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSL_", "GIT_SSH")


def without_git(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables by which a caller's git (a hook, an alias) would lead every git
    of the agent back to the main checkout."""
    clean = {}
    for name, value in environment.items():
        if not name.startswith("GIT_") or name.startswith(_IDENTITY):
            clean[name] = value
    return clean


_COMMITTED = "the last commit. Uncommitted changes of the main checkout are not in it."
_AS_IT_WAS = "the main checkout as it was when you started, uncommitted changes included."


def worktree_notice(top: Path, main: Path, *, from_dirty: bool = False) -> str:
    """Return the notice. `top` is the copy that the run works in, `main` the checkout it was made from;
    `from_dirty` says whether the copy began with the uncommitted changes of `main`."""
    holds = _AS_IT_WAS if from_dirty else _COMMITTED
    text = shipped("worktree").replace("{{holds}}", holds)
    for name, path in (("top", top), ("main", main)):
        # The name of a folder may hold line breaks, which would end the sentence.
        text = text.replace(f"{{{{{name}}}}}", " ".join(str(path).splitlines()))
    return text


_AUTHOR = ("GIT_AUTHOR_", "GIT_COMMITTER_")
_ELSEWHERE = ("-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--exec-path")
_FREE = ("/tmp", "/var/tmp", "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")  # noqa: S108 - names, not files


class CheckedTool:
    """A tool that runs only if `find_objections` finds nothing; `advice` tells the model how to do better."""

    def __init__(
        self, tool: Tool, find_objections: Callable[[Mapping[str, Any], ToolContext], Iterator[str]], advice: str
    ) -> None:
        self._tool = tool
        self._find_objections = find_objections
        self._advice = advice

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        why = next(self._find_objections(arguments, context), None)
        if why is None:
            return await self._tool.run(call_id, arguments, context)
        return failed(f"Not run: {why}. {self._advice}", ToolEffect(status="failed", denied=why))


def check_shell(tool: Tool, isolation: Isolation) -> CheckedTool:
    """Return a shell tool that refuses commands which leave the worktree."""
    advice = f"You work in {isolation.top}; rewrite the command so that it plainly stays there."
    return CheckedTool(tool, partial(shell_objections, isolation), advice)


def shell_objections(isolation: Isolation, arguments: Mapping[str, Any], context: ToolContext) -> Iterator[str]:
    """Yield why a command may not run; nothing when it keeps to the worktree as far as can be seen."""
    folders = RunFolders.of(context.root, [str(isolation.top)], context.environment.get("HOME", ""))
    call = JudgedCall(ToolUse("bash", arguments), folders)
    text = " ".join(map(str, arguments.values()))
    if str(isolation.main) in text:
        yield f"it names the main checkout {isolation.main}, of which {isolation.top} is your copy"
    for doubt in call.script.doubts:
        yield f"it cannot be understood beforehand ({doubt})"
    for base in call.bases:
        if not folders.inside(base):
            yield "it changes into a folder outside of the worktree, or into one that is not written out"
    for path, writes in call.touched:
        # A file outside of every checkout does no harm to one.
        free = any(_inside(path, folder) for folder in _FREE) and ".." not in Path(path).parts
        if writes and not free and not _stays_inside(path, call):
            yield f"it may write to {shown(path)}, which is not in the worktree"
    for step in call.script.all_steps():
        yield from _git(step, call)
        if starts_others(step):
            yield f"nobody can see what {step.name} will start"
        elif step.opaque and edited_paths(step) is None and not _names_author(step):
            yield f"nobody can see what it will do ({step.opaque})"


def _names_author(step: Step) -> bool:
    """Return whether the only unusual thing about a call of git is that it names the author."""
    names = [name for name, _ in step.assigned]
    return step.name == "git" and bool(names) and all(name.startswith(_AUTHOR) for name in names)


def _stays_inside(path: str, call: JudgedCall) -> bool:
    # A command may change its folder on the way: the path must stay inside from all of them.
    return all(call.folders.inside(path, base) for base in call.bases)


def _git(step: Step, call: JudgedCall) -> Iterator[str]:
    for name, value in step.assigned:
        if name.startswith("GIT_") and not name.startswith(_AUTHOR):
            yield f"it sets {name}={value}, which leads git elsewhere"
    words = step.words[1:]
    if step.name in ("export", "declare", "env", "typeset") and any(word.startswith("GIT_") for word in words):
        yield "it sets variables of git, which lead it elsewhere"
    if step.name != "git":
        return
    for number, word in enumerate(words):
        option, _, value = word.partition("=")
        # `-C FOLDER` as well as `--git-dir=FOLDER`.
        if option in _ELSEWHERE and not _stays_inside(value or next(iter(words[number + 1 :]), ""), call):
            yield f"`git {option}` leads out of the worktree"
    if "core.worktree" in " ".join(words):
        yield "it moves git's work tree"


_HARMLESS = frozenset({"read", "ask", "spawn"})
_PATH_NAME = re.compile(r"(?i)(?:^|_)(?:path|paths|file|files|filename|filepath|dir|directory|folder|cwd|root)s?$")
MAX_ARGUMENT_DEPTH = 6


def check_foreign_tools(tools: tuple[Tool, ...], isolation: Isolation) -> tuple[Tool, ...]:
    """Return the tools, with those that are not Retinue's behind a check of the paths they get."""
    advice = f"You work in {isolation.top}: give absolute paths in there."
    check = partial(objections, isolation)
    checked: list[Tool] = []
    for tool in tools:
        foreign = tool.spec.name not in TOOLS and not tool.spec.effects <= _HARMLESS and not tool.spec.ends_run
        checked.append(CheckedTool(tool, check, advice) if foreign else tool)
    return tuple(checked)


def objections(isolation: Isolation, arguments: Mapping[str, Any], context: ToolContext) -> Iterator[str]:
    """Yield why the call would reach, or could reach, the main checkout."""
    top, main = os.path.realpath(isolation.top), os.path.realpath(isolation.main)
    for name, text in _texts("", arguments, 0):
        if str(isolation.main) in text or main in text:
            # The path of the worktree itself may contain that of the main checkout as text.
            where = os.path.realpath(text) if text.startswith("/") else text
            if not _inside(where, top):
                yield f"{name or 'an argument'} names the main checkout {isolation.main}"
        elif _PATH_NAME.search(name):
            path = text.removeprefix("file://")
            if not path.startswith("/"):
                yield f"{name} is a relative path, which the tool would take from the main checkout"
            elif _inside(os.path.realpath(path), main) and not _inside(os.path.realpath(path), top):
                yield f"{name} leads into the main checkout {isolation.main}"


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _texts(name: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif depth > MAX_ARGUMENT_DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(str(key), inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(name, inner, depth + 1)
