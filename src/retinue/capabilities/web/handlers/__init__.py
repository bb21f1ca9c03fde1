"""From bytes of the web to text a model can read."""
