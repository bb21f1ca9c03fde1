"""What the tools of the web share: fetching, reading, searching, keeping."""
