"""The launcher: it makes the sandbox of a plan around itself and then becomes another program.

    PLAN FOLDER PROGRAM ARGUMENT…

It carries out what `plan.py` has decided: namespaces, mounts, limits, Landlock, seccomp. The order matters, because
each step takes away rights that the earlier ones need. If a step fails, the program does not start: one line gives the
cause, and the exit code is 125.

It runs as `python -I -S` for each confined command, so it imports built-in modules only, and `_ctypes` instead of
`ctypes`, which would take five milliseconds. With namespaces there are three processes: this one, which waits; the
first process of the new process namespace, whose end kills all others in it; and the program."""

import posix
from time import time_ns

from .namespaces import (
    EXIT_NOT_STARTED,
    LISTENER_DESCRIPTOR,
    PR_SET_PDEATHSIG,
    SIG_DFL,
    SIGKILL,
    SandboxError,
    address,
    attempt,
    call,
    check_mounts,
    enter,
    enter_process_namespace,
    fork_and_wait,
    kill_descendants,
    mask_paths,
    numbers,
    open_exactly,
    open_path,
    pack_numbers,
    set_actions,
    socket_pair,
    try_write_file,
    write_all_ids,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

EXIT_NOT_FOUND = 127
_CAPABILITY_HEADER = (0x20080522).to_bytes(4, "little") + bytes(4)
_SYS_ADMIN = 1 << 21
_RLIMIT_FSIZE = 1
_PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 22, 36, 38
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 23, 24, 47, 4
_SIGPIPE, _SIGXFSZ = 13, 25
_SOCK_STREAM = 1
_STILL_MOUNTS = "the right to mount cannot be given up"
_NO_RULES = "Landlock does not take the rules of this sandbox"
_MAP_IDS, _DONE, _FAILED = b"i", b"x", b"-"


def main(plan: "dict[str, Any]", folder: str, argv: "list[str]") -> "NoReturn":
    try:
        numbers.update(plan["calls"])
        call("close_range", LISTENER_DESCRIPTOR + 1 if plan["proxy"] else LISTENER_DESCRIPTOR, 0xFFFFFFFF, 0)
        if plan["change"] == "all":
            mask(plan, folder)
        else:
            confine(plan, folder)
    except BaseException as error:  # noqa: BLE001 - after any error, nothing may run unconfined
        print_notice(explain(error))
        posix._exit(EXIT_NOT_STARTED)
    execute_program(argv)


def explain(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(cause, OSError):
        return f"{error} ({cause.strerror})"
    if isinstance(error, OSError):
        if error.filename:
            return f"{error.strerror}: {error.filename}"
        return str(error.strerror)
    return str(error) or type(error).__name__


def execute_program(argv: "list[str]") -> "NoReturn":
    try:
        posix.execve(argv[0], argv, posix.environ)
    except OSError as error:
        posix.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
    posix._exit(EXIT_NOT_FOUND)


def confine(plan: "dict[str, Any]", folder: str) -> None:
    end_with_parent()
    watcher = Watcher(plan)
    # When memory runs out, the kernel kills this first.
    try_write_file("/proc/self/oom_score_adj", "800")
    # Bubblewrap has made the mounts before it starts this.
    opened = check_mounts(plan) if plan["namespaces"] == "bubblewrap" else None
    if plan["namespaces"] in ("must", "try"):
        entered = enter(plan)
        if entered is None and plan["namespaces"] == "must":
            raise SandboxError("namespaces are not available here. See: retinue doctor")
        if entered is not None:
            opened, watcher.void = entered
    inside = opened is not None
    enter_folder(folder)
    check_quota(plan)
    where = "inside" if inside else "outside"
    if inside and not plan["own_processes"]:
        where = "among others"
    # Before any fork: after one, each page that is written has to be copied.
    rules = landlock_rules(plan, where, opened or {})
    if inside and plan["namespaces"] != "bubblewrap" and plan["own_processes"]:
        watcher.alone = True
        enter_process_namespace(plan, watcher)
    elif watcher.needed:
        fork_and_wait(watcher)
    restrict(plan, rules, plan["seccomp"]["inside" if inside else "outside"])


def end_with_parent() -> None:
    """End all processes of a command when Retinue itself is killed."""
    parent = posix.getppid()
    call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    # Retinue ended between the two calls, and the kernel will send no signal any more.
    if posix.getppid() != parent:
        posix._exit(EXIT_NOT_STARTED)


class Watcher:
    """Stays outside while a program runs. It renews masks and enforces limits, and afterwards disables files that the
    program has left for git to run."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        self._plan = plan
        # Files carry the time of the last tick of the kernel's clock.
        self._began = time_ns() - 20_000_000
        self._child = 0
        self._stopped = False
        self.void = -1
        """The open folder of stand-ins, where this process may mount."""
        self.alone = False
        """Whether all processes that the program starts end with the child."""
        self._keeper = self._watch_bounds = self._group = None
        if plan["watched"]:
            from .keeper import MaskKeeper

            self._keeper = MaskKeeper(plan)
        if plan["memory_bytes"] or counted_scratch(plan):
            from .bounds import Group, watch

            self._watch_bounds = watch
            if plan["group"]:
                self._group = Group(plan)

    @property
    def needed(self) -> bool:
        return bool(self._keeper or self._watch_bounds or self._plan["workspaces"])

    def join(self) -> None:
        """Called in the child, before it does anything else."""
        if self._group is not None:
            self._group.join()

    def begin(self, child: int) -> None:
        """Called once, before this process waits for the child."""
        self._child = child
        plan = self._plan
        if not self.alone:
            # Processes that the program leaves running become children of this one.
            call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if self._watch_bounds is not None:
            taken = plan["scratch"], counted_scratch(plan), plan["memory_bytes"]
            self._watch_bounds(*taken, self.alone, self._group, self.stop)
        if self._keeper is not None:
            self._keeper.begin(self.void, self.stop)

    def stop(self, sentence: str) -> None:
        """End the program with all processes that it has started, and print the reason."""
        posix.kill(self._child, SIGKILL)
        if not self.alone:
            kill_descendants()
        print_notice(f"stopped. {sentence}")
        self._stopped = True

    def finish(self) -> None:
        """Called when the child has ended and, in a process namespace, all other processes."""
        if self._group is not None:
            sentence = self._group.close()
            if sentence and not self._stopped:
                print_notice(f"stopped. {sentence}")
        if self._keeper is not None:
            self._keeper.close()
        for root, known_files, hook_folders in self._plan["workspaces"]:
            from .git_files import disable_new_files

            for sentence in disable_new_files(root, known_files, self._began, hook_folders):
                print_notice(sentence)


def counted_scratch(plan: "dict[str, Any]") -> "int | None":
    """Return the limit of the scratch folder if it has to be counted; None if the kernel enforces it."""
    most: int | None = plan["scratch_bytes"]
    return None if plan["space"] else most


def check_quota(plan: "dict[str, Any]") -> None:
    """Let a program write nothing if the scratch folder is full. It can still remove files."""
    most = counted_scratch(plan)
    if not most:
        return
    from .bounds import scratch_complaint, used_bytes

    if used_bytes(plan["scratch"], most) > most:
        print_notice(f"nothing can be written. {scratch_complaint(most)}")
        plan["limits"] = [*plan["limits"], (_RLIMIT_FSIZE, 0)]
        # A program that writes gets the error that a file is too large, and goes on.
        plan["default_signals"] = (_SIGPIPE,)
        plan["scratch_bytes"] = None


def print_notice(sentence: str) -> None:
    posix.write(2, f"retinue sandbox: {sentence}\n".encode("utf-8", "replace"))


def enter_folder(folder: str) -> None:
    try:
        posix.chdir(folder)
    except OSError as error:
        raise SandboxError(f"the working directory {folder} cannot be entered") from error


def restrict(plan: "dict[str, Any]", rules: int, code: bytes) -> None:
    """Take the last steps in the process that becomes the program. None of them can be undone."""
    for number, most in plan["limits"]:
        call("prlimit64", 0, number, pack_numbers(most, most), 0)
    # Python ignores these.
    set_actions(plan.get("default_signals", (_SIGPIPE, _SIGXFSZ)), SIG_DFL)
    drop_capabilities(plan["capabilities"] if posix.geteuid() == 0 else 0)
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        call("landlock_restrict_self", rules, 0)
    except OSError as error:
        raise SandboxError(_NO_RULES) from error
    posix.close(rules)
    program = (len(code) // 8).to_bytes(8, "little") + address(code)
    call("prctl", _PR_SET_SECCOMP, 2, program, 0, 0)


def drop_capabilities(remaining: int) -> None:
    """Give up all capabilities but `remaining`, of which only those that this process holds can stay."""
    attempt("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        # A failure means that the kernel knows no more of them, or that this process may drop none.
        if not remaining >> capability & 1 and not attempt("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    for allowed in (remaining, remaining & permitted_capabilities(), 0):
        # In a container fewer may be held than are to be kept.
        if attempt("capset", _CAPABILITY_HEADER, capability_sets(allowed)):
            return
    raise SandboxError("capabilities cannot be given up")


def capability_sets(allowed: int) -> bytes:
    low, high = (allowed & 0xFFFFFFFF).to_bytes(4, "little"), (allowed >> 32).to_bytes(4, "little")
    return low + low + bytes(4) + high + high + bytes(4)


def permitted_capabilities() -> int:
    sets = bytes(24)
    # The kernel writes the low halves of three sets there, and then the high ones.
    call("capget", _CAPABILITY_HEADER, sets)
    return int.from_bytes(sets[4:8] + sets[16:20], "little")


def landlock_rules(plan: "dict[str, Any]", where: str, opened: "dict[str, int]") -> int:
    """Return a descriptor of the plan's rules. `opened` holds the open writable paths, which are closed."""
    if where not in plan["landlock"]:
        raise SandboxError("the workspace holds the folder for temporary files, and namespaces are not available here")
    handled: bytes = plan["landlock"][where]["handled"]
    try:
        rules = call("landlock_create_ruleset", handled, len(handled), 0)
    except OSError as error:
        raise SandboxError(_NO_RULES) from error
    for path, access, identity in plan["landlock"][where]["rules"]:
        location = opened.pop(path, -1)
        if location < 0:
            location = open_for_rule(path, identity)
        # A path that does not exist needs no permission.
        if location >= 0:
            attempt("landlock_add_rule", rules, 1, (access | location << 64).to_bytes(12, "little"), 0)
            posix.close(location)
    return rules


def open_for_rule(path: str, identity: "tuple[int, int] | None") -> int:
    """Return -1 for a path that is gone, and for a path that leads elsewhere and may only be read."""
    try:
        # Links of the system: /dev/stdin.
        if path.startswith("/dev/"):
            return open_path(path)
        return open_exactly(path, identity)
    except OSError:
        return -1
    except SandboxError:
        if identity is None:
            return -1
        raise


def mask(plan: "dict[str, Any]", folder: str) -> None:
    """Hide and protect paths from a program that is otherwise free. The program cannot undo that: it has no right to
    mount, and in a user namespace that it makes these mounts are locked. Processes outside belong to another user
    namespace, so the program cannot enter their mount namespaces."""
    if plan["namespaces"] == "bubblewrap":
        watcher = Watcher(plan)
        check_mounts(plan)
        enter_folder(folder)
        if watcher.needed:
            fork_and_wait(watcher)
        scope_sockets(plan["scope"])
        return
    watcher = OutsideWatcher(plan)
    if watcher.needed or posix.geteuid() == 0:
        fork_and_wait(watcher)
    alone = mask_paths(plan, watcher.map_ids)
    enter_folder(folder)
    scope_sockets(plan["scope"])
    if alone:
        enter_process_namespace(plan, None)
    drop_powers(plan["powers_over_masks"] if alone else _SYS_ADMIN)
    watcher.release()
    set_actions((_SIGPIPE, _SIGXFSZ), SIG_DFL)


class OutsideWatcher(Watcher):
    """Stays outside of the user namespace of a free program, which therefore cannot trace it, and enters the program's
    mount namespace when its mounts are complete."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        super().__init__(plan)
        self._outer, self._inner = socket_pair(_SOCK_STREAM)

    def map_ids(self) -> bool:
        """Called in the program's process, in its new user namespace."""
        posix.write(self._inner, _MAP_IDS)
        return posix.read(self._inner, 1) == _DONE

    def release(self) -> None:
        """Called in the program's process when its mounts are complete."""
        posix.write(self._inner, _DONE)

    def begin(self, child: int) -> None:
        posix.close(self._inner)
        while request := posix.read(self._outer, 1):
            if request == _DONE:
                if self.needed and self._enter(child):
                    super().begin(child)
                return
            posix.write(self._outer, _DONE if write_all_ids(child) else _FAILED)

    def _enter(self, child: int) -> bool:
        """Return False if the program has ended already."""
        # Root has all rights over the other namespace from here.
        for name in ("mnt",) if posix.geteuid() == 0 else ("user", "mnt"):
            try:
                space = posix.open(f"/proc/{child}/ns/{name}", posix.O_RDONLY | posix.O_CLOEXEC)
            except FileNotFoundError:
                return False
            call("setns", space, 0)
            posix.close(space)
        self.void = open_path(self._plan["void"])
        return True


def scope_sockets(scope: bytes) -> None:
    """Keep a program from the abstract sockets of processes outside."""
    if scope:
        rules = call("landlock_create_ruleset", scope, len(scope), 0)
        call("landlock_restrict_self", rules, 0)
        posix.close(rules)


def drop_powers(powers: int) -> None:
    attempt("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(powers.bit_length()):
        if powers >> capability & 1:
            attempt("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
            if is_in_bounds(capability):
                raise SandboxError(_STILL_MOUNTS)
    if not attempt("capset", _CAPABILITY_HEADER, capability_sets(permitted_capabilities() & ~powers)):
        raise SandboxError(_STILL_MOUNTS)


def is_in_bounds(capability: int) -> bool:
    try:
        return call("prctl", _PR_CAPBSET_READ, capability, 0, 0, 0) == 1
    except OSError:
        # The kernel does not know it.
        return False
