"""The permissions of one run: rules, mode and what was granted on the way.

Judging is in judge.py, which is only loaded for calls that need it: a run that does nothing but
read in a project without rules never does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from retinue.core.lean import dataclass
from retinue.core.permission import Decision, ToolUse, Verdict
from retinue.core.spec import PermissionMode
from retinue.core.toolnames import TOOLS
from retinue.guard.permissions.place import Place
from retinue.guard.permissions.rule import Rule, names_tool, parse_rule

QUIET = frozenset({"read", "ask", "spawn"})
"""Effects that no mode asks about: started runs have a guard of their own."""
_READS = Decision("allow", "It changes nothing.", "mode")


@dataclass(frozen=True, slots=True)
class Limit:
    """What an agent's file lets a tool do: `Bash(git *)` among its tools. Anything else is no."""

    tool: str
    rules: tuple[Rule, ...]
    agent: str = ""


class Denials:
    """How often in a row, and in all, the mode auto was refused: then a person decides again."""

    IN_A_ROW = 3
    IN_ALL = 20

    __slots__ = ("in_a_row", "in_all")

    def __init__(self) -> None:
        self.in_a_row = self.in_all = 0

    def count(self, verdict: Verdict) -> None:
        if verdict == "deny":
            self.in_a_row += 1
            self.in_all += 1
        else:
            self.in_a_row = 0

    @property
    def too_many(self) -> bool:
        return self.in_a_row >= self.IN_A_ROW or self.in_all >= self.IN_ALL


class Policy:
    """Implements `domain.permission.Permissions`. Not changed by calls; only `grant` adds."""

    __slots__ = (
        *("_grants", "_restricting", "denials", "limits", "masks", "mode", "own_rules", "place", "presets"),
        *("walls", "wary"),
    )

    def __init__(
        self,
        mode: PermissionMode,
        place: Place,
        rules: Iterable[Rule] = (),
        *,
        limits: Sequence[Limit] = (),
        grants: Sequence[Rule] = (),
        presets: bool = False,
        walls: bool = False,
        masks: bool = False,
    ) -> None:
        """`presets` adds what CodingCode forbids from the start. `walls`: commands that nobody
        allowed run inside the read-only walls. `masks`: the walls of every command hide and keep
        what rules about files forbid."""
        self.mode: PermissionMode = mode
        self.place = place
        self.limits = tuple(limits)
        self.presets = presets
        self.walls = walls
        self.masks = masks
        self.denials = Denials()
        self.own_rules = tuple(dict.fromkeys(rules))
        self._grants = list(grants)
        self._restricting = bool(limits) or any(rule.kind != "allow" for rule in self.own_rules)
        self.wary = any(rule.kind != "allow" and rule.specifier and "bash" in rule.tools for rule in self.own_rules)
        """Some commands are forbidden or asked about: others must not be a way around that."""

    @property
    def allowing(self) -> tuple[Rule, ...]:
        return (*(rule for rule in self.own_rules if rule.kind == "allow"), *self._grants)

    def decide(self, use: ToolUse) -> Decision:
        """Never raises. What breaks in here is asked about, or denied where nothing may be."""
        try:
            if not self._restricting and use.effects and use.effects <= QUIET and use.tool in TOOLS:
                return _READS
            from retinue.guard.permissions.judge import judge

            return judge(self, use)
        except Exception as error:  # noqa: BLE001 - a defect in here must not let anything through
            reason = f"The call could not be judged ({type(error).__name__})."
            return Decision("deny" if self.mode == "dontAsk" else "ask", reason, "unparsed", risk="high")

    def grant(self, rule: str) -> None:
        """ValueError for a text that is no rule."""
        made = parse_rule(rule, "allow", source="granted in this session", base=self.place.cwd)
        if isinstance(made, str):
            raise ValueError(f"{rule} {made}")
        self._grants.append(made)

    def fork(
        self,
        mode: PermissionMode,
        rules: Iterable[Rule] = (),
        *,
        place: Place | None = None,
        limits: Sequence[Limit] = (),
        presets: bool = False,
    ) -> Policy:
        """For a child: everything that restricts this run restricts it too, and what was granted
        so far holds. What is granted later, to either, the other does not have."""
        return Policy(
            mode,
            place or self.place,
            (*self.own_rules, *rules),
            limits=(*self.limits, *limits),
            grants=self._grants,
            presets=presets or self.presets,
            walls=self.walls,
            masks=self.masks,
        )

    def withheld(self) -> Callable[[str], bool] | None:
        """Tells of a file whether a rule forbids, or wants asked, that it is read: a search over
        a folder leaves such files out. None where no rule speaks of files."""
        rules = [rule for rule in self.own_rules if _is_about_reading(rule)]
        if not rules:
            return None
        from retinue.guard.permissions.marks import YES
        from retinue.guard.permissions.place import match_path

        place = self.place.now()
        return lambda path: any(match_path(rule, place, path) == YES for rule in rules)

    def hides(self, tool: str) -> Rule | None:
        """The rule that takes a tool away altogether, so that no model need see it."""
        denied = (rule for rule in self.own_rules if rule.kind == "deny" and rule.bare)
        return next((rule for rule in denied if names_tool(rule, tool)), None)


def _is_about_reading(rule: Rule) -> bool:
    named = rule.specifier is not None and not rule.specifier.startswith("domain:")
    return named and rule.kind != "allow" and "read" in rule.tools
