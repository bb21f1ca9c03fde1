"""A language server that behaves, or misbehaves, as its first argument says.

It writes its process number to the file that STARTS names, so that a test can count its starts.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path


def read():
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return json.loads(sys.stdin.buffer.read(length)) if length else sys.exit(0)


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    sys.stdout.buffer.flush()


def span(line, start, end):
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}


def push(uri, text, version):
    found = [
        {"range": span(number, line.index("BAD"), line.index("BAD") + 3), "message": "bad word", "severity": 2}
        for number, line in enumerate(text.split("\n"))
        if "BAD" in line
    ]
    send(
        {"method": "textDocument/publishDiagnostics", "params": {"uri": uri, "version": version, "diagnostics": found}}
    )


def progress(kind):
    send({"method": "$/progress", "params": {"token": "load", "value": {"kind": kind, "title": "Loading"}}})


def begin(how):
    """What it does before it listens."""
    if starts := os.environ.get("STARTS"):
        with Path(starts).open("a") as file:
            file.write(f"{os.getpid()}\n")
    if how == "dies":
        sys.stderr.write("no licence\n")
        sys.exit(3)
    noise = {"silent": "", "noise": "Please wait...\n" * 800, "huge": "Content-Length: 99999999999\r\n\r\n"}
    if how in noise:
        sys.stdout.write(noise[how])
        sys.stdout.flush()
        time.sleep(600)


def touch(*folders):
    for folder in folders:
        with contextlib.suppress(OSError):
            (folder / "touched").write_text("x")


def initialized(how):
    if how == "loading":
        progress("begin")
    elif how == "asks":
        send({"id": "q1", "method": "workspace/configuration", "params": {"items": [{"section": "fake.deep"}]}})
        send({"id": "q2", "method": "workspace/applyEdit", "params": {"edit": {}}})
        send({"id": "q3", "method": "no/such/method", "params": {}})


def hover(how, number, params, times):
    at = params["position"]
    if how == "crashes":
        os._exit(1)
    elif how == "hangs":
        return
    elif how == "wrong":
        send({"id": number, "result": {"range": 7, "contents": []}})
    elif how == "refuses":
        send({"id": number, "error": {"code": -32603, "message": "cannot do that"}})
    elif how == "modified" and times < 3:
        send({"id": number, "error": {"code": -32801, "message": "content modified"}})
    elif how == "loading" and times == 1:
        send({"id": number, "result": None})
        progress("end")
    else:
        send({"id": number, "result": {"contents": f"hover {at['line']}:{at['character']} of {os.getpid()}"}})


def main():
    how = sys.argv[1]
    begin(how)
    times = 0
    while True:
        message = read()
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "initialize":
            if how == "touch":
                touch(Path(params["rootPath"]), Path.home())
            send({"id": number, "result": {"capabilities": {"hoverProvider": True, "textDocumentSync": 1}}})
        elif method == "initialized":
            initialized(how)
        elif method is None:
            with Path(os.environ["ANSWERS"]).open("a") as file:
                file.write(json.dumps(message) + "\n")
        elif method == "textDocument/didOpen":
            document = params["textDocument"]
            push(document["uri"], document["text"], document["version"])
        elif method == "textDocument/hover":
            times += 1
            hover(how, number, params, times)
        elif method == "shutdown":
            send({"id": number, "result": None})
        elif method == "exit":
            sys.exit(0)
        elif number is not None:
            send({"id": number, "error": {"code": -32601, "message": method}})


main()
