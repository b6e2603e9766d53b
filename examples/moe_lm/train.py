"""Trains the small model that moe_lm comes with, and writes it as a checkpoint in the layout of OLMoE.

    python examples/moe_lm/train.py [--out FOLDER] [--text FILE] [--steps N] [--seed N] [--device cuda]

The text is the King James Bible of the Debian packages bible-kjv and bible-kjv-text (public domain; `apt-get install
bible-kjv`), without the numbers of the verses. The tokens are byte pairs, learnt from the text. Experts are called
between `moe_permute` and `moe_unpermute` of switchyard.torch, forward and backward; everything else is PyTorch.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import re
import struct
import subprocess
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import switchyard.torch as st

VOCABULARY, HIDDEN, LAYERS, HEADS, EXPERTS, CHOSEN, WIDTH, LENGTH = 1024, 128, 4, 4, 8, 2, 192, 256
THETA, EPS, BATCH, RATE = 10000.0, 1e-5, 64, 2e-3
WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")  # GPT-2's, for ASCII


def read_text(path: str | None) -> str:
    """One verse per line."""
    if path is None:
        text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    else:
        text = Path(path).read_text(encoding="utf-8")
    return "\n".join(line.partition(" ")[2] for line in text.split("\n") if line) + "\n"


# ---- Byte pairs ----


def letters() -> list[str]:
    """The letter of each byte, as byte-level tokenizers write them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b) if b in shown else chr(256 + hidden.index(b)) for b in range(256)]


def learn_pairs(text: str, merges: int) -> list[tuple[str, str]]:
    """The most frequent pair of neighbours, again and again; of equal ones the first in alphabetical order."""
    letter = letters()
    counts = collections.Counter(WORDS.findall(text))
    words = [[letter[b] for b in word.encode()] for word in counts]
    times = list(counts.values())
    learnt: list[tuple[str, str]] = []
    for _ in range(merges):
        pairs: collections.Counter[tuple[str, str]] = collections.Counter()
        for word, n in zip(words, times, strict=True):
            for pair in itertools.pairwise(word):
                pairs[pair] += n
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        learnt.append(best)
        for word in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = [best[0] + best[1]]
                at += 1
    return learnt


def encode(text: str, vocabulary: dict[str, int], pairs: list[tuple[str, str]]) -> list[int]:
    """The tokens of a text; every word is encoded once."""
    rank, letter = {pair: i for i, pair in enumerate(pairs)}, letters()
    known: dict[str, list[int]] = {}
    tokens: list[int] = []
    for word in WORDS.findall(text):
        if word not in known:
            parts = [letter[b] for b in word.encode()]
            while len(parts) > 1:
                at = min(range(len(parts) - 1), key=lambda i: rank.get((parts[i], parts[i + 1]), len(rank)))
                if (parts[at], parts[at + 1]) not in rank:
                    break
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            known[word] = [vocabulary[part] for part in parts]
        tokens += known[word]
    return tokens


# ---- The model ----


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS))


def linear(inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(made.weight, std=0.02)
    return made


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (linear(HIDDEN, HIDDEN) for _ in range(4))
        self.q_norm, self.k_norm = Norm(HIDDEN), Norm(HIDDEN)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.q_norm(self.q_proj(x)), self.k_norm(self.k_proj(x)), self.v_proj(x)
        q, k, v = (each.view(batch, length, HEADS, -1).transpose(1, 2) for each in (q, k, v))
        read = F.scaled_dot_product_attention(rotate(q, turn), rotate(k, turn), v, is_causal=True)
        out: Tensor = self.o_proj(read.transpose(1, 2).reshape(batch, length, HIDDEN))
        return out


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    a, b = x.chunk(2, -1)
    cos, sin = turn
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(HIDDEN, WIDTH), linear(HIDDEN, WIDTH)
        self.down_proj = linear(WIDTH, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Experts(nn.Module):
    """Each token goes to two of eight experts, and gets the weighted sum of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = linear(HIDDEN, EXPERTS)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The result, and how far the load is from even: 1 is even."""
        tokens = x.reshape(-1, HIDDEN)
        logits = self.gate(tokens)
        chosen = st.moe_route(logits.detach(), k=CHOSEN).routing_map  # a choice has no gradient
        scores = logits.softmax(-1)
        probs = torch.where(chosen, scores, 0)
        probs = probs / probs.sum(-1, keepdim=True)
        rows = st.moe_permute(tokens, chosen, num_out_tokens=tokens.shape[0] * CHOSEN)
        parts = rows.permuted_tokens.split(rows.expert_counts.tolist())
        done = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        out = st.moe_unpermute(done, rows.sorted_indices, chosen, probs)
        load = EXPERTS * (chosen.float().mean(0) / CHOSEN * scores.mean(0)).sum()
        return out.view_as(x), load


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(HIDDEN), Norm(HIDDEN)
        self.self_attn, self.mlp = Attention(), Experts()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm(HIDDEN)

    def forward(self, tokens: Tensor, drop: float = 0.0) -> tuple[Tensor, Tensor]:
        """Logits, and the mean load of the layers."""
        half = HIDDEN // HEADS // 2
        speed = THETA ** (-torch.arange(half, device=tokens.device) / half)
        angle = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * speed
        turn = angle.cos(), angle.sin()
        x, loads = self.embed_tokens(tokens), []
        for layer in self.layers:
            x = x + F.dropout(layer.self_attn(layer.input_layernorm(x), turn), drop)
            change, load = layer.mlp(layer.post_attention_layernorm(x))
            x = x + F.dropout(change, drop)
            loads.append(load)
        return F.linear(self.norm(x), self.embed_tokens.weight), torch.stack(loads).mean()


# ---- Training ----


def held_out_loss(model: Decoder, tokens: Tensor) -> float:
    """Mean over the held-out text, in windows of LENGTH."""
    windows = tokens.unfold(0, LENGTH + 1, LENGTH)
    with torch.no_grad():
        losses = [
            F.cross_entropy(model(w[:, :-1])[0].flatten(0, 1), w[:, 1:].flatten()) * len(w) for w in windows.split(64)
        ]
    return float(torch.stack(losses).sum() / len(windows))


def train(model: Decoder, tokens: Tensor, held_out: Tensor, steps: int) -> None:
    """The model ends with the weights of the best held-out loss."""
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim > 1) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    best, kept, begun, loss = math.inf, model.state_dict(), time.perf_counter(), torch.tensor(math.nan)
    for step in range(steps + 1):
        if step % max(1, steps // 20) == 0:
            loss_now, seconds = held_out_loss(model, held_out), time.perf_counter() - begun
            print(f"step {step:5}  loss {loss.item():.3f}  held-out {loss_now:.3f}  {seconds:.0f} s", flush=True)
            if loss_now < best:
                best, kept = loss_now, {name: value.clone() for name, value in model.state_dict().items()}
        for group in optimizer.param_groups:
            decay = 0.02 + 0.98 * (1 + math.cos(math.pi * step / (steps + 1))) / 2
            group["lr"] = RATE * min(1, (step + 1) / 100) * decay
        first = torch.randint(len(tokens) - LENGTH - 1, (BATCH,), device="cpu").to(tokens.device)
        at = first[:, None] + torch.arange(LENGTH + 1, device=tokens.device)
        window = tokens[at]
        logits, load = model(window[:, :-1], 0.1)
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        (loss + 0.01 * load).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.load_state_dict(kept)


# ---- The checkpoint ----


def save(folder: Path, model: Decoder, vocabulary: dict[str, int], pairs: list[tuple[str, str]]) -> None:
    """config.json, tokenizer.json and model.safetensors, in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "num_experts": EXPERTS,
        "num_experts_per_tok": CHOSEN, "intermediate_size": WIDTH, "norm_topk_prob": True, "rms_norm_eps": EPS,
        "rope_theta": THETA, "max_position_embeddings": 1024, "hidden_act": "silu", "attention_bias": False,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    bpe = {"type": "BPE", "vocab": vocabulary, "merges": [f"{a} {b}" for a, b in pairs]}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": cut, "decoder": cut, "model": bpe}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    header, data, at = {}, [], 0
    for name, value in model.state_dict().items():
        data.append(value.detach().bfloat16().cpu().contiguous().view(torch.int16).numpy().tobytes())
        end = at + len(data[-1])
        header[f"model.{name}"] = {"dtype": "BF16", "shape": list(value.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "model")
    parser.add_argument("--text", help="as `bible -f gen1:1-rev22:21` prints it; else that is run")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    text = read_text(args.text)
    begun = time.perf_counter()
    pairs = learn_pairs(text, VOCABULARY - 256)
    vocabulary = {word: i for i, word in enumerate([*letters(), *(a + b for a, b in pairs)])}
    tokens = torch.tensor(encode(text, vocabulary, pairs), device=args.device)
    held = len(tokens) // 50
    print(
        f"{len(text)} characters, {len(tokens)} tokens of {len(vocabulary)}, "
        f"{time.perf_counter() - begun:.0f} s; the last {held} are held out"
    )
    model = Decoder().to(args.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    train(model, tokens[:-held], tokens[-held:], args.steps)
    rounded = {name: value.bfloat16().float() for name, value in model.state_dict().items()}
    model.load_state_dict(rounded)
    print(f"held-out loss {held_out_loss(model, tokens[-held:]):.3f} in bfloat16, {time.perf_counter() - begun:.0f} s")
    save(args.out, model, vocabulary, pairs)


if __name__ == "__main__":
    main()
