"""What every test shares: one thread, Ctrl-C that works, the same random numbers in every run, fixtures made once."""

import os
import signal

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start: threads of many processes wait for each other
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the suite runs in the background of a shell, or under nohup
    signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile(
    "reproducible",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # it measures how busy the machine is
)
hypothesis.settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Starts each test from the same seed, so that its random weights do not depend on which tests ran before it."""
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share a module's fixture in one worker: half of them in another would make it again."""
    for item in items:
        assert isinstance(item, pytest.Function)
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(fixture.scope == "module" for found in fixtures for fixture in found):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
