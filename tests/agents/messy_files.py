"""Agent files as people write them: every key of a dialect in every form, good and bad."""

from __future__ import annotations

from hypothesis import strategies as st

from retinue.agents.dialects.tables import DIALECTS
from retinue.core.spec import DialectName

FORMS = """
true|false|"true"|yes|5|0|-1|1.5|none|all|"*"|[]|{}||null|a, b|[a, b]|{a: true, "*": false}
{"*": deny, a: allow}|{edit: deny}|deny|worktree|off|project|plan|bypassPermissions|acceptEdits|inherit|sonnet, opus
{PreToolUse: [{command: x, timeout: 5000}]}|[{event: Stop, command: y}]|[a, {b: {command: c}}]|{s: {url: u}}|"a\\nb"
'it''s'|2025-01-01|Bash(git: *), Read|ext:a, *|ext:a|- bad|[a|"unclosed|&x 1|!!str 5|{type: object}|0.7|#c|["a, b"]
{A: {matcher: "b", hooks: [{type: command, command: z, timeout: 3}]}}|[none]|[all, x]|["  sp "]|[""]|Raed, Write
'"x"'|x: y|foo #bar|high|append
""".strip().replace("\n", "|")
BLOCKS = ["\n  - a\n  - b: c", "\n  a: true\n  b: false", "|\n  two\n  lines", ">-\n  fold\n  ed", "\n- a\n- b"]
forms = st.sampled_from([*FORMS.split("|"), *BLOCKS])
STRANGERS = ["junk", "x y", "maxturns", "permisionmode", "Tools", '"quoted"', "alowed_tools", "colour", "descripton"]


@st.composite
def messy(draw: st.DrawFn, dialect: DialectName) -> str:
    """A file with name and description, and up to five more keys, no field said twice."""
    table = DIALECTS[dialect]
    known = [word for row in (*table.fields, *table.foreign) for word in row.spellings]
    lines = ["name: nm", "description: dd"]
    said = {"name", "description"}
    for key in draw(st.lists(st.sampled_from([*known, *STRANGERS]), max_size=5)):
        match = table.match(key.strip('"'))
        target = match.field.to if match is not None and match.field.to else key
        target = "model.name" if target == "model.fallbacks" else target
        if target not in said:
            said.add(target)
            lines.append(f"{key}: {draw(forms)}")
    body = draw(st.sampled_from(["", "Do the work you are given.\n", "---\nx: y\n---\n"]))
    return "---\n" + "\n".join(draw(st.permutations(lines))) + f"\n---\n{body}"
