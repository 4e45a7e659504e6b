#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up the stages of scripts/test.sh: names what failed or was skipped, and prints the closing line.

Reads a file with one stage a line: name, exit code, seconds and JUnit file (- for a stage that runs no tests),
separated by tabs. A stage that failed without a failed test counts as one failure. Exit code 0: nothing failed, and
nothing was skipped but what EXPECTED_SKIPS lists; 1: otherwise."""

import pathlib
import re
import sys
import xml.etree.ElementTree

# Test name (with its stage: "ci: tests/base/X.Y") -> why it may be skipped there.
EXPECTED_SKIPS = {}

LINES_SHOWN = 40
SKIPPED_ON_PURPOSE = {"SKIP_REGULAR_EXPRESSION_MATCHED", "SKIP_RETURN_CODE=", "Disabled"}


class Count:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []  # failed, skipped: (name, what is known about it)


def skip_reason(output, message):
    found = re.search(r": Skipped\n(.*?)\n\[  SKIPPED \]", output, re.DOTALL)
    return " ".join(found.group(1).split()) if found else message


def add_case(count, stage, case):
    name, status = f"{stage}/{case.get('name')}", case.get("status")
    output = case.findtext("system-out") or ""
    skip = case.find("skipped")
    message = skip.get("message", "") if skip is not None else ""
    if status == "run":
        count.passed += 1
    elif status == "disabled":
        count.skipped.append((name, "disabled"))
    elif status == "notrun" and any(message.startswith(m) for m in SKIPPED_ON_PURPOSE):
        count.skipped.append((name, skip_reason(output, message)))
    else:
        lines = (output or message).strip().splitlines()
        count.failed.append((name, "\n".join(lines[-LINES_SHOWN:])))


def add_stage(count, name, code, junit):
    before = len(count.failed)
    if junit != "-":
        try:
            cases = list(xml.etree.ElementTree.parse(junit).iter("testcase"))
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            count.failed.append((name, f"no test result: {error}"))
            return
        for case in cases:
            add_case(count, name, case)
        if not cases:
            count.failed.append((name, "no test ran"))
    if code != 0 and len(count.failed) == before:
        count.failed.append((name, f"the stage ended with code {code}"))


def main(path):
    count = Count()
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        name, code, _, junit = line.split("\t")
        add_stage(count, name, int(code), junit)
    unexpected = [name for name, _ in count.skipped if name not in EXPECTED_SKIPS]
    for name, text in count.failed:
        print(f"FAILED {name}")
        if text:
            print("    " + text.replace("\n", "\n    "))
    for name, reason in count.skipped:
        print(f"skipped {name}: {EXPECTED_SKIPS.get(name, f'NOT EXPECTED ({reason})')}")
    print(f"{count.passed} passed, {len(count.failed)} failed, {len(count.skipped)} skipped")
    return 1 if count.failed or unexpected or count.passed == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: count_tests.py STAGES.tsv")
    sys.exit(main(sys.argv[1]))
