"""What all_to_all_dispatch and all_to_all_combine reject of files and options, one of each kind (tests/case has all of them):
in one process, and for a part of it in several, with the same status and the same sentence, said once. Wrong usage of the
command line around them."""
import functools
import os
import shutil
import unittest

from mesh import HAS_MPI, MeshTest, index_tensor, mapping_tensor, needs_mpi
from st import CLI, Tensor, encode, main, tensor

DISPATCH, COMBINE = "all_to_all_dispatch", "all_to_all_combine"
HOSTS = [[0], [0], [1], [1]]
RUN = ["run", DISPATCH, "in.safetensors", "out.safetensors"]
GOOD_LINE = [*RUN, "--mesh", "1x2"]

GOOD = {
    DISPATCH: {"input": tensor("F32", [[[[[1, 2], [3, 4]]]], [[[[5, 6], [7, 8]]]]]),
               "expert_indices": index_tensor([[[[[0, 2], [1, 0]]]], [[[[3, 2], [2, 0]]]]]),
               "expert_mapping": mapping_tensor(HOSTS, 2)},
    COMBINE: {"input": Tensor("F32", [2, 2, 2, 2, 2], bytes(128)),
              "expert_metadata": index_tensor([[[[[0, 2], [1, 0]], [[3, 2], [2, 0]]]]] * 2),
              "expert_mapping": mapping_tensor(HOSTS, 2)},
}


def zeros(dtype, *shape):
    size = {"U8": 1, "I8": 1, "U16": 2, "BF16": 2, "F16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8}[dtype]
    for extent in shape:
        size *= extent
    return Tensor(dtype, shape, bytes(size))


def indices(*rows):
    return index_tensor([[[list(rows[:2])]], [[list(rows[2:])]]])


def table(*rows):
    return index_tensor([[[list(rows[:2]), list(rows[2:])]]] * 2)


# operator, tensors that differ (None: missing), options, status, words of the sentence, whether in several processes too
REJECTED = [
    (DISPATCH, {"input": None}, (), "NULL", "input", True),
    (DISPATCH, {"expert_indices": zeros("F32", 2, 1, 1, 2, 2)}, (), "DTYPE", "expert_indices", True),
    (DISPATCH, {"input": zeros("F32", 3, 1, 1, 2, 2)}, (), "SHAPE", "input has shape [3,1,1,2,2], want [2,...]", True),
    (DISPATCH, {"input": Tensor("F32", [], bytes(4))}, (), "SHAPE", "input has shape [], want [2,...]", False),
    (DISPATCH, {"tokens": zeros("F32", 3, 1, 2, 2, 2)}, (), "SHAPE", "tokens has shape [3,1,2,2,2], want [2,...]", False),
    (DISPATCH, {}, ("--output-concat-dim", 3), "VALUE", "output_concat_dim of device 0 is 3, want 1 to 2", True),
    (DISPATCH, {"expert_mapping": tensor("U16", [[1, 0], [1, 0], [0, 2], [0, 1]])}, (), "ROUTING", "expert_mapping", True),
    (DISPATCH, {"expert_indices": indices([0, 2], [1, 0], [3, 2], [4, 0])}, (), "INDEX", "expert_indices of device 1", True),
    (DISPATCH, {"expert_indices": indices([0, 2], [1, 0], [2, 2], [2, 0])}, ("--strict-unique",), "INDEX",
     "expert_indices of device 1", False),
    (COMBINE, {"expert_metadata": None}, (), "NULL", "expert_metadata", True),
    (COMBINE, {"input": zeros("F32", 2, 3, 2, 2, 2)}, (), "SHAPE", "input", True),
    (COMBINE, {"input": zeros("F32", 2, 2, 3, 2, 2), "expert_metadata": zeros("U16", 2, 1, 3, 2, 2)}, (), "SHAPE", "", True),
    (COMBINE, {"expert_mapping": tensor("U16", [[1, 1], [1, 0], [0, 1], [0, 1]]), "input": zeros("F32", 2, 1, 2, 2, 2)},
     ("--local-reduce",), "ROUTING", "expert_mapping", False),
    (COMBINE, {"expert_metadata": table([0, 2], [1, 0], [3, 7], [2, 0])}, (), "INDEX", "expert_metadata", True),
    (COMBINE, {"expert_metadata": index_tensor([[[[[0, 2], [1, 0]], [[3, 2], [2, 0]]]], [[[[0, 2], [1, 0]], [[3, 2], [2, 1]]]]])},
     (), "MISMATCH", "", True),
    (COMBINE, {"input": zeros("F32", 2, 4, 2)}, ("--layout", "packed"), "UNSUPPORTED", "layout", False),
]

# of the mesh itself
MESHES = [("0x2", "mesh.rows is 0, want"), ("-1x2", "mesh.rows is -1, want"), ("2x0", "mesh.cols is 0, want"),
          ("100000x100000", "mesh.rows is 100000"), ("2x65536", "mesh.cols is 65536")]


class Rejected(MeshTest):
    def each(self, calls, rejected):
        for op, change, options, status, says, _ in calls:
            with self.subTest(f"{op} {list(change)} {options} {says}"):
                tensors = {n: t for n, t in dict(GOOD[op], **change).items() if t}
                rejected(op, tensors, "--mesh", "1x2", *options, status="SY_ERR_" + status, says=says)

    def test_files_and_options(self):
        self.each(REJECTED, self.rejected)

    @needs_mpi
    def test_the_same_in_several_processes(self):
        """A third of them in `make test`, the others in `make test-all`: each starts MPI."""
        several, length = [rejected for rejected in REJECTED if rejected[5]], os.environ.get("SWITCHYARD_TESTS")
        self.each([rejected for i, rejected in enumerate(several) if length == "full" or (i % 3 == 0) != (length == "more")],
                  functools.partial(self.rejected_everywhere, 2))

    def test_the_good_ones_are_good(self):
        for op, tensors in GOOD.items():
            self.ok(op, tensors, "--mesh", "1x2")

    def test_meshes(self):
        for mesh, says in MESHES:
            self.rejected(DISPATCH, GOOD[DISPATCH], "--mesh", mesh, status="SY_ERR_VALUE", says=f"SY_ERR_VALUE: {says}")
        self.rejected(DISPATCH, GOOD[DISPATCH], "--mesh", "1x3", status="SY_ERR_SHAPE", says="want [3,...]")

    def test_too_many_tokens(self):
        tensors = {"input": zeros("F32", 2, 3, 2), "expert_indices": zeros("U16", 2, 3, 1), "expert_mapping": GOOD[DISPATCH]["expert_mapping"]}
        self.rejected(DISPATCH, tensors, "--mesh", "1x2", "--max-tokens", 2, status="SY_ERR_CAPACITY", says="2")

    @needs_mpi
    def test_as_many_processes_as_devices(self):
        self.write("in.safetensors", encode(GOOD[DISPATCH]))
        done = self.mpirun(3, *GOOD_LINE)
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = self.said(done)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], r"^switchyard: all_to_all_dispatch: SY_ERR_COMM: .*\b3 processes, want 2\b")
        self.assertEqual(os.listdir(self.folder), ["in.safetensors"])


class Usage(MeshTest):
    def test_options(self):
        for options, says in (
                ((), "needs --mesh"), (("--mesh", "2"), "--mesh is 2, want rows x columns"), (("--mesh", "x2"), "--mesh is x2"),
                (("--mesh", "1x"), "--mesh is 1x"), (("--mesh", "1x2x3"), "--mesh is 1x2x3"), (("--mesh", "1 x 2"), "--mesh is 1 x 2"),
                (("--mesh", "1x99999999999"), "--mesh is 1x99999999999"), (("--mesh", ""), "--mesh is "),
                (("--mesh", "1x2", "--mesh", "1x2"), "given twice"),
                (("--mesh", "1x2", "--cluster-axis", "rows"), "--cluster-axis is rows, want one of none, 0, 1"),
                (("--mesh", "1x2", "--cluster-axis", 2), "--cluster-axis is 2, want one of none, 0, 1"),
                (("--mesh", "1x2", "--cluster-axis", -1), "--cluster-axis is -1, want one of none, 0, 1"),
                (("--mesh", "1x2", "--num-links", 99999999999), "want a 32-bit integer"),
                (("--mesh", "1x2", "--cluster-axis", "0.5"), "--cluster-axis is 0.5"),
                (("--mesh", "1x2", "--output-concat-dim", "one"), "want a 32-bit integer"),
                (("--mesh", "1x2", "--output-shard-dim", 1), "no option --output-shard-dim")):
            with self.subTest(options):
                self.usage(DISPATCH, GOOD[DISPATCH], *options, says=says)

    def test_words(self):
        """Hints never change a byte; metadata of the file is as good as an option."""
        self.ok(DISPATCH, GOOD[DISPATCH], "--mesh", "1x2")
        want = self.read("out.safetensors")
        for options in (("--topology", "linear"), ("--topology", "ring"), ("--topology", "mesh"), ("--topology", "torus"),
                        ("--num-links", 3), ("--num-links", 1), ("--cluster-axis", "none"), ("--cluster-axis", 1),
                        ("--threads", 1)):
            self.ok(DISPATCH, GOOD[DISPATCH], "--mesh", "1x2", *options)
            self.assertEqual(self.read("out.safetensors"), want, options)
        self.ok(DISPATCH, GOOD[DISPATCH], metadata={"switchyard.mesh": "1x2", "switchyard.cluster_axis": "none",
                                                    "switchyard.output_concat_dim": "1", "switchyard.fill": "zero"})
        self.assertEqual(self.read("out.safetensors"), want)
        self.usage(DISPATCH, GOOD[DISPATCH], "--mesh", "1x2", metadata={"switchyard.mesh": "1x2"}, says="given twice")

    def test_unknown_tensor(self):
        self.usage(DISPATCH, dict(GOOD[DISPATCH], weights=zeros("F32", 2, 1, 1, 2, 2)), "--mesh", "1x2",
                   says="takes no tensor weights")
        self.usage(DISPATCH, dict(GOOD[DISPATCH], present=zeros("U8", 2, 4)), "--mesh", "1x2", says="takes no tensor present")

    def said_once(self, done, says):
        self.assertEqual(done.returncode, 2, done.stderr)
        lines = self.said(done)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(says, lines[0])

    @needs_mpi
    def test_once_in_several_processes(self):
        self.said_once(self.mpirun(3, *RUN), "in.safetensors: ")
        self.write("in.safetensors", encode(GOOD[DISPATCH]))
        self.said_once(self.mpirun(3, *RUN), "needs --mesh")
        self.said_once(self.mpirun(2, "run", DISPATCH, "in.safetensors", "nowhere/out.safetensors", "--mesh", "1x2"), "nowhere/")
        done = self.mpirun(2, "run", DISPATCH, "--help")
        self.assertEqual((done.returncode, done.stdout.count("Usage:")), (0, 1), done.stderr)

    @needs_mpi
    def test_a_process_that_does_not_see_the_file(self):
        """The others do not wait for it, and the first tells what it said."""
        self.write("in.safetensors", encode(GOOD[DISPATCH]))
        os.mkdir(self.path("elsewhere"))
        script = self.write("go", b'#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && cd elsewhere\nexec "$@"\n')
        os.chmod(script, 0o755)
        done = self.mpirun(2, CLI, *GOOD_LINE, program=script)
        self.said_once(done, "switchyard: rank 1: in.safetensors: ")

    # The arguments of one process, its exit code, what is said; {rank} is "" for the first and "rank 1: " for the second.
    ONE_IS_WRONG = (
        ([*RUN, "--mesh", "0x2"], 1,
         f"{{rank}}{DISPATCH}: SY_ERR_VALUE: mesh.rows is 0, want 1 to 65536"),
        ([*RUN, "--mesh", "two"], 2, "{rank}--mesh is two, want rows x columns"),
        (RUN, 2, f"{{rank}}{DISPATCH} needs --mesh"),
        (["run", DISPATCH, "nowhere", "out.safetensors", "--mesh", "1x2"], 2, "{rank}nowhere: cannot be opened"),
        ([*RUN, "--mesh", "1x2", "--isa", "x"], 2, "{rank}isa is x"),
        (["run", "--top", DISPATCH, "in.safetensors", "out.safetensors"], 2, "{rank}--top must follow the operator name"),
        (["run", "dispatch", "in.safetensors", "out.safetensors", "--mesh", "1x2"], 2, "unknown operator dispatch"),
        (["rum", DISPATCH], 2, "unknown command rum"),
    )

    @needs_mpi
    def test_one_process_with_a_wrong_line(self):
        """The others end too, with its exit code, and what it says is said once."""
        self.write("in.safetensors", encode(GOOD[DISPATCH]))
        for line, code, says in self.ONE_IS_WRONG:
            for rank, lines in enumerate(((line, GOOD_LINE), (GOOD_LINE, line))):
                with self.subTest(rank=rank, line=line):
                    self.one_ends_all(self.mpirun_lines(*lines), code, says.format(rank=f"rank {rank}: " if rank else ""))
                    self.assertEqual(os.listdir(self.folder), ["in.safetensors"])

    @needs_mpi
    def test_processes_that_run_different_things(self):
        self.write("in.safetensors", encode(GOOD[DISPATCH]))
        combine = ["run", COMBINE, "in.safetensors", "out.safetensors", "--mesh", "1x2"]
        for lines, says in (((GOOD_LINE, ["run", DISPATCH, "--help"]), f"rank 1: this line runs nothing, want {DISPATCH} as in rank 0"),
                            ((["demo", "-h"], GOOD_LINE), f"rank 1: this line runs {DISPATCH}, want nothing as in rank 0"),
                            ((GOOD_LINE, ["demo"]), f"rank 1: this line runs demo, want {DISPATCH} as in rank 0"),
                            ((["bench", "all_to_all", "--quick"], ["demo"]), "rank 1: this line runs demo, want bench as in rank 0"),
                            ((["demo"], ["demo", "--frob"]), "rank 1: demo has no option --frob"),
                            ((["bench", "all_to_all", "--frob"], ["bench", "all_to_all"]), "between processes bench has no option --frob")):
            with self.subTest(lines=lines):
                self.one_ends_all(self.mpirun_lines(*lines), 2, says)
        self.one_ends_all(self.mpirun_lines(GOOD_LINE, combine), 2, "rank 1: in.safetensors: all_to_all_combine takes no tensor")
        self.assertEqual(os.listdir(self.folder), ["in.safetensors"])

    def one_ends_all(self, done, code, says):
        lines = self.said(done)
        self.assertNotIn("hung", done.stderr)
        self.assertEqual((done.returncode, len(lines)), (code, 1), done.stderr)
        self.assertTrue(lines[0].startswith(f"switchyard: {says}"), lines[0])

    def test_without_mpi(self):
        """Where the program for many processes is missing, the first of them says so."""
        shutil.copy(CLI, self.path("switchyard"))
        libraries = {"LD_LIBRARY_PATH": os.path.dirname(CLI)}
        self.write("in.safetensors", encode(GOOD[DISPATCH]))
        for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"):
            for rank, says in (("0", "switchyard: this build has no MPI: there is no switchyard-mpi beside this program\n"), ("1", "")):
                done = self.cli(*GOOD_LINE, env={variable: rank, **libraries}, program=self.path("switchyard"))
                self.assertEqual((done.returncode, done.stderr), (2, says))
        done = self.cli("--version", env={"PMI_RANK": "0", **libraries}, program=self.path("switchyard"))
        self.assertEqual(done.returncode, 0)

    @unittest.skipUnless(HAS_MPI, "no MPI")
    def test_the_plain_program_needs_no_mpi(self):
        with open(CLI, "rb") as file:
            self.assertNotIn(b"libmpi", file.read())


if __name__ == "__main__":
    main()
