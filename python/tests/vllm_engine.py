"""vLLM with its own sampler and with switchyard's, on the model of examples/moe_lm; each engine in its own process.

    build/vllm/bin/python -m pytest python/tests/vllm_engine.py    (the venv: scripts/vllm_env.sh)

As a program, `vllm_engine.py FILE`, it reads jobs from standard input and writes tokens and log-probabilities to FILE.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import vllm_model

TEXTS = [
    "In the beginning",
    "And the king said",
    "The wicked",
    "Blessed are they",
    "Hear, O Israel",
    "Go forth and",
    "A wise man",
]
LONG = "And the LORD said unto Moses, " * 12
COUNT, TOKENS = 14, 24
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCH_COMPILE_DISABLE": "1",  # minutes
}
PENALTIES = {"repetition_penalty": 1.2, "frequency_penalty": 0.4, "presence_penalty": 0.1}
GREEDY: dict[str, dict[str, Any]] = {  # equal to vLLM's own sampler
    "greedy": {},
    "penalties": PENALTIES,
    "penalties and biases": {**PENALTIES, "logit_bias": {44: 3.0, 881: -4.0, 258: 2.5}},
    "bad words": {"bad_words": ["LORD", "the king"], **PENALTIES},
    "allowed tokens": {"allowed_token_ids": list(range(0, 900, 3)), "frequency_penalty": 0.5},
    "stop tokens": {"min_tokens": 9, "stop_token_ids": [44, 364, 286], "logit_bias": {44: 2.0}},
    "log-probabilities": {"logprobs": 4, "prompt_logprobs": 3},
}


def mixed(i: int) -> dict[str, Any]:
    return [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": i},
        {"temperature": 0.7, "top_p": 0.9, "seed": i, **PENALTIES},
        {"temperature": 0.9, "min_p": 0.05, "top_p": 0.95, "seed": i},
        {"temperature": 1.0, "top_k": 20, "seed": i, "logit_bias": {44: -100.0}, "bad_words": ["LORD"]},
        {"temperature": 0.9, "top_p": 0.8, "seed": i, "logprobs": 3, "min_tokens": 4, "stop_token_ids": [44]},
        {"temperature": 1.2, "top_p": 0.9, "top_k": 100, "seed": i, "structured_outputs": "[a-z ,]{30,60}x"},
    ][i % 7]


def drafted(i: int) -> dict[str, Any]:
    """Settings that vLLM accepts with drafts."""
    return {k: v for k, v in mixed(i).items() if k not in ("min_p", "logit_bias", "structured_outputs")}


def job(texts: list[str], settings: list[dict[str, Any]], name: str, how: str = "switchyard") -> dict[str, Any]:
    return {"name": name, "texts": texts, "settings": settings, "how": how}


def run_job(llm: Any, work: dict[str, Any]) -> dict[str, Any]:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    def params(given: dict[str, Any]) -> Any:
        given = {"temperature": 0.0, "max_tokens": TOKENS, **given}
        if "logit_bias" in given:
            given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
        if "structured_outputs" in given:
            given["structured_outputs"] = StructuredOutputsParams(regex=given["structured_outputs"])
        return SamplingParams(**given)

    def listed(steps: Any) -> Any:
        return [
            step and [[token, each.logprob, each.rank] for token, each in sorted(step.items())] for step in steps or []
        ]

    done = llm.generate(work["texts"], [params(given) for given in work["settings"]], use_tqdm=False)
    return {
        "tokens": [list(each.outputs[0].token_ids) for each in done],
        "text": [each.outputs[0].text for each in done],
        "logprobs": [listed(each.outputs[0].logprobs) for each in done],
        "prompt": [listed(each.prompt_logprobs) for each in done],
    }


def main() -> None:
    given = json.load(sys.stdin)
    from vllm import LLM

    fixed = {"dtype": "float32", "enforce_eager": True, "max_model_len": 256, "max_num_seqs": 64, "block_size": 32}
    llm = LLM(given["model"], **{**fixed, "enable_prefix_caching": False, **given["options"]})
    from switchyard.vllm import _sampler

    found = {}
    for work in given["jobs"]:
        if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0":
            _sampler.install(work["how"] == "switchyard")
        found[f"{work['name']}, {work['how']}"] = run_job(llm, work)
    counted = (
        {}
        if "disable_log_stats" not in given["options"]
        else {m.name: getattr(m, "value", 0) for m in llm.get_metrics()}
    )
    Path(sys.argv[1]).write_text(json.dumps({"found": found, "steps": _sampler.steps, "counted": counted}))
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
    sys.exit()

import pytest  # noqa: E402

pytest.importorskip("vllm", reason="vLLM is not installed: scripts/vllm_env.sh")


def engine(folder: Path, jobs: list[dict[str, Any]], multiprocessing: bool = True, **options: Any) -> Any:
    out, model = folder / "out.json", folder / "model"
    vllm_model.write(model)
    environment = {"SWITCHYARD_VLLM": "sampler", "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(multiprocessing))}
    done = subprocess.run(
        [sys.executable, __file__, str(out)],
        input=json.dumps({"model": str(model), "options": options, "jobs": jobs}),
        env={**os.environ, **ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


BATCH = [TEXTS[i % 7] for i in range(COUNT)]
KINDS = [mixed(i) for i in range(COUNT)]
DRAFTED = [drafted(i) for i in range(COUNT)]
GROWN = [{**mixed(i), "max_tokens": 40} for i in range(COUNT)]  # two blocks of the cache each
SEEDED = {"temperature": 0.9, "seed": 3}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One process, without asynchronous scheduling."""
    jobs = [
        job(BATCH, [settings] * COUNT, name, how)
        for name, settings in GREEDY.items()
        for how in ("stock", "switchyard")
    ]
    jobs.append(job(BATCH, KINDS, "mixed"))
    jobs += [job([text], [settings], f"mixed {i}") for i, (text, settings) in enumerate(zip(BATCH, KINDS, strict=True))]
    jobs += [
        job(BATCH, GROWN, "grown"),
        job(BATCH[::-1], KINDS[::-1], "reversed"),
        job(BATCH, DRAFTED, "drafted"),
        job([LONG], [SEEDED], "long"),
    ]
    return engine(tmp_path_factory.mktemp("alone"), jobs, False, async_scheduling=False, max_num_batched_tokens=256)


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_tokens_are_those_of_vllm(alone: Any, name: str) -> None:
    stock, ours = (alone["found"][f"{name}, {how}"] for how in ("stock", "switchyard"))
    assert ours["tokens"] == stock["tokens"]
    if GREEDY[name]:
        assert name == "log-probabilities" or ours["tokens"] != alone["found"]["greedy, stock"]["tokens"]


@pytest.mark.parametrize("which", ["logprobs", "prompt"])
def test_logprobs_are_those_of_vllm(alone: Any, which: str) -> None:
    """The same tokens with the same ranks; the largest difference is 4e-6."""
    stock, ours = (alone["found"][f"log-probabilities, {how}"][which] for how in ("stock", "switchyard"))
    steps = 0
    for theirs, mine in zip(stock, ours, strict=True):
        assert len(theirs) == len(mine)
        for a, b in zip(theirs, mine, strict=True):
            if a is None:
                assert b is None
                continue
            assert [(token, rank) for token, _, rank in a] == [(token, rank) for token, _, rank in b]
            assert max(abs(x[1] - y[1]) for x, y in zip(a, b, strict=True)) < 4e-6
            steps += 1
    assert steps >= 40


def test_a_request_alone_and_in_a_batch(alone: Any) -> None:
    found = alone["found"]
    tokens = found["mixed, switchyard"]["tokens"]
    assert [found[f"mixed {i}, switchyard"]["tokens"][0] for i in range(COUNT)] == tokens
    assert found["reversed, switchyard"]["tokens"][::-1] == tokens
    assert len(set(map(tuple, tokens))) >= COUNT - 1  # two are greedy, with one prompt


def test_grammars_and_stops(alone: Any) -> None:
    found = alone["found"]["mixed, switchyard"]
    for i, (text, tokens) in enumerate(zip(found["text"], found["tokens"], strict=True)):
        if "structured_outputs" in KINDS[i]:
            text = text.rstrip("\0")  # noqa: PLW2901  # the model has no token that ends a text: the first, 0, is drawn
            assert re.fullmatch("[a-z ,]{30,60}x", text) or (len(tokens) == TOKENS and re.fullmatch("[a-z ,]+", text))
        if "min_tokens" in KINDS[i]:
            assert len(tokens) >= 4


def test_every_step_was_switchyards(alone: Any) -> None:
    """No setting of these jobs needs a method of vLLM's sampler."""
    assert alone["steps"]["stock"] == 0
    assert alone["steps"]["switchyard"] > 100


OTHERS: dict[str, dict[str, Any]] = {
    "a process of its own": {"async_scheduling": False},
    "asynchronous scheduling": {"async_scheduling": True},
    "chunks of prompts": {"max_num_batched_tokens": 64, "async_scheduling": False},
    "two processes": {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_engines_draw_the_same_tokens(alone: Any, name: str, tmp_path: Path) -> None:
    jobs = [job(BATCH, KINDS, "mixed"), job([LONG], [SEEDED], "long")]
    found = engine(tmp_path, jobs, **OTHERS[name])["found"]
    for each in ("mixed, switchyard", "long, switchyard"):
        assert found[each]["tokens"] == alone["found"][each]["tokens"]


def test_preempted_requests_draw_the_same_tokens(alone: Any, tmp_path: Path) -> None:
    options = {"num_gpu_blocks_override": 9, "async_scheduling": False, "disable_log_stats": False}
    made = engine(tmp_path, [job(BATCH, GROWN, "grown")], False, **options)
    assert made["found"]["grown, switchyard"]["tokens"] == alone["found"]["grown, switchyard"]["tokens"]
    assert made["counted"]["vllm:num_preemptions"] > 0


def test_drafts_change_no_token(alone: Any, tmp_path: Path) -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    jobs = [job(BATCH, DRAFTED, "drafted")]
    made = engine(tmp_path, jobs, False, async_scheduling=False, speculative_config=drafts)
    assert made["found"]["drafted, switchyard"]["tokens"] == alone["found"]["drafted, switchyard"]["tokens"]
    assert made["steps"]["stock"] == 0
