"""switchyard.jax: vmap, in-place operators, errors, types of 64 bits, calls back into Python."""

import functools
import inspect
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from calls import Case, call, every, numbers_of, same_bits

import switchyard

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import switchyard.jax as sj  # noqa: E402
from switchyard.jax import _launch  # noqa: E402
from switchyard.jax._launch import wide as wide_types  # noqa: E402
from switchyard.jax.plain import is_operator  # noqa: E402

TOKENS = np.array([[10, 11], [20, 21], [30, 31], [40, 41]], np.float32)
MAP = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)

OPERATORS = [name for name in sj.__all__ if is_operator(getattr(switchyard, name, None))]


def rolled(x: Any) -> Any:
    return np.roll(x, 1, 0 if len(x) > 1 else -1)


# The first case of each operator in which an array has other contents when its rows are moved.
FIRST = {
    case.operator: case
    for _, case in reversed(list(every()))
    if not all(same_bits(x, rolled(x)) for x in case.arrays.values() if x.ndim > 0)
}


@pytest.fixture
def wide() -> Any:
    with wide_types():
        yield


@pytest.fixture(params=["handler", "callback"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """XLA calls the library, or Python."""
    jax.clear_caches()
    if request.param == "callback":
        monkeypatch.setattr(_launch, "has_handlers", lambda: False)
    elif not _launch.has_handlers():
        pytest.skip("the package was built without XLA's header")
    yield request.param
    jax.clear_caches()


def leaves(made: Any) -> list[Any]:
    return [np.asarray(x) for x in (made if isinstance(made, tuple) else (made,)) if x is not None]


def in_jax(case: Case, arrays: dict[str, Any]) -> Any:
    rows = {"rows": int(case.arrays["cu_lens"][-1])} if case.operator == "kv_ragged" else {}
    return getattr(sj, case.operator)(**arrays, **case.numbers, **rows)


# ---- vmap ----


def other_contents(case: Case) -> dict[str, Any]:
    """The same call with other contents: arrays whose rows are moved, as far as the operator accepts it."""
    arrays = {field: x for field, x in case.arrays.items() if x is not None}
    for field in list(arrays):
        moved = {f: rolled(y) if f == field else y.copy() for f, y in arrays.items()}
        try:
            call(case, {f: y.copy() for f, y in moved.items()})
        except switchyard.Error:
            continue
        arrays = moved
    return arrays


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FIRST)
def test_vmap(name: str, way: str, wide: None) -> None:
    """Every operator over a dimension of all arrays, and of the first alone."""
    case = FIRST[name]
    arrays = {field: x for field, x in case.arrays.items() if x is not None}
    other = other_contents(case)
    assert any(not same_bits(arrays[field], other[field]) for field in arrays)
    plain = [leaves(call(case, {f: x.copy() for f, x in given.items()})) for given in (arrays, other)]
    both = {field: np.stack([arrays[field], other[field]], 1) for field in arrays}
    found = leaves(jax.jit(jax.vmap(functools.partial(in_jax, case), in_axes=1))(both))
    for got, want in zip(found, zip(*plain, strict=True), strict=True):
        assert same_bits(got, np.stack(want)), f"{got}\n{want}"
    field = next(iter(field for field in arrays if field not in case.changes))
    twice = {field: np.stack([arrays[field]] * 3), **{f: arrays[f] for f in arrays if f != field}}
    axes = {f: 0 if f == field else None for f in twice}
    for got, want in zip(
        leaves(jax.vmap(functools.partial(in_jax, case), in_axes=(axes,))(twice)), plain[0], strict=True
    ):
        assert same_bits(got, np.stack([want] * 3))


def test_every_operator_has_a_case() -> None:
    with_arrays = set(OPERATORS) - {"moe_capacity", "moe_dispatch_grad_data", "sample_noise"}
    assert set(FIRST) == with_arrays


def test_vmap_of_vmap(way: str) -> None:
    """Two dimensions, of different arrays."""
    cache, slots = numbers_of("float32", 3, 6, 2), np.array([[5, 0], [1, 2], [3, 4], [0, 5]])
    src = numbers_of("float32", 2, 2)

    def scatter(cache: Any, slots: Any) -> Any:
        return sj.kv_scatter(cache, src, slots)

    found = jax.vmap(jax.vmap(scatter, (None, 0)), (0, None))(cache, slots)
    for i in range(3):
        for j in range(4):
            want = cache[i].copy()
            switchyard.kv_scatter(want, src, slots[j])
            assert same_bits(np.asarray(found[i, j]), want)


def test_vmap_over_nothing(way: str) -> None:
    found = jax.vmap(lambda x: sj.moe_permute(x, MAP, num_out_tokens=8).permuted_tokens)(jnp.zeros((0, 4, 2)))
    assert found.shape == (0, 8, 2)


def test_vmap_of_a_gradient(way: str) -> None:
    weights = numbers_of("float32", 3, 8, 2)

    def loss(tokens: Any, weight: Any) -> Any:
        return (sj.moe_permute(tokens, MAP, num_out_tokens=8).permuted_tokens * weight).sum()

    found = jax.vmap(jax.grad(loss), (None, 0))(TOKENS, weights)
    rows = switchyard.moe_permute(TOKENS, MAP, num_out_tokens=8)
    for got, weight in zip(found, weights, strict=True):
        want = switchyard.moe_permute_grad(weight, rows.sorted_indices, num_experts=3, num_tokens=4).grad_tokens
        assert same_bits(np.asarray(got), want)


# ---- Calls back into Python ----


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FIRST)
def test_both_ways(name: str, way: str) -> None:
    """Results without jax_enable_x64: those of 64 bits have 32."""
    case = FIRST[name]
    arrays = {field: x for field, x in case.arrays.items() if x is not None}
    found = leaves(jax.jit(functools.partial(in_jax, case))(arrays))
    for got, want in zip(found, leaves(call(case, {f: x.copy() for f, x in arrays.items()})), strict=True):
        narrow = _launch.NARROW.get(want.dtype.name, want.dtype)
        assert same_bits(got, want.astype(narrow))


def test_the_variable(tmp_path: Any) -> None:
    code = (
        "import switchyard.jax as s; print(s._launch.has_handlers(), s.sample(s._launch.np.eye(3, dtype='f4')).token)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SWITCHYARD_JAX": "callback"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "False [0 1 2]\n", done.stderr


def test_offsets_of_32_bits(way: str) -> None:
    """Without jax_enable_x64 an operator takes the offsets that another one made."""

    def convert(tokens: Any) -> Any:
        rows = sj.moe_permute(tokens, MAP, num_out_tokens=8)
        assert rows.expert_offsets.dtype == jnp.int32
        return sj.moe_convert_indices(rows.sorted_indices, rows.expert_offsets, to="te", num_tokens=4)

    plain = switchyard.moe_permute(TOKENS, MAP, num_out_tokens=8)
    want = switchyard.moe_convert_indices(plain.sorted_indices, plain.expert_offsets, to="te", num_tokens=4)
    for function in (convert, jax.jit(convert)):
        assert same_bits(np.asarray(function(TOKENS)), want)


def test_seeds_of_64_bits(way: str) -> None:
    """A number, a list and an array of NumPy keep their bits without jax_enable_x64."""
    logits, seeds = numbers_of("float32", 3, 50), [1 << 63, 7, (5 << 40) + 1]
    for seed in (seeds[0], seeds, np.array(seeds, np.uint64)):
        want = switchyard.sample(logits, seed=seed, temperature=0.7).token
        for function in (sj.sample, jax.jit(functools.partial(sj.sample, seed=seed))):
            kept = {"seed": seed} if function is sj.sample else {}
            assert function(logits, **kept, temperature=0.7).token.tolist() == want.tolist()


# ---- Arrays that are changed ----


def test_a_cache_is_not_changed(way: str) -> None:
    cache, rows, slots = jnp.zeros((4, 2)), jnp.ones((1, 2)), jnp.array([2])
    scatter = jax.jit(lambda cache: (sj.kv_scatter(cache, rows, slots), cache + 1))
    made, more = scatter(cache)
    assert made[:, 0].tolist() == [0, 0, 1, 0]
    assert (more[:, 0].tolist(), cache[:, 0].tolist()) == ([1] * 4, [0] * 4)


def test_a_donated_cache_is_changed_in_place() -> None:
    cache = jnp.zeros((4, 2)) + 0
    where = cache.unsafe_buffer_pointer()
    made = jax.jit(sj.kv_scatter, donate_argnums=0)(cache, jnp.ones((1, 2)), jnp.array([2]))
    assert made.unsafe_buffer_pointer() == where
    assert cache.is_deleted()


def test_several_caches(way: str) -> None:
    caches = numbers_of("float32", 6, 2), np.zeros((6, 4), np.int8)
    rows, scale = (numbers_of("float32", 2, 2), numbers_of("float32", 2, 4)), np.ones((6, 1), np.float32)
    numbers = {"format": (None, "int8")}
    made, scales = jax.jit(lambda *x: sj.kv_scatter(x[0], x[1], jnp.array([5, 0]), (None, x[2]), **numbers))(
        caches, rows, scale
    )
    switchyard.kv_scatter(caches, rows, np.array([5, 0]), (None, scale), **numbers)
    assert all(same_bits(np.asarray(got), want) for got, want in zip(made, caches, strict=True))
    assert scales[0] is None
    assert same_bits(np.asarray(scales[1]), scale)
    found_by = np.array([5, -1, 0]), np.arange(3)
    read = {"block_size": 2, "pad": "zero", "format": (None, "int8"), "dtype": "float16"}
    got = jax.jit(lambda *x: sj.kv_gather(x[0], *found_by, scale=(None, x[1]), **read))(caches, scale)
    want = switchyard.kv_gather(caches, *found_by, scale=(None, scale), **read)
    assert all(same_bits(np.asarray(a), b) for a, b in zip(got, want, strict=True))
    pairs = np.array([[0, 2], [1, 0]])
    copied = jax.jit(lambda *x: sj.kv_blocks(pairs, src=x, dst=x, block_size=2))(*caches)
    to = tuple(x.copy() for x in caches)
    switchyard.kv_blocks(pairs, src=caches, dst=to, block_size=2)
    assert all(same_bits(np.asarray(a), b) for a, b in zip(copied, to, strict=True))


def test_initial_contents(way: str) -> None:
    """`out` is not changed; rows that are skipped come from it."""
    out = jnp.full((2, 2), 7.0)
    made = sj.kv_gather(TOKENS, np.array([3, -1]), np.arange(4), block_size=1, pad="skip", out=out)
    assert (made[:, 0].tolist(), out[:, 0].tolist()) == ([40, 7], [7, 7])


# ---- Errors ----


def permute(tokens: Any, routing_map: Any, **numbers: Any) -> Any:
    return sj.moe_permute(tokens, routing_map, **{"num_out_tokens": 8} | numbers)


def test_arguments_are_rejected_while_tracing() -> None:
    with pytest.raises(ValueError, match=r"^moe_permute: routing_map has shape \[3,3\], want \[4,3\]") as caught:
        jax.eval_shape(permute, TOKENS, MAP[:3])
    assert isinstance(caught.value, switchyard.Error)
    with pytest.raises(
        TypeError, match=r"^moe_permute: num_out_tokens is traced by JAX, want an integer of 64 bits that"
    ):
        jax.jit(lambda n: permute(TOKENS, MAP, num_out_tokens=n))(8)
    with pytest.raises(TypeError, match=r"^moe_permute: num_out_tokens is an array, want an integer of 64 bits"):
        permute(TOKENS, MAP, num_out_tokens=np.array(8))
    with pytest.raises(ValueError, match=r"^moe_route: score is 'tanh', want softmax"):
        sj.moe_route(TOKENS, k=1, score="tanh")
    with pytest.raises(TypeError, match=r"^moe_permute: tokens is a list, want an array"):
        permute([[1.0]], MAP)
    with pytest.raises(ValueError, match=r"^moe_permute: out has 2 arrays, want a tuple of 6: permuted_tokens,"):
        permute(TOKENS, MAP, out=(TOKENS, TOKENS))
    with pytest.raises(ValueError, match=r"^kv_ragged: rows is None, want the number of rows of the result, because"):
        jax.jit(lambda n: sj.kv_ragged(TOKENS, n, np.arange(4)[None], block_size=1))(np.array([0, 2]))
    with pytest.raises(ValueError, match=r"^moe_permute: tokens is a masked array"):
        permute(np.ma.masked_array(TOKENS), MAP)
    with pytest.raises(TypeError, match=r"^moe_permute: tokens cannot be read as a tensor"):
        permute(TOKENS.astype("M8[s]"), MAP)


def test_an_array_of_another_library() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"^moe_permute: tokens is a Tensor, want an array of JAX or NumPy"):
        permute(torch.ones(4, 2), MAP)


def test_contents_are_rejected_when_it_runs(way: str) -> None:
    sentence = "moe_permute: routing_map routes token 0 to 3 experts, want at most 2 (num_out_tokens / tokens)"
    for function in (permute, jax.jit(permute), jax.vmap(permute, (0, None))):
        tokens = TOKENS[None] if function is not permute and not hasattr(function, "lower") else TOKENS
        with pytest.raises((ValueError, RuntimeError)) as caught:
            jax.block_until_ready(function(tokens, np.ones((4, 3), bool)))
        assert str(caught.value).endswith(sentence)
    assert permute(TOKENS, MAP).expert_counts.tolist() == [3, 2, 3]  # the next call works


@pytest.mark.skipif(not _launch.has_handlers(), reason="the package was built without XLA's header")
def test_kinds_of_exceptions() -> None:
    """XLA's codes, which JAX raises in its way."""
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"^OUT_OF_RANGE: kv_gather: indices at batch 0, position 0 is 9,"
    ):
        sj.kv_gather(TOKENS, np.array([9]), np.arange(4), block_size=1)


def test_no_gradient() -> None:
    """Only where one is needed: the choice of experts has none, and its map may be used."""

    def learn(logits: Any) -> Any:
        return jnp.where(sj.moe_route(logits, k=2).routing_map, jax.nn.softmax(logits), 0).sum()

    assert np.asarray(jax.jit(jax.grad(learn))(jnp.asarray(numbers_of("float32", 5, 4)))).any()
    with pytest.raises(
        NotImplementedError, match=r"^moe_route has no gradient: want jax.lax.stop_gradient of its arrays"
    ):
        jax.grad(lambda logits: sj.moe_route(logits, k=2).probs.sum())(jnp.ones((5, 4)))
    with pytest.raises(ValueError, match=r"^moe_dispatch: out requires a gradient, which would end here"):
        jax.grad(
            lambda x: sj.moe_dispatch(
                np.zeros(4, np.int32), np.arange(4, dtype=np.int32), x, num_experts=1, capacity=4, out=x
            ).sum()
        )(TOKENS)
    with pytest.raises(TypeError, match=r"^moe_permute_grad: grad_permuted_tokens is f64"), wide_types():
        jax.grad(lambda x: permute(x, MAP).permuted_tokens.sum())(TOKENS.astype(np.float64))


def test_second_derivatives() -> None:
    """They exist where a gradient only moves rows, and are an error elsewhere."""
    ids = np.array([[2, 0], [1, 2]])

    def curve(x: Any) -> Any:
        return (sj.moe_permute_ids(x, ids).permuted_tokens ** 3).sum()

    assert jax.grad(lambda x: jax.grad(curve)(x).sum())(jnp.array([[1.0], [2.0]]))[:, 0].tolist() == [12, 24]
    with pytest.raises(NotImplementedError, match=r"^moe_permute_grad has no gradient"):
        jax.grad(lambda x: jax.grad(lambda x: (permute(x, MAP).permuted_tokens ** 3).sum())(x).sum())(TOKENS)


SHARDED = """
import jax, numpy as np, switchyard.jax as sj
from jax.sharding import PartitionSpec as P
chosen = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
def part(x):
    return sj.moe_permute(x, chosen, num_out_tokens=8).permuted_tokens
there = jax.shard_map(part, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
x = jax.device_put(np.arange(8, dtype=np.float32)[:, None], jax.sharding.NamedSharding(mesh, P("x")))
print(jax.jit(there)(x)[:, 0].tolist())
print(jax.jit(jax.grad(lambda x: (there(x) ** 2).sum()))(x)[:, 0].tolist())
"""


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has no shard_map")
def test_two_devices() -> None:
    """Every device runs the operator on its part, in a thread of its own."""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=env, capture_output=True, text=True, check=False)
    rows = [0, 2, 3, 1, 2, 0, 1, 3]
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[float(i) for i in (*rows, *(4 + row for row in rows))]}\n{[4.0 * i for i in range(8)]}\n"


# ---- The functions ----


def test_the_parameters_are_those_of_the_plain_functions() -> None:
    for name in OPERATORS:
        plain, here = (inspect.signature(getattr(module, name)).parameters for module in (switchyard, sj))
        assert [(p.name, p.kind, p.default) for p in here.values()] == [
            (p.name, p.kind, p.default) for p in plain.values()
        ], name


def test_everything_of_the_plain_package_is_there() -> None:
    assert {*switchyard.__all__, "has_handlers"} == set(sj.__all__)
    assert sj.MoePermute is switchyard.MoePermute
    assert sj.Error is switchyard.Error


def test_without_jax(tmp_path: Any) -> None:
    """A folder of that name is no JAX."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import switchyard.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "switchyard.jax needs JAX 0.10 or newer" in done.stderr


def test_numbers_are_not_compiled_in() -> None:
    """Seeds and temperatures are operands: another value does not compile again."""
    from switchyard.jax._gradients import run

    logits = jnp.asarray(numbers_of("float32", 3, 20))
    sj.sample(logits, seed=1, temperature=0.5)
    before = run._cache_size()
    sj.sample(logits, seed=2, temperature=0.25)
    assert run._cache_size() == before


def test_threads() -> None:
    """The settings of the process apply to XLA's threads."""
    want = switchyard.moe_permute(numbers_of("float32", 64, 4096), np.eye(64, dtype=bool), num_out_tokens=64)
    for threads in (1, 3):
        switchyard.configure(threads=threads)
        try:
            made = sj.moe_permute(numbers_of("float32", 64, 4096), np.eye(64, dtype=bool), num_out_tokens=64)
        finally:
            switchyard.configure(threads=None)
        assert same_bits(np.asarray(made.permuted_tokens), want.permuted_tokens)


def test_gradients_end_at_codes() -> None:
    routing_map = jnp.eye(2, dtype=bool)

    def scales(x: Any) -> Any:
        return sj.moe_permute(x, routing_map, num_out_tokens=2, row_format="int8_token").permuted_scales.sum()

    assert float(scales(jnp.ones((2, 4)))) == pytest.approx(2 / 127)
    with pytest.raises(NotImplementedError, match=r"^moe_permute has no gradient with row_format"):
        jax.grad(scales)(jnp.ones((2, 4)))
