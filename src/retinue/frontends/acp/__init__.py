"""Retinue inside editors: the Agent Client Protocol, version 1, on standard input and output.

A session of the protocol is a main run, its id the id of the run; a child session is a run below it. Everything an
editor is told is a translation of the feed, so that runs of other processes are seen in the same way.

    pipes        lines in, lines out; nothing else of the process reaches the pipes
    rpc          requests, answers and notifications of JSON-RPC
    agent        the connection: its beginning, its requests, its end
    session      one conversation: prompts, cancelling, what the editor is told
    tree         events of a tree of runs as updates; calls, digest and updates are its parts
    asks         what waits for a person, put to the editor's user
    sessions     the sessions of a client, what each is opened with, conversations of the log
    commands, options, prompt    the editor's words and choices

What answers `initialize` imports nothing of the engine: editors start the program and wait for it.
"""

from retinue.frontends.acp.agent import serve_editor as serve_editor
