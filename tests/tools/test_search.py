"""grep, find and ls: deterministic, bounded, counted, and true to ignore files."""

import os
import subprocess
import sys
import sysconfig
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.tools import grep as rg
from retinue.tools.base import ToolError
from retinue.tools.search import compile_glob


@pytest.fixture
def tree(root):
    """A repository with ignored, hidden, binary and ordinary files."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name, text in {
        "a.py": "import os\nneedle = 1\n",
        "src/b.py": "x\nNeedle here\ny\n",
        "src/deep/c.ts": "let needle;\n",
        "src/deep/d.PY": "needle\n",
        "docs/e.md": "nothing\n",
        ".hidden/f.py": "needle hidden\n",
        "build/g.py": "needle built\n",
        "generated.py": "needle generated\n",
        ".gitignore": "build/\ngenerated.py\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "bin.dat").write_bytes(b"needle\0\n")
    return root


async def test_matches_are_sorted_and_skip_ignored_hidden_and_binary_files(use, tree):
    result = await use("grep", pattern="needle")
    assert result.text == "a.py:2:needle = 1\nsrc/deep/c.ts:1:let needle;\nsrc/deep/d.PY:1:needle"
    assert result.effect.reads == (str(tree),)


async def test_case_literal_path_and_context(use, tree):
    assert "src/b.py:2:Needle here" in (await use("grep", pattern="NEEDLE", ignore_case="true")).text
    assert (await use("grep", query="needle = 1", literal=True)).text == "a.py:2:needle = 1"
    assert (await use("grep", pattern="Needle", path="src", context=1)).text == (
        "src/b.py-1-x\nsrc/b.py:2:Needle here\nsrc/b.py-3-y"
    )
    assert (await use("grep", pattern="needle", path="src/deep/c.ts")).text == "src/deep/c.ts:1:let needle;"


async def test_hidden_files_are_searched_when_asked(use, tree):
    assert ".hidden/f.py:1" in (await use("grep", pattern="needle", hidden=True)).text
    assert ".hidden/f.py:1" in (await use("grep", pattern="needle", glob=".hidden/*")).text
    assert ".hidden/f.py:1" in (await use("grep", pattern="needle", path=".hidden")).text
    assert ".git/" not in (await use("grep", pattern="repositoryformatversion", hidden=True)).text


@pytest.mark.parametrize(
    ("glob", "files"),
    [
        ("*.py", ["a.py", "src/deep/d.PY"]),
        ("*.PY", ["src/deep/d.PY"]),
        ("src/**", ["src/deep/c.ts", "src/deep/d.PY"]),
        ("src/**/*.{ts,js}", ["src/deep/c.ts"]),
        ("!*.py", ["src/deep/c.ts"]),
        ("*.ts, a.*", ["a.py", "src/deep/c.ts"]),
        ("**/deep/[c]*", ["src/deep/c.ts"]),
    ],
)
async def test_a_glob_narrows_and_never_widens_to_ignored_files(use, tree, glob, files):
    assert (await use("grep", pattern="needle", glob=glob, mode="files")).text.split("\n") == files


async def test_a_glob_may_be_meant_from_the_working_directory(use, tree):
    assert "c.ts" in (await use("grep", pattern="needle", path="src", glob="src/deep/*.ts")).text


async def test_modes(use, use_directly, tree):
    assert (await use("grep", pattern="needle", mode="files")).text.split("\n") == [
        "a.py",
        "src/deep/c.ts",
        "src/deep/d.PY",
    ]
    assert (await use("grep", pattern="needle", mode="count")).text.endswith("src/deep/d.PY:1\n[3 matching lines]")
    assert (await use("grep", pattern="needle", output_mode="files_with_matches")).text.startswith("a.py\n")
    wrong = await use_directly("grep", pattern="needle", mode="lots")
    assert wrong.is_error
    assert "content, files, count" in wrong.text
    refused = await use("grep", pattern="needle", mode="lots")
    assert refused.is_error
    assert "'content', 'files', 'count'" in refused.text


async def test_no_match_is_not_an_error(use, tree):
    result = await use("grep", pattern="absent")
    assert not result.is_error
    assert "No match" in result.text


@pytest.mark.parametrize("pattern", ["foo(", "[z-a]", "a{2,1}", "(?<=x)y", r"(a)\1"])
async def test_a_bad_pattern_gets_advice(use, tree, pattern):
    result = await use("grep", pattern=pattern)
    assert result.is_error
    assert "literal" in result.text or "not supported" in result.text


async def test_patterns_that_look_like_options_or_span_lines(use, tree):
    (tree / "opt.txt").write_text("--files and -e\nsecond\n")
    assert (await use("grep", pattern="--files")).text == "opt.txt:1:--files and -e"
    assert "opt.txt:1" in (await use("grep", pattern=r"-e\nsecond")).text
    assert "opt.txt:1" in (await use("grep", pattern="-e\nsecond", literal=True)).text
    assert (await use("grep", pattern="a\0b")).is_error


async def test_results_are_bounded_and_totals_exact(use, root):
    for number in range(30):
        (root / f"f{number:02}.txt").write_text("hit\n" * 20)
    result = await use("grep", pattern="hit", limit=25)
    *lines, last = result.text.split("\n")
    assert lines == [f"f00.txt:{n}:hit" for n in range(1, 21)] + [f"f01.txt:{n}:hit" for n in range(1, 6)]
    assert last.startswith("[first 25 of 600 matching lines in 30 files;")
    files = await use("grep", pattern="hit", mode="files", limit=2)
    assert files.text.startswith("f00.txt\nf01.txt\n[2 of 30 files")


async def test_long_lines_and_large_results_are_cut(use, root):
    (root / "min.js").write_text("x" * 100_000 + "hit\n")
    (root / "wide.txt").write_text(("hit " + "w" * 400 + "\n") * 500)
    assert len((await use("grep", pattern="hit", path="min.js")).text) < 700
    result = await use("grep", pattern="hit", path="wide.txt", limit=500)
    assert len(result.text) < 31_000
    assert "of 500 matching lines" in result.text


async def test_a_binary_file_named_directly_says_that_it_matches(use, tree):
    assert "binary file matches" in (await use("grep", pattern="needle", path="bin.dat")).text


async def test_strange_file_names_survive(use, root):
    names = ["with space.txt", "new\nline.txt", "-dash.txt", "colon:1:x.txt", "ü.txt"]
    for name in names:
        (root / name).write_text("hit\n")
    Path(os.fsdecode(os.fsencode(root) + b"/bad\xff.txt")).write_text("hit\n")
    text = (await use("grep", pattern="hit", mode="files")).text
    assert all(name.replace("\n", "\\n") in text for name in names)
    assert text.count("\n") == len(names)
    assert "bad\ufffd.txt" in text
    assert (await use("grep", pattern="hit", path="-dash.txt")).text == "-dash.txt:1:hit"
    assert "-dash.txt" in (await use("find", pattern="-d*")).text


async def test_a_pipe_in_the_tree_is_not_waited_for(use, root):
    os.mkfifo(root / "pipe")
    (root / "a.txt").write_text("hit\n")
    assert (await use("grep", pattern="hit")).text == "a.txt:1:hit"
    assert (await use("grep", pattern="hit", path="pipe")).is_error
    assert (await use("ls")).text == "a.txt\npipe"


@pytest.mark.parametrize("tool", ["grep", "find", "ls"])
async def test_a_missing_folder_is_said(use, root, tool):
    result = await use(tool, pattern="x", path="no/such")
    assert result.is_error
    assert "does not exist" in result.text


async def test_someone_elses_ripgrep_configuration_is_not_used(use, tree, monkeypatch, tmp_path):
    config = tmp_path / "rgrc"
    config.write_text("--hidden\n--no-ignore\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    assert "generated" not in (await use("grep", pattern="needle")).text


async def test_find_by_name_and_by_path(use, tree):
    assert (await use("find", pattern="*.py")).text.split("\n") == ["a.py", "src/b.py", "src/deep/d.PY"]
    assert (await use("find", pattern="src/*")).text == "src/b.py"
    assert (await use("find", pattern="src/**/*.ts")).text == "src/deep/c.ts"
    assert (await use("find", pattern="**/c.ts")).text == "src/deep/c.ts"
    assert (await use("find", pattern=f"{tree}/src/b.*")).text == "src/b.py"
    assert (await use("find", pattern="*.ts", path="src/deep")).text == "src/deep/c.ts"
    assert (await use("find", pattern="./a.py")).text == "a.py"


async def test_find_folders_hidden_files_and_parts_of_names(use, tree):
    assert (await use("find", pattern="*/")).text.split("\n") == ["docs/", "src/", "src/deep/"]
    assert (await use("find", pattern="d*/")).text.split("\n") == ["docs/", "src/deep/"]
    assert ".hidden/f.py" in (await use("find", pattern="*.py", hidden=True)).text
    assert (await use("find", pattern=".hidden/*")).text == ".hidden/f.py"
    assert (await use("find", pattern="bin")).text.split("\n")[1:] == ["bin.dat"]
    assert "Nothing matches" in (await use("find", pattern="*.zig")).text


async def test_find_is_bounded_with_a_total(use, root):
    for number in range(20):
        (root / f"{number:02}.txt").touch()
    assert (await use("find", pattern="*", limit=2)).text == (
        "00.txt\n01.txt\n[2 of 20 found; narrow the pattern or path, or raise limit]"
    )


async def test_ls_marks_folders_and_links_and_shows_hidden_names(use, root):
    (root / "b").mkdir()
    (root / "a.txt").touch()
    (root / ".env").touch()
    (root / "z").symlink_to("a.txt")
    assert (await use("ls")).text == ".env\na.txt\nb/\nz@"
    assert (await use("ls", path="b")).text == "(empty folder)"
    assert "read" in (await use("ls", path="a.txt")).text


async def test_ls_is_bounded_with_a_total(use, root):
    for number in range(700):
        (root / f"{number:03}").touch()
    text = (await use("ls")).text
    assert text.startswith("000\n001\n")
    assert text.endswith("[500 of 700 entries; use find with a pattern for the others]")


async def test_without_ripgrep_the_remedy_is_said(use, root, monkeypatch):
    monkeypatch.setattr(rg, "_program_path", None)
    monkeypatch.setattr(rg, "_locations", lambda: iter(()))
    for tool in ("grep", "find"):
        result = await use(tool, pattern="x")
        assert result.is_error
        assert "pip install ripgrep" in result.text


def test_ripgrep_is_found_by_the_packages_own_record(monkeypatch):
    metadata.distribution("ripgrep")
    monkeypatch.setattr(rg, "_program_path", None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    found = rg.find_ripgrep()
    assert found is not None
    assert found.is_file()


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "x/y.py", True),
        ("*.py", "x.pyc", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[!a]bc", "xbc", True),
        ("[!a]bc", "abc", False),
        ("[]]x", "]x", True),
        ("[z-a]", "z", True),
        ("a/b", "x/a/b", False),
        ("/a/b", "a/b", True),
        ("**/b", "b", True),
        ("**/b", "x/y/b", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("a/**/z", "a/z", True),
        ("a/**/m/**/z", "a/1/m/2/3/z", True),
        ("a/**/m/**/z", "a/1/2/3/z", False),
        ("**", "a/b", True),
        ("{a,b}/{c,d}.x", "b/c.x", True),
        ("{a", "{a", True),
        (r"\*x", "*x", True),
        ("*a*b*c", "xxaxxbxxc", True),
        ("*ab", "aab", True),
        ("README*", "readme.md", False),
        ("readme*", "README.md", True),
    ],
)
def test_globs(glob, path, matches):
    assert compile_glob(glob)(path) is matches


def test_a_hostile_glob_stays_fast():
    glob = compile_glob("*a" * 60 + "b")
    assert not glob("a" * 255)
    deep = compile_glob("**/" + "a*/**/" * 20 + "z")
    assert not deep("/".join(["a" * 20] * 60))
    with pytest.raises(ToolError):
        compile_glob("{a,b}" * 20)


@given(st.text(alphabet="ab*?/[]{},!.\\^-", max_size=20), st.text(alphabet="ab/.", max_size=12))
def test_no_glob_breaks_the_matcher(glob, path):
    with suppress(ToolError):
        compile_glob(glob)(path)


@given(st.text(alphabet="ab*?", min_size=1, max_size=10), st.text(alphabet="ab", max_size=12))
def test_name_globs_agree_with_fnmatch(glob, name):
    from fnmatch import fnmatchcase

    if "**" not in glob:
        assert compile_glob(glob)(name) == fnmatchcase(name, glob)
