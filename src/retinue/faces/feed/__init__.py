"""What every face shows of the runs of a project, and what it may ask of them.

    feed      one project: snapshot, event stream, and the verbs spawn, say, stop, resume, to_background, answer
    snapshot  runs as they stand at one moment, with the place in the event stream
    projects  all projects of this user, and the feed of each
    stream    events as they happen, for clients that come back where they were
    watch     one run while somebody waits for it
    details   what is asked about one run or one project: effects, changes, agents, models, cost

A face translates between its protocol and this package. It does not read the log itself.
"""
