"""Runs in worktrees: created before the run, its only workspace while it works, saved when it ends.

A run that asks for isolation gets it or does not start. Its children work in its worktree, under the same limits. A
child that asks for a separate worktree gets one that is made from it."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.capabilities.worktree.record import (
    BRANCH_PREFIX,
    WorktreeRecord,
    load,
    load_records,
    merge_hint,
    worktrees_folder,
)
from retinue.capabilities.worktree.repository import borrowed_from
from retinue.capabilities.worktree.save import finish
from retinue.capabilities.worktree.tools import check_shell, without_git
from retinue.capabilities.worktree.worktree import WorktreeRequest, make, reopen
from retinue.core.events import RunEnded
from retinue.core.tool import ToolContext
from retinue.errors import LaunchError
from retinue.guard.git import Git
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.runs.guard import Isolation
from retinue.runs.plan import check_folder
from retinue.runs.project import has_git_consent

if TYPE_CHECKING:
    from retinue.capabilities.worktree.save import SavedWork
    from retinue.core.outcome import Outcome
    from retinue.core.permission import Hooks
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run

_WORKTREES_FOLDER = "worktrees"
"""A part of the path of every worktree of ours."""


async def choose_workspace(plan: LaunchPlan) -> None:
    """Choose the worktree that the run asks for, or in which it is started. Raise LaunchError if that fails; then
    nothing of it remains."""
    request, project = plan.request, plan.project
    if plan.resumed and not request.cwd.is_dir() and (above := _run_above(request.cwd, project)) is not None:
        raise _gone_error(above)
    # Checked before a worktree is created or taken over.
    check_folder(request)
    wants_own = request.isolation == "worktree"
    if not plan.resumed:
        asks_for_own = wants_own or plan.spec.isolation == "worktree"
        wants_own = asks_for_own and plan.settings.worktree_isolation
    if wants_own:
        record = await _open_worktree(plan)
        plan.isolation = _isolation(record, request.cwd)
        plan.discards.append(partial(_discard_worktree, project, record.run))
        plan.request = replace(request, cwd=record.work)
    else:
        if _WORKTREES_FOLDER in request.cwd.parts:
            plan.isolation = await asyncio.to_thread(_enclosing_worktree, request.cwd, project)
        if "worktree" in (request.isolation, request.spec.isolation):
            plan.note("it works in the checkout itself: worktrees are switched off (worktreeIsolation)")
    if plan.isolation is not None and plan.settings.extra_roots:
        plan.note("extraRoots do not apply: the run keeps to its worktree")


async def _discard_worktree(project: Project, run_id: str) -> None:
    """Remove the worktree of a run that does not start."""
    await asyncio.shield(_finish(project, run_id))


async def save_worktree(node: Run, outcome: Outcome) -> Outcome:
    """Save the work of a run that has ended on a branch and remove its worktree. Return the outcome with a note on the
    branch or on the failure. Also end worktrees of runs above that were kept only because of this run."""
    project, isolation = node.project, node.launch.isolation
    if isolation is None:
        return outcome
    if isolation.own:
        inside = ", ".join(run.id for run in _working_inside(node))
        keep = f"runs still work in it: {inside}" if inside else ""
        # Shielded, because a cancelled run must not leave its work half saved.
        saved = await asyncio.shield(_finish(project, isolation.run, keep))
        outcome = _add_saved_work(outcome, saved, isolation)
        if node.hooks.listens("WorktreeRemove"):
            await node.hooks.fire("WorktreeRemove", isolation.run, _payload(isolation))
    above = node.parent
    while above is not None:
        theirs = above.launch.isolation
        if theirs is not None and theirs.own and not above.live and not _working_inside(above, but=node):
            await asyncio.shield(_finish(project, theirs.run))
        above = above.parent
    return outcome


def confine_to_worktree(context: ToolContext, isolation: Isolation) -> ToolContext:
    """Return the context of an isolated run, whose tools may use its worktree only. With `instead` they can suggest the
    right path."""
    work = context.roots[0]
    roots = (work,) if work == isolation.top else (work, isolation.top)
    return replace(
        context, roots=roots, instead=(isolation.main, isolation.top), environment=without_git(context.environment)
    )


def branch_of(project: Project, run_id: str) -> str | None:
    """Return the branch of the last ended attempt of a run that was saved, from the log."""
    for _, event in project.log.reader.ordered(run_id, ("run.ended",), newest_first=True):
        if isinstance(event.body, RunEnded) and event.body.outcome.branch:
            return event.body.outcome.branch
    return None


def make_shell_safe(plan: LaunchPlan, isolation: Isolation) -> None:
    """Remove the shell of an isolated run without a sandbox, and add a note.

    Such a shell could reach the main checkout, and a check of its commands cannot find every way. So without a sandbox
    an isolated run has no shell, unless the user has chosen the check."""
    shells = [name for name, tool in plan.tools.items() if tool.spec.confinable]
    if not shells or can_sandbox(plan.settings):
        return
    names = ", ".join(shells)
    allowed = plan.project.allowed
    # The user decides whether a shell without sandbox is acceptable; on a worker, its operator.
    if not (plan.settings.worktree_shell == "checked" if allowed is None else "shell" in allowed):
        for name in shells:
            del plan.tools[name]
        plan.note(f"{names} was withheld: programs cannot be confined to the worktree here (see: retinue doctor)")
        return
    for name in shells:
        plan.tools[name] = check_shell(plan.tools[name], isolation)
    plan.note(f"commands of {names} are only checked: nothing here can confine programs to the worktree")


async def _open_worktree(plan: LaunchPlan) -> WorktreeRecord:
    request, project, run_id = plan.request, plan.project, plan.run_id
    if plan.resumed:
        again = await asyncio.to_thread(reopen, project.state, run_id)
        if again is not None:
            return again
        await _finish(project, run_id)
    settings = project.settings.settings
    branch, start = None, None
    if plan.resumed:
        branch, start = await asyncio.to_thread(_saved_at, request.cwd, project, run_id)
    request_of_worktree = WorktreeRequest(
        run=run_id,
        cwd=request.cwd,
        state=project.state,
        environment=project.environment,
        agent=request.spec.name,
        description=plan.description or request.task,
        from_dirty=settings.worktree_from_dirty,
        base_ref=settings.worktree_base_ref,
        start=start,
        branch=branch,
        consented=await asyncio.to_thread(has_git_consent, project, request.cwd),
    )
    # A thread cannot be cancelled, and the worktree that it creates must have an owner.
    making = asyncio.ensure_future(asyncio.to_thread(make, request_of_worktree, plan.notes))
    try:
        record = await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.wait({making})
        await _finish(project, run_id)
        raise
    plan.notes += await asyncio.to_thread(_note_leftovers, project, run_id)
    return record


def _note_leftovers(project: Project, run_id: str) -> list[str]:
    """Return a note on worktrees that dead processes left."""
    dead = 0
    for record in load_records(project.state):
        if record.run == run_id or record.busy():
            continue
        # A worktree in these phases has no unsaved work.
        if record.phase in ("making", "removing"):
            finish(project.state, record.run, project.environment, leftover=True)
        else:
            dead += 1
    if not dead:
        return []
    few = "1 worktree of an ended run is" if dead == 1 else f"{dead} worktrees of ended runs are"
    return [f"{few} left over: see `retinue worktrees list`, and `retinue worktrees clean`"]


def _saved_at(cwd: Path, project: Project, run_id: str) -> tuple[str | None, str | None]:
    branch = branch_of(project, run_id) or f"{BRANCH_PREFIX}{run_id}"
    start = Git(cwd, project.environment).ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    return (branch, start) if start is not None else (None, None)


def _isolation(record: WorktreeRecord, asked_in: Path, *, own: bool = True) -> Isolation:
    shown = borrowed_from(record)
    return Isolation(record.run, record.path, record.git, Path(record.repository), asked_in, own, shown)


def _enclosing_worktree(cwd: Path, project: Project) -> Isolation | None:
    """Return the worktree of ours that contains `cwd`, which confines a run started there. If its process is dead, this
    process becomes its owner, so that it is not removed meanwhile."""
    run = _run_above(cwd, project)
    if run is None:
        return None
    record = load(worktrees_folder(project.state) / f"{run}.json")
    if record is None:
        return None
    if not record.busy():
        record = reopen(project.state, run)
    if record is None:
        raise _gone_error(run)
    return _isolation(record, cwd, own=False)


def _run_above(cwd: Path, project: Project) -> str | None:
    """Return the run in whose worktree `cwd` is, or was."""
    if _WORKTREES_FOLDER not in cwd.parts:
        return None
    real, folder = Path(os.path.realpath(cwd)), Path(os.path.realpath(worktrees_folder(project.state)))
    return real.relative_to(folder).parts[0] if folder in real.parents else None


def _gone_error(above: str) -> LaunchError:
    return LaunchError(
        f"It worked in the worktree of run {above}, which has been saved and removed.",
        remedy=f"Resume that run, which can then continue this one: retinue runs resume {above}",
    )


async def _finish(project: Project, run_id: str, keep: str = "") -> SavedWork | None:
    return await asyncio.to_thread(finish, project.state, run_id, project.environment, keep=keep)


def _working_inside(node: Run, but: Run | None = None) -> list[Run]:
    mine = node.launch.isolation
    if mine is None:
        return []
    live = [run for run in node.descendants() if run is not but and run.live]
    return [run for run in live if run.launch.request.cwd.is_relative_to(mine.top)]


def _add_saved_work(outcome: Outcome, saved: SavedWork | None, isolation: Isolation) -> Outcome:
    """Return the outcome with the branch of the saved work: in the text, where every reader sees it, or as a note if
    the result is a document for programs."""
    if saved is None:
        return replace(outcome, notes=(*outcome.notes, "its worktree was gone before it ended"))
    outcome = replace(outcome, branch=saved.branch, notes=(*outcome.notes, *saved.notes))
    if saved.branch is None:
        return outcome
    hint = f"Changes saved to branch `{saved.branch}`. Merge with: {merge_hint(saved.branch)}"
    if not isolation.asked_in.is_relative_to(isolation.main):
        hint += f" (in {isolation.main})"
    if outcome.value is not None or not outcome.text:
        return replace(outcome, notes=(*outcome.notes, hint))
    return replace(outcome, text=f"{outcome.text}\n\n---\n{hint}")


async def announce_creation(hooks: Hooks, isolation: Isolation) -> None:
    """Fire the hooks for a new worktree. Raise LaunchError if one denies or fails. A path that a hook prints is
    ignored, because only our own worktrees are isolated."""
    if not isolation.own or not hooks.listens("WorktreeCreate"):
        return
    answer = await hooks.fire("WorktreeCreate", isolation.run, _payload(isolation))
    if answer.verdict == "deny" or answer.failures or answer.stop is not None:
        why = answer.reason or answer.stop or "; ".join(answer.failures)
        raise LaunchError(f"A WorktreeCreate hook refused the worktree: {why}", remedy="See: retinue settings list")


def _payload(isolation: Isolation) -> dict[str, str]:
    return {"name": isolation.run, "worktree_path": str(isolation.top), "repository": str(isolation.main)}
