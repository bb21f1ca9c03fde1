"""apply_patch: the format of OpenAI's coding models, through the run's own edit and write tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.core.tool import Tool, ToolContext, ToolOutput, failed
from retinue.runs.offer import with_patches
from retinue.testing import Call, ScriptedModel, ToolBench, Turn, drive
from retinue.tools.base import builtin_tools

PATCH = """*** Begin Patch
*** Update File: app.py
@@ def start():
 def start():
-    return 1
+    return 2
*** Add File: notes/new.txt
+one
+two
*** End Patch"""


async def patched(root: Path, text: str, *own: Tool) -> ToolOutput:
    (root / "app.py").write_text("def start():\n    return 1\n")
    return await ToolBench(root, tools=own).call("apply_patch", patch=text)


def refusing(root: Path, name: str) -> Tool:
    class Refusing:
        spec = ToolBench(root).spec(name)

        async def run(self, call_id: str, arguments: Any, context: ToolContext) -> ToolOutput:
            return failed(f"Denied: {name} is not allowed here.")

    return Refusing()


async def test_a_patch_changes_one_file_and_makes_another(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    ended = await patched(root, PATCH)
    assert not ended.is_error, ended.text
    assert (root / "app.py").read_text() == "def start():\n    return 2\n"
    assert (root / "notes" / "new.txt").read_text() == "one\ntwo\n"
    assert {Path(touched.path).name for touched in ended.effect.writes} == {"app.py", "new.txt"}


async def test_every_file_goes_through_the_tools_of_the_run_and_their_refusal_counts(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    ended = await patched(root, PATCH, refusing(root, "write"))
    assert ended.is_error and "Denied: write is not allowed here." in ended.text
    assert "Made the edit in app.py" in ended.text, "what was done before is said"
    assert not (root / "notes").exists()


async def test_what_is_no_patch_and_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    assert "begins with the line" in (await patched(root, "--- a\n+++ b")).text
    nothing = "*** Begin Patch\n*** Delete File: none.py\n*** End Patch"
    assert "none.py does not exist" in (await patched(root, nothing)).text
    stray = "*** Begin Patch\n*** Delete File: app.py\n*** Move to: b.py\n*** End Patch"
    assert "belongs below" in (await patched(root, stray)).text
    assert (root / "app.py").exists()
    far = "*** Begin Patch\n*** Add File: ../out.txt\n+x\n*** End Patch"
    assert "outside the workspace" in (await patched(root, far)).text


MOVE = """*** Begin Patch
*** Update File: app.py
*** Move to: src/main.py
@@
-    return 1
+    return 2
*** Delete File: old.txt
*** End Patch"""


async def test_a_patch_moves_a_file_with_its_changes_and_mode_and_deletes_another(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "old.txt").write_text("old")
    (root / "app.py").touch(0o755)
    ended = await patched(root, MOVE)
    assert not ended.is_error, ended.text
    assert (root / "src" / "main.py").read_text() == "def start():\n    return 2\n"
    assert (root / "src" / "main.py").stat().st_mode & 0o111
    assert not (root / "app.py").exists() and not (root / "old.txt").exists()
    gone = {Path(touched.path).name for touched in ended.effect.writes if touched.after is None}
    assert gone == {"app.py", "old.txt"}


async def test_a_move_that_cannot_be_made_leaves_the_file_where_it_is(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "src").mkdir()
    (root / "src" / "main.py").write_text("somebody's")
    ended = await patched(root, MOVE)
    assert ended.is_error and "exists and was not read here" in ended.text
    assert (root / "app.py").read_text() == "def start():\n    return 1\n"
    assert (root / "src" / "main.py").read_text() == "somebody's"
    same = MOVE.replace("src/main.py", "./app.py").replace("*** Delete File: old.txt\n", "")
    assert not (await patched(root, same)).is_error
    assert (root / "app.py").read_text() == "def start():\n    return 2\n"


async def test_what_a_run_may_not_read_is_not_moved_to_where_it_may(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    ended = await patched(root, MOVE, refusing(root, "read"))
    assert ended.is_error and "Denied: read is not allowed here." in ended.text
    assert not (root / "src").exists() and (root / "app.py").exists()


async def test_a_link_is_not_followed_to_the_file_that_would_be_deleted(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "link").symlink_to("app.py")
    ended = await patched(root, "*** Begin Patch\n*** Delete File: link\n*** End Patch")
    assert "is a symbolic link to app.py" in ended.text
    assert (root / "app.py").exists() and (root / "link").is_symlink()


def test_models_of_openai_get_it_where_they_may_edit_and_write() -> None:
    tools = tuple(builtin_tools().values())
    for model in ("gpt-4.1", "gpt-5.1", "openai/gpt-oss-20b", "gpt-5.2-codex"):
        assert [tool.spec.name for tool in with_patches(tools, model)][-1] == "apply_patch"
    assert all(with_patches(tools, model) == tools for model in ("claude-sonnet-4-5", "gpt-4o"))
    reading = tuple(builtin_tools(["read", "edit"]).values())
    assert with_patches(reading, "gpt-5.1") == reading


async def test_it_is_shown_in_the_place_of_edit_which_can_still_be_called(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "a.txt").write_text("old\n")
    context = ToolContext("run-1", (root,), root / "outputs")
    tools = with_patches(tuple(builtin_tools(["read", "edit", "write"]).values()), "gpt-6.1-sol")
    model = ScriptedModel(
        Turn(Call("read", {"path": "a.txt"})),
        Turn(Call("edit", {"path": "a.txt", "old_string": "old", "new_string": "new"})),
        "ok",
    )
    await drive(model, tools=list(tools), context=context)
    assert [spec.name for spec in model.requests[0].tools] == ["read", "write", "apply_patch"]
    assert (root / "a.txt").read_text() == "new\n"
