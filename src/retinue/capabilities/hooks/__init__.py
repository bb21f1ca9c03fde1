"""Programs of the user's that are told what happens in a run, and may have a say in it."""
