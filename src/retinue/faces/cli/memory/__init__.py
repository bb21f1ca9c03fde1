"""`retinue memory`: what agents remember."""
