"""A test program of several processes: what Python cannot read in one of them is an error in all, and the mesh goes on.

    mpirun -n PROCESSES python rejections.py

Every wrong call is made by each process in turn, while the others make one that is right.
"""

import inspect
from typing import Any

import numpy as np
from exchange import RANK, SIZE, WORLD, batch, rejected, run, same
from mpi4py import MPI

import switchyard
from switchyard.mesh import AllToAllCombine, AllToAllDispatch, MpiMesh

X, CHOSEN, HOSTS, WEIGHTS = batch(1, 1, 2, 2, 4)
GOOD = {"input": X[RANK], "expert_indices": CHOSEN[RANK], "expert_mapping": HOSTS}


class Raises:
    """Raises whatever is asked of it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error or ZeroDivisionError("division by zero")

    def fail(self, *args: Any, **kwargs: Any) -> Any:
        raise self.error

    __bool__ = __index__ = __len__ = __iter__ = __eq__ = __dlpack__ = __dlpack_device__ = fail
    __hash__ = None
    shape = property(fail)


class Silent(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError


def closed_routing() -> Any:
    with MpiMesh(MPI.COMM_SELF, 1, 1) as mesh:
        return mesh.routing()


def locked(shape: tuple[int, ...]) -> Any:
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


def meta() -> Any:
    """A tensor without memory."""
    try:
        import torch
    except ImportError:
        return object()
    return torch.zeros(SIZE * 2, 5, device="meta")


PAIR = np.zeros(2)
NUMBERS = ["x", 1.5, True, None, 1 << 40, -(1 << 31), PAIR, Raises(), Raises(Silent())]
WORDS = ["spiral", "padded\0", "\ud800", b"padded", 5, None, [], PAIR, Raises()]
FLAGS = [1, "no", None, PAIR, Raises(), Raises(Silent()), Raises(ValueError("many\nlines"))]
ARRAYS = ["text", 5, object(), [1.0], PAIR.astype(object), PAIR.astype(">f8"), np.ma.masked_equal(PAIR, 0), Raises()]
COMMON: dict[str, list[Any]] = {
    "cluster_axis": [2, -1, True, "x", PAIR, Raises()],
    "order": WORDS,
    "fill": WORDS,
    "layout": WORDS,
    "align": NUMBERS,
    "max_tokens": NUMBERS,
    "strict_unique": FLAGS,
    "num_links": NUMBERS,
    "topology": WORDS,
    "memory": [*WORDS, "sharded"],
    "subdevice_id": NUMBERS,
    "routing": [5, "x", PAIR, Raises(), closed_routing()],
    "no_such_argument": [1],
    "input": [None, *ARRAYS, np.zeros(()), X[RANK, 0]],
    "expert_mapping": [*ARRAYS, HOSTS[:, :0], HOSTS + 1],
}
DISPATCH = COMMON | {
    "output_concat_dim": ["x", 3, PAIR, Raises()],
    "reuse_routing": [True, *FLAGS],
    "expert_indices": [None, *ARRAYS, CHOSEN[RANK] + 99],
    "planes": [[np.zeros((3, 1, 1, 1))], 7, None, [5], [X[RANK]] * 4, [None], Raises(), [Raises()]],
    "want": [5, ["everything"], [[]], [5], Raises(), [Raises()]],
    "out": [
        5,
        (),
        AllToAllCombine(X[RANK]),
        AllToAllDispatch(None),
        AllToAllDispatch(np.zeros((1, 1), np.float32)),
        AllToAllDispatch("text"),
        AllToAllDispatch(locked((SIZE * 2, 5))),
        AllToAllDispatch(meta()),
        AllToAllDispatch(Raises()),
        AllToAllDispatch(np.zeros((SIZE * 2, 5)), plane_tokens=5),
        AllToAllDispatch(np.zeros((SIZE * 2, 5), np.float32), present=Raises()),
        Raises(),
    ],
}
COMBINE = COMMON | {
    "output_shard_dim": ["x", 3, PAIR, Raises()],
    "local_reduce": [True, *FLAGS],
    "sum": FLAGS,
    "expert_metadata": [None, *ARRAYS],
    "weights": ARRAYS,
    "want": [5, ["src"], Raises()],
    "out": [5, AllToAllDispatch(X[RANK]), AllToAllCombine("x"), AllToAllCombine(locked((2, SIZE, 2, 5))), Raises()],
}


def check(mesh: MpiMesh, name: str, good: dict[str, Any], wrongs: dict[str, list[Any]]) -> None:
    start = getattr(mesh, f"start_{name}")
    block = getattr(mesh, f"all_to_all_{name}")
    wanted = block(**good)

    def all_raise(call: Any, culprit: int) -> None:
        sentence = rejected(call, f"device {culprit} ")
        assert sentence.startswith(f"all_to_all_{name}: ")
        assert sentence.isascii()

    for argument, values in wrongs.items():
        for at, value in enumerate(values):
            for culprit in range(SIZE):
                given = {**good, argument: value} if culprit == RANK else good
                try:
                    all_raise(lambda given=given: block(**given), culprit)
                    all_raise(start(**given).wait, culprit)
                    same(block(**good)[0], wanted[0])
                except BaseException as error:
                    error.add_note(f"{name} with {argument} number {at} wrong in process {culprit}")
                    raise


def test_dispatch() -> None:
    with MpiMesh(WORLD, 1, SIZE) as mesh:
        check(mesh, "dispatch", GOOD, DISPATCH)


def test_combine() -> None:
    with MpiMesh(WORLD, 1, SIZE) as mesh:
        y = np.zeros((np.count_nonzero(HOSTS[:, RANK]), SIZE, 2, 5), np.float32)
        table = mesh.all_to_all_dispatch(**GOOD).metadata
        check(mesh, "combine", {"input": y, "expert_metadata": table, "expert_mapping": HOSTS}, COMBINE)


def test_calls_that_python_rejects() -> None:
    with MpiMesh(WORLD, SIZE, 1) as mesh:
        for culprit in range(SIZE):
            mine = culprit == RANK
            for args, said in (
                ((), f"device {culprit} missing 1 required positional argument: 'input'"),
                ((1, 2, 3, 4, 5), f"device {culprit} takes from 2 to 4 positional arguments but 6 were given"),
            ):
                call = mesh.start_dispatch(*args) if mine else mesh.start_dispatch(**GOOD)
                assert rejected(call.wait) == f"all_to_all_dispatch: {said}"
            extra = {"speed": 3} if mine else {}
            said = f"device {culprit} got an unexpected keyword argument 'speed'"
            assert rejected(lambda extra=extra: mesh.all_to_all_dispatch(**GOOD, **extra)).endswith(said)
            assert rejected(lambda extra=extra: mesh.alloc(3, "int8", **extra)) == f"alloc: {said}"
            array = mesh.alloc((2, 3), "int16")
            assert array.shape == (2, 3)
    names = [*inspect.signature(MpiMesh.all_to_all_dispatch).parameters]
    assert names == [*inspect.signature(MpiMesh.start_dispatch).parameters]
    assert names[:4] == ["self", "input", "expert_indices", "expert_mapping"]
    assert [*inspect.signature(MpiMesh.alloc).parameters] == ["self", "shape", "dtype"]


def test_alloc() -> None:
    with MpiMesh(WORLD, 1, SIZE) as mesh:
        for culprit in range(SIZE):
            for shape, dtype, argument in (
                ((-1, 2), "int8", "shape"),
                (1 << 62, "float64", "shape"),
                ("x", "int8", "shape"),
                (1.5, "int8", "shape"),
                (None, "int8", "shape"),
                (Raises(), "int8", "shape"),
                ((2, Raises()), "int8", "shape"),
                (3, "no such type", "dtype"),
                (3, "int8\0", "dtype"),
                (2, object, "dtype"),
                (2, Raises(), "dtype"),
            ):
                given = (shape, dtype) if culprit == RANK else (3, "int8")
                sentence = rejected(
                    lambda given=given: mesh.alloc(*given), f"alloc: {argument} of device {culprit} is "
                )
                assert "want" in sentence
                mesh.alloc(np.int64(3), np.float32)[:] = RANK


def test_several_are_wrong() -> None:
    """The lowest device is reported."""
    with MpiMesh(WORLD, 1, SIZE) as mesh:
        wanted = mesh.all_to_all_dispatch(**GOOD)
        wrongs = [{"layout": "spiral"}, {"want": 5}, {"expert_indices": CHOSEN[RANK] + 99}]
        for first in range(3):
            wrong = wrongs[(first + RANK) % 3]
            argument = next(iter(wrongs[first]))
            said = rejected(lambda wrong=wrong: mesh.all_to_all_dispatch(**GOOD | wrong), f"{argument} of device 0")
            assert said.startswith("all_to_all_dispatch: ")
            same(mesh.all_to_all_dispatch(**GOOD).tokens, wanted.tokens)


def test_between_open_requests() -> None:
    with MpiMesh(WORLD, 1, SIZE, max_inflight=3) as mesh:
        wanted = mesh.all_to_all_dispatch(**GOOD)
        for culprit in range(SIZE):
            wrong = {"strict_unique": PAIR} if culprit == RANK else {}
            requests = [mesh.start_dispatch(**GOOD), mesh.start_dispatch(**GOOD | wrong), mesh.start_dispatch(**GOOD)]
            for at in (2, 0, 1) if RANK % 2 else (0, 1, 2):
                if at == 1:
                    try:
                        requests[1].wait()
                    except TypeError as error:
                        assert f"strict_unique of device {culprit}" in str(error)
                    else:
                        raise AssertionError
                else:
                    same(requests[at].wait().tokens, wanted.tokens)
            with_room = [mesh.start_dispatch(**GOOD) for _ in range(3)]  # none is left for one that is rejected
            rejected(mesh.start_dispatch(**GOOD | wrong).wait)
            for request in with_room:
                same(request.wait().tokens, wanted.tokens)


def test_an_interrupt_rejects_the_call_in_all() -> None:
    """The process that is interrupted raises the interrupt, the others an error; the mesh can be used further."""
    with MpiMesh(WORLD, 1, SIZE, timeout_ms=20000) as mesh:
        wanted = mesh.all_to_all_dispatch(**GOOD)
        for culprit in range(SIZE):
            for wrong in (KeyboardInterrupt(), SystemExit("over")):
                given = GOOD | ({"align": Raises(wrong)} if culprit == RANK else {})
                try:
                    mesh.start_dispatch(**given).wait()
                except (KeyboardInterrupt, SystemExit) as error:
                    assert error is wrong
                except switchyard.CommError as error:
                    assert culprit != RANK
                    said = f"all_to_all_dispatch: device {culprit} raised {type(wrong).__name__}: {wrong}"
                    assert str(error) == said
                else:
                    raise AssertionError
                same(mesh.all_to_all_dispatch(**GOOD).tokens, wanted.tokens)
        try:
            MpiMesh(WORLD, 1, Raises(KeyboardInterrupt()) if RANK == 0 else SIZE)
        except KeyboardInterrupt:
            assert RANK == 0
        except switchyard.CommError as error:
            assert RANK != 0
            assert str(error) == "MpiMesh: device 0 raised KeyboardInterrupt: "


def test_the_cause_stays() -> None:
    cause = ZeroDivisionError("division by zero")
    with MpiMesh(WORLD, 1, SIZE) as mesh:
        wrong = {"align": Raises(cause)} if RANK == 0 else {}
        try:
            mesh.all_to_all_dispatch(**GOOD, **wrong)
        except ValueError as error:
            found = error
            while found is not None and found is not cause:
                found = found.__cause__
            assert (found is cause) == (RANK == 0)
        else:
            raise AssertionError


if __name__ == "__main__":
    run(globals())
