"""How a tool says no: one exception inside this package, one failed result outside it."""

from __future__ import annotations

import errno

_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.EACCES: "permission was denied by the operating system",
    errno.EPERM: "the operating system does not permit it",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "it is or became a symbolic link that cannot be followed safely; try again",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EBUSY: "it is in use by the system",
    errno.EMFILE: "too many files are open; try again",
    errno.ENFILE: "too many files are open; try again",
    errno.EIO: "the disk reported an error",
}


class ToolError(Exception):
    """A call that cannot be done as asked. Its text tells the model how to go on."""


def explain(error: OSError, what: str) -> str:
    """`what` could not be done, and the reason in words instead of an errno."""
    reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
    return f"{what}: {reason}."
