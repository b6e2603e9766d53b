"""moe_route with the settings of every model of docs/models.md."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import switchyard

sy: Any = switchyard  # calls by dictionaries of arguments, which types cannot follow

F = np.float32


def i32(*values: Any) -> Any:
    return np.array(values, np.int32)


def same(found: Any, wanted: Any) -> None:
    """Equal numbers, and equal signs of zeros."""
    wanted = np.array(wanted, found.dtype).reshape(found.shape)
    assert found.tobytes() == wanted.tobytes(), f"{found!r}, want {wanted!r}"


MODELS = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
TENSORS = {"bias", "ids_in", "ids_rows", "expert_scale", "shared_logits"}


def settings() -> list[tuple[str, int, int, dict[str, Any]]]:
    """Model, experts, experts per token and fields of every row of docs/models.md."""
    found = []
    for models, sizes, listed in re.findall(r"^\| (.+) \| (.+) \| `(.+)` \|$", MODELS, re.MULTILINE):
        fields = {}
        for field in listed.split(", "):
            name, _, value = field.partition("=")
            fields[name] = (value if value.isalnum() and not value[0].isdigit() else float(value)) if value else True
            if isinstance(fields[name], float) and name not in ("eps", "scale"):
                fields[name] = int(value)
        for size in ("64/8" if sizes == "any" else sizes).split(", "):
            experts, k = size.split("/")
            found.append((models, int(experts), int(k), fields))
    return found


def test_every_model_has_settings() -> None:
    rows = [line for line in MODELS.splitlines() if line.startswith("| ") and not line.startswith("| model")]
    assert len(rows) == len({models for models, *_ in settings()}) >= 30
    for models, _, _, fields in settings():
        assert "Llama 4" not in models or fields["select"] == "logit"


@pytest.mark.parametrize(("models", "experts", "k", "fields"), settings())
def test_route_of_a_model(models: str, experts: int, k: int, fields: dict[str, Any]) -> None:
    """The settings are accepted, and with the experts given every output is the same again."""
    rng = np.random.RandomState(len(models) + experts)
    logits = rng.standard_normal((3, experts)).astype(F) * F(3)
    logits[0, : k + 1] = [20 + i for i in range(k + 1)]  # sigmoids of 1
    tensors = {
        "bias": rng.standard_normal(experts).astype(F) / F(4),
        "expert_scale": rng.standard_normal(experts).astype(F),
        "shared_logits": rng.standard_normal((3, fields.get("n_shared", 0))).astype(F),
        "ids_in": np.array([rng.permutation(experts)[:k] for _ in range(5)], np.int32),
        "ids_rows": i32(4, 0, 4),
    }
    given = {name: tensors[name] for name in TENSORS & fields.keys()}
    numbers = {name: value for name, value in fields.items() if name not in TENSORS} | {"k": k}
    routed = sy.moe_route(logits, **given, **numbers, scores=True)
    assert routed.ids.shape == (3, k + fields.get("n_shared", 0))
    again = {name: tensor for name, tensor in given.items() if name != "ids_rows"} | {"ids_in": routed.ids[:, :k]}
    for name, array in sy.moe_route(logits, **again, **numbers, scores=True)._asdict().items():
        same(array, getattr(routed, name))
