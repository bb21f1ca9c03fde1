"""The confinement of one run, as tools use it."""

from __future__ import annotations

import logging
import marshal
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.errors import ConfigurationError
from retinue.guard.sandbox.control_groups import group_place
from retinue.guard.sandbox.environment import confined_environment, find_hidden_install, tool_roots, with_proxy
from retinue.guard.sandbox.holder import ScratchHolder, fits_in_memory
from retinue.guard.sandbox.inside.git_files import disable_new_files
from retinue.guard.sandbox.kernel import Machine, machine
from retinue.guard.sandbox.plan import Scratch, find_workspaces, is_current, launcher_modules, make_plan
from retinue.guard.sandbox.policy import (
    SandboxPolicy,
    bubblewrap_works,
    confining_arguments,
    find_stop,
    masking_arguments,
    restriction,
)
from retinue.guard.sandbox.view import in_python, launcher, module_code

_log = logging.getLogger(__name__)

PROXY_PORT = 3128


class Box:
    """Starts programs inside a policy. Its folders are made when the first program starts, and removed by `close`."""

    def __init__(self, policy: SandboxPolicy, run_id: str = "none") -> None:
        here = machine()
        if here is None and sys.platform != "darwin":
            raise ConfigurationError("This system cannot confine programs.", remedy="See: retinue doctor")
        # Nothing would be left to confine.
        if policy.change == "listed" and any(os.path.realpath(path) == "/" for path in policy.writable):
            raise ConfigurationError(
                "The whole file system cannot be the workspace of a confined program.",
                remedy="Start in a project's folder, or set sandbox.mode to readonly-only.",
            )
        self.policy = policy
        self._machine = here
        self._run_id = run_id
        self._plans = 0
        self._holder: ScratchHolder | None = None
        self._began = time.time_ns()

    @property
    def readonly(self) -> bool:
        """Return whether programs can make no lasting change and have no network."""
        policy = self.policy
        return policy.change == "listed" and not policy.writable and policy.network == "off"

    @property
    def notice(self) -> str:
        """Text that explains why something may not work."""
        network = self.policy.network
        reach = {"off": "; there is no network", "on": ""}.get(network) if isinstance(network, str) else None
        if reach is None:
            reach = f"; only these hosts can be reached: {', '.join(network)}"
        if self.policy.change == "all":
            return f"in this shell, files that rules deny look empty or cannot be changed{reach}"
        places = "the workspace and $TMPDIR" if self.policy.writable else "$TMPDIR"
        seen = "" if self.policy.reach == "all" else "; only the workspace and the system can be read"
        return f"this shell runs in a sandbox: only {places} can be written{seen}{reach}"

    def explain(self, shown: str, code: int | None) -> str:
        """Return what the sandbox kept a program from, judged by what it printed; "" if nothing."""
        policy = self.policy
        cause = find_stop(shown, code, listed=policy.change == "listed", system=policy.reach == "system")
        most = policy.limits.scratch_bytes
        if most is not None and "No space left on device" in cause:
            return f"stopped by the walls around this shell: {cause} ($TMPDIR holds {most >> 20} MB: sandbox.scratchMb)"
        if cause:
            return f"stopped by the walls around this shell: {cause} ({self.notice})"
        if code and policy.reach == "system":
            roots = [os.path.realpath(root) for root in (*policy.shown, *policy.writable)]
            cause = find_hidden_install(shown, tool_roots(policy.home, policy.path), roots)
        if cause:
            return f"stopped by the walls around this shell: {cause} (sandbox.shown can show it)"
        return ""

    @property
    def scratch(self) -> Path:
        return self._scratch.folder

    def update(self, policy: SandboxPolicy) -> None:
        """Start later programs inside another policy. The scratch folder stays."""
        if policy != self.policy:
            self.policy = policy
            self._forget_plan()

    def _forget_plan(self) -> None:
        self.__dict__.pop("_plan", None)
        self.__dict__.pop("_plan_file", None)

    def wrap(self, argv: Sequence[str], cwd: Path) -> list[str]:
        """Return the words that start a program inside the policy: the same ones if there is nothing to confine. If
        the sandbox cannot be made, they end with the exit code 125."""
        if self._machine is None:
            from retinue.guard.sandbox.seatbelt import in_seatbelt

            return in_seatbelt(self.policy, self.scratch, argv)
        if not is_current(self._plan) or (self._holder is not None and self._holder.lost):
            self._forget_plan()
        if not self._plan["needed"]:
            return list(argv)
        groups = group_place() if self._plan["group"] is not None else None
        if groups is not None:
            groups.prepare_join()
        folder = os.path.realpath(cwd)
        launched = [*launcher(), str(self._plan_file), folder, *argv]
        if self._plan["namespaces"] == "bubblewrap":
            arguments = masking_arguments if self.policy.change == "all" else confining_arguments
            return [*arguments(self._plan), *launched]
        hosts = self.policy.network
        if isinstance(hosts, tuple):
            return [*in_python("proxy"), ",".join(hosts), *launched]
        return launched

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        network = self.policy.network
        proxy = f"http://127.0.0.1:{PROXY_PORT}" if isinstance(network, tuple) else None
        if self.policy.change == "all":
            return with_proxy(environment, proxy)
        return confined_environment(
            environment, self.scratch, keep=self.policy.pass_environment, proxy=proxy, offline=network == "off"
        )

    def close(self) -> None:
        """Remove the scratch folder. Called at the end of the run, when none of its programs lives."""
        self._check_workspaces()
        # A box that started no program has made nothing.
        if "_scratch" in self.__dict__:
            if self._holder is not None:
                self._holder.close()
                self._holder = None
            self._scratch.remove()
            for name in ("_scratch", "_plan", "_plan_file"):
                self.__dict__.pop(name, None)

    def _check_workspaces(self) -> None:
        """Look again at what commands left for git. The launcher does so after each command, but may have been killed
        with it."""
        if "_scratch" not in self.__dict__:
            return
        writable = [os.path.realpath(path) for path in self.policy.writable]
        for folder in find_workspaces(writable, self.policy.readonly):
            for sentence in disable_new_files(folder.root, folder.known_files, self._began, folder.hook_folders):
                _log.warning("%s", sentence)

    @cached_property
    def _scratch(self) -> Scratch:
        return Scratch(self._run_id)

    @cached_property
    def _plan(self) -> dict[str, Any]:
        assert self._machine is not None
        policy = self.policy
        for folder in policy.shown:
            if not folder.exists():
                folder.mkdir(parents=True, mode=0o700)
        proxy = PROXY_PORT if isinstance(policy.network, tuple) else None
        if policy.namespaces == "try" and restriction() and bubblewrap_works() and proxy is None:
            policy = replace(policy, namespaces="bubblewrap")
        return make_plan(
            policy,
            self._machine,
            self.scratch,
            self._scratch.void,
            proxy=proxy,
            holder=self._hold(policy, self._machine),
        )

    def _hold(self, policy: SandboxPolicy, machine: Machine) -> ScratchHolder | None:
        """Start what holds the scratch folder in memory, if it is to be there and nothing does."""
        if self._holder is not None and self._holder.lost:
            self._holder.close()
            self._holder = None
        if self._holder is None and fits_in_memory(policy):
            self._holder = ScratchHolder(machine, self.scratch, policy.limits.scratch_bytes or 0)
        return self._holder

    @cached_property
    def _plan_file(self) -> Path:
        # marshal, because the launcher can read it without importing anything. The folder is private.
        self._plans += 1
        modules = [module_code(name) for name in launcher_modules(self._plan)]
        return self._scratch.keep(f"plan-{self._plans}", marshal.dumps((modules, self._plan)))
