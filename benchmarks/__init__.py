"""Speed and memory of the heads, compared with the usual alternatives. `python -m benchmarks --help`."""
