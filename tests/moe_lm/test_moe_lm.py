"""examples/moe_lm: recorded tokens and logits, the same text in any batch, files that are not as they should be.

Results are defined operation by operation, so the digests below hold on every machine. They were compared with Hugging Face
transformers when they were recorded; python/tests/test_moe_lm.py does that again where transformers is installed."""
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import checkpoints

PROGRAM = os.environ["SWITCHYARD_MOE_LM"]
MPI_PROGRAM = os.environ.get("SWITCHYARD_MOE_LM_MPI")
MPIRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "mpirun.py")
PROMPT = [(i * i + 3) % checkpoints.VOCABULARY for i in range(17)]

RECORDED = {  # first tokens after PROMPT, and the logits of 64
    "olmoe": ([176, 50, 124, 271, 7], "278597dd6d0a747a"),
    "mixtral": ([205, 140, 6, 80, 25], "5269eff1fbe06841"),
    "qwen3": ([82, 183, 104, 104, 104], "3644c3a99cdfc73f"),
}

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "moe_lm", "model")
SHIPPED = ([403, 333, 423, 511, 328, 314, 46, 10], "eb9b9ea42b2d486a")

TEXTS = {  # tokens as the tokenizers library gives them: gpt2, qwen, spaces
    "hello the world's 123 don't  I'LL\n\n x": (
        [269, 78, 258, 266, 6, 82, 220, 271, 18, 220, 67, 78, 77, 6, 83, 220, 220, 40, 6, 43, 43, 272, 220, 87],
        [269, 78, 258, 266, 6, 82, 220, 16, 17, 18, 220, 67, 78, 77, 6, 83, 220, 220, 40, 6, 43, 43, 272, 220, 87],
        [277, 257, 263, 262, 265, 265, 267, 274, 275, 267, 268, 265, 261, 40, 269, 257, 50, 51, 52, 257, 261, 267, 266, 40, 270, 257, 257, 74, 40, 77, 77, 11, 11, 257, 121],
    ),
    "  tabs\tand\nlines \n": (
        [220, 220, 83, 64, 65, 82, 197, 64, 77, 67, 198, 75, 259, 68, 82, 220, 198],
        [220, 220, 83, 64, 65, 82, 197, 64, 77, 67, 198, 75, 259, 68, 82, 220, 198],
        [277, 257, 257, 257, 270, 258, 259, 269, 10, 258, 266, 261, 11, 265, 276, 262, 269, 257, 11],
    ),
    "café the <|end|> naïve 日本語 12": (
        [66, 64, 69, 273, 258, 220, 274, 220, 77, 64, 127, 107, 85, 68, 220, 162, 245, 98, 162, 250, 105, 164, 103, 252, 220, 271],
        [66, 64, 69, 273, 258, 220, 274, 220, 77, 64, 127, 107, 85, 68, 220, 162, 245, 98, 162, 250, 105, 164, 103, 252, 220, 16, 17],
        [277, 257, 260, 258, 103, 196, 170, 274, 257, 277, 257, 257, 266, 258, 196, 176, 119, 262, 257, 231, 152, 166, 231, 157, 173, 233, 171, 159, 257, 50, 51],
    ),
    "the inin  w 1 !!\n\nend ... ": (
        [257, 220, 259, 259, 220, 262, 220, 16, 220, 0, 0, 198, 198, 68, 77, 67, 220, 13, 13, 13, 220],
        [257, 220, 259, 259, 220, 262, 220, 16, 220, 0, 0, 272, 68, 77, 67, 220, 13, 13, 13, 220],
        [277, 274, 257, 276, 276, 257, 275, 257, 50, 257, 34, 34, 11, 11, 262, 266, 261, 257, 47, 47, 47, 257],
    ),
}


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def ids(tokens):
    return ["--ids", " ".join(map(str, tokens))]


class MoeLm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for kind in checkpoints.CONFIGS:
            checkpoints.write(cls.at(kind), kind, files=3 if kind == "mixtral" else 1)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def at(cls, name):
        return os.path.join(cls.folder.name, name)

    def run_it(self, *arguments, status=0, program=(PROGRAM,)):
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, errors="replace", check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def run_mpi(self, *arguments, status=0):
        mpirun = [sys.executable, MPIRUN, "-n", "3", "--mpirun", os.environ["SWITCHYARD_MPIRUN"]]
        return self.run_it(*arguments, status=status, program=(*mpirun, MPI_PROGRAM))

    def tokens(self, *arguments):
        """Of all requests."""
        lines = self.run_it(*arguments).split("\n")
        return [[int(n) for n in lines[i + 1].split()] for i, line in enumerate(lines) if line.startswith("---")]

    def logits(self, kind, *arguments):
        path = self.at("logits")
        return self.tokens(os.path.join(self.folder.name, kind), "--logits", path, *arguments), contents(path)

    def test_recorded(self):
        for kind, (first, digest) in RECORDED.items():
            with self.subTest(kind):
                got, logits = self.logits(kind, *ids(PROMPT))
                self.assertEqual(got[0][:5], first)
                self.assertEqual(len(logits), 64 * checkpoints.VOCABULARY * 4)
                self.assertEqual(hashlib.sha256(logits).hexdigest()[:16], digest)

    def test_another_name_of_the_number_of_experts(self):
        """num_local_experts, as newer versions of transformers write it for Qwen3-MoE."""
        folder = self.changed("qwen3", num_experts=None, num_local_experts=8)
        self.assertEqual(self.tokens(folder, *ids(PROMPT)), self.tokens(self.at("qwen3"), *ids(PROMPT)))

    def test_the_same_in_any_company(self):
        """A request alone; among others, in small steps, with few places; on one thread; experts on several devices; drafts."""
        draw = ["--temperature", "0.9", "--top-p", "0.95", "--seed", "5", "--tokens", "20"]
        others = ["--temperature", "0", "--tokens", "9", *ids([7, 7, 7]), "--temperature", "1.2", "--top-k", "3", *ids(range(40))]
        row = checkpoints.VOCABULARY * 4
        for kind in checkpoints.CONFIGS:
            with self.subTest(kind):
                alone, logits = self.logits(kind, *draw, *ids(PROMPT))
                for way in ([], ["--chunk", "6"], ["--batch", "2"], ["--threads", "1"], ["--mesh", "1x3"], ["--speculate", "3"],
                            ["--mesh", "3x5", "--chunk", "7", "--speculate", "64"]):
                    among, every = self.logits(kind, *draw, *ids(PROMPT), *others, *way)
                    self.assertEqual(among[0], alone[0])
                    self.assertEqual(every[:20 * row], logits)
                self.assertEqual([len(a) for a in among], [20, 9, 9])

    @unittest.skipUnless(MPI_PROGRAM, "built without MPI")
    def test_a_process_for_each_device(self):
        """Three processes and four requests, of which one ends early: the text, the logits and the page of one process."""
        given = ["--temperature", "0.8", "--tokens", "12", *ids(PROMPT), *ids([5]), "--tokens", "3", *ids(range(30)), *ids([9, 8])]
        kept = ["--logits", self.at("logits"), "--page", self.at("page")]
        got = []
        for run, more in ((self.run_it, []), (self.run_mpi, ["--mesh", "1x3", "--speculate", "2"])):
            got.append([run(self.at("qwen3"), *given, *kept, *more)])
            for path in (self.at("logits"), self.at("page")):
                got[-1].append(contents(path))
                os.remove(path)
        self.assertEqual(got[0], got[1])
        self.assertEqual(self.run_mpi(self.at("qwen3"), *given, "--mesh", "2x2", status=2).count("moe_lm: --mesh: "), 1)

    def test_drafts(self):
        """Text, logits and page of a run without drafts, where some are accepted and others are not. The first request is its
        last prompt token and drafts in one step, of which the first is accepted and ends the text."""
        folder = self.changed("qwen3", eos_token_id=76)
        again = [5, 9, 11, 7, 299] * 4
        given = ["--tokens", "40", "--chunk", "11", *ids([76, 29, 258, 166] * 3), *ids(PROMPT), *ids(again),
                 "--temperature", "0.3", "--seed", "8", *ids(again), "--top-p", "0.8", "--seed", "9", *ids(PROMPT)]
        kept = [self.at("drafts-logits"), self.at("drafts-page")]
        got, counts = [], []
        for more in ([], ["--speculate", "1"], ["--speculate", "5", "--batch", "3"], ["--speculate", "5", "--mesh", "2x2"]):
            text, _, times = self.run_it(folder, *given, "--logits", kept[0], "--page", kept[1], "--time", *more).partition("\nprompts: ")
            got.append([text, *map(contents, kept)])
            counts += re.findall(r"drafts: (\d+) of (\d+) accepted", times)
        self.assertEqual(text.split("\n")[:3], ["--- 1, tokens", "", ""])
        for one in got[1:]:
            self.assertEqual(one, got[0])
        self.assertEqual(len(counts), 3)
        for accepted, drafts in counts:
            self.assertTrue(0 < int(accepted) < int(drafts), counts)

    def test_draws_depend_on_the_seed(self):
        got = self.tokens(self.at("olmoe"), "--temperature", "1", *(a for seed in "112" for a in ["--seed", seed, *ids(PROMPT)]))
        self.assertEqual(got[0], got[1])
        self.assertNotEqual(got[0], got[2])

    def test_bf16(self):
        checkpoints.write(self.at("bf16"), "olmoe", "BF16")
        self.assertEqual(self.tokens(self.at("bf16"), *ids(PROMPT))[0][:1], RECORDED["olmoe"][0][:1])

    def test_the_model_that_ships(self):
        """Recorded like the others, in bfloat16, with products large enough for several threads."""
        for threads in "13":
            got, logits = self.logits(MODEL, "--threads", threads, "--tokens", "8", *ids(i * i % 1024 for i in range(200)))
            self.assertEqual((got[0], hashlib.sha256(logits).hexdigest()[:16]), SHIPPED)

    def is_read_as(self, folder, text, tokens):
        by_text = self.run_it(folder, "--tokens", "3", "--prompt", text, "--logits", self.at("text-logits"))
        logits = contents(self.at("text-logits"))
        self.assertEqual(self.logits(folder, "--tokens", "3", *ids(tokens))[1], logits)
        self.assertTrue(by_text.startswith(f"--- 1\n{text}"))

    def test_text(self):
        folder = shutil.copytree(self.at("olmoe"), self.at("text"))
        for i, kind in enumerate(("gpt2", "qwen", "spaces")):
            checkpoints.write_tokenizer(folder, kind)
            for text, tokens in TEXTS.items():
                with self.subTest(kind, text=text):
                    self.is_read_as(folder, text, tokens[i])

    def test_ids_with_a_point(self):
        """A token is 83.0 in the file."""
        folder = shutil.copytree(self.at("olmoe"), self.at("point"))
        got = []
        for number in (int, float):
            whole = checkpoints.tokenizer("gpt2")
            whole["model"]["vocab"] = {word: number(token) for word, token in whole["model"]["vocab"].items()}
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
                json.dump(whole, file)
            got.append(self.run_it(folder, "--tokens", "3", "--prompt", "hello"))
        self.assertEqual(got[0], got[1])

    def test_long_words(self):
        """Pairs that overlap, merges that make new ones, and 120,000 characters: merged pair by pair in the order of the list."""
        folder, merges = shutil.copytree(self.at("olmoe"), self.at("long")), [merge.split() for merge in checkpoints.tokenizer("spaces")["model"]["merges"]]
        checkpoints.write_tokenizer(folder, "spaces")
        vocabulary = checkpoints.tokenizer("spaces")["model"]["vocab"]
        for length in (1, 2, 400, 120000):
            text = "".join(random.Random(length).choices("then i", k=length))
            word = list("▁" + text.replace(" ", "▁"))
            while True:
                rank = min((merges.index(list(p)) for p in set(zip(word, word[1:])) if list(p) in merges), default=None)
                if rank is None:
                    break
                made, at = [], 0
                while at < len(word):
                    pair = word[at:at + 2] == merges[rank]
                    made.append("".join(word[at:at + 2]) if pair else word[at])
                    at += 2 if pair else 1
                word = made
            if length < 1000:
                self.is_read_as(folder, text, [277, *(vocabulary[w] for w in word)])
            else:
                self.assertIn(f"prompt 1 has {len(word) + 1} tokens", self.run_it(folder, "--prompt", text, status=2))

    def changed(self, kind="olmoe", **config):
        folder = shutil.copytree(self.at(kind), tempfile.mkdtemp(dir=self.folder.name), dirs_exist_ok=True)
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as file:
            whole = {**json.load(file), **config}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(whole, file)
        return folder

    def written(self, header):
        """A checkpoint whose file has this header and eight bytes of numbers."""
        folder = self.changed()
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + bytes(8))
        return folder

    def corrupted(self, **change):
        """One whose first tensor has another entry in the header."""
        entry = {"dtype": "F32", "shape": [300, 64], "data_offsets": [0, 300 * 64 * 4], **change}
        return self.written(json.dumps({"model.embed_tokens.weight": entry}).encode())

    def test_no_logit_is_a_number(self):
        folder = self.changed()
        path = os.path.join(folder, "model.safetensors")
        with open(path, "r+b") as file:
            size = int.from_bytes(file.read(8), "little")
            at = json.loads(file.read(size))["model.norm.weight"]["data_offsets"][0]
            file.seek(8 + size + at)
            file.write(b"\0\0\xc0\x7f" * checkpoints.HIDDEN)
        self.assertIn("no logit of token 1 of prompt 1 is a number", self.run_it(folder, *ids(PROMPT), status=2))

    def test_bad_folders(self):
        short = self.changed()
        path = os.path.join(short, "model.safetensors")
        size = os.path.getsize(path)
        os.truncate(path, size - 100)
        header = self.changed()
        os.truncate(os.path.join(header, "model.safetensors"), 60)
        odd = self.changed()
        with open(os.path.join(odd, "config.json"), "a", encoding="utf-8") as file:
            file.write("]")
        gone = self.changed("mixtral")
        os.remove(os.path.join(gone, "model-00002-of-00003.safetensors"))
        shared = self.changed("mixtral")
        shutil.copy(os.path.join(shared, "model-00002-of-00003.safetensors"), os.path.join(shared, "model-00003-of-00003.safetensors"))
        for folder, words in (
            (self.at("nowhere"), "nowhere/config.json is missing"),
            (short, "model.safetensors is truncated"),
            (header, "is truncated: its header ends beyond its end"),
            (odd, "config.json, byte "),
            (gone, "model-00002-of-00003.safetensors is missing"),
            (self.changed(architectures=["Llama\n\x1b[2J\x9b1mé"]), r"the architecture is Llama\x0a\x1b[2J\xc2\x9b1mé, want OlmoeForCausalLM"),
            (self.changed(hidden_size=65), "model.embed_tokens.weight is [300,64], want [300,65] as config.json says"),
            (self.changed(num_experts=9), "mlp.gate.weight is [8,64], want [9,64]"),
            (self.changed(num_hidden_layers=4), "the checkpoint has no tensor model.layers.3."),
            (self.changed(rope_scaling={"rope_type": "yarn", "factor": 4}), "rotary positions of type yarn, want default"),
            (self.changed("mixtral", sliding_window=16), "sliding_window is set, want null"),
            (self.changed(vocab_size="many"), 'vocab_size is "many", want a whole number from 1 to'),
            (self.changed(vocab_size=1e300), "e300, want a whole number from 1"),
            (self.changed(rms_norm_eps="1"), 'config.json: rms_norm_eps is "1", want a number'),
            (self.changed(rms_norm_eps=-1), "rms_norm_eps is -1"),
            (self.changed(rope_theta=0), "rope_theta is 0, want numbers above 0"),
            (self.changed(clip_qkv=8.0), "clip_qkv is 8.0, want null"),
            (self.changed(hidden_act=3), 'hidden_act is 3, want "silu"'),
            (self.changed(eos_token_id=[1.5]), "eos_token_id is 1.5, want a whole number from 0"),
            (self.changed(tie_word_embeddings=False, vocab_size=299), "want [299,64]"),
            (self.changed(num_attention_heads=-4), "num_attention_heads is -4, want a whole number from 1"),
            (self.changed(num_experts=1.5), "num_experts is 1.5, want a whole number"),
            (self.changed(num_experts_per_tok=None), "config.json: num_experts_per_tok is missing"),
            (self.changed(num_experts=None), "config.json: num_experts is missing, want a whole number from 1"),
            (self.changed(num_experts_per_tok=9), "top 9 of 8 experts do not fit together"),
            (self.changed(eos_token_id=list(range(20))), "more than 16 tokens end a text"),
            (self.changed(tie_word_embeddings="no"), 'config.json: tie_word_embeddings is "no", want true or false'),
            (self.changed(rope_parameters=[1]), "the parameters of rotary positions are not an object"),
            (self.corrupted(shape=["300", 64]), 'model.embed_tokens.weight is ["300",64], want [300,64]'),
            (self.corrupted(shape=[1e300, 64]), "e300,64], want [300,64]"),
            (self.corrupted(shape=None), "is null, want [300,64]"),
            (self.corrupted(data_offsets=[-4, 0]), "model.safetensors: an offset of safetensors is -4, want a whole number from 0"),
            (self.corrupted(data_offsets=[0, 4]), "the bytes of model.embed_tokens.weight are not those of its shape"),
            (self.corrupted(dtype="F64"), "model.embed_tokens.weight is of type F64, want F32, F16 or BF16"),
            (self.corrupted(dtype=3), "model.safetensors: dtype is 3, want a string"),
            (self.corrupted(), "is truncated: model.embed_tokens.weight ends beyond its end"),
            (self.written(b"[]"), "its header is not an object"),
            (self.written(b'{"model.embed_tokens.weight": 3}'), "the entry of model.embed_tokens.weight is not an object"),
            (self.written(b'{"a": {}, "a": {}}'), "its header is not an object: duplicate object key"),
            (self.written(b"{}"), "the checkpoint has no tensor model.embed_tokens.weight"),
            (shared, "the checkpoint has no tensor lm_head.weight"),
            (self.changed(num_attention_heads=1 << 24, num_key_value_heads=1 << 24, head_dim=1 << 24), "16777216 heads of 16777216 for 16777216"),
        ):
            with self.subTest(words):
                self.assertIn(words, self.run_it(folder, *ids(PROMPT), status=2))

    def test_bad_tokenizers(self):
        folder = shutil.copytree(self.at("olmoe"), self.at("corrupted"))
        end = {"id": 274, "content": "<|end|>", "special": True}
        for part, key, value, words in (
            ("model", "vocab", {"a": -5}, "the id of a token is -5, want a whole number from 0"),
            ("model", "vocab", {"a": 1e300}, "e300, want a whole number from 0"),
            ("model", "vocab", {"a": "b"}, 'the id of a token is "b", want a whole number'),
            ("model", "vocab", ["a"], "the model is BPE, want BPE with vocab and merges"),
            ("model", "merges", "t h", "want BPE with vocab and merges"),
            ("model", "merges", [["t", None]], "merge 0 is not a pair"),
            ("model", "merges", [["t", "zzz"]], "merge 0 makes tzzz, which is no token"),
            ("model", "type", "Unigram", "the model is Unigram, want BPE"),
            (None, "added_tokens", [{**end, "id": -1}], "the id of a token is -1, want a whole number from 0"),
            (None, "added_tokens", [3], "an added token has no content"),
            (None, "added_tokens", [{**end, "content": 3}], "tokenizer.json: content is 3, want a string"),
            (None, "added_tokens", [{**end, "content": ""}], "an added token has no content"),
            (None, "normalizer", {"type": "Lowercase"}, "normalizer is Lowercase, want one of NFC"),
            (None, "post_processor", {"type": "BertProcessing"}, "post_processor is BertProcessing, want one of ByteLevel"),
            (None, "pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True}, "add_prefix_space is true"),
            (None, "pre_tokenizer", {"type": "Split", "pattern": {"Regex": "."}}, "cuts words by ., want the patterns"),
        ):
            whole = checkpoints.tokenizer("gpt2")
            (whole if part is None else whole[part])[key] = value
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
                json.dump(whole, file)
            with self.subTest(words, value=value):
                self.assertIn(words, self.run_it(folder, "--prompt", "the", status=2))

    def test_bad_arguments(self):
        folder = self.at("olmoe")
        for arguments, words in (
            ([folder], "want a folder and a --prompt; --help"),
            ([folder, "--prompt", "hello"], "tokenizer.json is missing"),
            ([folder, *ids([1, 300])], "prompt 1 has token 300, want less than 300"),
            ([folder, "--ids", ""], "prompt 1 is empty"),
            ([folder, "--ids", "one"], "--ids has one, want numbers"),
            ([folder, "--tokens", "0", *ids([1])], "--tokens is 0, want a whole number from 1"),
            ([folder, "--top-p", "1.5", *ids([1])], "--top-p is 1.5"),
            ([folder, "--tokens", "600", *ids([1])], "the model has 512 positions"),
            ([folder, "--frobnicate"], "--frobnicate is not an option"),
            ([folder, *ids([1]), "--frobnicate", "3"], "--frobnicate is not an option"),
            ([folder, *ids([1]), "--prompt"], "--prompt is missing its value"),
            ([folder, "--tokens", "1.5", *ids([1])], "--tokens is 1.5, want a whole number"),
            ([folder, "--temperature", "nan", *ids([1])], "--temperature is nan"),
            ([folder, "--speculate", "65", *ids([1])], "--speculate is 65, want a whole number from 0 to 64"),
            ([folder, "For", *ids([1])], "For is not an option"),
            ([folder, "--batch", "5000", *ids([1])], "--batch is 5000, want a whole number from 1 to 4096"),
            ([folder, "--mesh", "1x", *ids([1])], "--mesh is 1x, want rows and columns"),
            ([folder, "--mesh", "0x4", *ids([1])], "--mesh is 0x4, want rows and columns"),
            ([folder, "--mesh", "100x100", *ids([1])], "--mesh is 100x100, want rows and columns of at most 64 devices"),
            ([folder, "--logits", os.path.join(folder, "no", "file"), *ids([1])], "file cannot be written"),
        ):
            with self.subTest(words):
                self.assertIn(words, self.run_it(*arguments, status=2))


if __name__ == "__main__":
    unittest.main()
