"""What tracing costs a process: CPU of `retinue -p` with many agents, with telemetry off and on.

    python bench/trace.py [--reps 5]

The collector is a process of its own that answers at once. Runs alternate; the figures are minima. The cost per run is
the difference without that of a prompt that starts no agent.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from rig.process import line, measure
from rig.project import Project, retinue
from rig.server import Server, require_rig

AGENTS = 64
PROMPTS = {"start": "SCENARIO oneshot", "agents": f"SCENARIO fanout N={AGENTS} TURNS=5 BG=1 WAIT=1"}
SINK = """
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *_): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
print(s.server_port, flush=True)
s.serve_forever()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    reps = parser.parse_args().reps
    require_rig()
    sink = subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True)
    assert sink.stdout is not None
    port = sink.stdout.readline().strip()
    lowest: dict[tuple[str, str], float] = {}
    try:
        with Server() as server, Project() as project:
            environment = project.environment(server.url) | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
            for _ in range(reps):
                for work, prompt in PROMPTS.items():
                    for mode in ("off", "on"):
                        given = {**environment, "RETINUE_TELEMETRY": mode}
                        cost = measure(retinue(f"{prompt} DIR={project.files}"), given, project.cwd).cpu
                        lowest[work, mode] = min(cost, lowest.get((work, mode), cost))
    finally:
        sink.kill()
    off = lowest["agents", "off"]
    start = lowest["start", "on"] - lowest["start", "off"]
    added = lowest["agents", "on"] - off - start
    print(f"retinue -p, {AGENTS} agents x 5 turns, minima of {reps}")
    ratio = 1 + added / off
    line(
        f"added by {AGENTS} runs: {added * 1000:.0f} of {off * 1000:.0f} ms", f"{ratio:.2f} x", "1.05 x", ratio <= 1.05
    )
    print(f"once a process: {start * 1000:.0f} ms")


if __name__ == "__main__":
    main()
