"""Starts, limits, records and ends runs. Everything it knows is an event in the log."""
