#!/usr/bin/env python3
"""What changed between two builds.   bench_compare.py OLD.json NEW.json [OLD.json NEW.json]...

The files are outputs of `switchyard bench --json`. One run says little on a machine that is used for other things. Run old and
new build alternately, three times:

    for i in 1 2 3; do
        old/switchyard bench --json > old$i.json
        new/switchyard bench --json > new$i.json
    done
    python3 scripts/bench_compare.py old1.json new1.json old2.json new2.json old3.json new3.json

A row is slower if its median time is higher in every pair: by more than 5 % on a CPU, 2 % on a CUDA device, and by more than
0.3 us. Faster is the same with old and new exchanged. Rows are the same if operator, shape, buffers (cold or warm), kernel
table, threads and device are. A baseline is such a file that you keep; times depend on the machine, so none is in the
repository.

Exit status: 0 no row is slower, 1 a row is slower or wrong, 2 wrong usage.
"""
import json
import sys

CPU_SHARE, DEVICE_SHARE, LEAST_SECONDS = 0.05, 0.02, 0.3e-6


def rows_of(report):
    """{row: median seconds, None for one that is wrong}. What the device does not have has no row."""
    device = report.get("device", {}).get("id", "cpu")
    where = (device, report["isa"], f"threads={report['threads']}") if device == "cpu" else (device,)
    rows = {}
    for case in report["cases"]:
        if case.get("on_device", True):
            row = (case["op"], case["shape"], case.get("buffers", "cold"), *where)
            if row in rows:
                raise ValueError(f"{' '.join(map(str, row))} is there twice")
            rows[row] = case["seconds"] if case["checked"] else None
    return rows


def read(path):
    """(what its times depend on, its rows)"""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        return (report["machine"]["cpu"], report.get("device", {}).get("name")), rows_of(report)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no output of switchyard bench --json: {type(error).__name__} {error}") from error


def is_above(time, base, share):
    return time > base * (1 + share) and time > base + LEAST_SECONDS


def verdict(row, pairs):
    """Of a row, from [(rows of the old run, rows of the new run)]."""
    if any(new.get(row, 0) is None for _, new in pairs):
        return "wrong in new"
    for name, runs in zip(("old", "new"), zip(*pairs)):
        if any(run.get(row) is None for run in runs):
            return f"not in {name}"
    share = CPU_SHARE if row[3] == "cpu" else DEVICE_SHARE
    if all(is_above(new[row], old[row], share) for old, new in pairs):
        return "slower"
    return "faster" if all(is_above(old[row], new[row], share) for old, new in pairs) else "unchanged"


def describe(row, pairs):
    """The row, and its times where both runs have one."""
    times = [f"{1e6 * old[row]:.4g} -> {1e6 * new[row]:.4g} us ({100 * (new[row] / old[row] - 1):+.1f} %)"
             for old, new in pairs if old.get(row) and new.get(row)]
    return "  " + " ".join(str(part) for part in row if part) + ": " * bool(times) + ", ".join(times)


def main(paths):
    if not paths or len(paths) % 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        machines, runs = zip(*map(read, paths))
        if len(set(machines)) > 1:
            raise ValueError("the files are of different machines, whose times do not compare")
    except ValueError as error:
        print(f"bench_compare: {error}", file=sys.stderr)
        return 2
    pairs = list(zip(runs[::2], runs[1::2]))
    found = {name: [] for name in ("wrong in new", "slower", "faster", "not in new", "not in old", "unchanged")}
    for row in dict.fromkeys(row for run in runs for row in run):
        found[verdict(row, pairs)].append(row)
    for name, rows in found.items():
        if rows and name != "unchanged":
            print(f"{name}:", *(describe(row, pairs) for row in rows), sep="\n")
    print(", ".join(f"{len(rows)} {name}" for name, rows in found.items()))
    if len(pairs) < 3:
        print("one run may be disturbed: repeat it, and give three pairs of files")
    return 1 if found["wrong in new"] or found["slower"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
