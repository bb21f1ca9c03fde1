"""The values of Retinue as plain data. No input, no output, no third-party imports."""
