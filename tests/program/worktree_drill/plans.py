"""What each agent of the drill does: a few calls, chosen by its number.

A file that an agent makes has a name and a content of its own and is never changed again, so that
whatever was once there must still be there at the end, however often the agent was interrupted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal

FILES = {
    "src/app.py": "print('hello')\n",
    "docs/one.md": "One.\n",
    "docs/two.md": "Two.\n",
    "README.md": "A project.\n",
    ".gitignore": "*.log\nbuild/\n",
}
Kind = Literal["plain", "wanderer", "idle", "nested", "boss"]
KINDS: tuple[tuple[Kind, float], ...] = (
    ("plain", 0.46), ("wanderer", 0.34), ("idle", 0.06), ("nested", 0.04), ("boss", 0.10),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One call. If it succeeded, files with `contents` exist and the paths in `gone` do not."""

    tool: str
    arguments: dict[str, Any]
    contents: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """`fails`: its provider refuses it at the end. `gone` holds at the end if every step succeeded."""

    kind: Kind
    steps: tuple[Step, ...] = field(default=())
    fails: bool = False


def plan_of(seed: int, name: str, port: int, *, inner: bool = False) -> Plan:
    """The plan of agent `name`; `port` is where its commands report to."""
    chosen = random.Random(f"{seed} {name}")
    kind = chosen.choices([kind for kind, _ in KINDS], [share for _, share in KINDS])[0]
    kind = "plain" if inner and kind in ("boss", "nested") else kind
    make = _Steps(name, port, chosen)
    steps = {"plain": make.plain, "wanderer": make.wanderer, "idle": make.idle, "nested": make.nested,
             "boss": make.boss}[kind]()  # fmt: skip
    return Plan(kind, tuple(steps), fails=chosen.random() < 0.1)


class _Steps:
    def __init__(self, name: str, port: int, chosen: random.Random) -> None:
        self.name, self.port, self.chosen = name, port, chosen
        self.count = 0

    def mark(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    def shell(self, command: str, gone: tuple[str, ...] = ()) -> Step:
        """A command that may call `note`, which reports to the drill before the next thing happens."""
        wait = self.chosen.choice(["", "", "sleep 0.05; ", "sleep 0.2; "])
        note = f'note() {{ echo "$*" of {self.name} > /dev/tcp/127.0.0.1/{self.port}; }}; '
        note += "head() { git rev-parse HEAD; }; "
        return Step("bash", {"command": note + "set -e; " + wait + command + "; echo all done"}, gone=gone)

    def commit(self) -> Step:
        mark = self.mark()
        return self.shell(f"echo {mark} > c-{mark}; git add -A; git commit -qm {mark}; note commit $(head)")

    def quiet_commit(self) -> Step:
        """Reported before any ref has it."""
        mark = self.mark()
        made = f"c=$(git commit-tree -p HEAD -m {mark} $(git write-tree))"
        return self.shell(f"echo {mark} > q-{mark}; git add -A; {made}; note commit $c; git update-ref HEAD $c")

    def dirt(self) -> Step:
        mark = self.mark()
        return self.shell(
            f"mkdir -p deep/er; echo {mark} > deep/er/d-{mark}; note blob $(git hash-object deep/er/d-{mark})"
        )

    def write(self) -> Step:
        mark = self.mark()
        return Step("write", {"path": f"w-{mark}", "content": f"{mark}\n"}, contents=(f"{mark}\n",))

    def edit(self) -> list[Step]:
        arguments = {"path": "src/app.py", "edits": [{"old": "hello", "new": self.name}]}
        return [Step("read", {"path": "src/app.py"}), Step("edit", arguments, contents=(f"print('{self.name}')\n",))]

    def remove(self) -> Step:
        path = self.chosen.choice(["docs/one.md", "docs/two.md"])
        return self.shell(f"{self.chosen.choice(['rm', 'git rm -q'])} {path}", gone=(path,))

    def ignored(self) -> Step:
        return self.shell(
            f"echo {self.name} > {self.name}.log; mkdir -p build/a; echo x > build/a/x; chmod 500 build/a || true"
        )

    def leaves_running(self) -> Step:
        return self.shell("(sleep 61 &) ; sleep 0.1")

    def side(self) -> Step:
        mark = self.mark()
        made = f"echo {mark} > s-{mark}; git add s-{mark}; git commit -qm {mark}; note commit $(head)"
        return self.shell(f"git checkout -q -b side-{mark}; {made}")

    def abandon(self) -> Step:
        mark = self.mark()
        return self.shell(f"git checkout -q --detach HEAD~1 || git checkout -q --detach; echo {mark} > l-{mark}; "
                          f"git add l-{mark}; git commit -qm {mark}; note commit $(head)")  # fmt: skip

    def amend(self) -> Step:
        mark = self.mark()
        return self.shell(f"note commit $(head); echo {mark} > a-{mark}; git add a-{mark}; "
                          f"git commit -q --amend -m {mark}; note commit $(head)")  # fmt: skip

    def retry_calls(self) -> Step:
        mark = self.mark()
        return self.shell(f"echo {mark} > t-{mark}; git stash push -q -u; note commit $(git rev-parse refs/stash)")

    def conflict(self) -> Step:
        mark = self.mark()
        return self.shell(
            f"h=$(head); git checkout -q -b left-{mark}; echo {mark} left > README.md; git commit -qam l; "
            f"note commit $(head); git checkout -q --detach $h; echo {mark} right > README.md; "
            f"git commit -qam r; note commit $(head); git merge -q left-{mark} || true"
        )

    def pack(self) -> Step:
        return self.shell("git repack -qd; git pack-refs --all")

    def plain(self) -> list[Step]:
        makers = [self.commit, self.quiet_commit, self.dirt, self.write, self.ignored, self.leaves_running]
        steps = [make() for make in self.chosen.choices(makers, [4, 2, 4, 4, 2, 1], k=self.chosen.randint(1, 4))]
        if self.chosen.random() < 0.4:
            steps += self.edit()
        if self.chosen.random() < 0.3:
            steps.append(self.remove())
        if self.chosen.random() < 0.5:
            steps.append(self.chosen.choice([self.dirt, self.write])())
        return steps

    def wanderer(self) -> list[Step]:
        ways = [
            self.commit,
            self.side,
            self.abandon,
            self.amend,
            self.retry_calls,
            self.pack,
            self.dirt,
            self.quiet_commit,
        ]
        steps = [self.commit()]
        steps += [make() for make in self.chosen.sample(ways, self.chosen.randint(2, 4))]
        return [*steps, self.conflict()] if self.chosen.random() < 0.15 else steps

    def idle(self) -> list[Step]:
        return [Step("read", {"path": "README.md"}), self.ignored()][: self.chosen.randint(1, 2)]

    def nested(self) -> list[Step]:
        """Another repository inside: its directory must stay until a person has looked."""
        return [self.commit(), self.shell("git init -q inner; echo i > inner/i"), self.dirt()]

    def boss(self) -> list[Step]:
        call = {"prompt": f"inner job {self.name}", "description": f"inner job {self.name}", "isolation": "worktree",
                "subagent_type": "general-purpose", "run_in_background": False}  # fmt: skip
        return [self.commit(), Step("Agent", call), self.dirt()]
