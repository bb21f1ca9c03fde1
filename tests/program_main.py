"""Run the program inside the process of the test: for commands whose answer is the subject, and not their start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper

import pytest

from retinue.frontends.cli.main import run


def run_main(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `retinue` with these arguments, and with this environment alone if there is one."""
    out, err = TextIOWrapper(BytesIO()), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        if environment is not None:
            patch.setattr(os, "environ", {"PATH": os.environ["PATH"], **environment})
        code = run(list(arguments))
        out.flush()
    return subprocess.CompletedProcess(arguments, code, out.buffer.getvalue().decode(), err.getvalue())
