"""Answers on a real terminal: Markdown, colours, and the terminals and people who want none."""

import os
import pty

import pytest

from retinue.frontends.cli.console.markdown_stream import MarkdownStream
from tests.program.model_server import Reply

ANSWER = """# Findings

A **bold** word:

```python
def f():

    return 1
```
"""


def seen(project, *words: str, **environment: str) -> str:
    """Run the program on a terminal of its own and return what appears there."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(project.cwd)
        os.execvpe(project.program[0], [*project.program, *words], project.environment | environment)
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.waitpid(child, 0)
    os.close(terminal)
    return said.decode().replace("\r\n", "\n")


@pytest.fixture
def answered(project, serve):
    serve(lambda request: Reply(ANSWER))
    return lambda **environment: seen(project, "run", "general-purpose", "x", **environment)


def test_an_answer_is_drawn_once_as_markdown_in_colour(answered):
    text = answered(TERM="xterm-256color")
    assert text.count("Findings") == 1 and "\x1b[1mbold\x1b[0m" in text
    assert "#" not in text and "**" not in text and "```" not in text
    assert "\x1b[32m✓ completed" in text


def test_no_color_leaves_no_colour(answered):
    text = answered(TERM="xterm-256color", NO_COLOR="1")
    assert "\x1b[1mbold\x1b[0m" in text and "✓ completed" in text
    assert not any(f"\x1b[{code}m" in text for code in (31, 32, 33, 36))


def test_a_dumb_terminal_gets_the_text_as_it_is(answered):
    text = answered(TERM="dumb")
    assert ANSWER in text and "\x1b" not in text


def test_a_block_is_drawn_when_it_is_whole(capsys):
    import sys

    stream = MarkdownStream(sys.stdout)
    stream.write("# One\n\nTwo\n")
    assert "One" in capsys.readouterr().out
    stream.write("\n```\na\n\n\nb\n")
    assert "Two" in capsys.readouterr().out
    stream.write("```\n\n- x\n\n  y\n")
    drawn = capsys.readouterr().out
    assert "a" in drawn and "b" in drawn and "x" not in drawn
    stream.close()
    assert "y" in capsys.readouterr().out


def test_what_could_move_the_cursor_is_written_out(capsys):
    import sys

    stream = MarkdownStream(sys.stdout)
    stream.write("say \x1b[2J now")
    stream.close()
    assert "\\x1b[2J" in capsys.readouterr().out
