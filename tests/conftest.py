"""What every test shares: one thread, and hypothesis examples that are the same in every run."""

import hypothesis
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, database=None, max_examples=40)
hypothesis.settings.load_profile("reproducible")
