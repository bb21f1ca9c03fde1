"""Where Retinue keeps things, and what the user has set."""
