"""Meshes with arrays on a CUDA device, without one: the kernels run on the emulated device of tests/cuda/emulator."""

from typing import Any

import numpy as np
import pytest
from mesh_examples import EXAMPLES, rows
from test_device import Described, There, emulated, host  # skips where it was not built

import switchyard
from switchyard.mesh import LocalMesh

__all__ = ["emulated"]  # a fixture that every test uses

same = np.testing.assert_array_equal
KINDS = (There, Described)


def there(arrays: list[Any], kind: Any) -> list[Any]:
    return [kind(np.ascontiguousarray(array)) for array in arrays]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, kind: Any) -> None:
    example = EXAMPLES[name]
    devices = range(example.devices)
    given = [example.given(d, np.float32) for d in devices], [example.indices(d, np.int32) for d in devices]
    results = [rows(example.results[d]) for d in devices]
    with LocalMesh(*example.mesh) as mesh:
        routing = mesh.routing()
        mapping = kind(np.ascontiguousarray(example.mapping))
        got = mesh.all_to_all_dispatch(
            *(there(arrays, kind) for arrays in given), mapping, routing=routing, **example.dispatch_options
        )
        back = mesh.all_to_all_combine(there(results, kind), routing=routing, local_reduce=example.local_reduce)
    with LocalMesh(*example.mesh) as mesh:
        routing = mesh.routing()
        wanted = mesh.all_to_all_dispatch(*given, example.mapping, routing=routing, **example.dispatch_options)
        home = mesh.all_to_all_combine(results, routing=routing, local_reduce=example.local_reduce)
    for d in devices:
        same(host(got.tokens[d]), wanted.tokens[d], strict=True)
        same(host(back.output[d]), home.output[d], strict=True)


@pytest.mark.parametrize("layout", ["packed", "expert"])
def test_layouts(layout: Any) -> None:
    """Results have exactly the rows that were sent where the library can cut arrays; counts tell them in any case."""
    x = [np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * d for d in range(2)]
    chosen = [np.array([[0, 2], [1, 0], [3, 3]], np.int32), np.array([[3, 2], [2, 0], [1, 1]], np.int32)]
    hosts = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16)
    with LocalMesh(1, 2) as mesh:
        wanted = mesh.all_to_all_dispatch(x, chosen, hosts, layout=layout)
        got = mesh.all_to_all_dispatch(there(x, There), there(chosen, There), There(hosts), layout=layout)
        for d in range(2):
            n = len(wanted.tokens[d])
            same(host(got.tokens[d])[:n], wanted.tokens[d])
            same(host(got.expert_counts[d]), wanted.expert_counts[d])
        again = mesh.all_to_all_dispatch(x, chosen, hosts, layout=layout)  # a mesh serves both kinds of memory
        for d in range(2):
            same(again.tokens[d], wanted.tokens[d])


def test_errors() -> None:
    x = [np.ones((2, 2), np.float32)] * 2
    chosen = [np.array([[0], [7]], np.int32)] * 2
    hosts = np.array([[1, 0], [0, 1]], np.uint16)
    with LocalMesh(1, 2) as mesh:
        with pytest.raises(switchyard.Error) as wanted:
            mesh.all_to_all_dispatch(x, chosen, hosts)
        with pytest.raises(switchyard.Error) as found:
            mesh.all_to_all_dispatch(there(x, There), there(chosen, There), There(hosts))
            switchyard.sync()
        assert str(found.value) == str(wanted.value)
        text = "expert_indices of device 0 is in CPU memory, want cuda:0 like input"
        with pytest.raises(switchyard.Error, match=text):
            mesh.all_to_all_dispatch(there(x, There), chosen, There(hosts))
