"""A real Ray cluster of several nodes on this machine, for tests that kill one of them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE_SECONDS = 900.0
PATIENCE = {  # a busy machine is no lost machine
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_worker_niceness": "0",  # as the test itself; Ray gives its workers 15
    "RAY_USAGE_STATS_ENABLED": "0",
}
UNUSED_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_log_monitor": False}


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """A cluster with one node, the head, with room for one run. Ray's own waits are too short for a busy machine."""
    pytest.importorskip("ray", reason="needs the extra [ray]")
    from ray._private import services
    from ray._private.node import Node
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATIENCE.items():
            patch.setenv(name, value)
        patch.setattr(services, "get_node", _patient(services.get_node))
        patch.setattr(Node, "start_raylet", _with_known_ports(Node.start_raylet))
        started = Cluster(initialize_head=True, head_node_args=node_options() | {"include_dashboard": False})
        yield started
        started.shutdown()


def node_options() -> dict[str, Any]:
    """Arguments of `add_node` for a node with room for one run."""
    with socket.socket() as free:
        free.bind(("", 0))
        return NODE | {"runtime_env_agent_port": free.getsockname()[1]}


def _patient(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """Ray itself waits for half a minute until a node has started."""

    def wait_for_node(*arguments: Any) -> Any:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    return wait_for_node


def _with_known_ports(start_raylet: Callable[..., None]) -> Callable[..., None]:
    """A node ends itself if its agents have not written their ports within 15 seconds: they are written before."""

    def start(node: Any, *arguments: Any, **options: Any) -> None:
        ports = dict.fromkeys(UNUSED_PORTS, -1) | {"runtime_env_agent_port": node._ray_params.runtime_env_agent_port}
        for name, port in ports.items():
            (Path(node._session_dir) / f"{name}_{node._node_id}").write_text(str(port))
        start_raylet(node, *arguments, **options)

    return start
