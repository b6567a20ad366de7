"""The cases and the oracle of the heads' tests serve here too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "heads"))
