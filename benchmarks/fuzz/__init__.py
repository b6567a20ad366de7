"""The fuzz: damaged files and odd arguments, each of which must end in one line and exit code 2, or work."""
