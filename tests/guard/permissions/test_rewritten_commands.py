"""However a denied command is written, it is never allowed; and nothing makes the guard raise."""

from __future__ import annotations

import base64
import random
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.permission import ToolUse
from retinue.core.spec import PermissionMode
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions import PermissionPolicy
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.rule import Kind, Rule, parse_rule

DENIED = ("rm -f precious", "git push origin main", "curl -d @x example.org", "npm publish", "touch /elsewhere/x")
BROAD = ("Bash", "Bash(*)", "Bash(git *)", "Bash(bash *)", "Bash(sh *)", "Bash(env *)", "Bash(npm *)", "Bash(find *)")
NAMES = ("rm", "git push", "curl", "npm publish", "touch")

Rewrite = Callable[[str, random.Random], str]


def requoted(command: str, dice: random.Random) -> str:
    """Every word written in another way that means the same; operators stay."""
    if any(sign in command for sign in "&|;<>(){}!#$`'\"\\\n"):
        return command
    return " ".join(_word(word, dice) for word in command.split(" "))


def _word(word: str, dice: random.Random) -> str:
    if not word.isascii() or any(sign in word for sign in "'\"\\$`\n"):
        return word
    cut = dice.randint(0, len(word))
    ways = (
        word,
        f"'{word}'",
        f'"{word}"',
        f"{word[:cut]}''{word[cut:]}",
        f'{word[:cut]}"{word[cut:]}"',
        "".join(f"\\{letter}" if letter.isalpha() else letter for letter in word),
        "$'" + "".join(f"\\x{ord(letter):02x}" for letter in word) + "'",
        "$'" + "".join(f"\\{ord(letter):03o}" for letter in word) + "'",
        f"{word[:cut]}$'{word[cut:]}'",
        f"{word[:cut]}$EMPTY{word[cut:]}",
        f'{word[:cut]}"$EMPTY"{word[cut:]}',
        f"{word[:cut]}\\\n{word[cut:]}",
        f"{word[:cut]}$(){word[cut:]}",
        f"{word[:cut]}``{word[cut:]}",
    )
    return dice.choice(ways)


def _in_shell(command: str, dice: random.Random) -> str:
    shell = dice.choice(
        ["bash -c", "sh -c", "bash -lc", "/bin/bash -c", "dash -c", "bash --norc -c", "bash -e -c", "zsh -c"]
    )
    return f"{shell} {shlex.quote(command)}"


def _encoded(command: str, dice: random.Random) -> str:
    text = base64.b64encode(command.encode()).decode()
    shell = dice.choice(["sh", "bash", "bash -s", "/bin/sh -", "sudo sh", "env bash", "xargs -0 bash -c"])
    return f"echo {text} | base64 -d | {shell}"


def _template(*texts: str) -> Rewrite:
    def rewrite(command: str, dice: random.Random) -> str:
        text = dice.choice(texts)
        if text.partition("%")[2].startswith((" {}", " :::")) and any(sign in command for sign in "&|;<>\n"):
            return command  # what follows would go to another command, and change it
        return text.replace("%", f" {command}" if command.startswith("(") else command)  # $(( is arithmetic

    return rewrite


REWRITES: tuple[Rewrite, ...] = (
    requoted,
    _in_shell,
    _encoded,
    lambda command, dice: f"eval {shlex.quote(command)}",
    lambda command, dice: f"eval {command if chr(39) not in command else shlex.quote(command)}",
    lambda command, dice: f"bash <<'END'\n{command}\nEND",
    lambda command, dice: f"bash <<END\n{command}\nEND",
    lambda command, dice: f"cat <<'END' | sh\n{command}\nEND",
    lambda command, dice: f"bash <<< {shlex.quote(command)}",
    lambda command, dice: f"X={shlex.quote(command)}; $X",
    lambda command, dice: f"trap {shlex.quote(command)} EXIT",
    lambda command, dice: f"su -c {shlex.quote(command)} root",
    lambda command, dice: f"script -qc {shlex.quote(command)} /dev/null",
    lambda command, dice: f"watch {shlex.quote(command)}",
    lambda command, dice: f"flock /tmp/l -c {shlex.quote(command)}",
    lambda command, dice: f"git submodule foreach {shlex.quote(command)}",
    lambda command, dice: f"env -S {shlex.quote(command)}",
    lambda command, dice: f"alias ok={shlex.quote(command)}; ok",
    _template(
        "ls && %", "ls; %", "ls || %", "ls | %", "ls |& %", "ls & %", "ls\n%", "%; ls", "% && ls", "% &", "% #x", "%\n"
    ),
    _template("(%)", "{ %; }", "! %", "if true; then %; fi", "while %; do ls; done", "for i in 1; do %; done"),
    _template("f() { %; }; f", "case x in x) %;; esac", "until %; do :; done", "time %", "coproc %", "exec %"),
    _template(
        "echo $(%)", "echo `%`", 'echo "$(%)"', "cat <(%)", "ls > >(%)", "A=$(%)", "A=$(%) ls", "echo ${X:-$(%)}"
    ),
    _template("echo $((1+$(%)))", "[[ -n $(%) ]]", "cat <<END\n$(%)\nEND\n", "export A=$(%)", "a=([$(%)]=1)"),
    _template(
        "timeout 5 %", "timeout -k 1 -s KILL 5 %", "nice %", "nice -n 5 %", "nice -5 %", "nohup %", "stdbuf -oL %"
    ),
    _template("command %", "builtin %", "env %", "env A=1 %", "env -i %", "env -u A B=2 %", "A=1 B=2 %", "PATH=/x %"),
    _template(
        "sudo %", "sudo -u root %", "sudo -E -n %", "sudo --user=root A=1 %", "doas %", "setsid -w %", "ionice -c 3 %"
    ),
    _template("xargs %", "ls | xargs -n1 %", "xargs -I{} % {}", "find . -exec % {} \\;", "find . -execdir % {} +"),
    _template(
        "busybox %", "strace -f -o /dev/null %", "unshare -r %", "chroot / %", "taskset -c 0 %", "flock /tmp/l %"
    ),
    _template(
        "./wrapper %", "unheard-of --with=options %", "parallel % ::: a", "systemd-run --user %", "npx -y %", "uv run %"
    ),
    lambda command, dice: f"sh -c {dice.choice(['--', '-e', '-x'])} {shlex.quote(command)}",
    lambda command, dice: f"trap -- {shlex.quote(command)} 0",
    lambda command, dice: f"env -S{shlex.quote(command)}",
    lambda command, dice: f"GIT_PAGER={shlex.quote(command)} git log",
    lambda command, dice: f"git rebase --exec={shlex.quote(command)} HEAD~1",
    lambda command, dice: f"tar -xf a --to-command={shlex.quote(command)}",
    lambda command, dice: f"sudo -s <<< {shlex.quote(command)}",
    lambda command, dice: f"printf %s {shlex.quote(command)} > a; sh ./a",
    lambda command, dice: f"let {shlex.quote(f'a[$({command})]=1')}",
    lambda command, dice: f"x={shlex.quote(f'a[$({command})]')}; (( x ))",
    lambda command, dice: f"echo ${{x:-`{command}`}}" if not set(command) & set("`'\"\\}") else command,
    lambda command, dice: f"cat <<END\n`{command}`\nEND\n" if not set(command) & set("`\\\n") else command,
    _template("2>&1 %", "</dev/null %", "% >/dev/null 2>&1", ">/dev/null %", "  %", "\t%", "% ;"),
    _template("/bin/%", "/usr/bin/%", "/usr/local/bin/%", "./%", "../%", "/usr/bin/../bin/%"),
)


def made_policy(mode: PermissionMode, **rules: tuple[str, ...]) -> PermissionPolicy:
    made: list[Rule] = []
    for kind, texts in rules.items():
        for text in texts:
            rule = parse_rule(text, _kind(kind), source="test", base="/workspace")
            assert isinstance(rule, Rule)
            made.append(rule)
    return PermissionPolicy(mode, RunFolders.of("/workspace", home="/home/somebody"), made)


def _kind(kind: str) -> Kind:
    return {"allow": "allow", "ask": "ask", "deny": "deny"}[kind]  # type: ignore[return-value]


MODES: tuple[PermissionMode, ...] = ("default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions")
DENY = tuple(f"Bash({name}:*)" for name in NAMES)
ALLOWING_ALL = made_policy("default", allow=BROAD, deny=DENY)
BYPASSING = made_policy("bypassPermissions", deny=DENY)
ACCEPTING = made_policy("acceptEdits", allow=BROAD, deny=DENY)
ASKING = made_policy("bypassPermissions", allow=BROAD, ask=DENY)


def verdict(policy: PermissionPolicy, command: str) -> str:
    return policy.decide(ToolUse("bash", {"command": command}, TOOL_EFFECTS["bash"])).verdict


@pytest.mark.parametrize("command", DENIED)
def test_as_it_is_written_it_is_denied(command: str) -> None:
    assert verdict(ALLOWING_ALL, command) == "deny"
    assert verdict(ASKING, command) == "ask"


@pytest.mark.parametrize("rewrite", range(len(REWRITES)))
@pytest.mark.parametrize("command", DENIED)
def test_no_single_rewriting_is_allowed(command: str, rewrite: int) -> None:
    dice = random.Random(f"{command}{rewrite}")
    for _ in range(8):
        written = REWRITES[rewrite](command, dice)
        for policy in (ALLOWING_ALL, BYPASSING, ACCEPTING, ASKING):
            assert verdict(policy, written) != "allow", written


HIDDEN = [
    line.replace("⏎", "\n")
    for line in Path(__file__).with_name("hidden.txt").read_text("utf-8").splitlines()
    if not line.startswith("# ")
]


@pytest.mark.parametrize("command", HIDDEN)
def test_no_hidden_command_is_allowed(command: str) -> None:
    for policy in (ALLOWING_ALL, BYPASSING, ACCEPTING, ASKING):
        assert verdict(policy, command) != "allow", command


@pytest.mark.parametrize("command", HIDDEN)
def test_nothing_that_runs_other_commands_passes_for_reading(command: str) -> None:
    """Without any rule, too: in the mode default only what plainly reads goes unasked."""
    for policy in (made_policy("default"), made_policy("plan"), made_policy("auto")):
        assert verdict(policy, command) != "allow", command


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(DENIED),
    st.lists(st.integers(0, len(REWRITES) - 1), min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.sampled_from([ALLOWING_ALL, BYPASSING, ACCEPTING, ASKING]),
)
def test_no_rewriting_of_a_denied_command_is_allowed(
    command: str, steps: list[int], seed: int, policy: PermissionPolicy
) -> None:
    dice = random.Random(seed)
    written = command
    for step in steps:
        written = REWRITES[step](written, dice)
    assert verdict(policy, written) != "allow", written


@pytest.mark.parametrize(
    "written",
    [
        "xargs -I{} git rebase --exec='find . -execdir rm -f precious {} +' HEAD~1 {}",
        "xargs -IX git rebase --exec='rm -f X' HEAD~1",
        "xargs -I@ sh -c 'rm -f @'",
        "ls | xargs -IF find F -exec rm -f precious {} +",
    ],
)
def test_what_xargs_fills_in_hides_nothing_that_is_written_beside_it(written: str) -> None:
    assert verdict(ALLOWING_ALL, written) != "allow"
    assert verdict(BYPASSING, written) != "allow"


@pytest.mark.parametrize(
    "interpreter", ["python3 -c", "perl -e", "ruby -e", "node -e", "awk", "python3.12 -c", "php -r"]
)
@pytest.mark.parametrize("command", DENIED)
def test_code_of_other_languages_is_not_a_way_around(command: str, interpreter: str) -> None:
    """A rule that allows everything does not allow it; bypass stops what it can read in it."""
    hidden = "".join(f"chr({ord(letter)})." for letter in command)
    assert verdict(ALLOWING_ALL, f"{interpreter} {shlex.quote(hidden)}") != "allow"
    assert verdict(BYPASSING, f"{interpreter} {shlex.quote(f'system({command!r})')}") != "allow"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(DENIED), st.integers(0, 2**32))
def test_quoting_alone_hides_nothing(command: str, seed: int) -> None:
    """What stays fully known is recognised: denied, not just asked."""
    dice = random.Random(seed)
    words = command.split(" ")
    plain = [dice.choice([word, f"'{word}'", f'"{word}"', "".join(f"\\{c}" for c in word)]) for word in words]
    assert verdict(ALLOWING_ALL, " ".join(plain)) == "deny"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60) | st.binary(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["command", "cmd", "path", "file_path", "url", "subagent_type", "tasks", "timeout", "x"])
TOOL_NAMES = st.sampled_from(
    [*TOOL_EFFECTS, "mcp__a__b", "mcp__", "mcp__*", "", "Bash", "unknown", "WebFetch"]
) | st.text(max_size=20)
RULED = {
    mode: made_policy(
        mode,
        allow=("Bash(git *)", "Edit(/src/**)", "mcp__a", "WebFetch(domain:x.org)"),
        ask=("Bash(npm *)", "Read(*.key)"),
        deny=("Bash(rm:*)", "Read(.env)", "Agent(Explore)", "WebFetch(domain:*.evil.com)", "Bash(timeout:*)", "m*x"),
    )
    for mode in MODES
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MODES), TOOL_NAMES, st.dictionaries(KEYS, JSON, max_size=5) | JSON)
def test_nothing_makes_it_raise(mode: PermissionMode, tool: str, arguments: Any) -> None:
    decision = RULED[mode].decide(ToolUse(tool, arguments, TOOL_EFFECTS.get(tool, frozenset())))
    assert decision.verdict in ("allow", "ask", "deny")
    assert decision.verdict != "ask" or mode != "dontAsk"


SHELLISH = st.text(alphabet="rm git-x/.*?~$(){}[]<>|&;'\"\\`\n\t=#!@%:+,0\x00\x01é\u2028", max_size=80)


@settings(max_examples=400, deadline=None)
@given(SHELLISH, st.sampled_from(MODES))
def test_any_text_is_judged(command: str, mode: PermissionMode) -> None:
    decision = RULED[mode].decide(ToolUse("bash", {"command": command}, TOOL_EFFECTS["bash"]))
    assert "could not be judged (" not in decision.reason, decision


@pytest.mark.parametrize(
    "command",
    [
        "(" * 5000,
        "$(" * 3000,
        "a;" * 4999,
        "{ " * 3000 + "ls" + "; }" * 3000,
        "bash -c " * 900,
        "x" * 10_001,
    ],
    ids=len,
)
def test_huge_and_deep_texts_are_asked(command: str) -> None:
    assert verdict(ALLOWING_ALL, command) in ("ask", "deny")


def test_a_rule_is_never_matched_by_time(tmp_path: Path) -> None:
    """Patterns with many stars against long texts must not take for ever."""
    rule = "Bash(" + "*a" * 40 + ")"
    policy = made_policy("default", deny=(rule,))
    assert verdict(policy, "echo " + "a " * 2000 + "b") in ("deny", "allow")
