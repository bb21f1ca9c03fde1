"""`retinue models`: what can be used, and what a name means."""
