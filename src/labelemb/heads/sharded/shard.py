"""Which labels a process holds, and maxima and sums over all processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from labelemb.embeddings.running import largest


class LabelShard:
    """This process's part of the labels: start to stop, cut as DTensor's `Shard` cuts.

    Every process has ceil(labels / processes) labels except the last ones, which have fewer, or none. Reductions are
    collective: all processes of the mesh call them in the same order with the same shapes.
    """

    def __init__(self, mesh: DeviceMesh, num_labels: int) -> None:
        if not isinstance(mesh, DeviceMesh):
            raise TypeError(f"mesh is a {type(mesh).__name__}, but must be a torch.distributed DeviceMesh")
        if mesh.ndim != 1:
            raise ValueError(f'mesh has {mesh.ndim} dimensions, but labels are split over one: pass mesh["its name"]')
        if mesh.get_coordinate() is None:
            raise ValueError(
                f"this process is not in the mesh {mesh.mesh.tolist()}: make the head in its processes only"
            )
        self.mesh, self.num_labels = mesh, num_labels
        self.group = mesh.get_group()
        self.processes, self.rank = mesh.size(), mesh.get_local_rank()
        self.largest = -(-num_labels // self.processes)
        self.start, self.stop = self.bounds(self.rank)
        self.width = self.stop - self.start

    def __deepcopy__(self, memo: dict[int, Any]) -> LabelShard:
        return self  # it does not change, and a copy of a head is in the same processes

    def bounds(self, rank: int) -> tuple[int, int]:
        """First label of a process, and the first that it no longer has."""
        return min(rank * self.largest, self.num_labels), min((rank + 1) * self.largest, self.num_labels)

    def max(self, value: Tensor) -> Tensor:
        """The largest over the processes, in place."""
        dist.all_reduce(value, dist.ReduceOp.MAX, group=self.group)
        return value

    def sum(self, value: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        dist.all_reduce(value, group=self.group)
        return value

    def row_maximum(self, values: Tensor) -> Tensor:
        """The largest value of each row (rows, held labels) over all labels, (rows,)."""
        if not self.width:
            return self.max(values.new_full((len(values),), -torch.inf))
        return self.max(values.amax(1))

    def places(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Where labels stand among those held here, and which of them are; the place of one that is not is 0."""
        places = labels - self.start
        held = (places >= 0) & (places < self.width)
        return torch.where(held, places, 0), held

    def pick(self, table: Tensor, labels: Tensor) -> Tensor:
        """Rows (k, ...) of a table (held labels, ...); zeros for labels of other processes."""
        places, held = self.places(labels)
        picked = table.new_zeros(len(labels), *table.shape[1:])
        picked[held] = table[places[held]]
        return picked

    def own(self, values: Tensor, labels: Tensor) -> Tensor:
        """What each row (rows, held labels) has at its own label; 0 where another process holds it."""
        if not self.width:
            return values.new_zeros(len(values))
        places, held = self.places(labels)
        return torch.where(held, values.gather(1, places.unsqueeze(1)).squeeze(1), 0)

    def add_to_own(self, values: Tensor, labels: Tensor, more: Tensor) -> None:
        """Add to each row (rows, held labels) at its own label, where this process holds it."""
        if self.width:
            places, held = self.places(labels)
            values.scatter_add_(1, places.unsqueeze(1), torch.where(held, more, 0).unsqueeze(1))

    def best(self, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k largest of each row (rows, held labels) over all labels, and their labels, (rows, k) each.

        Of equal ones those of the first processes win, and for k = 1 the first label.
        """
        offered = values.new_full((len(values), k), -torch.inf)
        labels = torch.zeros_like(offered, dtype=torch.long)
        mine = min(k, self.width)
        if mine == 1:
            offered[:, :1], labels[:, :1] = values.max(1, keepdim=True)
        elif mine:
            offered[:, :mine], labels[:, :mine] = largest(values, mine)
        offers, owners = self._side_by_side(offered), self._side_by_side(labels.add_(self.start))
        best, order = offers.sort(dim=1, descending=True, stable=True)
        return best[:, :k], owners.gather(1, order[:, :k])

    def _side_by_side(self, columns: Tensor) -> Tensor:
        """(rows, columns) of each process -> (rows, processes x columns)."""
        parts = [torch.empty_like(columns) for _ in range(self.processes)]
        dist.all_gather(parts, columns, group=self.group)
        return torch.cat(parts, 1)

    def wrap(self, local: Tensor, dim: int = 0) -> DTensor:
        """This process's part of a tensor whose dimension `dim` is the labels, as a DTensor. Differentiable."""
        dim %= local.ndim
        shape = torch.Size((*local.shape[:dim], self.num_labels, *local.shape[dim + 1 :]))
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(local, self.mesh, [Shard(dim)], run_check=False, shape=shape, stride=stride)

    def cut(self, whole: Tensor, dim: int = 0) -> DTensor:
        """A tensor that every process has, of which each keeps its part."""
        part = whole.detach().narrow(dim, self.start, self.width)
        return self.wrap(part.to(self.mesh.device_type, copy=True, memory_format=torch.contiguous_format), dim)

    def shared(self, value: Tensor) -> Tensor:
        """A value that all processes have; its gradient is the sum of theirs."""
        replicated = DTensor.from_local(value, self.mesh, [Replicate()], run_check=False)
        return replicated.to_local(grad_placements=[Partial()])

    def on_first(self, tensor: DTensor) -> Tensor | None:
        """The whole of a tensor split over the labels, in the CPU memory of the mesh's first process; None elsewhere.

        One part after the other: no other process holds more than its own.
        """
        placement: Any = tensor.placements[0]
        dim, local = placement.dim, tensor.to_local().detach().contiguous()
        first = dist.get_global_rank(self.group, 0)
        if self.rank > 0:
            if self.width:
                dist.send(local, first, group=self.group)
            return None
        whole = torch.empty(tensor.shape, dtype=tensor.dtype)
        for rank in range(self.processes):
            start, stop = self.bounds(rank)
            if rank > 0 and start < stop:
                shape = [*local.shape[:dim], stop - start, *local.shape[dim + 1 :]]
                local = local.new_empty(shape)
                dist.recv(local, dist.get_global_rank(self.group, rank), group=self.group)
            if start < stop:
                whole.narrow(dim, start, stop - start).copy_(local)
        return whole
