"""Places for small faults in sources of C and CUDA, and the text of a source with some of them. For mutate.py."""
import bisect
import collections
import dataclasses
import itertools
import re

HEADER = "base/mutant.h"  # below src: SELECTOR, which defines SYI_MUTANT(n)
LOG_BYTES = 1 << 16  # one for each fault that is evaluated, set in the file SWITCHYARD_MUTANT_LOG
SELECTOR = """\
#ifndef SYI_MUTANT
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((weak, visibility("hidden"))) int syi_mutant_number = 0;
__attribute__((weak, visibility("hidden"))) volatile unsigned char *syi_mutant_log = 0;
static __attribute__((constructor)) void syi_mutant_start(void)
{
    const char *number = getenv("SWITCHYARD_MUTANT"), *log = getenv("SWITCHYARD_MUTANT_LOG");
    syi_mutant_number = number ? atoi(number) : 0;
    const int file = log && !syi_mutant_log ? open(log, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *map = mmap(0, LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED)
        syi_mutant_log = (volatile unsigned char *)map;
    close(file);
}
#ifdef __cplusplus
}
#endif
#define SYI_MUTANT(n) (syi_mutant_log ? (syi_mutant_log[n] = 1, 0) : syi_mutant_number == (n))
#endif
""".replace("LOG_BYTES", str(LOG_BYTES))

TEXTS = re.compile(r"^[ \t]*#(?:\\\n|/\*.*?\*/|[^\n])*|//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
                   re.M | re.S)
# Sources are formatted: binary operators have blanks on both sides, brackets of templates and unary operators have not.
BINARY = re.compile(r"(?<=\s)(?:<<|>>|[<>=!]=|&&|\|\||[-+]=|[-+*/%<>&|])(?=\s)")
SWAPS = {kind: dict(pair.split(":") for pair in pairs.split()) for kind, pairs in {
    "comparison": "<:<= <=:< >:>= >=:>", "equality": "==:!= !=:==", "logic": "&&:|| ||:&&",
    "arithmetic": "+:- -:+ *:+ /:* %:/ +=:-= -=:+=", "bits": "<<:>> >>:<< &:| |:&"}.items()}
NUMBER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F]+[uUlL]*|\d+\.\d*f?|\d+[uUlL]*)(?![\w.'])")
TEMPLATE = re.compile(r"\w<[^<>;(){}]*>")
ONE = re.compile(r"\s[-+] 1[uUlL]*(?![\w.]|\s[*/%])")
WORDS = re.compile(r"\b(?:true|false)\b|(?<![\w!])!(?=[\w(*])")
EXPRESSION = re.compile(r"[*(]|\+\+|--|[A-Za-z_]\w*\s*(?:[(\[.]|->|=|[-+*/%&|^]=|<<=|>>=|\+\+|--)")
NO_SITES = re.compile(r"(?:static|constexpr|typedef|using|extern|enum|static_assert|_Static_assert|goto|asm|__asm__|"
                      r"template|throw)\b")
LABEL = re.compile(r"(?:case\b[^:;{]*|default\s*|[A-Za-z_]\w*\s*):(?!:)")
EQUALS = re.compile(r"(?<=\s)=(?=\s)")
LAMBDA = re.compile(r"[)\]]\s\{")
FUNCTION = re.compile(r"\)\s*(?:const|noexcept|override)?$")


@dataclasses.dataclass
class Site:
    """A fault: text[start:end] becomes `put` in a second form of text[first:last]."""

    file: str
    line: int
    column: int
    function: str
    kind: str
    old: str
    new: str
    text: str  # of the line
    occurrence: int = 0  # among those of the file with the same text and change
    form: str = "value"  # text[first:last] is an expression with a value, one without (void), or a statement (dropped)
    put: str = ""
    start: int = 0
    end: int = 0
    first: int = 0
    last: int = 0

    def key(self):
        return self.file, self.text, self.kind, self.old, self.new, self.occurrence

    def show(self):
        change = f"`{self.old}` to `{self.new}`" if self.new else f"without `{self.old}`"
        return f"{self.file}:{self.line}:{self.column} {self.function}: {change} in: {self.text}"


def blank(text, strings=True):
    """The text with spaces for comments, preprocessor lines and strings."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group()) if strings or match.group()[0] not in "\"'" else match.group()

    return TEXTS.sub(spaces, text)


class Finder:
    """The sites of one file. This is no compiler: what it mistakes for an expression does not compile later."""

    def __init__(self, file, text):
        self.file, self.text, self.code, self.clean = file, text, blank(text), blank(text, strings=False)
        self.sites, self.function, self.pair, stack = [], "", {}, []
        for i, c in enumerate(self.code):
            if c in "([{":
                stack.append(i)
            elif c in ")]}" and stack:
                self.pair[stack.pop()] = i
        self.lines = text.split("\n")
        self.begins = list(itertools.accumulate((len(line) + 1 for line in self.lines), initial=0))
        self.scope(0, len(self.code))
        seen = collections.Counter()
        for site in self.sites:
            same = site.key()
            site.occurrence, seen[same] = seen[same], seen[same] + 1

    def after(self, at):
        """Behind the bracket that closes the one at `at`."""
        return self.pair.get(at, len(self.code)) + 1

    def until(self, at, end, stops):
        """The next of `stops` outside of brackets, or the end."""
        while at < end and self.code[at] not in stops:
            at = self.after(at) if self.code[at] in "([{" else at + 1
        return min(at, end)

    def scope(self, at, end):
        """Declarations: of a file, or of a type."""
        while at < end:
            stop = head = at
            while stop < end and self.code[stop] not in ";{}":
                stop = self.after(stop) if self.code[stop] in "([" else stop + 1
            at = stop + 1
            if stop >= end or self.code[stop] != "{":
                continue
            text, at = self.code[head:stop].strip(), self.after(stop)
            if FUNCTION.search(text) and "constexpr" not in text:
                self.function = (re.findall(r"(\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\w*$", text) or [""])[-1]
                self.block(stop + 1, at - 1)
            elif not text.endswith("=") and re.search(r"\b(?:struct|union|class|namespace|extern)\b", text):
                self.scope(stop + 1, at - 1)

    def block(self, at, end):
        """Statements."""
        while at < end:
            word = re.match(r"\w*", self.code[at:at + 16]).group()
            label = LABEL.match(self.code, at, end)
            if self.code[at] == "{":
                self.block(at + 1, self.after(at) - 1)
                at = self.after(at)
            elif self.code[at] in ";}" or self.code[at].isspace():
                at += 1
            elif word in ("if", "while", "switch", "for"):
                group = self.code.find("(", at)
                if "constexpr" not in self.code[at:group]:
                    self.condition(word, at, group + 1, self.after(group) - 1)
                at = self.after(group)
            elif word in ("else", "do"):
                at += len(word)
            elif label:
                at = label.end()
            else:
                stop = self.until(at, end, ";")
                self.statement(at, stop)
                at = stop + 1

    def condition(self, word, at, first, last):
        if word == "for":
            one = self.until(first, last, ";")
            two = self.until(one + 1, last, ";")
            if two < last:
                self.statement(first, one, in_for=True)
                self.region(one + 1, two)
                self.region(two + 1, last)
            return
        self.region(first, last)
        if word == "if":
            old, region = f"if ({self.clean[first:last]})", (first, last)
            for put in "01":
                self.add("condition", at, region, region, "value", old, put, f"if ({put})")

    def statement(self, first, last, in_for=False):
        at = first
        while lambda_ := LAMBDA.search(self.code, at, last):
            brace = lambda_.end() - 1
            self.block(brace + 1, self.after(brace) - 1)
            at = self.after(brace)
        code = self.code[first:last]
        if NO_SITES.match(code):
            return
        if re.match(r"return\b", code):
            self.region(first + len("return"), last)
            return
        if EXPRESSION.match(code) or code in ("break", "continue"):
            self.region(first, last, "value" if in_for else "void")
            if not in_for and code[0] != "(" and re.match(r"\W*\w*[a-z]", code):
                region = first, last + 1
                self.add("dropped", first, region, region, "dropped", self.clean[first:last + 1], "", "")
            return
        while first < last:  # declarations: what follows each =
            stop = self.until(first, last, ",")
            equals = EQUALS.search(self.code, first, stop)
            if equals:
                self.region(equals.end(), stop)
            first = stop + 1

    def region(self, first, last, form="value"):
        """The faults of one expression, of which a second form can be written in its place."""
        code = self.code[first:last]
        first, last = first + len(code) - len(code.lstrip()), last - (len(code) - len(code.rstrip()))
        code = self.code[first:last]
        if not code or code[0] == "{":
            return
        changes = [(kind, match, swap[match.group()]) for match in BINARY.finditer(code) for kind, swap in SWAPS.items()
                   if match.group() in swap]
        changes += [("one dropped", match, "") for match in ONE.finditer(code)]
        types = [match.span() for match in TEMPLATE.finditer(code)]
        changes += [("constant", match, f"({match.group()} + 1)") for match in NUMBER.finditer(code)
                    if not any(a < match.start() < b for a, b in types)]
        changes += [("negation", match, {"true": "false", "false": "true", "!": ""}[match.group()])
                    for match in WORDS.finditer(code)]
        for kind, match, put in changes:
            start, end = (first + place for place in match.span())
            self.add(kind, end - 1, (start, end), (first, last), form, match.group(), put, put)

    def add(self, kind, place, change, region, form, old, put, new):
        code, text = self.code[slice(*region)], self.text[slice(*region)]
        if ";" in code[:-1] or re.search(r"^[ \t]*#", text, re.M):
            return
        line = bisect.bisect_right(self.begins, place)
        column = place - self.begins[line - 1] + 1
        self.sites.append(Site(self.file, line, column, self.function, kind, " ".join(old.split()), new,
                               self.lines[line - 1].strip(), 0, form, put, *change, *region))


def mutated(text, sites):
    """The text of one file with its {number: site}. Lines keep their numbers."""
    clean = blank(text, strings=False)
    for number, s in sorted(sites.items(), key=lambda item: -item[1].first):
        region = text[s.first:s.last]
        other = " ".join((clean[s.first:s.start] + s.put + clean[s.end:s.last]).split("\n"))
        text = text[:s.first] + {
            "value": f"(SYI_MUTANT({number}) ? ({other}) : ({region}))",
            "void": f"SYI_MUTANT({number}) ? (void)({other}) : (void)({region})",
            "dropped": f"{{ if (!SYI_MUTANT({number})) {region} }}"}[s.form] + text[s.last:]
    return f'#include "{HEADER}"\n#line 1\n{text}'
