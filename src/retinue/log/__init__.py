"""The log: all events of runs, in one SQLite file per project. README.md lists the modules.

Importing this package costs nothing: `sqlite3` is loaded when a log is opened.
"""
