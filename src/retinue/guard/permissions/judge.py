"""The judgement of one call: allowed, asked about, denied, or run inside the read-only sandbox.

The first of these that answers decides: deny rules; limits of the agent's file; ask rules; critical deletions; texts
that a rule may be about; bypass for a command, whose sandbox protects files; protected paths; bypass for any other
tool; allow rules and the mode. Any other call runs inside the read-only sandbox, if this host has one and the
sandbox would not stop the call for certain; otherwise it is asked about, or denied where nobody may
be asked. `suggestion` is the narrowest rule that would have allowed a call. The answer "always" stores it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from retinue.core.permission import Decision, Judge, Risk, Ruling, ToolUse, Verdict
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions.call import JudgedCall
from retinue.guard.permissions.coverage import (
    Coverage,
    critical,
    mentions_deletion,
    protected_write,
    stopped_by_walls,
)
from retinue.guard.permissions.locations import below
from retinue.guard.permissions.match import allowed_form, allows, restricts, starts_others
from retinue.guard.permissions.modes import SOURCE, protected_name
from retinue.guard.permissions.policy import QUIET, PermissionPolicy
from retinue.guard.permissions.rule import FETCHING, HOLE, MAYBE, NO, YES, Limit, Rule, is_known, match, shown
from retinue.guard.permissions.shell_commands import operands
from retinue.guard.permissions.shell_step import INTERPRETERS, SHELLS, Script, Step

_SPECIAL = re.compile(r"([*?\[\]\\!#])")
_DEPTH = {
    **dict.fromkeys(("git", "cargo", "go", "docker", "kubectl", "gh", "brew", "apt", "terraform", "helm"), 2),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun", "pip", "pip3", "uv", "poetry", "dotnet", "rustup", "make"), 2),
}
_RUNNING = frozenset({"npm run", "yarn run", "pnpm run", "bun run", "uv run", "poetry run", "docker compose"})
_ANYTHING = frozenset(
    "docker run|docker exec|kubectl exec|kubectl run|npm exec|npm x|pnpm exec|pnpm dlx|yarn exec|yarn dlx|bun x|uv tool"
    "|go run|gh api|gh alias|git config|git bisect|git submodule|git filter-branch".split("|")
)
"""Programs whose further words are a command or can become one."""
_NEVER_WIDE = (
    SHELLS | INTERPRETERS.keys() | {"rm", "sudo", "doas", "su", "eval", "dd", "chmod", "chown", "curl", "wget"}
)


def suggestion(call: JudgedCall, coverage: Coverage | None) -> str | None:
    """Return the narrowest rule that allows the call; None if no single rule can or should allow it."""
    if call.is_shell:
        return _of_command(call, coverage) if coverage is not None else None
    if call.is_foreign:
        return call.tool
    if call.writes:
        return f"Edit({_pattern(call.paths[0], call)})" if len(call.paths) == 1 else None
    if call.hosts:
        return f"WebFetch(domain:{call.hosts[0]})" if len(call.hosts) == 1 and call.hosts[0] != HOLE else None
    return call.tool


def _of_command(call: JudgedCall, coverage: Coverage) -> str | None:
    if call.script.doubts:
        return None
    rules = set(map(_of_step, coverage.open_steps))
    for file in coverage.open_files:
        rules.add(f"{'Edit' if file.writes else 'Read'}({_pattern(file.path, call)})")
    return rules.pop() if len(rules) == 1 else None


def _of_step(step: Step) -> str | None:
    while step.transparent and len(step.inner) == 1:
        step = step.inner[0]
    text = allowed_form(step)
    if step.inner or step.assigned or starts_others(step) or not is_known(text) or not text.isprintable():
        return None
    name = step.plain_name
    depth = _DEPTH.get(name, 1)
    words = step.words[:depth]
    if " ".join(words) in _RUNNING:
        words = step.words[: depth + 1]
    plain = all(re.fullmatch(r"[\w.:/@+-]+", word) and not word.startswith("-") for word in words)
    exact = name in _NEVER_WIDE or " ".join(words) in _ANYTHING
    # A rule with a wildcard is only offered for programs whose second word says what they do.
    if exact or not name or not plain or depth == 1:
        if "*" not in text and ")" not in text[-1:]:
            return f"Bash({text})"
        return None
    return f"Bash({' '.join(words)}:*)"


def _pattern(path: str, call: JudgedCall) -> str:
    """Return a path as a pattern for itself alone: from the working directory if it is in there."""
    absolute = call.folders.absolute(path)
    inside = below(absolute, call.folders.cwd)
    text = f"/{inside}" if inside else f"/{absolute}"
    return _SPECIAL.sub(r"\\\1", text)


def _explain_git(call: JudgedCall) -> str:
    programs = call.git_programs
    if programs is None:
        return ""
    what = "; ".join(programs.what[:2])
    return f" Git would start a program by itself ({what}). Consent with: retinue trust add {programs.path}."


def judge(policy: PermissionPolicy, use: ToolUse) -> Decision:
    return _Judgement(policy).judge(JudgedCall(use, policy.folders, masked=policy.masks))


class _Judgement:
    def __init__(self, policy: PermissionPolicy) -> None:
        self._policy = policy
        self._mode = policy.mode

    def judge(self, call: JudgedCall) -> Decision:
        denied, doubtful = self._apply_restrictions(call, "deny")
        if denied is not None:
            return denied
        outside = self._outside_limits(call)
        if outside is not None:
            return outside
        asked, unsure = self._apply_restrictions(call, "ask")
        if asked is not None:
            return asked
        if call.is_shell:
            return self._judge_command(call, doubtful or unsure)
        return self._judge_tool(call, doubtful or unsure)

    def _apply_restrictions(self, call: JudgedCall, kind: str) -> tuple[Decision | None, Rule | None]:
        """Return the decision of the first rule that matches for certain, and the first rule that may match."""
        doubtful: Rule | None = None
        for rule in self._policy.own_rules:
            if rule.kind != kind:
                continue
            answer = restricts(rule, call)
            if answer != NO and rule.unless and _fits(call, rule.unless):
                continue
            if answer == YES:
                verdict: Verdict = "deny" if kind == "deny" else "ask"
                words = "forbids this" if kind == "deny" else "wants this asked"
                return self._decision(verdict, call, f"The rule {rule.text} {words}.", "rule", rule.source), None
            if answer == MAYBE and doubtful is None:
                doubtful = rule
        if kind == "deny" and self._policy.presets and call.is_shell:
            danger = preset_denial(call.script)
            if danger is not None:
                return self._decision("deny", call, f"Forbidden from the start: {danger}.", "rule", SOURCE), None
        return None, doubtful

    def _outside_limits(self, call: JudgedCall) -> Decision | None:
        for limit in self._policy.limits:
            if not _is_limited(limit, call):
                continue
            if not _fits(call, limit.rules):
                listed = ", ".join(rule.text for rule in limit.rules) or "no call of this tool"
                reason = f"The file of this agent allows only {listed}."
                return self._decision("deny", call, reason, "rule", limit.agent)
        return None

    def _judge_command(self, call: JudgedCall, doubtful: Rule | None) -> Decision:
        script = call.script
        # A read-only sandbox stops whatever rules of the mode would ask about.
        if call.confined and doubtful is None:
            return self._judge_confined(call)
        vital = critical(script, call.folders, call.bases)
        if vital is not None:
            return self._decision("ask", call, f"Never without asking: {vital}.", "critical", risk="high")
        bypass = self._mode == "bypassPermissions"
        if doubtful is not None:
            unread = bypass and bool(script.doubts) and "bash" in doubtful.tools
            about = f"it may be what the rule {doubtful.text} is about"
            why = f"{script.doubts[0]}, so {about}" if script.doubts else about
            return self._unclear(call, why, doubtful.source, deny=unread)
        if bypass:
            if script.doubts and mentions_deletion(call.text):
                return self._unclear(call, f"{script.doubts[0]}, and it may delete files")
            return self._allow_covered(call, (), "The mode is bypassPermissions.")
        if script.doubts:
            return self._unread(call, script.doubts[0])
        path = protected_write(call)
        if path is not None:
            return self._decision("ask", call, f"It changes the protected {path}.", "protected", risk="high")
        return self._by_mode_or_rules(call)

    def _judge_confined(self, call: JudgedCall) -> Decision:
        """Ask only about programs of the repository's that git would start: the sandbox does not stop them."""
        if self._mode == "bypassPermissions" or call.git_programs is None:
            return self._allow_inside(call, "It runs inside the read-only walls.")
        coverage = Coverage(call, self._policy.allowing, wary=self._policy.wary)
        if coverage.complete and not coverage.only_reads:
            return self._allow_inside(call, "A rule allows it, inside the read-only walls.")
        return self._question(call, f"No rule allows {shown(call.text)}.{_explain_git(call)}", coverage)

    def _unread(self, call: JudgedCall, doubt: str) -> Decision:
        """Decide about a text that cannot be judged. Inside the sandbox it need not be."""
        if not self._policy.walls:
            return self._unclear(call, doubt)
        everything = [rule for rule in self._policy.allowing if "bash" in rule.tools and rule.specifier is None]
        if not everything or self._mode == "plan":
            if call.git_programs is not None:
                return self._question(call, f"It cannot be judged: {doubt}.{_explain_git(call)}")
            return self._allow_inside(call, f"It cannot be judged ({doubt}), so it runs inside the read-only walls.")
        if mentions_deletion(call.text):
            return self._unclear(call, f"{doubt}, and it may delete files")
        return self._allow_covered(call, everything[:1], "")

    def _by_mode_or_rules(self, call: JudgedCall) -> Decision:
        planning = self._mode == "plan"
        allow = () if planning else self._policy.allowing
        edits = self._mode == "acceptEdits"
        coverage = Coverage(call, allow, wary=self._policy.wary, edits=edits)
        if coverage.complete and not coverage.only_reads:
            return self._allow_covered(call, coverage.rules, "The mode accepts edits in the working directories.")
        quiet = call.git_programs is None and not stopped_by_walls(call, coverage)
        if self._policy.walls and (coverage.complete or quiet):
            return self._allow_inside(call, "Nobody was asked, so it runs inside the read-only walls.", coverage)
        if coverage.complete:
            return self._decision("allow", call, "It only reads.", "mode")
        if planning:
            return self._decision("deny", call, _PLANNING + _explain_git(call), "mode")
        parts = [shown(step.text) for step in coverage.open_steps]
        parts += (f"{'writing' if file.writes else 'reading'} {shown(file.path)}" for file in coverage.open_files)
        reason = f"No rule allows {'; '.join(parts[:3])}."
        return self._question(call, reason + _explain_git(call), coverage)

    def _allow_inside(self, call: JudgedCall, reason: str, coverage: Coverage | None = None) -> Decision:
        """Allow it inside the sandbox; once that has stopped it, ask to run it outside."""
        if call.stopped:
            return self._question(call, f"It was {call.stopped}.", coverage)
        return self._decision("confine", call, reason, "walls")

    def _names(self, protected: str, call: JudgedCall) -> bool:
        """Return whether an allow rule names what is protected, so that nobody can have meant less."""
        return any(protected in (rule.specifier or "").lower() and allows(rule, call) for rule in self._policy.allowing)

    def _judge_tool(self, call: JudgedCall, doubtful: Rule | None) -> Decision:
        if doubtful is not None:
            return self._unclear(call, f"it may be what the rule {doubtful.text} is about", doubtful.source)
        # A foreign tool that starts programs, or declares nothing, may write as well.
        if "write" in (call.subjects if call.is_foreign else call.effects):
            for path in call.paths:
                name = protected_name(path, call.folders)
                if name is not None and not self._names(name, call):
                    return self._decision("ask", call, f"It changes the protected {name}.", "protected", risk="high")
        if self._mode == "bypassPermissions":
            return self._decision("allow", call, "The mode is bypassPermissions.", "mode")
        effects = call.effects
        if "network" in effects and call.paths and not call.hosts and not call.is_foreign:
            # It reads a file; from then on the run has something that it could send.
            effects, self._policy.web_unasked = effects - {"network"}, False
        # A tool without effects that nobody knows may still do anything.
        quiet = effects <= QUIET and not call.is_server and bool(call.effects or call.tool in TOOL_EFFECTS)
        if self._mode == "plan" and not quiet and call.effects & {"write", "execute"}:
            return self._decision("deny", call, _PLANNING, "mode")
        rules = [rule for rule in self._policy.allowing if allows(rule, call)]
        if rules:
            return self._allow_covered(call, rules[:1], "")
        if quiet:
            return self._decision("allow", call, "It changes nothing.", "mode")
        if self._policy.web_unasked and call.tool in FETCHING:
            return self._decision("allow", call, "The run can read nothing here that it could send.", "mode")
        if self._mode == "acceptEdits" and _edits_inside(call):
            return self._decision("allow", call, "The mode accepts edits in the working directories.", "mode")
        return self._question(call, f"No rule allows {call.tool}.")

    def _allow_covered(self, call: JudgedCall, rules: Sequence[Rule], otherwise: str) -> Decision:
        if call.stopped:
            return self._question(call, f"It was {call.stopped}.")
        if not rules:
            return self._decision("allow", call, otherwise, "mode")
        named = ", ".join(rule.text for rule in rules)
        return self._decision("allow", call, f"Allowed by {named}.", "rule", rules[0].source)

    def _unclear(self, call: JudgedCall, doubt: str, source: str = "", *, deny: bool = False) -> Decision:
        verdict: Verdict = "deny" if deny else "ask"
        remedy = " Write it as plain commands, without variables and substitutions." if call.script.doubts else ""
        return self._decision(verdict, call, f"It cannot be judged: {doubt}.{remedy}", "unparsed", source, risk="high")

    def _question(self, call: JudgedCall, reason: str, coverage: Coverage | None = None) -> Decision:
        decision = self._decision("ask", call, reason, "mode", risk=_risk(call))
        if decision.verdict != "ask":
            return decision
        facts = {**decision.facts, "classify": True} if self._mode == "auto" else decision.facts
        return replace(decision, rule=suggestion(call, coverage), facts=facts)

    def _decision(
        self, verdict: Ruling, call: JudgedCall, reason: str, by: Judge, source: str = "", risk: Risk = "low"
    ) -> Decision:
        if verdict == "ask" and self._mode == "dontAsk":
            verdict, reason = "deny", f"{reason} The mode is dontAsk."
        return Decision(verdict, reason, by, source, risk, facts=_facts(call) if verdict in ("ask", "deny") else {})


def _edits_inside(call: JudgedCall) -> bool:
    """Return whether it only changes files, all of them in working directories."""
    if not call.writes or not call.effects <= {"read", "write"} or not call.paths:
        return False
    seen = not call.is_foreign or not call.is_too_large
    return seen and all(map(call.folders.inside, (*call.paths, *call.suspects)))


def _is_limited(limit: Limit, call: JudgedCall) -> bool:
    """Return whether a limit is about a call: by the name of its tool or, for a tool of a plugin or a program that the
    file does not name, by its effect. Tools of servers have names that files can use."""
    if limit.tool == call.tool:
        return True
    if not call.is_foreign or call.is_server or limit.effect not in call.possible:
        return False
    return all(match(pattern, call.tool.lower()) == NO for pattern in limit.named)


def _fits(call: JudgedCall, rules: Sequence[Rule]) -> bool:
    """Return whether these rules of the agent's file cover the whole call."""
    if call.is_shell:
        if call.script.doubts or not call.script.steps:
            return False
        return not Coverage(call, rules, wary=False, reads=False).open_steps
    return any(allows(rule, call) for rule in rules)


_PLANNING = "The mode is plan: look and think, change nothing. Describe what you would do instead."


def _risk(call: JudgedCall) -> Risk:
    far = call.is_shell or call.is_server or "execute" in call.effects
    return "medium" if far or not all(map(call.folders.inside, call.paths)) else "low"


def _facts(call: JudgedCall) -> Mapping[str, Any]:
    if call.is_shell:
        script = call.script
        writes = [shown(file.path) for file in script.opened if file.writes]
        facts = {"commands": [shown(step.text) for step in script.all_steps()[:20]]}
        return facts | {name: values for name, values in (("writes", writes), ("doubts", [*script.doubts])) if values}
    if call.paths:
        return {"paths": list(chain.from_iterable(map(call.folders.forms, call.paths[:5])))}
    if call.hosts:
        return {"hosts": list(call.hosts)}
    return {}


_FETCHERS = frozenset({"curl", "wget", "fetch", "http", "aria2c"})


def preset_denial(script: Script) -> str | None:
    """Return a description of an action that patterns of words cannot forbid: a download that a shell runs, a set-uid
    bit as a number, a deletion of the root with options in any order."""
    steps = script.all_steps()
    if script.doubts:
        return None
    if script.names() & _FETCHERS and any(step.name in SHELLS and not step.inner for step in steps):
        return "a download is handed to a shell"
    for step in steps:
        if step.name == "chmod" and any(map(_set_uid, step.words[1:])):
            return "chmod makes a program run with the rights of its owner"
        if step.name == "rm" and {"/", "/\1"} & set(operands(step)):
            return "rm deletes the root of the file system"
    return None


def _set_uid(mode: str) -> bool:
    if mode.isdigit():
        return len(mode) >= 4 and mode[-4] in "4567"
    clauses = [clause for clause in mode.split(",") if clause[:1] in "uoag+="]
    return any("s" in clause.partition("+")[2] + clause.partition("=")[2] for clause in clauses)
