"""The worktree drill: many isolated agents in one repository, and kill -9 at any moment.

    python -m tests.program.worktree_drill --runs 1000 --seed 7

Several supervisors at once work on the same checkout. Each is the real program with a scripted
model; its agents edit, commit, branch, stash, delete, leave changes uncommitted, fail. It is killed
at random moments, alone or with everything it started, and at chosen commands of git while
worktrees are made, saved and removed; then it is taken up again, or its worktrees are cleaned, or
both, and that is killed, too. What must be there at the end is known from the agents' own reports
and from looking at the disk after each kill; whether it is there is asked of git, not of Retinue.
"""
