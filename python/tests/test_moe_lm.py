"""examples/moe_lm beside Hugging Face transformers and tokenizers, on small checkpoints with random weights."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SOURCE = Path(os.environ.get("SWITCHYARD_SOURCE", Path(__file__).resolve().parents[2]))
PROGRAM = os.environ.get("SWITCHYARD_MOE_LM", str(SOURCE / "build" / "release" / "moe_lm"))
WRITTEN = 64
MOST = 1e-5  # of the difference between two logits; they are up to 4

pytestmark = pytest.mark.skipif(not Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def by_path(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, SOURCE / "tests" / "moe_lm" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checkpoints = by_path("checkpoints")
PROMPT = [(i * i + 3) % checkpoints.VOCABULARY for i in range(17)]


def run(folder: Path, *arguments: str) -> tuple[str, Any]:
    """What it prints, and the logits."""
    file = folder / "logits"
    done = subprocess.run([PROGRAM, str(folder), "--logits", str(file), *arguments], capture_output=True, check=True)
    return done.stdout.decode(errors="replace"), np.fromfile(file, np.float32).reshape(-1, checkpoints.VOCABULARY)


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("kind", list(checkpoints.CONFIGS))
def test_logits_of_transformers(tmp_path: Path, kind: str, files: int) -> None:
    """The greedy text of 64 tokens is the same, its logits differ by less than 1e-5; with drafts, too."""
    folder = tmp_path / kind
    checkpoints.write(str(folder), kind, files=files)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    given = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    theirs = model.generate(torch.tensor([PROMPT]), max_new_tokens=WRITTEN, **given)
    more = ["--speculate", "4"] if files > 1 else []
    printed, logits = run(folder, "--tokens", str(WRITTEN), *more, "--ids", " ".join(map(str, PROMPT)))
    assert [int(token) for token in printed.split("\n")[1].split()] == theirs.sequences[0, len(PROMPT) :].tolist()
    assert np.abs(logits - torch.cat(theirs.logits).numpy()).max() < MOST


@pytest.mark.parametrize("kind", ["gpt2", "qwen", "spaces"])
def test_tokens_of_tokenizers(tmp_path: Path, kind: str) -> None:
    """The first logits are those of the tokens that the library gives."""
    folder = tmp_path / "text"
    checkpoints.write(str(folder), "olmoe")
    checkpoints.write_tokenizer(str(folder), kind)
    library = tokenizers.Tokenizer.from_str(json.dumps(checkpoints.tokenizer(kind)))
    for text in (
        "hello the world's 123 don't  I'LL\n\n x",
        "  a\tb\r\nc \n",
        "café the <|end|> naïve 日本語 12",
        "a  ½ ²٣!!\n\nthe ... ",
    ):
        ids = " ".join(map(str, library.encode(text).ids))
        assert np.array_equal(
            run(folder, "--tokens", "1", "--prompt", text)[1], run(folder, "--tokens", "1", "--ids", ids)[1]
        )
