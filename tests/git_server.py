"""A git server on loopback: `git http-backend` behind a web server, with a password."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

USER, PASSWORD = "deploy", "only-on-the-machines-own-disk"


class GitServer:
    """Serves one bare repository as `url`. `down` lets so many requests fail first; `requests` counts all."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "team" / "work.git"
        self.repository.parent.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(self.repository)], check=True)
        self.git("config", "http.receivepack", "true")
        self.down = 0
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, folder))
        self.url = f"http://127.0.0.1:{self._server.server_port}/team/work.git"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def git(self, *arguments: str) -> str:
        command = ["git", "--git-dir", str(self.repository), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def refs(self) -> list[str]:
        """Return the names of its refs."""
        return self.git("for-each-ref", "--format=%(refname)").split()

    def let_in(self, home: Path) -> None:
        """Give a machine the credentials, as its operator would: in git's own settings of its home."""
        home.mkdir(parents=True, exist_ok=True)
        place = urlsplit(self.url)
        (home / "credentials").write_text(f"http://{USER}:{PASSWORD}@{place.netloc}\n")
        (home / ".gitconfig").write_text(f"[credential]\n\thelper = store --file={home / 'credentials'}\n")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(server: GitServer, folder: Path) -> type[BaseHTTPRequestHandler]:
    wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append(self.path)
            body = self._body()
            if server.down > 0:
                server.down -= 1
                self.send_error(503)
            elif self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._answer(body)

        do_POST = do_GET  # noqa: N815 - http.server calls it so

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REMOTE_USER": USER,
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
