"""Retinue inside editors: the Agent Client Protocol, version 1, on standard input and output.

A session of the protocol is a main run with the same id; a child session is a run below it. All updates for an editor
are translated from the event stream, so runs of other processes look the same.

    pipes        lines in, lines out; no other output of the process reaches the pipes
    rpc          requests, answers and notifications of JSON-RPC
    agent        the connection: its beginning, its requests, its end
    session      one conversation: prompts, cancelling, updates for the editor
    tree         events of a tree of runs as updates; calls, summaries and updates are its parts
    questions    inbox items as questions to the editor's user
    sessions     the sessions of a client, their options, and the conversations of the log
    commands, options, prompt    commands, choices and prompts of the editor's user

Answering `initialize` imports no part of the engine, because the editor waits for it.
"""

from retinue.frontends.acp.agent import serve_editor as serve_editor
