"""Requests, routings and meshes over their lives: any order, dropped, closed, from several threads."""

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mesh_examples import E1, rows
from test_threads import ran_meanwhile, together

import switchyard
from switchyard.mesh import LocalMesh, Request

same = np.testing.assert_array_equal


def given(times: int = 1, **more: Any) -> dict[str, Any]:
    x = [times * E1.given(d) for d in range(2)]
    return {"input": x, "expert_indices": [E1.indices(0), E1.indices(1)], "expert_mapping": E1.mapping, **more}


def wrong_choice() -> list[Any]:
    wrong = [E1.indices(0), E1.indices(1)]
    wrong[0][0, 0, 0, 0] = 4
    return wrong


def tokens(times: int = 1) -> Any:
    return [times * rows(E1.tokens[d]) for d in range(2)]


def test_any_order() -> None:
    with LocalMesh(1, 2, max_inflight=3) as mesh:
        requests = [mesh.start_dispatch(**given(n)) for n in (1, 2, 3)]
        for at in (2, 0, 1):
            got = requests[at].wait()
            for d in range(2):
                same(got.tokens[d], tokens(at + 1)[d])
        assert all(request.test() for request in requests)
        assert requests[1].wait().tokens[0] is requests[1].wait().tokens[0]


def test_routed_comes_first() -> None:
    with LocalMesh(1, 2) as mesh:
        routing = mesh.routing()
        request = mesh.start_dispatch(**given(layout="expert", routing=routing))
        got = request.wait("routed")
        assert got.tokens is got.src is None
        assert [n.tolist() for n in got.expert_counts] == [[3, 1], [3, 1]]
        assert routing.filled
        assert request.test("routed")
        there = request.wait()
        back = mesh.start_combine(there.tokens, sum=True, routing=routing)
        assert back.wait("routed").output is None
        assert [x[0, 0, :, 0].tolist() for x in back.wait().output] == [[22, 24], [42, 44]]
        with pytest.raises(ValueError, match="request: phase is 'soon', want routed or done"):
            back.wait("soon")


def test_too_many_are_rejected() -> None:
    with LocalMesh(1, 2) as mesh:
        requests = [mesh.start_dispatch(**given()) for _ in range(2)]
        with pytest.raises(switchyard.CommError, match="has 2 open requests, want fewer than its max_inflight, 2"):
            mesh.start_dispatch(**given())
        requests[0].wait()
        requests.append(mesh.start_dispatch(**given()))
        with pytest.raises(switchyard.CommError, match="has 2 open requests"):
            mesh.start_dispatch(**given())
        for request in requests:
            request.wait()


def test_mistakes_come_from_the_waits() -> None:
    wrong = wrong_choice()
    with LocalMesh(1, 2) as mesh:
        bad = mesh.start_dispatch(**given(expert_indices=wrong))
        good = mesh.start_dispatch(**given())
        for _ in range(2):
            with pytest.raises(IndexError, match="expert_indices of device 0 at token 0, slot 0 is 4"):
                bad.wait()
        with pytest.raises(IndexError):
            bad.test()
        bad.close()
        same(good.wait().tokens[1], tokens()[1])
        with pytest.raises(IndexError), mesh.start_dispatch(**given(expert_indices=wrong)):
            pass
        with pytest.raises(KeyError), mesh.start_dispatch(**given(expert_indices=wrong)):
            raise KeyError
        with mesh.start_dispatch(**given()) as request:
            pass
        assert request.test()


def test_arrays_stay_until_it_is_done() -> None:
    class Kept(np.ndarray[Any, Any]):
        """An array that can be watched."""

    x = [E1.given(d).view(Kept) for d in range(2)]
    watched = [weakref.ref(array) for array in x]
    with LocalMesh(1, 2) as mesh:
        request = mesh.start_dispatch(**given(input=x))
        del x
        gc.collect()
        assert all(ref() is not None for ref in watched)
        got = request.wait()
        gc.collect()
        assert all(ref() is None for ref in watched)
    same(got.tokens[1], tokens()[1])


def test_dropped_requests_make_room() -> None:
    with LocalMesh(1, 2) as mesh:
        for n in range(7):
            mesh.start_dispatch(**given(n))
        kept = mesh.start_dispatch(**given(2))
        mesh.start_dispatch(**given(3))
        same(mesh.all_to_all_dispatch(**given(4)).tokens[0], tokens(4)[0])
        same(kept.wait().tokens[0], tokens(2)[0])


def test_closing_waits() -> None:
    mesh = LocalMesh(1, 2)
    requests = [mesh.start_dispatch(**given(n)) for n in (1, 2)]
    mesh.close()
    mesh.close()
    for n in (1, 2):
        same(requests[n - 1].wait().tokens[0], tokens(n)[0])


def test_closed_meshes_reject() -> None:
    with LocalMesh(1, 2) as mesh:
        routing = mesh.routing()
        mesh.all_to_all_dispatch(**given(routing=routing))
    assert mesh.closed
    assert repr(mesh) == "<switchyard.mesh.LocalMesh of 1x2 devices, closed>"
    assert repr(routing) == "<switchyard.mesh.Routing, filled>"
    for call in (
        lambda: mesh.all_to_all_dispatch(**given()),
        lambda: mesh.all_to_all_combine(tokens(), routing=routing),
        mesh.routing,
        mesh.__enter__,
    ):
        with pytest.raises(switchyard.CommError, match="the mesh is closed, want one that is open"):
            call()
    with LocalMesh(1, 2) as other, pytest.raises(switchyard.CommError, match="routing is of a mesh that is closed"):
        other.all_to_all_combine(tokens(), routing=routing)


def test_routings_of_other_meshes_are_rejected() -> None:
    with LocalMesh(1, 2) as mesh, LocalMesh(1, 2) as other:
        routing = other.routing()
        with pytest.raises(switchyard.CommError, match="routing of device 0 was made for another comm"):
            mesh.all_to_all_dispatch(**given(routing=routing))


def test_many_routings() -> None:
    with LocalMesh(1, 2) as mesh:
        held = []
        for n in range(300):
            routing = mesh.routing()
            mesh.all_to_all_dispatch(**given(n, routing=routing))
            if n % 3 == 0:
                held.append(routing)
        for routing in held:
            home = mesh.all_to_all_combine([rows(E1.results[d]) for d in range(2)], routing=routing)
            same(home.output[1], rows(E1.output[1]))


@pytest.mark.parametrize("keep", ["request", "routing", "nothing"])
def test_collected_with_requests_open(keep: str) -> None:
    mesh = LocalMesh(1, 2)
    routing = mesh.routing()
    requests = [mesh.start_dispatch(**given(routing=routing)), mesh.start_dispatch(**given())]
    held = {"request": requests[0], "routing": routing, "nothing": None}[keep]
    gone = weakref.ref(mesh)
    del mesh, routing, requests
    gc.collect()
    assert gone() is None
    if isinstance(held, Request):
        same(held.wait().tokens[0], tokens()[0])


def test_collected_in_a_cycle() -> None:
    class Layer:
        def __init__(self) -> None:
            self.mesh = LocalMesh(1, 2)
            self.routing = self.mesh.routing()
            self.request = self.mesh.start_dispatch(**given(routing=self.routing))
            self.me = self

    for _ in range(20):
        Layer()
    gc.collect()


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Runs work(1) to work(count), each in a thread of its own that may lose the processor at any time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        together(lambda i: work(i + 1), count)
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize(("max_inflight", "threads", "blocking"), [(8, 6, False), (1, 8, True)])
def test_threads_take_turns(max_inflight: int, threads: int, blocking: bool) -> None:
    """Blocking calls need no room for requests."""
    with LocalMesh(1, 2, max_inflight=max_inflight) as mesh:

        def work(n: int) -> None:
            for _ in range(50):
                routing = mesh.routing()
                call = given(n, layout="expert", routing=routing)
                there = mesh.all_to_all_dispatch(**call) if blocking else mesh.start_dispatch(**call).wait()
                home = mesh.all_to_all_combine(there.tokens, sum=True, routing=routing)
                same(home.output[0][0, 0, :, 0], [22 * n, 24 * n])

        in_threads(work, threads)


def test_blocking_calls_leave_room_for_requests() -> None:
    """One thread has as many requests open as it may; calls of the others neither fail nor take its room."""
    with LocalMesh(1, 2) as mesh:

        def work(n: int) -> None:
            for _ in range(100):
                if n > 1:
                    same(mesh.all_to_all_dispatch(**given(n)).tokens[1], tokens(n)[1])
                    continue
                requests = [mesh.start_dispatch(**given(times)) for times in (7, 8)]
                for times, request in zip((7, 8), requests, strict=True):
                    same(request.wait().tokens[0], tokens(times)[0])

        in_threads(work, 4)


def test_blocking_calls_finish_the_oldest_request() -> None:
    wrong = wrong_choice()
    with LocalMesh(1, 2) as mesh:
        requests = [mesh.start_dispatch(**given(expert_indices=wrong)), mesh.start_dispatch(**given(2))]
        for times in (3, 4, 5):
            same(mesh.all_to_all_dispatch(**given(times)).tokens[0], tokens(times)[0])
        with pytest.raises(IndexError, match="expert_indices of device 0 at token 0, slot 0 is 4"):
            requests[0].wait()
        same(requests[1].wait().tokens[0], tokens(2)[0])


def test_the_interpreter_goes_on() -> None:
    """While rows are copied another thread runs."""
    given = [np.zeros((1 << 16, 512), np.float32)] * 2, [np.zeros((1 << 16, 1), np.int32)] * 2, np.ones((1, 2), "u2")
    with LocalMesh(1, 2) as mesh:
        assert any(ran_meanwhile(lambda: mesh.all_to_all_dispatch(*given)) for _ in range(100))
