"""Comparisons: many runs in parallel, summarised."""
