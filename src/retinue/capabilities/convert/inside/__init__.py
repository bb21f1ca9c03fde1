"""The program of the converter's own process; `retinue` itself is not importable there."""
