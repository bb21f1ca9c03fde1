"""Everything that the command line prints passes one writer (`app/output.py`).

The first part is a contract over the source: no module writes to the terminal around the writer. A new way around it is
refused here, and needs a reason in `ALLOWED`.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import retinue
from retinue.app.output import (
    BELL,
    KEEP_TITLE,
    ControlSequence,
    TerminalWriter,
    escape_json,
    operating_system_command,
    send_control,
    write_span,
)
from retinue.core.controls import escape_controls, in_line, visible

SOURCE = Path(retinue.__file__).parent
WRITER = "app/output.py"
STREAMS = ("sys.stdout", "sys.stderr")
RAW_STREAMS = ("sys.__stdout__", "sys.__stderr__")
DEVICES = ("/dev/tty", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2")
OPENERS = ("open", "os.open", "os.fdopen", "io.open", "io.FileIO", "Path")

ALLOWED = {
    # It only asks whether this is a terminal, and for its encoding: the app has put something else in its place.
    "app/doctor.py": {"sys.__stdout__"},
    # The streams that the writer is put around.
    "__main__.py": {"open(1)", "open(2)", "sys.stdout =", "sys.stderr ="},
    # The protocols take the streams for themselves; later output of the program goes to the writer of stderr.
    "app/process.py": {"os.dup(1)", "sys.stdout ="},
    # Becomes the server in the next moment; its stderr is a pipe of ours.
    "tools/server_launcher.py": {"os.write(2)"},
    # Runs inside the sandbox, where the output is a pipe of ours.
    "capabilities/convert/inside/retinue_convert.py": {"os.dup(1)"},
    # Reads the numbers of a style that Rich has made; the writer makes the sequence.
    "frontends/cli/console/markdown_stream.py": {"escape character", "Console()"},
    # Takes escape sequences out, and measures lines with a console that is quiet.
    "app/rich_text.py": {"escape character", "Console()"},
    # The stream is the writer of stderr, or a test's.
    "frontends/cli/console/questions.py": {"print(file=self._out)"},
}


def dotted(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def ways_around(text: str) -> Iterator[tuple[str, int]]:
    """Yield what in a module could print past the writer, with its line."""
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            if set(node.value) & set("\x1b\x07\x9b\x9d"):
                yield "escape character", node.lineno
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            below = name.removesuffix(".buffer").removesuffix(".detach").removesuffix(".reconfigure")
            if name in RAW_STREAMS or (below != name and below in STREAMS):
                yield name, node.lineno
            elif node.attr == "write_sequences":
                yield node.attr, node.lineno
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield from ((found, node.lineno) for found in streams_replaced(node))
        elif isinstance(node, ast.Call):
            yield from ((found, node.lineno) for found in calls_around(node))


def streams_replaced(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if dotted(each) in STREAMS:
                yield f"{dotted(each)} ="


def calls_around(call: ast.Call) -> Iterator[str]:
    name, first = dotted(call.func), call.args[0] if call.args else None
    number = first.value if isinstance(first, ast.Constant) else None
    if name in (*OPENERS, "os.write", "os.dup", "os.writev") and number in (1, 2) and not isinstance(number, bool):
        yield f"{name}({number})"
    if name in OPENERS and number in DEVICES:
        yield f"{name}({number})"
    if name == "input" and first is not None:
        yield "input() with a prompt"
    if name.endswith("getpass") and number != "":
        yield "getpass() with a prompt"
    if name.split(".")[-1] in ("ControlSequence", "Console", "TerminalWriter"):
        yield f"{name.split('.')[-1]}()"
    if name == "print":
        for keyword in call.keywords:
            if keyword.arg == "file" and dotted(keyword.value) not in STREAMS:
                yield f"print(file={ast.unparse(keyword.value)})"
    if name == "logging.StreamHandler" and first is not None and dotted(first) not in STREAMS:
        yield "logging.StreamHandler()"


def test_no_module_prints_around_the_writer() -> None:
    around = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name == WRITER:
            continue
        for found, line in ways_around(path.read_text("utf-8")):
            if found not in ALLOWED.get(name, ()):
                around.append(f"{name}:{line}: {found}")
    assert not around, "\n".join(around)


@pytest.mark.parametrize(
    "line",
    [
        "sys.__stdout__.write(text)",
        "sys.stdout.buffer.write(text)",
        "os.write(1, text)",
        "os.write(2, text)",
        "open('/dev/tty', 'w').write(text)",
        "Path('/dev/stderr').write_text(text)",
        "os.fdopen(2, 'w').write(text)",
        "open(1, 'w', closefd=False).write(text)",
        "sys.stdout.write('\\x1b[31m' + text)",
        "print(f'\\x1b]2;{title}\\x07')",
        "print(text, file=handle)",
        "input(f'Delete {name}? ')",
        "getpass.getpass(f'Key of {name}: ')",
        "sys.stderr = io.StringIO()",
        "sys.stdout.detach().write(text)",
        "sys.stderr.write_sequences(text)",
        "send_control(sys.stdout, ControlSequence(text))",
        "Console().print(text)",
        "logging.StreamHandler(open('x', 'w'))",
    ],
)
def test_the_contract_sees_a_way_around(line: str) -> None:
    assert list(ways_around(line)), line


# The writer


class Written(io.BytesIO):
    def isatty(self) -> bool:
        return True


def written(*texts: str) -> str:
    below = Written()
    writer = TerminalWriter(below, encoding="utf-8", newline="\n")
    for text in texts:
        writer.write(text)
    writer.flush()
    return below.getvalue().decode()


CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
INVISIBLE = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069\ufeff\u00ad\U000e0041\ud800\udc9b"


@given(st.text(alphabet=st.characters() | st.sampled_from(CONTROLS + INVISIBLE)))
def test_no_control_or_invisible_character_survives(text: str) -> None:
    shown = written(text)
    assert not set(shown) & (set(CONTROLS + INVISIBLE) - set("\n\t"))
    assert escape_controls(shown) == shown


def test_ordinary_text_of_any_script_stays_as_it_is() -> None:
    text = "Grüße\t日本語 فارسی می\u200cخواهم 👩\u200d👧 ❤\ufe0f न\u094dह \u06dd \u00a0\u3000 \ue0b0\n"
    assert written(text) == text


def test_each_character_is_shown_by_an_escape() -> None:
    assert written("\x1b]52;c;YQ==\x07\r\x9b\u202e\U000e0041a\r\nb") == (
        "\\x1b]52;c;YQ==\\x07\\r\\u009b\\u202e\\udb40\\udc41a\nb"
    )


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x7f\x9b\u202e\U000e0041")))
def test_a_json_document_means_the_same_after_the_writer(text: str) -> None:
    document = json.dumps({text: [text]}, ensure_ascii=False)
    assert json.loads(written(document)) == json.loads(escape_json(document.encode())) == {text: [text]}


def test_text_in_a_style_cannot_end_or_change_it() -> None:
    below = Written()
    writer = TerminalWriter(below, encoding="utf-8")
    write_span(writer, "a\x1b[8mb", "1;31")
    writer.flush()
    assert below.getvalue() == b"\x1b[1;31ma\\x1b[8mb\x1b[0m"
    for codes in ("31m\x1b[2J", "?25h", "1 ", "m"):
        with pytest.raises(ValueError, match="numbers"):
            write_span(writer, "x", codes)


def test_only_sequences_of_the_program_are_sent() -> None:
    below = Written()
    writer = TerminalWriter(below, encoding="utf-8")
    send_control(writer, KEEP_TITLE)
    assert below.getvalue() == b"\x1b[22;2t"
    for text in ("\x1b[2J", str(KEEP_TITLE)):
        with pytest.raises(TypeError):
            send_control(writer, text)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        KEEP_TITLE + "\x1b[2J"


@given(st.text())
def test_a_title_cannot_end_its_sequence(title: str) -> None:
    sequence = operating_system_command("2", title)
    assert isinstance(sequence, ControlSequence) and sequence.startswith("\x1b]2;") and sequence.endswith(BELL)
    inside = sequence.removeprefix("\x1b]2;").removesuffix(BELL)
    assert not set(inside) & set(CONTROLS) and ";" not in inside


@given(st.text(alphabet=st.characters() | st.sampled_from(CONTROLS + INVISIBLE + "\u3164\u2800\u00a0\u200d")))
def test_a_text_that_people_judge_shows_every_character(text: str) -> None:
    assert all(letter.isprintable() or letter in "\n\t" for letter in visible(text))
    assert not set(visible(text)) & set("\u3164\u2800") and in_line(text).isprintable()
