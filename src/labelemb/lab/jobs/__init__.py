"""The main subcommands as functions."""
