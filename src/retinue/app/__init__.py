"""The application layer: one function per question, which returns a struct, and one per command.

    feed      one project: snapshot, event stream, and the commands spawn, say, stop, resume, to_background, answer
    snapshot  runs at one moment, with the cursor of the event stream
    projects  all projects of this user, and the feed of each
    stream    events as they happen, for clients that reconnect
    watch     one run while a caller waits for it
    details   one run for remote front ends: its description, its result, its conversation

Every other module is a subject, such as `agents`, `models` or `worktrees`; the README lists them. A front end reads its
flags, routes or keys, calls this layer, and shows the struct. It does not read the log itself.
"""
