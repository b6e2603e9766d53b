"""The two operators, with ttnn's signatures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

import switchyard
from switchyard.errors import Status
from switchyard.mesh import AllToAllCombine, AllToAllDispatch

from ._device import MeshDevice
from ._errors import SwitchyardError
from ._tensor import MeshTensor, _copied
from ._trace import _recorded
from ._words import BufferType, Layout, MemoryConfig, SubDeviceId, TensorMemoryLayout, Topology

Order = Literal["concat", "flat"]
Fill = Literal["zero", "keep"]


@_recorded
def all_to_all_dispatch(
    input_tensor: MeshTensor,
    expert_indices_tensor: MeshTensor,
    expert_mapping_tensor: MeshTensor,
    *,
    cluster_axis: int | None = None,
    output_tensors: Sequence[MeshTensor] | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    memory_config: MemoryConfig | None = None,
    subdevice_id: SubDeviceId | None = None,
    output_concat_dim: int | None = 1,
    order: Order = "concat",
    fill: Fill | None = None,
    mesh: MeshDevice | None = None,
) -> tuple[MeshTensor, MeshTensor]:
    """Send each token to the devices of its experts, and the table of all choices to every device.

    Rows that are not sent keep their contents in given `output_tensors` and are zero in new ones; `fill` overrides
    this. `order`, `fill` and `mesh` are additions of this library.
    """
    name = "all_to_all_dispatch"
    given = {
        "input_tensor": input_tensor,
        "expert_indices_tensor": expert_indices_tensor,
        "expert_mapping_tensor": expert_mapping_tensor,
    }
    device = _checked(name, mesh, given)
    _check_dim(name, "output_concat_dim", output_concat_dim)
    if output_tensors is not None and len(output_tensors) != 2:
        raise SwitchyardError(Status.VALUE, f"{name}: output_tensors has {len(output_tensors)} tensors, want 2")
    hints = _hints(name, num_links, topology, memory_config, subdevice_id)
    mapping = _mapping(name, device, expert_mapping_tensor)
    indices = _Bits.of(expert_indices_tensor)
    out = None
    if output_tensors is not None:
        tokens, metadata = (_checked_output(name, tensor, device) for tensor in output_tensors)
        out = AllToAllDispatch(tuple(tokens.shards), tuple(_Bits.of(metadata).shards))
    try:
        made = device.mesh.all_to_all_dispatch(
            input_tensor.shards,
            indices.shards,
            mapping,
            cluster_axis=cluster_axis,
            output_concat_dim=output_concat_dim,
            order=order,
            fill=fill or ("zero" if out is None else "keep"),
            want=("metadata",),
            out=out,
            **hints,
        )
    except switchyard.Error as error:
        raise SwitchyardError(error.status, str(error)) from None
    if output_tensors is not None:
        return output_tensors[0], output_tensors[1]
    table = indices.back(made.metadata or ())
    return input_tensor._like(made.tokens, memory_config), input_tensor._like(table, memory_config)


@_recorded
def all_to_all_combine(
    input_tensor: MeshTensor,
    expert_metadata_tensor: MeshTensor,
    expert_mapping_tensor: MeshTensor,
    *,
    local_reduce: bool = False,
    output_shard_dim: int | None = 1,
    cluster_axis: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: MeshTensor | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    order: Order = "concat",
    fill: Fill | None = None,
    mesh: MeshDevice | None = None,
) -> MeshTensor:
    """Return the rows of the experts to the devices of their tokens, a row for each slot.

    On a device `input_tensor` is [experts of the device, batch of the group, sequence of the group, hidden], with
    `local_reduce` [1, ...]: already summed over the device's experts. Rows that are not sent keep their contents in a
    given `output_tensor` and are zero in a new one; `fill` overrides this.
    """
    name = "all_to_all_combine"
    given = {
        "input_tensor": input_tensor,
        "expert_metadata_tensor": expert_metadata_tensor,
        "expert_mapping_tensor": expert_mapping_tensor,
    }
    device = _checked(name, mesh, given)
    _check_dim(name, "output_shard_dim", output_shard_dim)
    hints = _hints(name, num_links, topology, memory_config, subdevice_id)
    mapping = _mapping(name, device, expert_mapping_tensor)
    _check_rows(name, device, input_tensor, expert_metadata_tensor, mapping, local_reduce)
    out = None
    if output_tensor is not None:
        out = AllToAllCombine(tuple(_checked_output(name, output_tensor, device).shards))
    try:
        made = device.mesh.all_to_all_combine(
            input_tensor.shards,
            _Bits.of(expert_metadata_tensor).shards,
            mapping,
            local_reduce=local_reduce,
            cluster_axis=cluster_axis,
            output_shard_dim=output_shard_dim,
            order=order,
            fill=fill or ("zero" if out is None else "keep"),
            want=(),
            out=out,
            **hints,
        )
    except switchyard.Error as error:
        raise SwitchyardError(error.status, str(error) + _advice(error, device)) from None
    if output_tensor is not None:
        return output_tensor
    device.ran("all_to_all_combine: a new output is cleared first")
    return input_tensor._like(made.output, memory_config)


def _checked(name: str, mesh: MeshDevice | None, given: dict[str, Any]) -> MeshDevice:
    """The mesh of a call, after checking that its tensors belong to one mesh and are row-major."""
    for field, tensor in given.items():
        if not isinstance(tensor, MeshTensor):
            text = f"{name}: {field} is a {type(tensor).__name__}"
            raise SwitchyardError(Status.DTYPE, f"{text}, want a tensor on a mesh: from_torch makes one")
        if tensor.layout != Layout.ROW_MAJOR:
            raise SwitchyardError(Status.VALUE, f"{name}: {field} has layout {tensor.layout.name}, want ROW_MAJOR")
    first: MeshTensor = given["input_tensor"]
    device = mesh if mesh is not None else first.device()
    for field, tensor in given.items():
        if tensor.mesh_shape != device.shape:
            text = f"{name}: {field} is on a {tensor.mesh_shape}"
            raise SwitchyardError(Status.MISMATCH, f"{text}, want the {device.shape} of the call")
    return device


def _check_dim(name: str, field: str, dim: int | None) -> None:
    """Rejects 0, which is the default of the operator and a wrong dimension here; it rejects other numbers itself."""
    if dim is not None and not dim:
        raise SwitchyardError(Status.VALUE, f"{name}: {field} is {dim!r}, want 1 or 2")


def _checked_output(name: str, tensor: Any, device: MeshDevice) -> MeshTensor:
    _checked(name, device, {"input_tensor": tensor})
    first = tensor.shards[0]
    if any(shard is first for shard in tensor.shards[1:]):  # replicated: devices share the array until one is written
        tensor.shards = [_copied(shard) for shard in tensor.shards]
    return tensor  # type: ignore[no-any-return]


def _advice(error: switchyard.Error, device: MeshDevice) -> str:
    """What to change in a program whose devices have different tables of choices, as one of ttnn's examples."""
    if error.status != Status.MISMATCH or "the table of choices" not in str(error):
        return ""
    count = device.get_num_devices()
    return (
        "; the copies of expert_metadata_tensor must be equal in a group, as all_to_all_dispatch returns them: make "
        f"one table and repeat it before from_torch, as in metadata = metadata[:1].repeat({count}, 1, 1, 1)"
    )


class _Bits(NamedTuple):
    """Reads signed 16-bit integers as unsigned ones, and converts results back."""

    shards: list[Any]
    signed: Any

    @classmethod
    def of(cls, tensor: MeshTensor) -> _Bits:
        dtype = tensor.shards[0].dtype
        if str(dtype).removeprefix("torch.") != "int16":
            return cls(tensor.shards, None)
        unsigned = np.uint16 if isinstance(tensor.shards[0], np.ndarray) else sys.modules["torch"].uint16
        return cls([shard.view(unsigned) for shard in tensor.shards], dtype)

    def back(self, arrays: Sequence[Any]) -> list[Any]:
        return [array if self.signed is None else array.view(self.signed) for array in arrays]


def _numpy(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.view(sys.modules["torch"].int16).numpy().view(np.uint16)


def _mapping(name: str, device: MeshDevice, tensor: MeshTensor) -> Any:
    """The table of experts and devices: one, or one copy per device. All devices host equally many experts."""
    shards = _Bits.of(tensor).shards
    if str(shards[0].dtype).removeprefix("torch.") != "uint16":
        text = f"{name}: expert_mapping_tensor is {str(shards[0].dtype).removeprefix('torch.')}"
        raise SwitchyardError(Status.DTYPE, f"{text}, want uint16")
    copies = [_numpy(shard) for shard in shards]
    first = copies[0]
    devices = device.get_num_devices()
    if any(copy.shape != first.shape for copy in copies) or first.ndim < 2 or first.shape[-1] != devices:
        want = f"[1, 1, experts, {devices}]"
        raise SwitchyardError(
            Status.SHAPE, f"{name}: expert_mapping_tensor has shape {list(first.shape)} on a device, want {want}"
        )
    table = first.reshape(-1, devices)
    hosted = table.sum(axis=0, dtype=np.int64)
    if table.size and table.max() <= 1 and (len(table) % devices or (hosted != len(table) // devices).any()):
        text = f"{name}: expert_mapping_tensor gives the devices {hosted.tolist()} experts"
        raise SwitchyardError(Status.ROUTING, f"{text}, want the same number each: {len(table)} / {devices}")
    if all(np.shares_memory(copy, first) for copy in copies[1:]):
        return table
    return np.stack([copy.reshape(1, *table.shape) for copy in copies])


def _check_rows(
    name: str, device: MeshDevice, tensor: MeshTensor, metadata: MeshTensor, mapping: Any, local_reduce: bool
) -> None:
    """Rejects an input without a dimension for experts, the shape that one page of ttnn's documentation shows."""
    if len(metadata.shape) != 4:
        return  # the operator rejects it
    experts = 1 if local_reduce else mapping.shape[-2] // device.get_num_devices()
    want = (experts, *metadata.shape[1:3])
    if len(tensor.shape) == 4 and tensor.shape[:3] == want:
        return
    meant = "experts of the device" if not local_reduce else "1 row for all experts of the device"
    raise SwitchyardError(
        Status.SHAPE,
        f"{name}: input_tensor has shape {list(tensor.shape)} on a device, want [{want[0]}, {want[1]}, {want[2]}, "
        f"hidden]: {meant}, batch and sequence of the whole group as in expert_metadata_tensor; a tensor [batch, "
        "sequence, 1, hidden] has no place for the experts",
    )


def _hints(
    name: str,
    num_links: int | None,
    topology: Topology | None,
    memory_config: MemoryConfig | None,
    subdevice_id: SubDeviceId | None,
) -> dict[str, Any]:
    """Hints of ttnn about the route of rows. Passed to the call, without effect on results."""
    if num_links is not None and num_links < 1:
        raise SwitchyardError(Status.VALUE, f"{name}: num_links is {num_links}, want None or 1 or more")
    memory = "auto"
    if memory_config is not None:
        interleaved = memory_config.memory_layout == TensorMemoryLayout.INTERLEAVED
        memory = "sharded" if not interleaved else "l1" if memory_config.buffer_type == BufferType.L1 else "dram"
    return {
        "num_links": num_links or 0,
        "topology": "auto" if topology is None else topology.name.lower(),
        "memory": memory,
        "subdevice_id": 0 if subdevice_id is None else subdevice_id.id,
    }
