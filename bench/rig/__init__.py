"""What the benchmarks share: the scripted model server, a clean project, measured processes."""
