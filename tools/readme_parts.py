#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the generated parts of the README true.

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

PART = re.compile(r"<!-- begin (?P<source>.+?) -->\n(?P<body>.*?)<!-- end (?P=source) -->", re.DOTALL)
LANGUAGES = {".cpp": "cpp", ".sh": "sh"}


def content(source: str, root: pathlib.Path, program: str) -> str:
    words = shlex.split(source)
    if words[0] == "fovea":
        return subprocess.run([program, *words[1:]], check=True, capture_output=True, text=True).stdout
    path = root / source
    lines = path.read_text().splitlines(keepends=True)
    code = "".join(line for line in lines if not line.startswith("// SPDX"))
    return f"```{LANGUAGES.get(path.suffix, '')}\n{code}```\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--readme", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "README.md")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    root = args.readme.resolve().parent
    old = args.readme.read_text()
    if not PART.search(old):
        print(f"{args.readme}: no generated part found")
        return 1

    def renew(match: re.Match) -> str:
        source = match["source"]
        return f"<!-- begin {source} -->\n{content(source, root, args.program)}<!-- end {source} -->"

    new = PART.sub(renew, old)
    if new == old:
        return 0
    if args.write:
        args.readme.write_text(new)
        return 0
    print(f"{args.readme} is stale: run tools/readme_parts.py --program {args.program} --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
