"""Fetching pages of the public web, and nothing else."""
