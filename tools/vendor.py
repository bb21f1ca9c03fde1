"""Put the libraries of the page into src/retinue/frontends/web/vendor, from the packages of the npm registry.

    python tools/vendor.py

Files are taken as they are, but that imports by package name become imports of the file beside: browsers need that, and
an import map would be an inline script. `versions.json` has the checksum of each file as it was published and as it is
shipped; `tests/frontends/web/test_vendor.py` compares both.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
VENDOR = ROOT / "src" / "retinue" / "frontends" / "web" / "vendor"
LICENSES = ROOT / "LICENSES"
PACKAGES = {
    "preact": ("11.2.0", {"dist/preact.mjs": "preact.mjs", "hooks/dist/hooks.mjs": "hooks.mjs"}),
    "htm": ("3.1.1", {"dist/htm.mjs": "htm.mjs"}),
    "@preact/signals-core": ("1.14.5", {"dist/signals-core.mjs": "signals-core.mjs"}),
    "@preact/signals": ("2.11.4", {"dist/signals.mjs": "signals.mjs"}),
}
IMPORTS = {
    'from"preact/hooks"': 'from"./hooks.mjs"',
    'from"preact"': 'from"./preact.mjs"',
    'from"@preact/signals-core"': 'from"./signals-core.mjs"',
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> int:
    VENDOR.mkdir(parents=True, exist_ok=True)
    listed = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, (version, files) in PACKAGES.items():
            command = ["npm", "pack", "--silent", f"{name}@{version}"]
            archive = subprocess.run(command, cwd=scratch, check=True, capture_output=True, text=True).stdout.split()[
                -1
            ]
            with tarfile.open(Path(scratch) / archive) as packed:
                texts = {}
                for member in packed.getmembers():
                    inner = member.name.partition("/")[2]
                    if inner in files or inner in ("package.json", "LICENSE"):
                        texts[inner] = packed.extractfile(member).read().decode()
            about = json.loads(texts["package.json"])
            (LICENSES / f"{name.strip('@').replace('/', '-')}.txt").write_text(texts["LICENSE"])
            for inner, shipped in files.items():
                text = texts[inner]
                for package, beside in IMPORTS.items():
                    text = text.replace(package, beside)
                (VENDOR / shipped).write_text(text)
                row = {"file": shipped, "package": name, "version": about["version"], "licence": about["license"]}
                listed.append({**row, "source": inner, "published": digest(texts[inner]), "shipped": digest(text)})
    (VENDOR / "versions.json").write_text(json.dumps({"imports": IMPORTS, "files": listed}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
