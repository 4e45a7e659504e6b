#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The text of the repository: a licence line first, no marks of unfinished work, no paths of one machine, no tabs or
trailing blanks."""

import re
import sys

import repository

LICENCE = "SPDX-License-Identifier: Apache-2.0"
LICENSED = re.compile(r"\.(h|cpp|cu|cuh|py|sh|cmake|cpp\.in|h\.in|cmake\.in)$|(^|/)CMakeLists\.txt$|^\.ci/run$")
CHECKED = re.compile(LICENSED.pattern + r"|\.(md|json|txt|toml|yml|yaml)$")
DATA = re.compile(r"^tests/data/.*\.json$")  # not prose: texts to tokenise hold anything

# Written so that this file does not break its own rules.
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.}/$-])/(?:work|root|tmp|home(?!/someone\b))/(?=\w)")
PLACEHOLDER = re.compile(r"@[A-Z][A-Z_]+@")  # pages only: CMake's templates live by them
OUTSIDE = re.compile(r"\.\./shar" + r"ed\b|\bshar" + r"ed/(?:design|spec|cases|golden|kernels|seeds|peers|hooks)\b")


def check_line(line):
    if UNFINISHED.search(line):
        yield "mark of unfinished work"
    if MACHINE_PATH.search(line):
        yield "path that exists on one machine only"
    if OUTSIDE.search(line):
        yield "reference to a folder outside the repository"
    if "\t" in line:
        yield "tab"
    if line != line.rstrip():
        yield "trailing blank"


def check(root):
    looked_at, violations = 0, []
    for path in repository.files(root):
        name = path.as_posix()
        if not CHECKED.search(name) or DATA.search(name):
            continue
        looked_at += 1
        text = (root / path).read_bytes().decode("utf-8")
        lines = text.split("\n")
        if LICENSED.search(name):
            first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
            if first not in (f"// {LICENCE}", f"# {LICENCE}"):
                violations.append(f"{name}:1: no line '{LICENCE}' at the top")
        if text and not text.endswith("\n"):
            violations.append(f"{name}:{len(lines)}: no newline at the end")
        for number, line in enumerate(lines, 1):
            if path.suffix == ".md" and PLACEHOLDER.search(line):
                violations.append(f"{name}:{number}: placeholder that was never filled in")
            violations += [f"{name}:{number}: {problem}" for problem in check_line(line)]
    return looked_at, violations


if __name__ == "__main__":
    sys.exit(repository.main(__doc__, check))
