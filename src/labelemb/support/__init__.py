"""Helpers that every other folder uses and that know nothing of labels."""
