"""Small checkpoints of the architectures that examples/moe_lm reads, with random weights, and a small tokenizer. Only what
Python itself brings, and only operations with one result: the files are the same on every machine."""
import json
import os
import random
import struct

VOCABULARY, HIDDEN, LAYERS, HEADS, HEAD, POSITIONS = 300, 64, 3, 4, 16, 512

BASE = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "max_position_embeddings": POSITIONS, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "attention_bias": False, "tie_word_embeddings": False, "eos_token_id": None, "pad_token_id": None}

CONFIGS = {
    "olmoe": {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_key_value_heads": 2, "num_experts": 8,
              "num_experts_per_tok": 3, "intermediate_size": 48, "norm_topk_prob": False, "clip_qkv": None},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_key_value_heads": 2,
                "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 40, "sliding_window": None},
    "qwen3": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_key_value_heads": 1, "head_dim": 24,
              "num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 80, "moe_intermediate_size": 24,
              "norm_topk_prob": True, "mlp_only_layers": [1], "decoder_sparse_step": 1, "use_sliding_window": False},
}


def shapes(kind):
    """Names and shapes of all tensors."""
    config = {**BASE, **CONFIGS[kind]}
    head = config.get("head_dim", HIDDEN // HEADS)
    q, kv = HEADS * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", (HIDDEN,)
        for name, shape in (("q_proj", (q, HIDDEN)), ("k_proj", (kv, HIDDEN)), ("v_proj", (kv, HIDDEN)), ("o_proj", (HIDDEN, q))):
            yield f"{at}self_attn.{name}.weight", shape
        if kind != "mixtral":
            yield f"{at}self_attn.q_norm.weight", (q if kind == "olmoe" else head,)
            yield f"{at}self_attn.k_norm.weight", (kv if kind == "olmoe" else head,)
        mlp, names = (f"{at}block_sparse_moe.", ("w1", "w3", "w2")) if kind == "mixtral" else (f"{at}mlp.", ("gate_proj", "up_proj", "down_proj"))
        dense = i in config.get("mlp_only_layers", ())
        width = config["moe_intermediate_size"] if kind == "qwen3" and not dense else config["intermediate_size"]
        experts = config.get("num_experts", config.get("num_local_experts"))
        if not dense:
            yield f"{mlp}gate.weight", (experts, HIDDEN)
        for e in [""] if dense else [f"experts.{e}." for e in range(experts)]:
            for name in names[:2]:
                yield f"{mlp}{e}{name}.weight", (width, HIDDEN)
            yield f"{mlp}{e}{names[2]}.weight", (HIDDEN, width)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def numbers(draw, shape, dtype):
    """Random numbers as bytes: around 1 for a vector, which is a scale, else around 0. bf16: cut off."""
    n = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = [1 + 0.5 * (draw.random() - 0.5) if len(shape) == 1 else 0.4 * (draw.random() - 0.5) for _ in range(n)]
    data = struct.pack(f"<{n}f", *values)
    return data if dtype == "F32" else b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def write(folder, kind, dtype="F32", files=1):
    """A checkpoint of a kind into a new folder; with several files there is an index."""
    os.makedirs(folder)
    draw = random.Random(kind)
    tensors = {name: (dtype, shape, numbers(draw, shape, dtype)) for name, shape in shapes(kind)}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**BASE, **CONFIGS[kind], "torch_dtype": {"F32": "float32", "BF16": "bfloat16"}[dtype]}, file)
    if files == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        return
    places = {name: f"model-{i % files + 1:05}-of-{files:05}.safetensors" for i, name in enumerate(tensors)}
    for place in sorted(set(places.values())):
        write_safetensors(os.path.join(folder, place), {name: tensors[name] for name in tensors if places[name] == place})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": places}, file)


def letters():
    """The letter of each byte in byte-level encoding."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


MERGES = ("t h", "th e", "Ġ the", "i n", "Ġ a", "e r", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "h e", "l l", "he ll", "Ġ Ġ",
          "1 2", "Ċ Ċ", "Ã ©")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def tokenizer(kind):
    """tokenizer.json: `gpt2` and `qwen` of bytes, `spaces` as Mixtral's."""
    end = {"id": 0, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    if kind == "spaces":
        words = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *"abcdehilnorstw", "th", "the", "▁the", "▁w", "in"]
        end["id"] = len(words)
        merges = ["t h", "th e", "▁ the", "▁ w", "i n"]
        model = {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True, "vocab": {w: i for i, w in enumerate(words)}, "merges": merges}
        steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
        first, text = {"SpecialToken": {"id": end["content"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        post = {"type": "TemplateProcessing", "single": [first, text], "pair": [first, text, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {end["content"]: {"id": end["content"], "ids": [end["id"]], "tokens": [end["content"]]}}}
        return {"version": "1.0", "added_tokens": [end], "normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None,
                "post_processor": post, "model": model}
    words = [*letters().values(), *(merge.replace(" ", "") for merge in MERGES)]
    end["id"] = len(words)
    model = {"type": "BPE", "vocab": {w: i for i, w in enumerate(words)}, "merges": list(MERGES)}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": kind == "gpt2"}
    cut = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
    pre = bytes_only if kind == "gpt2" else {"type": "Sequence", "pretokenizers": [cut, bytes_only]}
    return {"version": "1.0", "added_tokens": [end], "pre_tokenizer": pre, "model": model}


def write_tokenizer(folder, kind):
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer(kind), file)
