"""Imports Lightning Fabric without torchmetrics, which is slow to import and only used to compare a version."""

from labelemb.support.optional import version_only

with version_only("torchmetrics"):
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

__all__ = ["DDPStrategy", "Fabric"]
