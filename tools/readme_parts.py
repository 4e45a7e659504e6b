#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the generated parts of the pages true: the README's and docs/support.md's, and those of any other page.

A part lies between `<!-- begin SOURCE -->` and `<!-- end SOURCE -->`. SOURCE is a file of the repository, shown as code, or
`fovea ARGUMENTS`, replaced by what the program prints.

    tools/readme_parts.py --program build/release/bin/fovea            fails if a part is stale
    tools/readme_parts.py --program build/release/bin/fovea --write    writes the parts
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys

import repository

PART = re.compile(r"<!-- begin (?P<source>.+?) -->\n(?P<body>.*?)<!-- end (?P=source) -->", re.DOTALL)
MARK = re.compile(r"^<!-- (begin|end) .+ -->$", re.MULTILINE)
PAGES = ("README.md", "docs/support.md")  # these must have a generated part
LANGUAGES = {".cpp": "cpp", ".sh": "sh"}


def content(source: str, root: pathlib.Path, program: str) -> str:
    words = shlex.split(source)
    if words[0] == "fovea":
        return subprocess.run([program, *words[1:]], check=True, capture_output=True, text=True).stdout
    path = root / source
    lines = path.read_text().splitlines(keepends=True)
    code = "".join(line for line in lines if not line.startswith("// SPDX"))
    return f"```{LANGUAGES.get(path.suffix, '')}\n{code}```\n"


def renewed(text: str, root: pathlib.Path, program: str) -> str:
    def renew(match: re.Match) -> str:
        source = match["source"]
        return f"<!-- begin {source} -->\n{content(source, root, program)}<!-- end {source} -->"

    return PART.sub(renew, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    problems = []
    pages = {path.as_posix() for path in repository.files(args.root, ".md")} | set(PAGES)
    for page in sorted(pages):
        path = args.root / page
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        parts, marks = len(PART.findall(old)), len(MARK.findall(old))
        if marks != 2 * parts or (parts == 0 and page in PAGES):
            # A part without its end looks generated and would never be renewed.
            problems.append(f"{page}: a generated part is missing or has no end")
            continue
        new = renewed(old, args.root, args.program)
        if new != old and args.write:
            path.write_text(new, encoding="utf-8")
        elif new != old:
            problems.append(f"{page} is stale: run tools/readme_parts.py --program {args.program} --write")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
