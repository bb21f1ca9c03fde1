"""The confinement of one run, as tools use it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from retinue.errors import ConfigurationError
from retinue.guard.sandbox.bubblewrap import arguments, bubblewrap_works, restriction
from retinue.guard.sandbox.environment import confined_environment
from retinue.guard.sandbox.kernel import machine
from retinue.guard.sandbox.launcher import in_python, launcher
from retinue.guard.sandbox.plan import make_plan
from retinue.guard.sandbox.policy import Policy
from retinue.guard.sandbox.scratch import Scratch
from retinue.guard.sandbox.script import Script, script

PROXY_PORT = 3128


class Box:
    """Starts programs inside a policy. Nothing is made before the first of them, and `close`
    removes what was."""

    def __init__(self, policy: Policy, run_id: str = "none", *, start: Sequence[str] = ()) -> None:
        """`start` are the words that start a launcher, if not the quickest one that works here."""
        here = machine()
        if here is None:
            raise ConfigurationError("This system cannot confine programs.", remedy="See: retinue doctor")
        if any(os.path.realpath(path) == "/" for path in policy.writable):
            raise ConfigurationError(
                "The whole file system cannot be the workspace of a confined program.",
                remedy="Start in a project's folder, or set sandbox.mode to readonly-only.",
            )
        self.policy = policy
        self._machine = here
        self._run_id = run_id
        self._start = start
        self._written: dict[Path, Path] = {}

    @property
    def readonly(self) -> bool:
        """Whether programs can change nothing that lasts, and reach nobody."""
        return not self.policy.writable and self.policy.network == "off"

    @property
    def notice(self) -> str:
        """For whoever wonders why something did not work."""
        places = "the workspace and $TMPDIR" if self.policy.writable else "$TMPDIR"
        network = self.policy.network
        reach = {"off": "; there is no network", "on": ""}.get(network) if isinstance(network, str) else None
        if reach is None:
            reach = f"; only these hosts can be reached: {', '.join(network)}"
        return f"this shell runs in a sandbox: only {places} can be written{reach}"

    @property
    def scratch(self) -> Path:
        return self._scratch.folder

    def wrap(self, argv: Sequence[str], cwd: Path) -> list[str]:
        plan = self._written.get(cwd)
        if plan is None:
            plan = self._written[cwd] = self._scratch.keep(f"plan-{len(self._written)}", self._script.at(cwd))
        return [*self._before, *(self._start or launcher()), str(plan), *argv]

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        network = self.policy.network
        return confined_environment(
            environment,
            self.scratch,
            keep=self.policy.pass_environment,
            proxy=f"http://127.0.0.1:{PROXY_PORT}" if isinstance(network, tuple) else None,
            offline=network == "off",
        )

    def close(self) -> None:
        """Removes the scratch folder. Called at the end of the run, when none of its programs lives."""
        if "_scratch" in self.__dict__:
            self._scratch.remove()
            del self.__dict__["_scratch"]
            self.__dict__.pop("_plan", None)
            self.__dict__.pop("_script", None)
            self._written.clear()

    @cached_property
    def _scratch(self) -> Scratch:
        return Scratch(self._run_id)

    @cached_property
    def _plan(self) -> dict[str, Any]:
        network = self.policy.network
        for folder in self.policy.shown:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        proxy = PROXY_PORT if isinstance(network, tuple) else None
        policy = self.policy
        if policy.namespaces == "try" and restriction() and bubblewrap_works() and proxy is None:
            policy = replace(policy, namespaces="bubblewrap")
        return make_plan(policy, self._machine, self.scratch, self._scratch.void, proxy=proxy)

    @cached_property
    def _script(self) -> Script:
        return script(self._plan, self._machine)

    @property
    def _before(self) -> list[str]:
        if self._plan["namespaces"] == "bubblewrap":
            return arguments(self._plan)
        hosts = self.policy.network
        return [*in_python("retinue_proxy"), ",".join(hosts)] if isinstance(hosts, tuple) else []
