"""The application layer: one function per question, which returns a struct, and one per verb.

    feed      one project: snapshot, event stream, and the verbs spawn, say, stop, resume, to_background, answer
    snapshot  runs as they stand at one moment, with the place in the event stream
    projects  all projects of this user, and the feed of each
    stream    events as they happen, for clients that come back where they were
    watch     one run while somebody waits for it
    details   one run for remote front ends: the run whole, its result, its conversation

Every other module is a subject, such as `agents`, `models` or `worktrees`: the README lists them. A front end reads its
flags, routes or keys, asks here, and shows the struct. It does not read the log itself.
"""
