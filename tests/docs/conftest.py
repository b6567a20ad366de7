"""Pages and notebooks whose comparisons start their workers quickly."""

from tests.helpers.forked import quick_workers as quick_workers
