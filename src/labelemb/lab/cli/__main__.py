"""`python -m labelemb.lab.cli` is the command `labelemb`."""

import sys

from labelemb.lab.cli import run_process

sys.exit(run_process())
