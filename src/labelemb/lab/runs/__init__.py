"""Runs: one training, its state, its folder and its result."""
