"""integrations/llama_cpp: compiled and run where llama.cpp is installed, with a small random model.

llama.cpp is found by pkg-config, or in the folder that LLAMA_CPP names: its include and lib."""
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

SOURCE = os.environ["SWITCHYARD_SOURCE"]
CC = os.environ["SWITCHYARD_CC"]
SHARED = os.environ["SWITCHYARD_SHARED"]
FOLDER = os.path.join(SOURCE, "integrations", "llama_cpp")
VOCABULARY, WIDTH, HEADS, INNER = 300, 32, 4, 48


def installed():
    """(flags to compile, flags to link), or None."""
    folder = os.environ.get("LLAMA_CPP")
    if folder:
        lib = os.path.join(folder, "lib")
        return ([f"-isystem{folder}/include"], [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lllama", "-lggml", "-lggml-base"])
    if not shutil.which("pkg-config"):
        return None
    said = [subprocess.run(["pkg-config", option, "llama"], capture_output=True, text=True, check=False)
            for option in ("--cflags", "--libs")]
    return None if any(done.returncode for done in said) else tuple(done.stdout.split() for done in said)


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def write_gguf(path):
    """A llama of one layer with random weights and without a tokenizer, in GGUF's third version."""
    numbers = {"context_length": 128, "embedding_length": WIDTH, "block_count": 1, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "attention.head_count_kv": HEADS, "rope.dimension_count": WIDTH // HEADS,
               "vocab_size": VOCABULARY}
    values = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
              text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("no_vocab"),
              text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)]
    values += [text(f"llama.{name}") + struct.pack("<II", 4, number) for name, number in numbers.items()]
    shapes = {"token_embd": (WIDTH, VOCABULARY), "output_norm": (WIDTH,), "output": (WIDTH, VOCABULARY),
              "blk.0.attn_norm": (WIDTH,), "blk.0.ffn_norm": (WIDTH,), "blk.0.ffn_gate": (WIDTH, INNER),
              "blk.0.ffn_up": (WIDTH, INNER), "blk.0.ffn_down": (INNER, WIDTH)}
    shapes |= {f"blk.0.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
    made, data, draw = [], b"", random.Random(1)
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        made.append(text(f"{name}.weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data)))
        data += struct.pack(f"<{count}f", *(draw.uniform(-0.5, 0.5) + (len(shape) == 1) for _ in range(count)))
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(made), len(values)) + b"".join(values) + b"".join(made)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


@unittest.skipUnless(installed(), "llama.cpp is not installed: neither pkg-config llama nor LLAMA_CPP")
class LlamaCpp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def build(self, *sources):
        to_compile, to_link = installed()
        header = subprocess.run([CC, "-E", "-include", "llama.h", "-xc", "/dev/null", *to_compile],
                                capture_output=True, text=True, check=True).stdout
        if re.search(r"llama_sampler_init_penalties\(\s*int32_t\s+n_vocab", header):
            to_compile = [*to_compile, "-DPENALTIES_TAKE_N_VOCAB"]
        path = os.path.join(self.folder, "program")
        command = [CC, "-std=c11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", *to_compile,
                   f"-I{SOURCE}/include", f"-I{FOLDER}", *sources, "-o", path, *to_link, SHARED,
                   f"-Wl,-rpath,{os.path.dirname(SHARED)}", "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_beside_its_own_samplers_and_on_a_model(self):
        model = os.path.join(self.folder, "model.gguf")
        write_gguf(model)
        program = self.build(os.path.join(SOURCE, "tests", "consumer", "llama_cpp.c"),
                             os.path.join(FOLDER, "llama_switchyard.c"))
        done = subprocess.run([program, model], capture_output=True, text=True, check=False)
        self.assertEqual(re.findall("(?m)^not ok.*", done.stdout), [], done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1..18", done.stdout)

    def test_the_benchmark_runs(self):
        done = subprocess.run([self.build(os.path.join(FOLDER, "bench.c")), "1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^llama_switchyard_sample's part +\d")


if __name__ == "__main__":
    unittest.main()
