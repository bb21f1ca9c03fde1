"""The terminal app: it sends commands and draws events, nothing else."""
