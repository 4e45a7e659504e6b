#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Line coverage by folder, from a build with GCC's --coverage whose tests have run.

    tools/coverage.py build/coverage [--uncovered FILE]

A line counts once, however many objects hold it, and is covered if any of them ran it. Objects that never ran count with
all their lines. Tests, examples and headers from elsewhere are left out."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

COUNTED = ("include", "src", "engine", "conformance", "apps")
BATCH = 16  # objects for one call of gcov


def gcov(notes):
    """What gcov knows of some objects: a list of its documents, one an object."""
    command = ["gcov", "--json-format", "--stdout", *map(str, notes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"coverage: gcov ended with code {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


def add(counts, document, root):
    """Adds a document to counts: file -> line -> how often it ran."""
    base = pathlib.Path(document["current_working_directory"])
    for file in document["files"]:
        path = pathlib.Path(os.path.normpath(base / file["file"]))
        if not path.is_relative_to(root) or path.relative_to(root).parts[0] not in COUNTED:
            continue
        lines = counts[path.relative_to(root).as_posix()]
        for line in file["lines"]:
            lines[line["line_number"]] += line["count"]


def spans(numbers):
    """[1, 2, 3, 7] -> "1-3, 7"."""
    out = []
    for n in sorted(numbers):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def table(counts):
    """One line a folder: share and number of its lines that ran; the last one is the sum."""
    folders = collections.defaultdict(lambda: [0, 0])
    for name, lines in counts.items():
        for folder in (os.path.dirname(name), "all"):
            folders[folder][0] += sum(count > 0 for count in lines.values())
            folders[folder][1] += len(lines)
    width = max(map(len, folders))
    rows = sorted(folder for folder in folders if folder != "all") + ["all"]
    return [f"{folder:{width}}  {100 * ran / max(all_, 1):5.1f} %  {ran:5} of {all_}"
            for folder in rows for ran, all_ in [folders[folder]]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="the build folder")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--uncovered", type=pathlib.Path, help="a file for the lines that never ran")
    args = parser.parse_args()
    # Notes without an object are of a compilation that failed or still runs, and may be cut off.
    notes = sorted(n for n in args.folder.rglob("*.gcno") if n.with_suffix(".o").is_file())
    batches = [notes[i:i + BATCH] for i in range(0, len(notes), BATCH)]
    counts = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for documents in pool.map(gcov, batches):
            for document in documents:
                add(counts, document, args.root.resolve())
    if not any(count > 0 for lines in counts.values() for count in lines.values()):
        print(f"coverage: nothing of {args.root} has run in {args.folder}")
        return 1
    print("\n".join(table(counts)))
    if args.uncovered:
        missed = {name: [n for n, count in lines.items() if count == 0] for name, lines in sorted(counts.items())}
        text = "".join(f"{name}: {spans(numbers)}\n" for name, numbers in missed.items() if numbers)
        args.uncovered.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
