#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which lines the tests run: builds with the preset `coverage`, runs the tests that need no real model and no minutes, and
# prints the share of executed lines by folder. Lines that no test runs are listed in build/coverage/uncovered.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset coverage
cmake --build --preset coverage --parallel "$(nproc)"
find build/coverage -name '*.gcda' -delete  # counts of an earlier run
code=0
# A failed test leaves its counts too, so the table comes all the same. The checkers (no_sanitizer) run nothing of fovea.
ctest --preset coverage --parallel "$(nproc)" --no-tests=error --label-exclude '^(golden|long|no_sanitizer)$' || code=$?
python3 tools/coverage.py build/coverage --uncovered build/coverage/uncovered.txt
exit "$code"
