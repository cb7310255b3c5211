"""Ratio benchmarks; run them as `python -m benchmarks.<name>`."""
