from tests.capabilities.worktree.worktree_scene import scene  # noqa: F401 - a fixture
