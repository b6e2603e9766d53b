"""Where scripts/mutate.py puts faults, and what it writes there."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import mutate
from mutate_sites import Finder, mutated

SOURCE = """\
#define TWICE(x) ((x) + (x))
static const int table[] = {1 + 2, 3};
enum { SIZE = 4 + 4 };
static int f(const struct s *s, int n) /* n > 0 */
{
    static const int most = 7 + SIZE;
    int buffer[SIZE + 1], sum = 0; // a < b
    for (int i = 0; i < n; i++)
#pragma unroll 1
        sum += s->at[i + 1];
    if (n == most && !s->done)
        say("1 + 1 < 3", sum);
    switch (n) {
    case 5:
        break;
    }
    return g<2>(sum,
                n >> 3);
}
"""
SITES = Finder("x.c", SOURCE).sites


class Sites(unittest.TestCase):
    def test_statements_have_sites_and_nothing_else(self):
        found = {line: {(s.old, s.new) for s in SITES if s.line == line} for line in sorted({s.line for s in SITES})}
        condition = "if (n == most && !s->done)"
        self.assertEqual(found, {
            7: {("0", "(0 + 1)")}, 8: {("0", "(0 + 1)"), ("<", "<=")},
            10: {("+=", "-="), ("+", "-"), ("+ 1", ""), ("1", "(1 + 1)"), ("sum += s->at[i + 1];", "")},
            11: {("==", "!="), ("&&", "||"), ("!", ""), (condition, "if (0)"), (condition, "if (1)")},
            12: {('say("1 + 1 < 3", sum);', "")},
            15: {("break;", "")},
            18: {(">>", "<<"), ("3", "(3 + 1)")}})
        self.assertEqual({site.function for site in SITES}, {"f"})

    def test_both_forms_are_written_and_lines_keep_their_numbers(self):
        sites = {n: next(s for s in SITES if s.old == old) for n, old in enumerate(("<", "+=", "break;", ">>"), 1)}
        lines = [" ".join(line.split()) for line in mutated(SOURCE, sites).split("\n")[2:]]
        self.assertEqual(lines[7], "for (int i = 0; (SYI_MUTANT(1) ? (i <= n) : (i < n)); i++)")
        self.assertEqual(lines[9], "SYI_MUTANT(2) ? (void)(sum -= s->at[i + 1]) : (void)(sum += s->at[i + 1]);")
        self.assertEqual(lines[14], "{ if (!SYI_MUTANT(3)) break; }")
        self.assertEqual(lines[16:18], ["return (SYI_MUTANT(4) ? (g<2>(sum, n << 3)) : (g<2>(sum,", "n >> 3)));"])

    def test_a_saved_fault_is_located_in_a_changed_file(self):
        faults = mutate.faults_of({n: s for n, s in enumerate(SITES) if s.line in (8, 11)})
        edited = Finder("x.c", "int g;\n" + SOURCE.replace("n == most", "n != most")).sites
        chosen, gone = mutate.locate({"src": edited}, faults)
        self.assertEqual([site.line for site in chosen.values()], [9, 9])
        self.assertEqual({site.line for site in gone.values()}, {11})
