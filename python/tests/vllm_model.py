"""The model of examples/moe_lm as vLLM reads it. `python vllm_model.py FOLDER` writes it.

vLLM's OLMoE has no tied embeddings, so that the weights of the output are written out; and a tokenizer without a class
would get a token that the model does not have. vLLM does not normalise the weights of chosen experts, which this model
needs: its text is worse than that of examples/moe_lm.
"""

import json
import shutil
import struct
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "moe_lm" / "model"


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = (SOURCE / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, numbers = json.loads(data[8 : 8 + size]), data[8 + size :]
    tied = header["model.embed_tokens.weight"]
    begin, end = tied["data_offsets"]
    header["lm_head.weight"] = {**tied, "data_offsets": [len(numbers), len(numbers) + end - begin]}
    header["__metadata__"] = {"format": "pt"}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    made = struct.pack("<Q", len(text)) + text + numbers + numbers[begin:end]
    (folder / "model.safetensors").write_bytes(made)
    config = json.loads((SOURCE / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    shutil.copy(SOURCE / "tokenizer.json", folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
