"""What an agent remembers from one run to the next."""
