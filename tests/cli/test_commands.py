"""The other commands: help, version, info, show, example, demo. Times are never validated."""
import glob
import html.parser
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import time
import unittest

from st import CLI, OPERATORS, ROOT, CliTest, decode, encode, tensor

WITHOUT_INPUT = ["sample_noise"]
IN_DEMO = ["moe_route", "moe_permute", "all_to_all_dispatch", "(experts)", "moe_unpermute", "all_to_all_combine",
           "kv_scatter", "kv_gather", "sample"]
COMMANDS = ["run", "compare", "show", "example", "bench", "demo", "ops", "info", "sim-a2a"]


class Help(CliTest):
    def test_general(self):
        for arguments in (["--help"], ["-h"], ["help"]):
            text = self.out(*arguments)
            for name in OPERATORS + COMMANDS:
                self.assertIn(name, text)

    def test_every_command(self):
        for command in COMMANDS:
            text = self.out(command, "--help")
            self.assertIn("Usage: switchyard " + command, text)
            self.assertEqual(text, self.out("help", command))
            self.assertEqual(text, self.out(command, "-h"))

    def test_every_operator(self):
        for op in OPERATORS:
            text = self.out("run", op, "--help")
            self.assertIn(f"Usage: switchyard run {op} {'[IN]' if op in WITHOUT_INPUT else 'IN'} OUT", text)
            self.assertEqual(text, self.out("help", "run", op))
            self.assertEqual(text, self.out("help", op))
            self.assertEqual(text, self.out("run", op, "in", "out", "--help"))

    def test_every_field(self):
        """As a tensor or as an option, but those that only a process has, and hints."""
        for op in self.json("ops")["operators"]:
            shown = set(re.findall(r"^  ([^ ?]+)", self.out("run", op["name"], "--help"), re.M))
            fields = {"--" * (field["kind"] != "tensor") + field["name"].replace("logprob_mode", "logprob") for field in op["fields"]
                      if field["kind"] not in ("planes", "size", "routing") and "[" not in field["name"]}
            fields -= {"--memory", "--subdevice_id", "--reuse_routing", "--num_planes"}
            switches = {f"--{field['switch']}" for field in op["fields"] if "switch" in field}
            self.assertEqual({name.replace("_", "-") if name[0] == "-" else name for name in fields | switches} - shown, set())

    def test_lines_fit_a_terminal(self):
        pages = [["--help"]] + [[c, "--help"] for c in COMMANDS] + [["run", op, "--help"] for op in OPERATORS]
        for page in pages:
            long = [line for line in self.out(*page).splitlines() if len(line) > 112]
            self.assertEqual(long, [])

    def test_examples_work_when_pasted(self):
        """Every line under "Try it" but those that take long, in one folder, in order."""
        for page in [["--help"]] + [[c, "--help"] for c in COMMANDS] + [["run", op, "--help"] for op in OPERATORS]:
            _, _, tail = self.out(*page).partition("Try it")
            for line in re.findall(r"^  switchyard (.+)$", tail, re.M):
                if line.startswith("bench"):
                    continue
                with self.subTest(line):
                    self.out(*shlex.split(line))

    def test_unknown_pages(self):
        self.mistake("help", "frobnicate", says="frobnicate")
        self.mistake("help", "run", "frobnicate", says=", moe_permute, ")

    def test_no_command(self):
        done = self.cli()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("Usage: switchyard COMMAND", done.stderr)

    def test_unknown_command(self):
        self.mistake("permute", says="unknown command permute")
        self.mistake("comapre", says="did you mean compare?")

    def test_unknown_option(self):
        self.mistake("--frob", says="--frob")

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([CLI, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("standard output", done.stderr)


class Info(CliTest):
    def header_version(self):
        with open(os.path.join(ROOT, "include", "switchyard.h"), encoding="utf-8") as file:
            numbers = re.findall(r"^#define SY_VERSION_\w+ (\d+)$", file.read(), re.M)
        return ".".join(numbers)

    def test_version(self):
        done = self.cli("--version")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"switchyard {self.header_version()}\n", ""))

    def test_json(self):
        info = self.json("info")
        self.assertEqual(info["version"], self.header_version())
        self.assertIsInstance(info["results_version"], int)
        self.assertIn("scalar", info["isa_tables"])
        self.assertIn(info["isa"], info["isa_tables"])
        self.assertGreaterEqual(info["threads"], 1)
        mpi = os.environ.get("SWITCHYARD_MPI_NAME", "not in this build")
        self.assertEqual(info["mpi"], mpi)
        self.assertEqual(bool(info["cuda"]["devices"]), info["cuda"]["error"] is None)
        self.assertTrue(info["compiler"].startswith(("gcc ", "clang ")), info["compiler"])

    def test_text_says_the_same(self):
        info = self.json("info")
        text = self.out("info")
        tables = ", ".join(info["isa_tables"])
        devices = [device["name"] for device in info["cuda"]["devices"]] or [info["cuda"]["error"]]
        for part in (info["version"], info["isa"], tables, info["compiler"], info["mpi"], *devices):
            self.assertIn(part, text)

    def test_context_options(self):
        info = self.json("info", "--threads", 3, "--isa", "scalar")
        self.assertEqual((info["threads"], info["isa"]), (3, "scalar"))

    def test_usage(self):
        for arguments, says in ((("x",), "x"), (("--jsn",), "--jsn"), (("--isa", "abacus"), "abacus"),
                                (("--json=1",), "json")):
            self.mistake("info", *arguments, says=says)


class Show(CliTest):
    def test_values(self):
        self.write("a.safetensors", encode({"x": tensor("F16", [[1.5, -2], [0, 65504]]), "n": tensor("I64", [-2**63]),
                                            "u": tensor("U64", [2**64 - 1])}, {"made by": "hand"}))
        done = self.cli("show", "a.safetensors")
        self.assertEqual(done.stdout, "x  F16 [2,2]\n    1.5 -2\n    0 65504\nn  I64 [1]\n    -9223372036854775808\n"
                                      "u  U64 [1]\n    18446744073709551615\nmetadata made by = hand\n")

    def test_long_tensors_are_cut(self):
        self.write("a.safetensors", encode({"wide": tensor("U8", [7] * 100), "tall": tensor("U8", [[1]] * 20)}))
        text = self.out("show", "a.safetensors")
        self.assertIn("... 36 more\n", text)
        self.assertIn("... 12 more rows\n", text)

    def test_control_characters(self):
        self.write("a.safetensors", encode({"a\u001b[31mb": tensor("U8", [1])}))
        self.assertIn(r"a\x1b[31mb  U8", self.out("show", "a.safetensors"))

    def test_usage(self):
        for words in ((), ("a", "b"), ("--x",)):
            self.assertEqual(self.cli("show", *words).returncode, 2)


class Example(CliTest):
    def test_every_operator_reads_its_own(self):
        for op in OPERATORS:
            text = self.out("example", op, "in.safetensors")
            command = re.search(r"^  switchyard (run .+)$", text, re.M).group(1)
            self.assertEqual(self.cli(*shlex.split(command)).returncode, 0)
            self.assertTrue(decode(self.read("out.safetensors")))

    def test_usage(self):
        for words in ((), ("sample",), ("nope", "a"), ("sample", "a", "b"), ("sample", "no/where")):
            self.assertEqual(self.cli("example", *words).returncode, 2)
        self.assertEqual(os.listdir(self.folder), [])


class Page(html.parser.HTMLParser):
    """Counts tags, notes whether they nest, and collects every reference to somewhere else."""

    VOID = {"meta", "rect", "line", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.count, self.references, self.balanced = [], {}, [], True

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.references += [v for k, v in attrs if k in ("src", "href", "xlink:href", "action")]
        if tag not in self.VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        self.balanced = self.balanced and bool(self.open) and self.open[-1] == tag
        if self.open:
            self.open.pop()


class Documents(CliTest):
    def test_options_in_pages_exist(self):
        pages = [os.path.join(ROOT, "README.md"), *glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]
        unknown, seen = [], 0
        for page in pages:
            with open(page, encoding="utf-8") as file:
                lines = re.findall(rf"switchyard ({'|'.join(COMMANDS)})\b([^`\n#]*)", file.read())
            for command, rest in lines:
                names = [command, *(word for word in rest.split() if command in ("run", "info") and word in OPERATORS)]
                text = "".join(self.out("help", name) for name in names) + " --help "
                options = re.findall(r"--[a-z][\w-]*", rest)
                seen += len(options)
                unknown += [(page, command, option) for option in options if not re.search(rf"{option}\b(?!-)", text)]
        self.assertEqual(unknown, [])
        self.assertGreater(seen, 40)


class Demo(CliTest):
    def demo(self):
        """(what it told, the page), of one run for all tests"""
        if not hasattr(Demo, "once"):
            text = self.out("demo")
            Demo.once = text, self.read("demo.html").decode()
        return Demo.once

    def test_walk(self):
        told, _ = self.demo()
        steps = re.findall(r"^(\d)  (\S+) +\S", told, re.M)
        self.assertEqual(steps, [(str(i + 1), op) for i, op in enumerate(IN_DEMO)])
        self.assertEqual(len(re.findall(r"^ +ok: ", told, re.M)), len(IN_DEMO))
        of = r"a plain (?:copy|copy and fill|read) of its [\d.]+ [KM]B"
        bars = re.findall(rf"^ +[\d.]+ [um]s +\[[#.]{{20}}\] (\d+)% of {of}$", told, re.M)
        busy = re.findall(rf"^ +[\d.]+ [um]s +{of} took [\d.]+ [um]?s: is the machine busy\?$", told, re.M)
        self.assertEqual(len(bars) + len(busy), len(IN_DEMO) - 1, told)
        self.assertLessEqual(max(map(int, bars), default=0), 150)
        self.assertRegex(told, r"load \|.{64}\|")
        self.assertNotIn("WRONG", told)
        self.assertTrue(told.endswith("Every result was checked and is right. Open demo.html to see it.\n"))

    def test_page(self):
        _, text = self.demo()
        page = Page()
        page.feed(text)
        self.assertTrue(page.balanced and not page.open, page.open)
        self.assertEqual(page.references, [])
        self.assertEqual((page.count["svg"], page.count["h1"], page.count["section"]), (4, 1, 5))
        self.assertEqual(text.count("opacity="), 64 * 8)
        loads = [int(n) for n in re.findall(r"<title>expert \d+: (\d+) tokens</title>", text)]
        self.assertEqual((len(loads), sum(loads)), (64, 64 * 8))
        for part in ("prefers-color-scheme: dark", "width=device-width", *IN_DEMO):
            self.assertIn(part, text)
        self.assertNotRegex(text, r"https?:|url\(|@import|\bnan|\binf\b")

    def test_page_shows_who_sends_to_whom(self):
        """Every device sends each of its 16 tokens to one device at least and to all four at most."""
        _, text = self.demo()
        cells = re.findall(r"<title>device (\d) to device (\d): (\d+) tokens, ", text)
        self.assertEqual([(int(p), int(q)) for p, q, _ in cells], [(p, q) for p in range(4) for q in range(4)])
        for p in range(4):
            counts = [int(n) for at, _, n in cells if int(at) == p]
            self.assertTrue(16 <= sum(counts) <= 64 and max(counts) <= 16, counts)
        told, _ = self.demo()
        self.assertIn(f" {sum(int(n) for _, _, n in cells)} tokens travel", told)

    def test_page_says_what_it_shows(self):
        """Pictures have a title and a description, found by their ids; bars say their share, that of the text."""
        _, text = self.demo()
        named = re.findall(r'<svg [^>]*role="img" aria-labelledby="([\w-]+) ([\w-]+)"', text)
        self.assertEqual(len(named), 4)
        for title, description in named:
            self.assertRegex(text, f'<title id="{title}">.+</title><desc id="{description}">.+</desc>')
        told, _ = self.demo()
        self.assertEqual(re.findall(r'class="track" role="img" aria-label="(\d+) percent of', text),
                         re.findall(r"\] (\d+)% of a plain", told))

    def test_probabilities_after_the_cuts(self):
        """The lower bars are the survivors, add up to 100%, and hold the drawn token once."""
        _, text = self.demo()
        bars = re.findall(r'<rect class="(\w+)"[^>]*><title>rank (\d+), token (\d+): ([\d.]+)%</title>', text)
        before, after = bars[:64], bars[64:]
        kept, drawn = map(int, re.search(r"keeps (\d+) of those, and one is drawn: token (\d+)\.", text).groups())
        self.assertEqual([int(b[1]) for b in before], list(range(1, 65)))
        self.assertEqual([b[:3] for b in after], [b[:3] for b in before[:kept]])
        self.assertAlmostEqual(sum(float(b[3]) for b in after), 100, delta=0.1)
        self.assertEqual([int(b[2]) for b in after if b[0] == "mark"], [drawn])
        self.assertEqual({b[0] for b in before[kept:50]} | {b[0] for b in before[50:]}, {"mid", "pale"})

    def test_a_busy_machine_is_named(self):
        def seconds():
            with open("/proc/stat", encoding="utf-8") as file:
                user, nice, system, _, _, irq, soft, steal = map(int, file.readline().split()[1:9])
            own = resource.getrusage(resource.RUSAGE_CHILDREN)
            return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK") - own.ru_utime - own.ru_stime, time.monotonic()
        if not os.path.exists("/proc/stat"):
            self.skipTest("the system has no /proc/stat")
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.sysconf("SC_NPROCESSORS_ONLN"))]
        try:
            all_before, before = seconds()
            told = self.out("demo", "--out", "busy.html")
            all_after, after = seconds()
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        share = (all_after - all_before) / (after - before) / os.sysconf("SC_NPROCESSORS_ONLN")
        if share < 0.25:
            self.skipTest(f"the loops got only {share:.0%} of the CPUs")
        for text in (told, self.read("busy.html").decode()):
            self.assertRegex(text, r"Other programs used [1-9]\d+% of the CPUs meanwhile")

    def test_page_elsewhere(self):
        self.out("demo", "--out", "page.html", "--threads", 1)
        self.assertEqual(os.listdir(self.folder), ["page.html"])

    def test_page_that_cannot_be_written(self):
        done = self.cli("demo", "--out", "no/where.html")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "switchyard: no/where.html: cannot be written\n")

    def test_usage(self):
        for arguments in (("x",), ("--frob",), ("--out",), ("--out", "a", "--out", "b")):
            self.assertEqual(self.cli("demo", *arguments).returncode, 2)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
