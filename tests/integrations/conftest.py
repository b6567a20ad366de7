"""Nothing is downloaded: set before any test imports Transformers."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
