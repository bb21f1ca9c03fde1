"""`retinue settings`: what is set, where it comes from, and changing it."""
