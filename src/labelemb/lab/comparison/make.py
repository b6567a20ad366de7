"""`make_pool` makes the pool that trains runs: processes of this machine, or a Ray cluster."""

import os

from labelemb.lab.comparison.pool import RunPool, WorkerPool
from labelemb.lab.comparison.protocol import WorkerSetup
from labelemb.lab.comparison.ray import Cluster, RayPool
from labelemb.lab.comparison.run_order import RunSource


def make_pool(
    order: RunSource, jobs: int | None, setup: WorkerSetup, cluster: Cluster | None = None, most: int | None = None
) -> RunPool:
    """A pool in processes of this machine, or on a cluster.

    Args:
        order: where the runs come from.
        jobs: how many at once; None is one for each processor core, or all that the cluster has room for.
        setup: what all runs share.
        cluster: where to train; None is this machine.
        most: how many runs there are at most.
    """
    if cluster is not None:
        return RayPool(order, jobs, setup, cluster, most)
    cores = jobs or os.cpu_count() or 1
    return WorkerPool(order, min(cores, most or cores), setup)
