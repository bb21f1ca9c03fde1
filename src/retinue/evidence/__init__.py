"""Evidence of what agents do: recordings of runs, tests and replays of them, forks, comparisons and evaluations."""
