"""Labels split over processes, for label sets that do not fit one: `ShardedLabelEmbeddingHead` on DTensor.

See docs/many-processes.md for what crosses the wire, and for DDP and FSDP2 with the ordinary head.
"""

from labelemb.heads.sharded.head import ShardedLabelEmbeddingHead, TopLabels
from labelemb.heads.sharded.rows import gather_rows

__all__ = ["ShardedLabelEmbeddingHead", "TopLabels", "gather_rows"]
