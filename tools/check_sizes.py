#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No file is longer than one sitting of reading: the limits in lines for each kind of file."""

import re
import sys

import repository

# The first pattern that matches counts.
LIMITS = (
    ("public header", 150, re.compile(r"^(include|(engine|conformance)/include)/.*\.h$")),
    ("kernel header", 600, re.compile(r"^src/backends/[^/]+/kernels/.*\.(h|cuh)$|\.cuh$")),
    ("header", 350, re.compile(r"\.h$")),
    ("test", 450, re.compile(r"^tests/.*_test\.cpp$")),  # one file mirrors one source file, so it cannot be split
    ("source file", 350, re.compile(r"\.(cpp|cu|cpp\.in)$")),
    ("script", 350, re.compile(r"\.(py|sh)$|^\.ci/run$")),
    ("build file", 150, re.compile(r"(^|/)CMakeLists\.txt$|\.cmake(\.in)?$")),
    ("page", 150, re.compile(r"\.md$")),
)
# path -> (limit, why it may be longer). An entry that is not needed is a violation.
EXCEPTIONS = {}


def check(root, exceptions=None):
    exceptions = EXCEPTIONS if exceptions is None else exceptions
    violations, looked_at, needed = [], 0, set()
    for path in repository.files(root):
        name = path.as_posix()
        kind, limit = next(((k, n) for k, n, pattern in LIMITS if pattern.search(name)), (None, 0))
        if kind is None:
            continue
        looked_at += 1
        lines = len((root / path).read_text(encoding="utf-8").splitlines())
        if lines > limit and name in exceptions:
            needed.add(name)
            limit = exceptions[name][0]
        if lines > limit:
            violations.append(f"{name}: {lines} lines, a {kind} has at most {limit}")
    for name in sorted(set(exceptions) - needed):
        violations.append(f"{name}: its exception in tools/check_sizes.py is not needed")
    return looked_at, violations


if __name__ == "__main__":
    sys.exit(repository.main(__doc__, check))
