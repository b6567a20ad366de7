"""Which scikit-learn this works with."""

from labelemb.integrations.versions import require

OLDEST, NEWEST = (1, 6), (1, 9)
"""The first and the last version (major, minor) that the tests have passed with."""


def require_scikit_learn() -> None:
    """Say what to install where scikit-learn is missing, and warn where it is a version that was not tested."""
    require(
        "sklearn",
        extra="sklearn",
        oldest=OLDEST,
        newest=NEWEST,
        adapter="labelemb.integrations.sklearn",
        distribution="scikit-learn",
    )
