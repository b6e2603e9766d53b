"""Sampler and tokens per second in vLLM: its own sampler and switchyard's, one after the other in the same engine.

    build/vllm/bin/python python/bench/vllm_sampler.py [--laps 3] [--vocabulary 32000 131072] [--batch 1 16 64]

The model is tiny (two layers of Llama, 256 wide, random weights), its logits are replaced by normal ones times 3, so
that a step is mostly the sampler. Every figure is the median of the laps; the two alternate, and so share what else the
machine does. scripts/vllm_env.sh installs what it needs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 12
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
KINDS = {
    "top-p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "top-k 50, top-p 0.9": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    "top-p 0.9, one with bias, min-p and penalties": {"temperature": 0.8, "top_p": 0.9},
}
UNUSUAL = {"min_p": 0.02, "logit_bias": {5: 2.0}, "presence_penalty": 0.5, "repetition_penalty": 1.1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--laps", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[32000, 131072])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    if len(given.vocabulary) > 1:  # a process has one engine
        for vocabulary in given.vocabulary:
            subprocess.run([sys.executable, *sys.argv, "--vocabulary", str(vocabulary)], check=True)
        return
    os.environ.update(SWITCHYARD_VLLM="sampler", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")
    for name, value in (("VLLM_LOGGING_LEVEL", "ERROR"), ("VLLM_CPU_KVCACHE_SPACE", "1")):
        os.environ.setdefault(name, value)
    import torch
    from vllm import LLM
    from vllm.v1.sample.sampler import Sampler

    from switchyard.vllm import _sampler

    threads, load = torch.get_num_threads(), os.getloadavg()[0]
    print(f"vLLM in {given.dtype}, {threads} threads, load {load:.1f}, medians of {given.laps} laps\n")
    print("| V | batch | settings | sampler, ms a step: vLLM | switchyard | times | tokens/s: vLLM | switchyard |")
    print("|---|---|---|---|---|---|---|---|")
    (vocabulary,) = given.vocabulary
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": vocabulary}))
        llm = LLM(
            folder, dtype=given.dtype, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
            max_model_len=128, max_num_seqs=max(given.batch), block_size=32, enable_prefix_caching=False,
        )  # fmt: skip
    model = llm.llm_engine.model_executor.driver_worker.worker.model_runner.model
    torch.manual_seed(0)
    stored = torch.randn(max(given.batch), vocabulary) * 3
    product = model.compute_logits

    def replaced(*args, product=product, stored=stored, **more):
        logits = product(*args, **more)
        return logits.copy_(stored[: len(logits)])

    model.compute_logits = replaced
    for kind in KINDS:
        for batch in given.batch:
            measure(llm, Sampler, _sampler, kind, vocabulary, batch, given.laps)


def measure(llm, sampler_class, plugin, kind, vocabulary, batch, laps):
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": [3 + i, 5, 7 + i, 11, 13, 17, 19, 23]} for i in range(batch)]
    every = [{**KINDS[kind], **(UNUSUAL if "one with" in kind and i == 0 else {})} for i in range(batch)]
    fixed = {"max_tokens": STEPS, "ignore_eos": True, "detokenize": False}
    params = [SamplingParams(seed=i, **fixed, **settings) for i, settings in enumerate(every)]
    found = {"stock": ([], []), "switchyard": ([], [])}
    for lap in range(laps + 1):  # the first is not counted
        for how, (samplers, rates) in found.items():
            plugin.install(how == "switchyard")
            forward, spent = sampler_class.forward, []

            def timed(*args, forward=forward, spent=spent, **more):
                begin = time.perf_counter()
                made = forward(*args, **more)
                spent.append(time.perf_counter() - begin)
                return made

            sampler_class.forward, before = timed, dict(plugin.steps)
            begin = time.perf_counter()
            llm.generate(prompts, params, use_tqdm=False)
            took = time.perf_counter() - begin
            assert plugin.steps["switchyard"] - before["switchyard"] == (len(spent) if how == "switchyard" else 0)
            if lap:
                samplers.append(1e3 * statistics.median(spent))
                rates.append(batch * STEPS / took)
    a, b = ([statistics.median(values) for values in found[how]] for how in ("stock", "switchyard"))
    times = f"{a[0]:.2f} | {b[0]:.2f} | {a[0] / b[0]:.1f}"
    print(f"| {vocabulary} | {batch} | {kind} | {times} | {a[1]:.0f} | {b[1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
