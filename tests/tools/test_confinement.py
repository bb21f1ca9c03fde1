"""Nothing outside the roots is ever read or written, whatever the path looks like."""

import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retinue.core.tool import ToolContext
from retinue.testing import ToolBench
from retinue.tools.paths import confine

CANARY = "the canary sings"
CALLS = {
    "read": {},
    "write": {"content": "broken"},
    "edit": {"old": "canary", "new": "broken"},
    "grep": {"pattern": "canary"},
    "find": {"pattern": "*"},
    "ls": {},
}


@pytest.fixture
def outside(root) -> Path:
    folder = root.parent / "outside"
    folder.mkdir()
    (folder / "canary.txt").write_text(CANARY)
    return folder


def intact(outside: Path) -> bool:
    return os.listdir(outside) == ["canary.txt"] and (outside / "canary.txt").read_text() == CANARY


@pytest.mark.parametrize("name", CALLS)
async def test_outside_paths_are_refused_with_the_allowed_roots(use, root, outside, name):
    (root / "file_link").symlink_to(outside / "canary.txt")
    (root / "dir_link").symlink_to(outside)
    (root / "chain").symlink_to("dir_link")
    (root / "dangling").symlink_to(outside / "new.txt")
    os.mkdir(root / "sub")
    for path in (
        "../outside/canary.txt",
        "sub/../../outside",
        str(outside / "canary.txt"),
        str(outside),
        "file_link",
        "dir_link",
        "dir_link/canary.txt",
        "dir_link/new.txt",
        "chain/canary.txt",
        "dangling",
        "~/.profile",
        "/etc/passwd",
        "/",
        "..",
    ):
        result = await use(name, path=path, **CALLS[name])
        assert result.is_error, path
        assert str(root) in result.text, path
        assert "sings" not in result.text, path
    assert intact(outside)


async def test_a_neighbour_with_the_same_prefix_is_outside(use, root):
    neighbour = root.with_name("work-secret")
    neighbour.mkdir()
    (neighbour / "a").write_text(CANARY)
    assert (await use("read", path="../work-secret/a")).is_error


async def test_extra_roots_are_allowed_and_shown_absolute(use, root, context, outside):
    context.roots = (root, outside)
    result = await use("read", path=str(outside / "canary.txt"))
    assert CANARY in result.text
    assert (await use("write", path=str(outside / "new.txt"), content="x")).text.count(str(outside)) == 1


async def test_stored_outputs_can_be_read_but_not_written(use, context):
    context.outputs.mkdir()
    (context.outputs / "o.txt").write_text("stored")
    assert "stored" in (await use("read", path=str(context.outputs / "o.txt"))).text
    assert "stored" in (await use("grep", pattern="stored", path=str(context.outputs / "o.txt"))).text
    assert (await use("write", path=str(context.outputs / "new.txt"), content="x")).is_error


async def test_home_is_the_home_of_the_run(use, root, context):
    context.environment = {"HOME": str(root)}
    (root / "a.txt").write_text("mine")
    assert "mine" in (await use("read", path="~/a.txt")).text


async def test_searches_do_not_follow_links_out(use, root, outside):
    (root / "link").symlink_to(outside)
    (root / "file").symlink_to(outside / "canary.txt")
    assert "sings" not in (await use("grep", pattern="canary")).text
    assert "canary" not in (await use("find", pattern="*canary*")).text.replace("'*canary*'", "")


@pytest.mark.parametrize("tool", ["read", "write"])
async def test_a_link_loop_is_an_error(use, root, tool):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert (await use(tool, path="a", content="x")).is_error


async def test_a_folder_exchanged_for_a_link_after_the_check_is_not_followed(use, root, outside, context):
    """Another thread keeps exchanging a folder of the path for a link that leads outside."""
    sub, aside = root / "sub", root / "aside"
    sub.mkdir()
    (sub / "canary.txt").write_text("inside")
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            for step in (
                lambda: os.rename(sub, aside),
                lambda: os.symlink(outside, sub),
                lambda: os.unlink(sub),
                lambda: shutil.rmtree(sub),  # made by a write that found nothing there
                lambda: os.rename(aside, sub),
            ):
                with suppress(OSError):
                    step()

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for number in range(300):
            assert "sings" not in (await use("read", path="sub/canary.txt")).text
            await use("write", path=f"sub/new{number}.txt", content="x")
            context.seen.clear()
            await use("edit", path="sub/canary.txt", old="canary", new="broken")
    finally:
        stop.set()
        thread.join()
    assert intact(outside)


SWAPPING = """
import os, sys
root, outside = sys.argv[1:]
folder, file = f"{root}/sub", f"{root}/deep/er/canary.txt"
while True:
    for step in (
        lambda: os.rename(folder, f"{root}/aside"),
        lambda: os.symlink(outside, folder),
        lambda: os.rename(file, f"{file}.real"),
        lambda: os.symlink(f"{outside}/canary.txt", file),
        lambda: os.unlink(folder),
        lambda: os.rename(f"{root}/aside", folder),
        lambda: os.unlink(file),
        lambda: os.rename(f"{file}.real", file),
    ):
        try:
            step()
        except OSError:
            pass
"""


async def test_no_search_follows_a_link_that_is_swapped_in(use, root, outside):
    (outside / "only-outside.txt").write_text("x")
    for folder in ("sub", "deep/er"):
        (root / folder).mkdir(parents=True)
        (root / folder / "canary.txt").write_text("inside\n")
    program = subprocess.Popen([sys.executable, "-c", SWAPPING, str(root), str(outside)])
    try:
        for _ in range(40):
            for path in (".", "sub", "deep/er/canary.txt"):
                for mode in ("content", "files", "count"):
                    found = await use("grep", pattern="sings|canary s", path=path, mode=mode)
                    assert found.is_error or found.text.startswith("No match"), found.text
            assert "only-outside" not in (await use("find", pattern="*.txt")).text
            assert "only-outside" not in (await use("ls", path="sub")).text
    finally:
        program.kill()
        program.wait()


PARTS = st.sampled_from(
    ["..", ".", "", "sub", "link", "up", "canary.txt", "~", "/", "new", "a b", "\n", "..\\", "\u202e", "outside"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=7).map("/".join), st.sampled_from(sorted(CALLS)))
@example("link/../outside/canary.txt", "read")
@example("up/outside/canary.txt", "write")
async def test_no_path_reaches_the_canary(tmp_path_factory, path, name):
    base = tmp_path_factory.mktemp("base").resolve()
    root, outside = base / "work", base / "outside"
    for folder in (root / "sub", outside):
        folder.mkdir(parents=True)
    (outside / "canary.txt").write_text(CANARY)
    (root / "link").symlink_to(outside)
    (root / "sub" / "up").symlink_to(base)
    (root / "up").symlink_to("..")
    bench = ToolBench(root)
    bench.context.environment = {"HOME": str(outside)}
    result = await bench.tool(name).run("c", {"path": path, **CALLS[name]}, bench.context)
    assert "sings" not in result.text
    assert intact(outside)


@given(st.text(max_size=30))
def test_whatever_is_confined_lies_in_its_root(text):
    context = ToolContext("r", (Path("/nonexistent/root"),), Path("/nonexistent/outputs"))
    try:
        place = confine(text, context)
    except Exception as error:
        assert type(error).__name__ == "ToolError"
    else:
        assert place.root in (place.path, *place.path.parents)
        assert ".." not in place.parts
