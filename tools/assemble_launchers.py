"""Makes the sandbox's launchers from their source: `python tools/assemble_launchers.py [FOLDER]`.

Needs the GNU assembler for each machine (Debian: binutils, binutils-aarch64-linux-gnu); machines
without one are left as they are. The result depends on nothing but the source.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "retinue" / "guard" / "sandbox" / "inside"
MACHINES = ("x86_64", "aarch64")


def assemble(machine: str, target: Path) -> bool:
    """Whether there is an assembler for it here."""
    prefix = f"{machine}-linux-gnu-"
    if shutil.which(f"{prefix}as") is None:
        return False
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "launch.o"
        subprocess.run([f"{prefix}as", "-o", made, SOURCES / f"launch-{machine}.s"], check=True)
        subprocess.run([f"{prefix}objcopy", "-O", "binary", "-j", ".text", made, target], check=True)
    target.chmod(0o755)
    return True


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCES
    for machine in MACHINES:
        target = folder / f"launch-{machine}"
        print(f"{target}: {'made' if assemble(machine, target) else 'no assembler for it here'}")


if __name__ == "__main__":
    main()
