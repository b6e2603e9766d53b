#!/usr/bin/env python3
"""Tokens per second of moe_lm beside Hugging Face transformers: one machine, the same threads, one run.

    python examples/moe_lm/compare.py [--layers 4] [--threads N] [--processor-time] [--program build/release/moe_lm]

Writes a checkpoint of the OLMoE shape (1B-7B, with fewer layers) with random bfloat16 weights into a temporary folder, and
lets both read 512 tokens and write 8, alone and in a batch of 16. Every figure is the better of two. On a machine that does other
work too, --processor-time counts the processor time of one thread instead. Needs transformers and torch."""
import argparse
import os
import re
import subprocess
import tempfile
import time

PROMPT, SHORT, WRITTEN, BATCH, REPEATS = 512, 16, 8, 16, 2
VOCABULARY = 50304
CASES = {"read 512 tokens": (PROMPT, 1), "write, batch of 1": (SHORT, 1), f"write, batch of {BATCH}": (SHORT, BATCH)}


def write_checkpoint(folder, layers):
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.OlmoeConfig(vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=1024, num_hidden_layers=layers,
                                      num_attention_heads=16, num_experts=64, num_experts_per_tok=8, eos_token_id=None)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def prompts(length, n):
    return [[(7919 * (i + 1) * (k + 1)) % VOCABULARY for k in range(length)] for i in range(n)]


def run_ours(program, folder, threads, processor_time, *more):
    """{case: (tokens per second, share of time in Switchyard)}"""
    got = {}
    for case, (length, n) in CASES.items():
        reads = length == PROMPT
        given = ["--tokens", "1" if reads else str(WRITTEN + 1), *(a for p in prompts(length, n) for a in ("--ids", " ".join(map(str, p))))]
        best = (0.0, "")
        for _ in range(REPEATS):
            out = subprocess.run([program, folder, "--threads", str(threads), "--time", *more, *given], check=True, capture_output=True,
                                 text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)}).stdout
            rates = re.search(("prompts" if reads else "writing") + r": \d+ tokens, ([\d.]+) per second, ([\d.]+) per second of", out)
            best = max(best, (float(rates[2 if processor_time else 1]), re.search(r"in Switchyard: (.*) of the time", out)[1]))
        got[case] = best
    return got


def run_theirs(folder, threads, clock, dtype):
    """{case: tokens per second}; forward passes with a cache, without the bookkeeping of generate."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    got = {}
    with torch.inference_mode():
        for case, (length, n) in CASES.items():
            ids, best = torch.tensor(prompts(length, n)), 0.0
            for _ in range(REPEATS):
                start = clock()
                done = model(ids, use_cache=True, logits_to_keep=1)
                seconds, tokens = clock() - start, length
                if length != PROMPT:
                    start = clock()
                    for _ in range(WRITTEN):
                        done = model(done.logits[:, -1:].argmax(-1), past_key_values=done.past_key_values, use_cache=True)
                    seconds, tokens = clock() - start, WRITTEN * n
                best = max(best, tokens / seconds)
            got[case] = best
    return got


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--processor-time", action="store_true", help="of one thread, instead of the time that passes")
    parser.add_argument("--blas", action="store_true", help="a column for moe_lm --blas")
    parser.add_argument("--program", default="build/release/moe_lm")
    parser.add_argument("--folder", help="keep the checkpoint here, or use the one that is here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or temporary
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(folder, "config.json")):
            write_checkpoint(folder, given.layers)
        threads, clock = (1, time.thread_time) if given.processor_time else (given.threads, time.perf_counter)
        columns = {f"transformers, {dtype}": run_theirs(folder, threads, clock, dtype) for dtype in ("float32", "bfloat16")}
        for name, more in (("moe_lm", []), ("moe_lm --blas", ["--blas"]))[:2 if given.blas else 1]:
            ours = run_ours(given.program, folder, threads, given.processor_time, *more)
            columns[name] = {case: rate for case, (rate, _) in ours.items()}
            if not more:
                shares = {case: share for case, (_, share) in ours.items()}
    columns = {**columns, "moe_lm, in Switchyard": shares}
    print(f"OLMoE shape, {given.layers} layers, {threads} threads; tokens per second{' of processor time' * given.processor_time}\n")
    print("| | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    for case in CASES:
        print(f"| {case} | " + " | ".join(got[case] if isinstance(got[case], str) else f"{got[case]:.1f}" for got in columns.values()) + " |")


if __name__ == "__main__":
    main()
