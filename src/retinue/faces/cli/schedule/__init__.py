"""`retinue schedule`: agents that start at a time."""
