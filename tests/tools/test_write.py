"""write: atomic, confined, and never over a version nobody read."""

import asyncio
import os
import stat
from hashlib import sha256

import pytest

from retinue.core.tool import ToolContext


def leftovers(root):
    return [path.name for path in root.rglob(".retinue-*")]


async def test_creates_a_file_with_its_folders_and_records_the_effect(use, root, context):
    result = await use("write", path="a/b/c.txt", content="hi\n")
    assert (root / "a/b/c.txt").read_text() == "hi\n"
    assert "Created" in result.text
    (touched,) = result.effect.writes
    assert (touched.path, touched.before, touched.after) == (str(root / "a/b/c.txt"), None, sha256(b"hi\n").hexdigest())
    assert context.seen[str(root / "a/b/c.txt")] == sha256(b"hi\n").hexdigest()
    assert leftovers(root) == []


async def test_a_new_file_gets_the_mode_of_the_umask(use, root):
    old = os.umask(0o027)
    try:
        await use("write", path="a.txt", content="x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((root / "a.txt").stat().st_mode) == 0o640


async def test_an_existing_file_that_was_not_read_is_kept(use, root):
    (root / "a.txt").write_text("precious")
    result = await use("write", path="a.txt", content="x")
    assert result.is_error
    assert "Read it first" in result.text
    assert (root / "a.txt").read_text() == "precious"
    assert leftovers(root) == []


async def test_after_reading_it_can_be_replaced_and_keeps_its_mode(use, root):
    path = root / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    await use("read", path="run.sh")
    result = await use("write", path="run.sh", content="new")
    assert "Replaced" in result.text
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert result.effect.writes[0].before == sha256(b"old").hexdigest()
    again = await use("write", path="run.sh", content="newer")
    assert not again.is_error


async def test_a_file_that_changed_since_it_was_read_is_kept(use, root):
    (root / "a.txt").write_text("one")
    await use("read", path="a.txt")
    (root / "a.txt").write_text("two")
    result = await use("write", path="a.txt", content="three")
    assert result.is_error
    assert "changed since" in result.text
    assert (root / "a.txt").read_text() == "two"
    await use("read", path="a.txt")
    assert not (await use("write", path="a.txt", content="three")).is_error


async def test_of_runs_that_read_the_same_version_exactly_one_writes(bench, root):
    (root / "a.txt").write_text("start")
    contexts = [ToolContext(f"run-{n}", (root,), root.parent / "outputs") for n in range(8)]
    for context in contexts:
        await bench.tool("read").run("c", {"path": "a.txt"}, context)
    results = await asyncio.gather(
        *(bench.tool("write").run("c", {"path": "a.txt", "content": context.run_id}, context) for context in contexts)
    )
    (winner,) = [c.run_id for c, result in zip(contexts, results, strict=True) if not result.is_error]
    assert (root / "a.txt").read_text() == winner
    assert leftovers(root) == []


async def test_a_link_is_followed_inside_the_workspace_and_stays_a_link(use, root):
    (root / "real.txt").write_text("old")
    (root / "link.txt").symlink_to("real.txt")
    await use("read", path="link.txt")
    await use("write", path="link.txt", content="new")
    assert (root / "link.txt").is_symlink()
    assert (root / "real.txt").read_text() == "new"


@pytest.mark.parametrize("arguments", [{}, {"content": None}, {"content": 5}, {"content": {"a": 1}}])
async def test_content_must_be_a_string(use_directly, root, arguments):
    result = await use_directly("write", path="a.txt", **arguments)
    assert result.is_error
    assert '"content"' in result.text
    assert not (root / "a.txt").exists()


async def test_empty_content_makes_an_empty_file(use, root):
    assert not (await use("write", path="a.txt", content="")).is_error
    assert (root / "a.txt").read_bytes() == b""


async def test_unpaired_surrogates_are_refused_before_anything_is_made(use_directly, root):
    result = await use_directly("write", path="new/a.txt", content="x\ud800")
    assert result.is_error
    assert "surrogate" in result.text
    assert not (root / "new").exists()


async def test_folders_pipes_and_files_in_the_way_are_refused(use, root):
    (root / "sub").mkdir()
    (root / "file").write_text("x")
    os.mkfifo(root / "pipe")
    for path in ("sub", "pipe", "file/inner.txt", "."):
        assert (await use("write", path=path, content="x")).is_error, path
    assert (root / "file").read_text() == "x"


async def test_a_file_marked_read_only_is_kept(use, root):
    (root / "a.txt").write_text("x")
    (root / "a.txt").chmod(0o444)
    await use("read", path="a.txt")
    result = await use("write", path="a.txt", content="y")
    assert result.is_error
    assert "read-only" in result.text


async def test_crlf_and_byte_order_mark_of_a_replaced_file_stay(use, root):
    (root / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    await use("read", path="a.txt")
    result = await use("write", path="a.txt", content="three\nfour\n")
    assert (root / "a.txt").read_bytes() == b"\xef\xbb\xbfthree\r\nfour\r\n"
    assert "CRLF" in result.text


async def test_text_the_old_encoding_lacks_becomes_utf_8(use, root):
    (root / "a.txt").write_bytes("café".encode("latin-1"))
    await use("read", path="a.txt")
    await use("write", path="a.txt", content="日本")
    assert (root / "a.txt").read_text(encoding="utf-8") == "日本"


async def test_the_same_content_leaves_the_file_alone(use, root):
    (root / "a.txt").write_text("same")
    before = (root / "a.txt").stat()
    await use("read", path="a.txt")
    assert "Unchanged" in (await use("write", path="a.txt", content="same")).text
    assert (root / "a.txt").stat().st_ino == before.st_ino


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "bad\ud800name"])
async def test_impossible_names_are_refused(use, name):
    assert (await use("write", path=name, content="x")).is_error


async def test_cancelling_a_write_leaves_the_old_or_the_new_file(use, root):
    (root / "a.txt").write_text("old")
    await use("read", path="a.txt")
    for _ in range(20):
        task = asyncio.ensure_future(use("write", path="a.txt", content="new" * 100_000))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (root / "a.txt").read_text() in ("old", "new" * 100_000)
        assert leftovers(root) == []


async def test_a_preview_is_the_change_that_the_call_would_make(bench, root):
    write, edit = bench.tool("write"), bench.tool("edit")
    (root / "a.txt").write_text("one\ntwo\n")
    whole = {"path": "a.txt", "content": "one\n2\n"}
    assert "was not read here" in await write.preview(whole, bench.context)
    await bench.tool("read").run("c", {"path": "a.txt"}, bench.context)
    diff = "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert await write.preview(whole, bench.context) == diff
    assert await edit.preview({"path": "a.txt", "old_string": "two", "new_string": "2"}, bench.context) == diff
    gone = await write.preview({"path": "a.txt", "delete": True}, bench.context)
    assert gone.startswith("(The file would be deleted.)\n")
    fresh = await write.preview({"path": "new/b.txt", "content": "x\n"}, bench.context)
    assert fresh == "--- /dev/null\n+++ new/b.txt\n@@ -0,0 +1,1 @@\n+x"
    assert (root / "a.txt").read_text() == "one\ntwo\n"
    assert not (root / "new").exists()
