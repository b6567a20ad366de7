"""The installed version of labelemb."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("labelemb")
except PackageNotFoundError:  # used from a copy of the source that was never installed
    __version__ = "0+unknown"
