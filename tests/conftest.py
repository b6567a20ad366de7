"""What every test shares: one thread, Ctrl-C that works, and random numbers that are the same in every run."""

import os
import signal

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start: threads of many processes wait for each other
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the suite runs in the background of a shell, or under nohup
    signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, database=None, max_examples=40)
hypothesis.settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Starts each test from the same seed, so that its random weights do not depend on which tests ran before it."""
    torch.manual_seed(0)
