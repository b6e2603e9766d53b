"""The safetensors reader against files that lie, and the writer: names, alignment, replacement, failure."""
import json
import os
import struct
import subprocess
import unittest

from st import CLI, CliTest, Tensor, decode, encode, is_sanitized, raw, tensor

GOOD = {"cache": tensor("F32", [[0], [1], [2], [3]]), "indices": tensor("I32", [2, 0]),
        "block_table": tensor("I32", [1, 0])}


def entry(dtype="U8", shape=(4,), offsets=(0, 4), **more):
    return dict({"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}, **more)


def header(**entries):
    return json.dumps(entries).encode()


def one(data_bytes, *form, **more):
    return raw(header(x=entry(*form, **more)), bytes(data_bytes))


EMPTY = b'{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'

# What is wrong, the file, and words of the sentence.
HOSTILE = [
    ("no bytes", b"", "too few"),
    ("fewer bytes than a length", b"\1\0\0\0\0\0\0", "too few"),
    ("header longer than the file", raw(b"{}", length=3), "cut short"),
    ("header length of all ones", raw(b"{}", length=2**64 - 1), "past the limit"),
    ("header length that wraps past the length field", raw(b"{}", length=2**64 - 8), "past the limit"),
    ("header length past the limit", raw(b"{}", length=100000001), "past the limit"),
    ("empty header", raw(b""), "does not begin with {"),
    ("header that begins with a space", raw(b" {}"), "does not begin with {"),
    ("header that is a list", raw(b"[]"), "does not begin with {"),
    ("broken json", raw(b'{"x": '), "bad header"),
    ("rest after the json", raw(b"{} {}"), "bad header"),
    ("json that is not utf8", raw(b'{"\xff": 1}'), "bad header"),
    ("nul in a name", raw(b'{"a\\u0000b": 1}'), "bad header"),
    ("json nested without end", raw(b'{"x":' + b"[" * 100000 + b"}"), "tensor x: its header entry is not an object"),
    ("duplicate key in an entry",
     raw(b'{"x":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"\0"), "duplicate"),
    ("entry that is no object", raw(header(x=[1, 2])), "tensor x"),
    ("unknown key in an entry", one(4, strides=[1]), "strides"),
    ("missing dtype", raw(b'{"x":{"shape":[1],"data_offsets":[0,1]}}', b"\0"), "dtype"),
    ("missing shape", raw(b'{"x":{"dtype":"U8","data_offsets":[0,1]}}', b"\0"), "shape"),
    ("missing offsets", raw(b'{"x":{"dtype":"U8","shape":[1]}}', b"\0"), "data_offsets"),
    ("dtype that is a number", one(4, 32), "dtype"),
    ("negative extent", one(4, shape=(-4,)), "shape[0]"),
    ("two negative extents", one(4, shape=(-2, -2)), "shape[0]"),
    ("extent beyond 64 bits",
     raw(b'{"x":{"dtype":"U8","shape":[18446744073709551620],"data_offsets":[0,4]}}', bytes(4)), "bad header"),
    ("rank past the limit", one(1, shape=(1,) * 17, offsets=(0, 1)), "rank 17"),
    ("huge shape over few bytes", one(4, shape=(2**40,), offsets=(0, 4)), "tensor x"),
    ("offsets reversed", one(4, offsets=(4, 0)), "end before they begin"),
    ("offsets past the end", one(4, shape=(5,), offsets=(0, 5)), "4 data bytes"),
    ("offsets that do not fit the shape", one(4, shape=(3,)), "its shape needs 3"),
    ("overlap", raw(header(x=entry(), y=entry(offsets=(2, 6))), bytes(6)), "overlap"),
    ("same bytes twice", raw(header(x=entry(), y=entry()), bytes(4)), "overlap"),
    ("hole between tensors", raw(header(x=entry(), y=entry(offsets=(6, 10))), bytes(10)), "2 bytes before it"),
    ("hole at the start", one(5, offsets=(1, 5)), "1 bytes before it"),
    ("bytes after the last tensor", one(7), "3 bytes at its end"),
    ("metadata that is no object", raw(b'{"__metadata__": "x"}'), "__metadata__"),
    ("metadata value that is no string", raw(b'{"__metadata__": {"a": 1}}'), "__metadata__"),
    ("control characters stay out of the message", raw(b'{"a\\n\\u001b[31mb": 1}'), r"a\n\x1b[31mb"),
    ("long names are cut", raw(header(**{"n" * 5000: 1})), "nnn..."),
    ("duplicate tensor", raw(b"{%s,%s}" % ((b'"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}',) * 2), b"\0"), "duplicate"),
    ("duplicate tensor in other letters", raw(b'{"ax":%s,"b":%s,"\\u0061x":%s}' % ((EMPTY,) * 3)), "duplicate name ax"),
    ("duplicate in metadata", raw(b'{"__metadata__":{"a":"1","b":"2","a":"1"}}'), "duplicate name a"),
    ("duplicate metadata", raw(b'{"__metadata__":{},"__metadata__":{}}'), "duplicate __metadata__"),
    *((f"dtype {dtype}", one(4, dtype), "unknown dtype") for dtype in ("F4", "f32", "", "F32 ", "C64")),
    *((f"extent {extent}", one(4, shape=(extent,)), "shape[0]") for extent in (4.0, "4", None, True, [4])),
    *((f"extent {extent}", raw(b'{"x":{"dtype":"U8","shape":[%s],"data_offsets":[0,1]}}' % extent, b"\0"), "")
      for extent in (b"01", b"+1", b"1.", b"1,", b"-", b"1e0", b"0x1", b"1\0")),
    ("product that wraps to 4 bytes in 64 bits", one(4, "F32", (2**62 + 1,)), "does not fit"),
    ("product that wraps", one(4, shape=(2**32, 2**32 + 1, 4)), "does not fit"),
    *((f"huge extents beside a zero {shape}", one(0, shape=shape, offsets=(0, 0)), "does not fit")
      for shape in ((2**62, 2**62, 0), (0, 2**62, 2**62))),
    *((f"offsets {offsets}", raw(header(x={"dtype": "U8", "shape": [4], "data_offsets": offsets}), bytes(4)), "data_offsets")
      for offsets in ([], [0], [0, 4, 4], ["0", "4"], [0.0, 4.0], [-4, 0], [0, -1], None)),
    ("offsets far past the end", one(4, offsets=(2**63 - 5, 2**63 - 1)), "4 data bytes"),
]


class Hostile(CliTest):
    """Each file must be rejected in one line that names it, with exit 2 and nothing written, by show and by run."""

    def bad(self, blob, says):
        self.write("bad.safetensors", blob)
        for arguments in (["show", "bad.safetensors"],
                          ["run", "kv_gather", "bad.safetensors", "out.safetensors", "--block-size", "2"]):
            done = self.cli(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"\Aswitchyard: bad\.safetensors: [^\n]+\n\Z")
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertEqual(os.listdir(self.folder), ["bad.safetensors"])

    def test_files(self):
        for name, blob, says in HOSTILE:
            with self.subTest(name):
                self.bad(blob, says)

    def test_json_that_is_almost_right(self):
        one = b'"dtype":"U8","shape":[1],"data_offsets":[0,1]'
        for text in (b'{"x":{%s},}', b'{,"x":{%s}}', b'{"x" {%s}}', b'{"x":{%s,}}', b'{"x":{%s}', b'{"x":{%s}}}', b'{"x":{%s}}\0',
                     b"{x:{%s}}", b'{"x:{%s}}', b'{"x":{%s};}', b'{"\\x":{%s}}', b'{"\\u12g4":{%s}}', b'{"\n":{%s}}', b'{"\\',
                     b'{"\\ud800":{%s}}', b'{"\\ud800\\u0041":{%s}}', b'{"\\udc00":{%s}}', b'{"\xc0\x80":{%s}}',
                     b'{"\xed\xa0\x80":{%s}}', b'{"\xf4\x90\x80\x80":{%s}}', b'{"\xe2\x82":{%s}}', b'{"x":{"dtype":"U8","shape":[1 1]'):
            self.bad(raw(text.replace(b"%s", one), b"\0"), "bad header")


class Unreadable(CliTest):
    def fails(self, path, says):
        done = self.cli("run", "kv_gather", path, "out.safetensors", "--block-size", 2)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(says, done.stderr)

    def test_missing(self):
        self.fails("nowhere.safetensors", "No such file")

    def test_folder(self):
        os.mkdir(self.path("folder"))
        self.fails("folder", "is a directory")

    def test_pipe_does_not_hang(self):
        os.mkfifo(self.path("pipe"))
        self.fails("pipe", "not a regular file")

    def test_device(self):
        self.fails("/dev/zero", "not a regular file")


class Accepted(CliTest):
    def test_tensors_in_any_order_of_the_data(self):
        blob = raw(header(cache=entry("F32", (2, 1), (12, 20)), indices=entry("I32", (2,), (4, 12)),
                          block_table=entry("I32", (1,), (0, 4))), struct.pack("<3i2f", 0, 1, 0, 5, 6))
        self.write("in.safetensors", blob)
        done = self.cli("run", "kv_gather", "in.safetensors", "out.safetensors", "--block-size", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(decode(self.read("out.safetensors"))["out"].values(), [6, 5])

    def test_padded_header_and_unaligned_data(self):
        text = header(cache=entry("F32", (2, 1), (0, 8)), indices=entry("I32", (1,), (8, 12)),
                      block_table=entry("I32", (1,), (12, 16)))
        for pad in range(8):
            self.write("in.safetensors", raw(text + b" " * pad, struct.pack("<2f2i", 5, 6, 1, 0)))
            done = self.cli("run", "kv_gather", "in.safetensors", "out.safetensors", "--block-size", 2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(decode(self.read("out.safetensors"))["out"].values(), [6])

    def test_empty_and_scalar_tensors(self):
        self.write("a.safetensors", encode({"none": Tensor("F32", [0, 3], b""), "also": Tensor("I64", [2**40, 0], b""),
                                            "one": Tensor("I32", [], struct.pack("<i", -7))}))
        text = self.out("show", "a.safetensors")
        self.assertEqual(text, f"none  F32 [0,3]\nalso  I64 [{2**40},0]\none  I32 []\n    -7\n")

    def test_scalar_goes_to_the_operator(self):
        self.rejected("kv_gather", dict(GOOD, indices=Tensor("I32", [], struct.pack("<i", 0))), "--block-size", 2,
                     status="SY_ERR_SHAPE")

    def test_no_tensors(self):
        self.rejected("kv_gather", {}, "--block-size", 2, status="SY_ERR_NULL")


    def test_names_with_escapes(self):
        self.write("a.safetensors", raw(b'{"\\u00e9\\ud83d\\ude00\\/\\\\\\"\xc3\xa9":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                                        b'"__metadata__" : {"\\u006b": "\\u0076\\u0065"}}'))
        text = self.out("show", "a.safetensors")
        self.assertEqual(text, '\u00e9\U0001f600/\\"\u00e9  U8 [0]\nmetadata k = ve\n')


class Memory(CliTest):
    """Reading takes a small multiple of the header, whatever the header is made of. It was 20 to 24 times."""
    MOST = 6
    HEADER_BYTES = 12_000_000

    def peak(self, *arguments):
        with subprocess.Popen([CLI, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL) as job:
            _, status, used = os.wait4(job.pid, 0)
            job.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(job.returncode, 0)
        return used.ru_maxrss * 1024

    def write_header(self, begin, item, end):
        """item(i) until the header is long enough; in pieces, because a child's peak begins with this process's. -> items"""
        with open(self.path("big"), "wb") as file:
            file.write(bytes(8) + begin + item(0))
            n = 1
            while file.tell() < self.HEADER_BYTES:
                file.write(b"," + item(n))
                n += 1
            length = file.write(end) and file.tell() - 8
            file.seek(0)
            file.write(struct.pack("<Q", length))
        return n

    def check(self, begin, item, end, data_bytes=0):
        n = self.write_header(begin, item, end)
        with open(self.path("big"), "ab") as file:
            file.write(bytes(data_bytes * n))
        if is_sanitized():
            self.skipTest("a sanitizer has memory of its own")
        self.write("small", encode({}))
        grown = self.peak("show", "big") - self.peak("show", "small")
        self.assertLess(grown, self.MOST * self.HEADER_BYTES, f"{n} items")

    def test_empty_tensors(self):
        self.check(b"{", lambda i: b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i, b"}")

    def test_small_tensors(self):
        self.check(b"{", lambda i: b'"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1), b"}", 1)

    def test_many_extents(self):
        self.check(b"{", lambda i: b'"%d":{"dtype":"U8","shape":[0%s],"data_offsets":[0,0]}' % (i, b",0" * 15), b"}")

    def test_metadata(self):
        self.check(b'{"__metadata__":{', lambda i: b'"%x":""' % i, b"}}")


class Writing(CliTest):
    def test_out_may_be_in(self):
        path = self.write("x.safetensors", encode(GOOD))
        self.out("run", "kv_gather", path, path, "--block-size", 2)
        self.assertEqual(decode(self.read("x.safetensors"))["out"].values(), [0, 2])
        self.assertEqual(os.listdir(self.folder), ["x.safetensors"])

    def test_rejection_leaves_an_old_file_alone(self):
        self.write("out.safetensors", b"precious")
        result = self.cli("run", "kv_gather", self.write("in.safetensors", encode(GOOD)), "out.safetensors",
                          "--block-size", 0)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.read("out.safetensors"), b"precious")
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.safetensors", "out.safetensors"])

    def test_usage_error_leaves_an_old_file_alone(self):
        self.write("out.safetensors", b"precious")
        result = self.cli("run", "kv_gather", self.write("in.safetensors", encode(GOOD)), "out.safetensors")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(self.read("out.safetensors"), b"precious")

    def test_missing_folder(self):
        self.write("in.safetensors", encode(GOOD))
        done = self.cli("run", "kv_gather", "in.safetensors", "no/such/out.safetensors", "--block-size", 2)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Aswitchyard: no/such/out\.safetensors: cannot be written: [^\n]+\n\Z")

    def test_target_is_a_folder(self):
        self.write("in.safetensors", encode(GOOD))
        os.mkdir(self.path("out"))
        done = self.cli("run", "kv_gather", "in.safetensors", "out", "--block-size", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is a directory", done.stderr)
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_unwritable_folder(self):
        if os.geteuid() == 0:
            # root writes everywhere but to a place that is no folder
            self.write("in.safetensors", encode(GOOD))
            done = self.cli("run", "kv_gather", "in.safetensors", "in.safetensors/out", "--block-size", 2)
        else:
            self.write("in.safetensors", encode(GOOD))
            os.mkdir(self.path("locked"), 0o500)
            done = self.cli("run", "kv_gather", "in.safetensors", "locked/out", "--block-size", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot be written", done.stderr)

    def test_new_files_follow_the_umask(self):
        self.write("in.safetensors", encode(GOOD))
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        done = self.cli("run", "kv_gather", "in.safetensors", "out.safetensors", "--block-size", 2)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(os.stat(self.path("out.safetensors")).st_mode & 0o777, 0o640)

    def test_wide_elements_come_first_so_that_all_are_aligned(self):
        tensors = {"tokens": tensor("BF16", [[1, 2, 3]] * 3), "routing_map": tensor("BOOL", [[1, 0]] * 3)}
        r = self.ok("moe_permute", tensors, "--num-out-tokens", 3)
        names = list(r.outputs)  # decode() has checked the alignment of each
        self.assertLess(names.index("expert_counts"), names.index("sorted_indices"))
        self.assertLess(names.index("sorted_indices"), names.index("permuted_tokens"))


if __name__ == "__main__":
    unittest.main()
