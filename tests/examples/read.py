"""Reads files of worked examples, for the tests of command line and Python; README.md describes the format."""
import math
import os
import re
from fractions import Fraction

FOLDER = os.path.dirname(os.path.abspath(__file__))
POISON = 0xA5  # every byte of an output before the call

# Bytes of an element.
SIZES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "bool": 1, "f16": 2, "bf16": 2,
         "f32": 4, "f64": 8, "f8_e4m3": 1, "f8_e5m2": 1, "f8_e8m0": 1}
# Bits of the significand with the leading one, exponent of the smallest subnormal, bits of infinity.
FLOATS = {"f16": (11, -24, 0x7C00), "bf16": (8, -133, 0x7F80), "f32": (24, -149, 0x7F800000),
          "f64": (53, -1074, 0x7FF << 52)}
NUMBERS = {"batch": -1, "position": -1, "value": 0, "limit": 0}


class Field:
    """A line "name types shape: values", or "name: value" of a scalar, which has no types."""

    def __init__(self, text, where):
        head, colon, values = text.partition(":")
        words = head.split()
        self.out = words[0] == "->"
        self.name, *rest = words[self.out:]
        self.none = self.out and rest == ["none"]
        self.where, self.own = where, True
        self.words = spread(values) if colon else None
        self.types = rest[0].split("|") if rest and not self.none else []
        self.shape = tuple(map(int, rest[1].split(","))) if self.types else ()

    def type(self, alternative):
        return self.types[alternative if len(self.types) > 1 else 0]

    def count(self):
        return math.prod(self.shape)

    def scalar(self):
        """The value of a field without a type: true, false, a number, or a word."""
        word, = self.words
        if word in ("true", "false"):
            return word == "true"
        try:
            return int(word)
        except ValueError:
            pass
        try:
            return float(word)
        except ValueError:
            return word

    def bytes(self, alternative, old=None):
        """The elements in one of the types, over what `old` holds: "_" keeps an element."""
        kind = self.type(alternative)
        size = SIZES[kind]
        data = bytearray([POISON] * size * self.count() if old is None else old)
        at = 0
        for word in self.words:
            first, star, last = word.rpartition("*")
            times = int(first) if star else 1
            if not self.out or last != "_":
                bits = element(kind, last)
                data[at * size:(at + times) * size] = bits.to_bytes(size, "little") * times
            at += times
        assert at == self.count() and len(data) == at * size, f"{self.where}: {at} values for shape {self.shape}"
        return bytes(data)

    def keeps(self):
        """Whether elements keep their old value."""
        return any(word.rpartition("*")[2] == "_" for word in self.words or ())


def spread(values):
    """The words of values; a range of integers "3..8", which tests/compat has, as its integers."""
    words = []
    for word in values.split():
        first, dots, last = word.partition("..")
        words += map(str, range(int(first), int(last) + 1)) if dots else [word]
    return words


def element(kind, word):
    """The bits of an element; a decimal fraction is rounded to nearest even."""
    width = 8 * SIZES[kind]
    if word.startswith("0x"):
        bits = int(word, 16)
        assert bits < 1 << width, f"{word} is no {kind}"
        return bits
    if kind in FLOATS:
        return round_to(kind, word)
    least = -(1 << (width - 1)) if kind[0] == "i" else 0
    most = 1 if kind == "bool" else (1 << (width - (kind[0] == "i"))) - 1
    assert re.fullmatch(r"-?\d+", word) and kind[0] != "f" and least <= int(word) <= most, f"{word} is no {kind}"
    return int(word) % (1 << width)


def round_to(kind, word):
    precision, quantum, infinity = FLOATS[kind]
    sign = (8 * SIZES[kind] - 1) if word.startswith("-") else None
    rest = word.removeprefix("-")
    if rest == "nan":
        bits = infinity | 1 << (precision - 2)
    elif rest == "inf":
        bits = infinity
    else:
        value = float(rest)  # as the C reader does it: decimals are rounded to doubles first
        step = max(math.frexp(value)[1] - precision, quantum) if value else quantum
        bits = round(Fraction(value) / Fraction(2) ** step) + ((step - quantum) << (precision - 1))
        assert bits < infinity, f"{word} is no {kind}"
    return bits | (0 if sign is None else 1 << sign)


class Case:
    def __init__(self, op, name, where):
        self.op, self.name, self.where = op, name, where
        self.fields = {}  # (out, name): Field
        self.fronts = {"c", "cli", "python"}  # who runs it
        self.inferred = True
        self.status = self.code = self.argument = self.sentence = None
        self.numbers = {}
        self.rows = []  # lines of tests/compat that change the case

    def alternatives(self):
        return max((len(field.types) for field in self.fields.values()), default=1) or 1

    def inputs(self):
        return [field for field in self.fields.values() if not field.out]

    def outputs(self):
        return [field for field in self.fields.values() if field.out]

    def old(self, name, alternative):
        """What an output holds before the call, where the case says so."""
        field = self.fields.get((False, name))
        return None if field is None else field.bytes(alternative)

    def add(self, text, where, earlier):
        word, _, rest = text.partition(" ")
        if word == "like":
            assert not self.fields, f"{where}: like comes first"
            for key, field in earlier[rest].fields.items():
                self.fields[key] = copy = Field.__new__(Field)
                copy.__dict__.update(field.__dict__, own=False)
        elif word == "without":
            del_keys = [key for key in self.fields if key[1] == rest]
            assert del_keys, f"{where}: there is no {rest}"
            for key in del_keys:
                del self.fields[key]
        elif word in ("only", "not"):
            self.mark(word, rest, where)
        elif word == "!!":
            self.reject(rest.strip())
        elif word in ("with", "try", "ask"):
            self.rows.append(text)
        elif word in ("&", "|"):
            self.rows[-1] += " " + text
        elif word != "query":  # which C alone has
            self.value(text, where)

    def mark(self, word, rest, where):
        assert rest in ("c", "cli", "python", "inferred"), where
        if rest == "inferred":
            self.inferred = False
        elif word == "only":
            self.fronts = {rest}
        else:
            self.fronts.discard(rest)

    def reject(self, text):
        if self.status is not None:
            self.sentence = text
            return
        self.status, self.code, self.argument, *rest = text.split()
        self.argument = "" if self.argument == "-" else self.argument
        self.numbers = NUMBERS | {name: int(number) for name, number in zip(rest[::2], rest[1::2], strict=True)}

    def value(self, text, where):
        if ":" in text or text.startswith("->"):
            field = Field(text, where)
            self.fields.pop((field.out, field.name), None)
            self.fields[field.out, field.name] = field
        else:
            last = list(self.fields.values())[-1]
            last.words = last.words + spread(text)


def read(path):
    """The cases of a file, which is named after its operator."""
    op, cases = os.path.splitext(os.path.basename(path))[0], {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text, where = line.strip(), f"{path}:{number}"
            word, _, name = text.partition(" ")
            if word == "case":
                assert name not in cases, f"{where}: a second case of this name"
                case = cases[name] = Case(op, name, where)
            elif text and not text.startswith("#"):
                case.add(text, where, cases)
    return list(cases.values())


def every(front):
    """(case, alternative) of all files, for one of the front ends."""
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith(".txt"):
            for case in read(os.path.join(FOLDER, name)):
                if front in case.fronts:
                    yield from ((case, alternative) for alternative in range(case.alternatives()))
