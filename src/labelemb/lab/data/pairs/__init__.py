"""Readers of pairs of texts."""
