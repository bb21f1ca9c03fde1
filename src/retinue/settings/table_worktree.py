"""Settings of worktrees and the integration queue: a part of the table in `table.py`."""

from __future__ import annotations

from typing import Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Choice, Flag, Text

_FLAG = Flag()


# fmt: off
class WorktreeSettings(Values):
    worktree_isolation: bool = setting(
        True, _FLAG, section="worktrees", applies="next session",
        doc="Let agents and callers ask for a git worktree of their own.",
    )
    worktree_from_dirty: bool = setting(
        False, _FLAG, name="worktree.fromDirty", section="worktrees", applies="next run",
        doc="Begin worktrees with the uncommitted changes of the main checkout, as one commit.",
    )
    worktree_include: str = setting(
        ".worktreeinclude", Text("a file name"), name="worktree.include", section="worktrees", applies="next run",
        doc="The file in the checkout that lists, as .gitignore does, which ignored files are copied into worktrees.",
    )
    worktree_base_ref: Literal["head", "fresh"] = setting(
        "head", Choice("head", "fresh"), name="worktree.baseRef", section="worktrees", applies="next run",
        doc="Where worktrees begin: at HEAD, or at the remote's default branch, fetched once a day.",
    )
    worktree_shell: Literal["confined", "checked"] = setting(
        "confined", Choice("confined", "checked"), name="worktree.shell", section="worktrees", applies="next run",
        personal_when="checked".__eq__,
        doc="What becomes of the shell of an isolated agent on a host without a sandbox: it is withheld, or every "
        "command is checked, which stops accidents but not programs. `checked` counts only in your own settings.",
    )
    integrate_check: str | None = setting(
        None, Text("a command for the shell"), name="integrate.check", section="worktrees",
        doc="What must succeed before `retinue integrate` merges a branch; it runs in a copy with the branch in "
        "it. In a project's files it needs your consent.",
    )
# fmt: on
