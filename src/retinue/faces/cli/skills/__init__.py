"""`retinue skills`: what agents can load."""
