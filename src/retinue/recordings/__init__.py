"""Recordings of runs: tests of agents, replays, forks, comparisons and evaluations on top of them."""
