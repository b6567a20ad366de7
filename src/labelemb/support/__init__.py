"""Helpers for all other folders. They do not depend on labels."""
