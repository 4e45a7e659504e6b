#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/cases.md and the tests named case_<entry>: every test that the page names exists, every entry that a test is named
after has a row that names the test, and no entry has two rows."""

import re
import sys

import repository

PAGE = "docs/cases.md"
ENTRY = r"[A-Z]\d\d"
ROW = re.compile(rf"^\| *({ENTRY}(?:, {ENTRY})*) *\|")
NAMED = re.compile(r"`(\w+)/(case_\w+)`")
TEST = re.compile(rf"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*\w+\s*,\s*(\w*case_{ENTRY}\w*)\s*\)")
WAITING = re.compile(r"\| *with [^|]+\|$")  # of an entry that has no test: what it waits for


def entries_of(name):
    """The entries at the start of a test's name: case_A13_E03 and whatever comes behind."""
    start = re.match(rf"case_({ENTRY}(?:_{ENTRY})*)(?![A-Za-z0-9])", name)
    return start.group(1).split("_") if start else []


def tests_of(root):
    """(folder, name) -> the file that defines it."""
    found = {}
    for path in repository.files(root, (".cpp",)):
        if path.parts[0] == "tests" and len(path.parts) > 2:
            code = repository.without_comments((root / path).read_text(encoding="utf-8"))
            for match in TEST.finditer(code):
                found[path.parts[1], match.group(1)] = path
    return found


def check_row(number, line, tests):
    """Violations of one row, and its entries and tests."""
    entries = ROW.match(line).group(1).split(", ")
    named = NAMED.findall(line)
    violations = [f"{PAGE}:{number}: no test {folder}/{name}" for folder, name in named if (folder, name) not in tests]
    covered = {entry for _, name in named for entry in entries_of(name)}
    if named:
        violations += [f"{PAGE}:{number}: no test is named after {e}" for e in entries if e not in covered]
    elif not WAITING.search(line):
        violations.append(f"{PAGE}:{number}: neither a test nor what it waits for ('with ...')")
    return entries, set(named), violations


def check(root):
    tests = tests_of(root)
    page = root / PAGE
    if not page.is_file():
        return len(tests), [f"{PAGE}: no such page"]
    violations, row_of, named_for = [], {}, {}
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not ROW.match(line):
            continue
        entries, named, wrong = check_row(number, line, tests)
        violations += wrong
        for entry in entries:
            if entry in row_of:
                violations.append(f"{PAGE}:{number}: {entry} has a row already, in line {row_of[entry]}")
            row_of.setdefault(entry, number)
            named_for.setdefault(entry, set()).update(named)
    for (folder, name), path in sorted(tests.items()):
        entries = entries_of(name)
        if not entries:
            violations.append(f"{path}: {name}: a name begins with case_ and its entries")
        for entry in entries:
            if (folder, name) not in named_for.get(entry, set()):
                violations.append(f"{path}: {name}: {PAGE} does not name it for {entry}")
    return len(tests) + len(row_of), violations


if __name__ == "__main__":
    sys.exit(repository.main(__doc__, check))
