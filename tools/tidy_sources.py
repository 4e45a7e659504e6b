#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which sources clang-tidy looks at: all of a compilation database, or those that show these changed files.

    tools/tidy_sources.py build/tidy [--for FILE...]

A changed source shows itself, a changed header the first source that includes it, over however many headers. A header
that no source of the database includes is an error, for nothing would look at it; files outside of it (tests, benchmarks)
are left out. Prints one path a line, relative to the working directory."""

import argparse
import json
import os
import pathlib
import re
import shlex
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def read_database(folder):
    """Source -> folders of its -I options; what lies in the build folder is CMake's own."""
    build = folder.resolve()
    sources = {}
    for entry in json.loads((folder / "compile_commands.json").read_text(encoding="utf-8")):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if build not in source.parents:
            words = shlex.split(entry["command"])
            sources[source] = [pathlib.Path(entry["directory"], w[2:]) for w in words if w.startswith("-I")]
    return dict(sorted(sources.items()))


def top(path):
    """Its folder in the repository."""
    return pathlib.Path(os.path.relpath(path)).parts[0]


def closure(source, folders):
    """The files that a source includes with quotes, as far as they are found, and itself."""
    seen, todo = {source}, [source]
    while todo:
        file = todo.pop()
        for name in INCLUDE.findall(file.read_text(encoding="utf-8")):
            found = next((p.resolve() for p in (folder / name for folder in (file.parent, *folders)) if p.is_file()), None)
            if found and found not in seen:
                seen.add(found)
                todo.append(found)
    return seen


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--for", nargs="*", type=pathlib.Path, dest="changed", metavar="FILE")
    options = parser.parse_args(arguments)
    sources = read_database(options.build)
    if not sources:
        print(f"{options.build}: no sources", file=sys.stderr)
        return 1
    chosen, lost = list(sources), []
    if options.changed is not None:
        shown = {source: closure(source, folders) for source, folders in sources.items()}
        chosen, looked_at = set(), {top(source) for source in sources} | {"include"}
        for file in (f.resolve() for f in options.changed):
            if file in sources:
                chosen.add(file)
            elif file.suffix == ".h" and top(file) in looked_at:
                first = next((source for source, files in shown.items() if file in files), None)
                if first:
                    chosen.add(first)
                else:
                    lost.append(file)
    for source in sorted(chosen):
        print(os.path.relpath(source))
    for file in lost:
        print(f"{os.path.relpath(file)}: no source includes it", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
