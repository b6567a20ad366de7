"""Readers of texts with labels."""
