# SPDX-License-Identifier: Apache-2.0
"""What the checkers share: the files of the repository, C++ without comments, and the report."""

import argparse
import os
import pathlib
import re
import sys

SKIPPED_FOLDERS = {"build", "__pycache__"}
CPP_SUFFIXES = (".h", ".cpp", ".cuh", ".cu", ".cpp.in", ".h.in")

_TOKENS = re.compile(
    r'R"(?P<delim>[^()\s\\]{0,16})\(.*?\)(?P=delim)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'"  # not the separator in 1'000
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)


def files(root, suffixes=None):
    """Every file below root as a path relative to it, sorted; hidden folders other than .ci are left out."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS and (f == ".ci" or not f.startswith("."))]
        for name in names:
            if suffixes is None or name.endswith(suffixes):
                found.append((pathlib.Path(folder) / name).relative_to(root))
    return sorted(found)


def without_comments(text, keep_strings=False):
    """C++ text of the same number of lines, comments (and the contents of literals) blanked out."""

    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return " " + "\n" * token.count("\n")
        return token if keep_strings else '""' + "\n" * token.count("\n")

    return _TOKENS.sub(blank, text)


def main(description, check):
    """Runs check(root) -> (number of things looked at, list of violations); returns the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    looked_at, violations = check(root)
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations in {looked_at} files")
    if looked_at == 0:
        print(f"nothing to check in {root}", file=sys.stderr)
        return 1
    return 1 if violations else 0
