"""The command `labelemb`."""

from labelemb.lab.cli.main import main

__all__ = ["main"]
