"""The log: everything runs said and did, in one SQLite file per project.

    store       Log: append, flush, subscribe, claim        (the process that runs agents)
    query       Reader: runs, events, outcomes, partial text (any process, any time)
    inbox       what waits for a person, answered once from any process
    commands    what other processes ask of a run, and the answers
    follow      events of a run as they are written, by this process or another
    replay      events back to the conversation they were
    transcript  the same as JSON lines that other programs read; events and runs as JSON

Importing this package costs nothing; `sqlite3` is loaded when a log is opened.
"""
