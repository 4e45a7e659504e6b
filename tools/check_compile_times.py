#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No translation unit takes longer to compile than its budget.

    tools/check_compile_times.py build/ci

Reads Ninja's log of a build folder and prints the slowest units. The log holds wall-clock times, and a busy machine can
stretch those without bound. So a unit above its budget there is only suspected: it is compiled once more, to a scratch
file, and the processor time of that decides."""

import argparse
import json
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import tempfile

# Seconds of processor time; the first pattern that matches an object's path counts. At least four times what the slowest
# unit of its kind takes on a server CPU of today, so that slow machines pass and a runaway template does not.
BUDGETS = (
    ("program and benchmarks (CLI11, JSON)", 90, re.compile(r"^(apps|bench)/|/fovea_tests_apps")),
    ("everything else", 60, re.compile(r"")),
)
SHOWN = 10
OBJECT = re.compile(r"\.(o|gch|pch)$")  # objects and precompiled headers


def budget_of(unit):
    return next(seconds for _, seconds, pattern in BUDGETS if pattern.search(unit))


def times(log):
    """Object -> seconds of its last compilation. The log's fields: begin and end in ms, mtime, output, hash."""
    found = {}
    lines = log.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("# ninja log v"):
        raise ValueError(f"{log} is not a log of Ninja")
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) == 5 and OBJECT.search(fields[3]):
            found[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return found


def command_of(folder, unit):
    """How the unit is compiled: working folder and words; None if the build no longer has it."""
    for entry in json.loads((folder / "compile_commands.json").read_text(encoding="utf-8")):
        words = shlex.split(entry["command"])
        if "-o" in words and words[words.index("-o") + 1] == unit:
            # A cache in front of the compiler would answer in no time.
            return entry["directory"], [w for i, w in enumerate(words) if i > 0 or pathlib.Path(w).name != "ccache"]
    return None


def processor_seconds(folder, unit):
    """Of one compilation; None if there is nothing to compile, or it fails: then the build tells."""
    command = command_of(folder, unit)
    if command is None:
        return None
    directory, words = command
    with tempfile.TemporaryDirectory() as scratch:
        words[words.index("-o") + 1] = str(pathlib.Path(scratch) / "unit.o")
        if "-MF" in words:  # the build's own list of dependencies stays as it is
            words[words.index("-MF") + 1] = str(pathlib.Path(scratch) / "unit.d")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(words, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        return None
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a build folder of Ninja's")
    folder = parser.parse_args().folder
    try:
        found = times(folder / ".ninja_log")
    except (OSError, ValueError) as error:
        print(f"check_compile_times: {error}")
        return 1
    if not found:
        print(f"check_compile_times: nothing was compiled in {folder}")
        return 1
    slowest_first = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    print(f"{len(found)} translation units, {sum(found.values()):.0f} s in all; the slowest by the clock:")
    for unit, seconds in slowest_first[:SHOWN]:
        print(f"{seconds:8.1f} s  {unit}")
    violations = 0
    for unit, seconds in slowest_first:
        budget = budget_of(unit)
        if seconds <= budget:
            continue
        used = processor_seconds(folder, unit)
        if used is None:
            print(f"{unit}: not compiled again; it is no longer built, or does not compile")
        elif used > budget:
            violations += 1
            print(f"{unit}: {used:.1f} s of processor time, the budget is {budget} s")
        else:
            print(f"{unit}: {used:.1f} s of processor time, the rest was waiting")
    print(f"{violations} violations in {len(found)} translation units")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
