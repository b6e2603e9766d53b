"""A small batching server loop: requests of a queue, each with settings of its own, written by one language model.

Requests come while others are being written. A step of the model takes the prompts of new requests and the last token
of the others together; `switchyard.requests.Batch` turns their settings into one call of `sample`. With its seed a
request gets the same text alone and in any batch. Needs PyTorch; the model is that of examples/moe_lm.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import struct
from pathlib import Path

import torch
from torch.nn import functional

import switchyard.torch as sy
from switchyard.requests import Batch, Settings

FOLDER = Path(__file__).resolve().parents[1] / "moe_lm" / "model"
MOST_TOKENS, MOST_REQUESTS = 20, 3


class Tokenizer:
    """Byte pairs. A token is written with one printable letter for each byte."""

    def __init__(self, path: Path) -> None:
        model = json.loads(path.read_text(encoding="utf-8"))["model"]
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [byte for byte in range(256) if byte not in printable]
        self.letter = {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}
        self.id = model["vocab"]
        self.text = {number: text for text, number in self.id.items()}
        merges = [pair.split() if isinstance(pair, str) else pair for pair in model["merges"]]
        self.order = {tuple(pair): i for i, pair in enumerate(merges)}

    def encode(self, text: str) -> list[int]:
        tokens = []
        for word in re.findall(r" ?\w+| ?[^\s\w]+|\s+", text):
            parts = [self.letter[byte] for byte in word.encode()]
            while len(parts) > 1:
                rank, at = min(
                    (self.order.get(pair, len(self.order)), i) for i, pair in enumerate(itertools.pairwise(parts))
                )
                if rank == len(self.order):
                    break
                parts[at : at + 2] = ["".join(parts[at : at + 2])]
            tokens += [self.id[part] for part in parts]
        return tokens

    def decode(self, tokens: list[int]) -> str:
        byte = {letter: number for number, letter in self.letter.items()}
        return bytes(byte[letter] for token in tokens for letter in self.text[token]).decode(errors="replace")


class Model:
    """The decoder of OLMoE in float32, for tokens of several requests in one step."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        data = bytearray((folder / "model.safetensors").read_bytes())
        (size,) = struct.unpack("<Q", data[:8])
        self.weight = {}
        for name, entry in json.loads(data[8 : 8 + size]).items():
            begin, end = entry["data_offsets"]
            numbers = torch.frombuffer(data, dtype=torch.bfloat16, count=(end - begin) // 2, offset=8 + size + begin)
            self.weight[name] = numbers.view(entry["shape"]).float()
        self.heads = self.config["num_attention_heads"]
        self.head = self.config["hidden_size"] // self.heads
        self.speed = self.config["rope_theta"] ** (-torch.arange(0, self.head, 2) / self.head)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight[f"{name}.weight"], self.config["rms_norm_eps"])

    def rotated(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        angle = torch.outer(position, self.speed)[:, None]
        a, b = x.view(len(x), self.heads, self.head).chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    def attention(self, x: torch.Tensor, layer: int, caches: list[Cache], counts: list[int]) -> torch.Tensor:
        name = f"model.layers.{layer}.self_attn"
        q, k, v = (x @ self.weight[f"{name}.{part}_proj.weight"].T for part in "qkv")
        position = torch.cat([c.count + torch.arange(n) for c, n in zip(caches, counts, strict=True)])
        q, k = (self.rotated(self.norm(y, f"{name}.{part}_norm"), position) for part, y in (("q", q), ("k", k)))
        v, made = v.view_as(k), []
        for cache, *mine in zip(caches, *(each.split(counts) for each in (q, k, v)), strict=True):
            keys, values = cache.extended(layer, mine[1], mine[2])
            mask = torch.ones(len(mine[0]), len(keys), dtype=torch.bool).tril(len(keys) - len(mine[0]))
            given = (each.transpose(0, 1) for each in (mine[0], keys, values))
            made.append(functional.scaled_dot_product_attention(*given, attn_mask=mask).transpose(0, 1).flatten(1))
        return torch.cat(made) @ self.weight[f"{name}.o_proj.weight"].T

    def experts(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        name = f"model.layers.{layer}.mlp"
        routed = sy.moe_route(
            x @ self.weight[f"{name}.gate.weight"].T, k=self.config["num_experts_per_tok"], softmax_after=True
        )
        rows = sy.moe_permute_ids(x, routed.ids, num_experts=self.config["num_experts"])
        made = []
        for expert, part in enumerate(rows.permuted_tokens.split(rows.expert_counts.tolist())):
            gate, up, down = (self.weight[f"{name}.experts.{expert}.{p}_proj.weight"].T for p in ("gate", "up", "down"))
            made.append((functional.silu(part @ gate) * (part @ up)) @ down)
        return sy.moe_unpermute_ids(torch.cat(made), rows.sorted_indices, routed.weights)

    def __call__(self, tokens: list[list[int]], caches: list[Cache]) -> torch.Tensor:
        """The logits after the last of each request's tokens, which continue what is in its cache."""
        counts = [len(mine) for mine in tokens]
        embedding = self.weight["model.embed_tokens.weight"]
        x = embedding[torch.tensor([*itertools.chain(*tokens)])]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, f"{name}.input_layernorm"), layer, caches, counts)
            x = x + self.experts(self.norm(x, f"{name}.post_attention_layernorm"), layer)
        for cache, count in zip(caches, counts, strict=True):
            cache.count += count
        return self.norm(x[torch.tensor(counts).cumsum(0) - 1], "model.norm") @ embedding.T


class Cache:
    """Keys and values of one request."""

    def __init__(self) -> None:
        self.count, self.rows = 0, {}

    def extended(self, layer: int, *fresh: torch.Tensor) -> list[torch.Tensor]:
        old = self.rows.get(layer)
        self.rows[layer] = list(fresh) if old is None else [torch.cat(both) for both in zip(old, fresh, strict=True)]
        return self.rows[layer]


def serve(
    model: Model, tokenizer: Tokenizer, queue: list[tuple[str, Settings]], most: int = MOST_REQUESTS
) -> dict[int, str]:
    """The text of each request of the queue, at most ``most`` of them at a time."""
    batch, waiting, written = Batch(model.config["vocab_size"]), list(enumerate(queue)), {}
    number, todo, caches = [], [], []  # by row
    while waiting or number:
        while waiting and len(number) < most:
            who, (text, settings) = waiting.pop(0)
            prompt = tokenizer.encode(text)
            batch.add(settings, prompt)
            number.append(who), todo.append(prompt), caches.append(Cache())
        logits = model(todo, caches)
        drawn = batch.sample(logits)
        batch.append(drawn.token)
        todo = [[token] for token in drawn.token.tolist()]
        for row in reversed(range(len(number))):
            output = batch.output(row)
            if len(output) < MOST_TOKENS and output[-1] not in batch.settings(row).stop_tokens:
                continue
            written[number[row]] = queue[number[row]][0] + tokenizer.decode(output)
            batch.remove(row)  # the last row takes its place, here too
            for each in (number, todo, caches):
                each[row] = each[-1]
                each.pop()
    return written


def main() -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # the model is small
    model, tokenizer = Model(FOLDER), Tokenizer(FOLDER / "tokenizer.json")
    lord, dot = tokenizer.encode(" LORD")[0], tokenizer.encode(".")[0]
    ask = functools.partial(Settings, seed=7)
    queue = [
        ("In the beginning", ask(temperature=0)),
        ("In the beginning", ask(temperature=0, presence_penalty=1.5, frequency_penalty=0.5)),
        ("And the king said unto", ask(temperature=0.8, top_p=0.9)),
        ("Blessed are", ask(temperature=1.0, top_k=40, min_p=0.05, stop_tokens=[dot], min_tokens=8)),
        ("And the", ask(temperature=0.7, bias={lord: 6.0})),
        ("And the", ask(temperature=0.7, bad_words=[[lord]])),
    ]
    written = serve(model, tokenizer, queue)
    for who in sorted(written):
        print(f"{who}: {written[who]!r}")
    same = sum(serve(model, tokenizer, [each])[0] == written[who] for who, each in enumerate(queue))
    print(f"the same text for a request alone: {same} of {len(queue)}")  # unless PyTorch's products round differently


if __name__ == "__main__":
    main()
