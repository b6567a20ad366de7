"""`python -m labelemb.lab.cli` is the command `labelemb`."""

import sys

from labelemb.lab.cli.main import main

sys.exit(main())
