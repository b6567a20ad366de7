"""Speed and memory of the heads against what a user would use instead. `python -m benchmarks --help`."""
