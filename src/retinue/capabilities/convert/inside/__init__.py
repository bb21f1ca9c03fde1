"""What runs in the converter's own process; `retinue` itself is not importable there."""
