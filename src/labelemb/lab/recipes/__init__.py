"""Recipes: settings of an experiment, read from TOML files."""
