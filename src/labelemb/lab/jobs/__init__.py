"""The main verbs as functions."""
