"""Programs confined by the operating system: their files, network, view of the system and limits."""
