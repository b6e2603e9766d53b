"""switchyard bench all_to_all and switchyard demo under mpirun: what is checked and shown. Times are never validated."""
import re
import unittest

from mesh import MeshTest, needs_mpi

SUBJECTS = ["dispatch", "dispatch, input shared", "dispatch, input shared, check NONE", "dispatch, in messages",
            "dispatch to EXPERT, input shared", "combine, sum", "combine, sum, input shared",
            "combine, sum, input shared, check NONE", "combine, sum, in messages", "combine, slots",
            "combine, slots, input shared", "combine, slots, in messages"]


class Team(MeshTest):
    def assert_done(self, done):
        """An MPI library may have its own remarks on stderr; we have none."""
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("switchyard:", done.stderr)


@needs_mpi
class BenchMpi(Team):
    def test_quick(self):
        for ranks in (1, 2, 4):
            done = self.mpirun(ranks, "bench", "all_to_all", "--quick")
            self.assert_done(done)
            self.assertIn(f" {ranks} process{'es' if ranks > 1 else ''} with ", done.stdout)
            rows = re.findall(r"^(\S.*?) +[\d.]+ (?:us|ms|s) +\d+% +([\d.]+)$", done.stdout, re.M)
            names = [name for name, _ in rows if not name.startswith("MPI_Alltoallv of ")]
            self.assertEqual(names, 2 * SUBJECTS)
            self.assertEqual([ratio for name, ratio in rows if name.startswith("MPI_Alltoallv of ")], 4 * ["1.00"])
            self.assertTrue(done.stdout.endswith("before they were timed.\n"))

    def test_usage(self):
        """Said once, whatever the number of processes."""
        for ranks, arguments, says in ((2, ("bench", "all_to_all", "--json"), "no option --json"),
                                       (2, ("bench", "all_to_all", "sample"), "no benchmark of sample"),
                                       (3, ("bench", "all_to_all", "--quick"), "3 processes do not divide 64 experts"),
                                       (3, ("demo",), "3 processes do not divide 64 experts"),
                                       (2, ("demo", "--frob"), "no option --frob"),
                                       (2, ("demo", "--out", "no/where.html"), "no/where.html: cannot be written")):
            done = self.mpirun(ranks, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stderr.count(says), 1, done.stderr)

    def test_other_operators_need_no_team(self):
        done = self.mpirun(2, "bench", "kv_gather", "--list")
        self.assert_done(done)


@needs_mpi
class DemoMpi(Team):
    def test_walk_and_page(self):
        done = self.mpirun(4, "demo", "--out", "page.html")
        self.assert_done(done)
        self.assertEqual(re.findall(r"^   (all_to_all_\w+) ", done.stdout, re.M), ["all_to_all_dispatch", "all_to_all_combine"])
        self.assertEqual(len(re.findall(r"^ +ok: ", done.stdout, re.M)), 2)
        self.assertTrue(done.stdout.endswith("is right. Open page.html to see it.\n"))
        page = self.read("page.html").decode()
        cells = re.findall(r"<title>device (\d) to device (\d): (\d+) tokens, ", page)
        self.assertEqual(len(cells), 16)
        self.assertTrue(all(0 <= int(n) <= 16 for _, _, n in cells))
        for part in ("prefers-color-scheme: dark", "width=device-width", "every value was checked", "all_to_all_combine"):
            self.assertIn(part, page)
        self.assertNotRegex(page, r"https?:|url\(|@import|\bnan|\binf\b")


if __name__ == "__main__":
    unittest.main()
