"""The log: everything that runs said and did, in one SQLite file per project.

    store       Log: append, flush, subscribe, claim        (the process that runs agents)
    query       LogReader: runs, events, outcomes, partial text (any process, any time)
    inbox       questions to people, answered once from any process
    commands    commands of other processes to a run, and the answers
    follow      events as they become durable: of this process, and of a whole project in order
    replay      events back to their conversation
    transcript  the conversation as JSON lines that other programs read

Importing this package costs nothing; `sqlite3` is loaded when a log is opened.
"""
