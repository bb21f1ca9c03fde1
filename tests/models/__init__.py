"""Model layer: wire formats against scripted servers, names, selection."""
