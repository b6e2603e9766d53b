"""A test program of several processes: meshes over MPI give the bytes of local ones, and reject as one.

    mpirun -n PROCESSES python exchange.py

Every process makes the call of its device over MPI, and the calls of all devices on a local mesh.
"""

import gc
import sys
import warnings
from typing import Any

import numpy as np
from mpi4py import MPI

import switchyard
from switchyard.mesh import AllToAllDispatch, LocalMesh, MpiMesh

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
SHAPES = [(rows, SIZE // rows) for rows in range(1, SIZE + 1) if SIZE % rows == 0]


def same(mine: Any, wanted: Any) -> None:
    assert (mine is None) == (wanted is None), (mine, wanted)
    if mine is not None:
        assert mine.dtype == wanted.dtype
        assert mine.shape == wanted.shape, (mine.shape, wanted.shape)
        assert np.asarray(mine).tobytes() == np.asarray(wanted).tobytes(), (mine, wanted)


def same_results(mine: Any, wanted: Any) -> None:
    """Results here against those of the local mesh's device."""
    for name in mine._fields:
        if name == "plane_tokens":
            for plane, planes in zip(mine.plane_tokens, wanted.plane_tokens, strict=True):
                same(plane, planes[RANK])
        else:
            arrays = getattr(wanted, name)
            same(getattr(mine, name), None if arrays is None else arrays[RANK])


def batch(seed: int, b: int, s: int, k: int, experts: int, h: int = 5) -> tuple[Any, ...]:
    """The same in every process: arrays of all devices."""
    r = np.random.default_rng(seed)
    x = r.integers(0, 1 << 32, (SIZE, b, 1, s, h), np.uint32).view(np.float32)  # any bits
    chosen = r.integers(-1, experts, (SIZE, b, 1, s, k)).astype(np.int32)
    hosts = np.zeros((experts, SIZE), np.uint16)
    hosts[np.arange(experts), r.integers(0, SIZE, experts)] = 1
    return x, chosen, hosts, r.random((SIZE, b, 1, s, k), np.float32)


def check_pair(over: MpiMesh, local: LocalMesh, data: tuple[Any, ...], **options: Any) -> None:
    x, chosen, hosts, weights = data
    routings = over.routing(), local.routing()
    planes = [x[..., :2].view(np.uint16), chosen.astype(np.int64)]
    there = over.all_to_all_dispatch(
        x[RANK], chosen[RANK], hosts, planes=[p[RANK] for p in planes], routing=routings[0], **options
    )
    wanted = local.all_to_all_dispatch(x, chosen, hosts, planes=planes, routing=routings[1], **options)
    same_results(there, wanted)
    if options.get("layout") == "packed":
        same_results(
            over.all_to_all_combine(there.tokens, local_reduce=True, routing=routings[0]),
            local.all_to_all_combine(wanted.tokens, local_reduce=True, routing=routings[1]),
        )
    if options.get("layout") == "expert":
        same_results(
            over.all_to_all_combine(there.tokens, weights=weights[RANK], sum=True, routing=routings[0]),
            local.all_to_all_combine(wanted.tokens, weights=weights, sum=True, routing=routings[1]),
        )
        again = {"routing": routings[0], "reuse_routing": True}
        same_results(
            over.all_to_all_dispatch(-x[RANK], **again),
            local.all_to_all_dispatch(-x, **{**again, "routing": routings[1]}),
        )


def test_the_bytes_of_a_local_mesh() -> None:
    for at, shape in enumerate(SHAPES):
        for options in ({}, {"no_shared": True}, {"no_shared": True, "pack": True, "chunk_bytes": 64}):
            with MpiMesh(WORLD, *shape, **options) as over, LocalMesh(*shape) as local:
                for axis in (None, 0, 1):
                    where = {"cluster_axis": axis}
                    check_pair(over, local, batch(at, 2, 3, 2, 5), **where)
                    check_pair(over, local, batch(at, 2, 3, 2, 5), **where, layout="packed", output_concat_dim=2)
                    expert = {"layout": "expert", "align": 2, "output_concat_dim": 2, "order": "flat"}
                    check_pair(over, local, batch(at, 2, 3, 2, 5), **where, **expert)


def test_arrays_of_other_libraries() -> None:
    x, chosen, hosts, _ = batch(3, 1, 4, 2, 3)
    with MpiMesh(WORLD, 1, SIZE) as over, LocalMesh(1, SIZE) as local:
        wanted = local.all_to_all_dispatch(x, chosen, hosts)
        out = AllToAllDispatch(np.empty((SIZE * 4, 5), np.float32), present=np.empty(SIZE * 4, np.uint8))
        got = over.all_to_all_dispatch(x[RANK], chosen[RANK], hosts, out=out)
        assert got.tokens is out.tokens
        same(got.tokens.reshape(1, SIZE, 4, 5), wanted.tokens[RANK])
        try:
            import torch
        except ImportError:
            return
        got = over.all_to_all_dispatch(torch.tensor(x[RANK]), torch.tensor(chosen[RANK]), torch.from_numpy(hosts))
        assert isinstance(got.tokens, torch.Tensor)
        same(got.tokens.numpy(), wanted.tokens[RANK])


def test_token_counts_that_differ() -> None:
    with MpiMesh(WORLD, 1, SIZE) as over, LocalMesh(1, SIZE) as local:
        x = [np.full((d, 2), d, np.float32) for d in range(SIZE)]
        chosen = [np.full((d, 1), (d + 1) % SIZE) for d in range(SIZE)]
        hosts = np.eye(SIZE, dtype=np.uint16)
        mine, theirs = over.routing(), local.routing()
        got = over.all_to_all_dispatch(x[RANK], chosen[RANK], hosts, max_tokens=SIZE, layout="packed", routing=mine)
        wanted = local.all_to_all_dispatch(x, chosen, hosts, max_tokens=SIZE, layout="packed", routing=theirs)
        same(got.tokens, wanted.tokens[RANK])
        same_results(
            over.all_to_all_combine(got.tokens, routing=mine), local.all_to_all_combine(wanted.tokens, routing=theirs)
        )
        for options in ({}, {"layout": "packed"}, {"layout": "expert"}, {"planes": True}):
            here, there = dict(options, max_tokens=SIZE), dict(options, max_tokens=SIZE)
            if "planes" in options:
                here["planes"], there["planes"] = (x[RANK],), (x,)
            request = over.start_dispatch(x[RANK], chosen[RANK], hosts, routing=mine, **here)
            wanted = local.all_to_all_dispatch(x, chosen, hosts, routing=theirs, **there)
            same(request.wait("routed").metadata, wanted.metadata[RANK])
            same_results(request.wait(), wanted)
            again = over.all_to_all_dispatch(x[RANK], routing=mine, reuse_routing=True, planes=here.get("planes", ()))
            same_results(again, wanted._replace(metadata=None))
        rows, weights = x[RANK], np.ones((RANK, 1), np.float32)  # as many as there are of tokens here
        table = over.all_to_all_dispatch(x[RANK], chosen[RANK], hosts, max_tokens=SIZE, want=("metadata",))
        home = over.all_to_all_combine(table.tokens[None], table.metadata, hosts, weights, sum=True, max_tokens=SIZE)
        same(home.output, rows)


def test_memory_that_is_shared() -> None:
    x, chosen, hosts, weights = batch(5, 1, 6, 2, 4)
    mesh, local = MpiMesh(WORLD, 1, SIZE), LocalMesh(1, SIZE)
    routings = mesh.routing(), local.routing()
    mine = mesh.alloc(x[RANK].shape, np.float32)
    assert mine.flags.writeable
    assert mine.ctypes.data % 64 == 0
    mine[:] = x[RANK]
    there = mesh.all_to_all_dispatch(mine, chosen[RANK], hosts, layout="expert", routing=routings[0])
    wanted = local.all_to_all_dispatch(x, chosen, hosts, layout="expert", routing=routings[1])
    same_results(there, wanted)
    answers = mesh.alloc((len(there.tokens) + 3, 5), "float32")
    answers[: len(there.tokens)] = there.tokens
    same_results(
        mesh.all_to_all_combine(answers, weights=weights[RANK], sum=True, routing=routings[0]),
        local.all_to_all_combine(wanted.tokens, weights=weights, sum=True, routing=routings[1]),
    )
    assert mesh.alloc(0, np.int8).shape == (0,)
    assert mesh.alloc((), np.float64).shape == ()
    rejected(lambda: mesh.alloc(1 << 60, "int8"), "could not be allocated in every process")
    mesh.close()
    assert (mine == x[RANK]).sum() == (x[RANK] == x[RANK]).sum()  # still there
    rejected(lambda: mesh.alloc(1, "int8"), "alloc: the mesh is closed")


def test_requests() -> None:
    data = [batch(seed, 1, 3, 2, 4) for seed in range(3)]
    with MpiMesh(WORLD, SIZE, 1, max_inflight=3) as over, LocalMesh(SIZE, 1) as local:
        wanted = [local.all_to_all_dispatch(x, chosen, hosts) for x, chosen, hosts, _ in data]
        requests = [over.start_dispatch(x[RANK], chosen[RANK], hosts) for x, chosen, hosts, _ in data]
        assert requests[1].wait("routed").tokens is None
        for at in (2, 0, 1) if RANK % 2 else (1, 2, 0):
            same_results(requests[at].wait(), wanted[at])
        x, chosen, hosts, _ = data[0]
        for _ in range(5):  # dropped
            over.start_dispatch(x[RANK], chosen[RANK], hosts)
        request = over.start_dispatch(x[RANK], chosen[RANK], hosts)
    same_results(request.wait(), wanted[0])


# ---- Rejections ----


def rejected(call: Any, *words: str) -> str:
    """The sentence, which is the same in all processes."""
    try:
        call()
    except switchyard.Error as error:
        told = WORLD.allgather((type(error).__mro__[1].__name__, error.status, str(error)))
        assert len(set(told)) == 1, told
        assert all(word in str(error) for word in words), (str(error), words)
        return str(error)
    raise AssertionError(f"was not rejected, about {words}")


def test_creation_is_rejected_in_all() -> None:
    rejected(lambda: MpiMesh(WORLD, SIZE, 2), "sy_comm_create_mpi", f"want {2 * SIZE}")
    rejected(lambda: MpiMesh(WORLD, 1, SIZE if RANK else 0), "sy_comm_create")
    rejected(lambda: MpiMesh(WORLD, 1, SIZE, max_inflight=-3 if RANK == SIZE - 1 else 0), "max_inflight")
    for wrong in (
        {"timeout_ms": "soon"},
        {"check": "some"},
        {"check": []},
        {"chunk_bytes": -1},
        {"chunk_bytes": 1 << 40},
        {"pack": np.zeros(2)},
        {"no_shared": np.zeros(2)},
        {"max_inflight": 1.5},
    ):
        options = wrong if RANK == SIZE - 1 else {}
        said = rejected(lambda options=options: MpiMesh(WORLD, 1, SIZE, **options), f"{next(iter(wrong))} of device")
        assert said.startswith("MpiMesh: ")
    MpiMesh(WORLD, 1, SIZE, timeout_ms=-1).close()
    rejected(lambda: MpiMesh(3, 1, SIZE), "comm is 3, want a communicator of mpi4py")
    rejected(lambda: MpiMesh(MPI.COMM_NULL, 1, SIZE), "MPI_COMM_NULL")


# ---- Lives ----


def test_a_part_of_the_world() -> None:
    part = WORLD.Split(RANK % 2, RANK)
    with MpiMesh(part, part.size, 1) as mesh:
        assert mesh.device == part.rank
        x = np.full((1, 2), RANK, np.float32)
        got = mesh.all_to_all_dispatch(x, np.zeros((1, 1), np.int32), np.ones((1, part.size), np.uint16))
    assert got.tokens[:, 0].tolist() == list(range(RANK % 2, SIZE, 2))
    part.Free()


def test_closed_and_forgotten() -> None:
    x, chosen, hosts, _ = batch(1, 1, 2, 2, 4)
    mesh = MpiMesh(WORLD, 1, SIZE)
    assert repr(mesh) == f"<switchyard.mesh.MpiMesh of 1x{SIZE} devices>"
    assert isinstance(mesh.shares_memory, bool)
    request = mesh.start_dispatch(x[RANK], chosen[RANK], hosts)
    mesh.close()
    mesh.close()
    assert request.wait().tokens.shape == (1, SIZE, 2, 5)
    rejected(lambda: mesh.all_to_all_dispatch(x[RANK], chosen[RANK], hosts), "the mesh is closed")

    forgotten = MpiMesh(WORLD, 1, SIZE, no_shared=True)
    request = forgotten.start_dispatch(x[RANK], chosen[RANK], hosts)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del forgotten, request
        gc.collect()
    assert [w.category for w in told] == [ResourceWarning]

    if RANK == 0:  # alone: nobody comes to close it
        left = MpiMesh(MPI.COMM_SELF, 1, 1)
        try:
            with left:
                raise KeyError
        except KeyError:
            pass
        assert left.closed


def run(tests: dict[str, Any]) -> None:
    """Runs the functions of a program that are tests, or those that its arguments name."""
    names = sys.argv[1:] or [name for name in tests if name.startswith("test_")]
    for name in names:
        try:
            tests[name]()
        except BaseException:
            print(f"{name} failed in process {RANK} of {SIZE}", file=sys.stderr, flush=True)
            import traceback

            traceback.print_exc()
            WORLD.Abort(1)
        WORLD.Barrier()
        if RANK == 0:
            print(f"ok {name}", flush=True)


if __name__ == "__main__":
    run(globals())
