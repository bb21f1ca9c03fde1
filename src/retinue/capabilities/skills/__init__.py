"""Skills: found on disk, listed for models, loaded when one is needed."""
