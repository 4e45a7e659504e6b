#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The arrows between the folders: who may include whom, what library code may not call, and that every source file has
its test. The arrows themselves are explained in docs/architecture.md."""

import pathlib
import re
import sys

import repository

# part -> the parts it may include. A part is a folder name that src/ and include/fovea/ share.
MAY_USE = {
    "base": {"base"},
    "kv": {"base", "kv"},
    "attention": {"base", "kv", "attention"},
    "select": {"base", "kv", "attention", "select", "builtin_backends"},
    "cuda": {"base", "cuda"},
    "parallel": {"base", "kv", "attention", "parallel"},
    "builtin_backends": {"base", "kv", "attention", "builtin_backends"},
    "umbrella": {"base", "kv", "attention", "select", "parallel"},  # include/fovea/fovea.h
    "engine": {"base", "kv", "attention", "select", "parallel", "umbrella", "engine"},
    "conformance": {"base", "kv", "attention", "select", "parallel", "umbrella", "conformance"},
}
BACKEND_MAY_USE = {"base", "kv", "attention", "cuda"}  # and its own folder, never a sibling
OUTSIDE = {"base", "kv", "attention", "select", "parallel", "umbrella", "engine", "conformance"}  # apps/, examples/, bench/, fuzz/
# Folders beyond INCLUDE_FOLDERS whose headers a folder may also include.
MORE_FOLDERS = {"apps": ("apps",), "fuzz": ("apps", "tests")}  # readers are fuzzed, wherever they are
# What a backend's kernels/ may include besides headers of that folder: values, no policy.
KERNEL_HEADERS = {
    "fovea/base/dtype.h", "fovea/base/float_formats.h", "fovea/base/tensor.h", "fovea/attention/mask.h",
    "fovea/attention/logits.h", "fovea/attention/partial_state.h",
}  # fmt: skip

INCLUDE_FOLDERS = ("include", "engine/include", "conformance/include", "src", "engine/src", "conformance/src")
STANDARD = re.compile(r"^[a-z_]+$")  # <vector>, <cstdint>: C++ standard headers have neither slash nor suffix
SYSTEM = re.compile(r"^((?:sys|linux)/\w+|unistd|fcntl|sched|pthread|immintrin|cpuid|signal|poll)(\.h)$")
LIBRARIES = {  # beyond the standard and system headers
    "src": re.compile(r"^fmt/"),
    "engine": re.compile(r"^(fmt/|dnnl\.hpp$|oneapi/dnnl/|omp\.h$|pcre2\.h$)"),
    "conformance": re.compile(r"^(fmt/|nlohmann/)"),
    "apps": re.compile(r"^(fmt/|CLI/|nlohmann/)"),
    "examples": re.compile(r"^$"),
    "bench": re.compile(r"^(fmt/|benchmark/|nlohmann/|CLI/|dnnl\.hpp$|omp\.h$|sys/mman\.h$)"),
    "fuzz": re.compile(r"^$"),
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
DEFINE = re.compile(r"^[ \t]*#[ \t]*define\b", re.MULTILINE)
FORBIDDEN_CALLS = re.compile(
    r"\b(?:secure_)?getenv\s*\(|\b(?:v?f|v|d|vd)?printf\s*\(|\bfmt::(?:v\d+::)?print(?:ln)?\s*\(|\bf?puts\s*\(|\bputchar\s*\("
    r"|\bstd::(?:cout|cerr|clog)\b|\b(?:std::)?(?:abort|_?exit|_Exit|quick_exit|terminate)\s*\(|\bassert\s*\("
    r"|#\s*include\s*<(?:cassert|assert\.h|iostream)>"
)


def part_of(path):
    """The part that a repository file belongs to; backends are 'backend:<name>'."""
    p = path.parts
    if p[:2] == ("include", "fovea"):
        return "umbrella" if len(p) == 3 else p[2]
    if p[:2] == ("src", "backends"):
        return f"backend:{p[2]}" if len(p) > 3 else "builtin_backends"
    if p[0] == "src":
        return p[1] if len(p) > 2 else "builtin_backends"
    if p[0] in ("engine", "conformance"):
        return p[0]
    return p[0] + ":" + (p[1] if p[0] == "apps" and len(p) > 2 else "")


def allowed_parts(part):
    if part.startswith("backend:"):
        return BACKEND_MAY_USE | {part}
    if part == "fuzz:":
        return OUTSIDE | {part, "apps:fovea", "tests:"}
    if ":" in part:
        return OUTSIDE | {part}
    return MAY_USE.get(part, set())


def resolve(root, includer, name):
    """The repository file an #include line names, or None for one from elsewhere."""
    for base in (includer.parent, *INCLUDE_FOLDERS, *MORE_FOLDERS.get(includer.parts[0], ())):
        candidate = pathlib.Path(base) / name
        if (root / candidate).is_file():
            return pathlib.Path(*[p for p in candidate.parts if p != "."])
    return None


def is_public(path):
    return path.parts[0] == "include" or path.parts[:2] in (("engine", "include"), ("conformance", "include"))


def normal(path):
    parts = []
    for p in path.parts:
        parts.pop() if p == ".." and parts else parts.append(p)
    return pathlib.Path(*parts)


def check_own_include(path, target):
    part, target_part = part_of(path), part_of(target)
    if "kernels" in path.parts and part.startswith("backend:"):
        own = "kernels" in target.parts and part == target_part
        if not own and "/".join(target.parts[1:]) not in KERNEL_HEADERS:
            return "kernels include only their own folder's headers and the value headers"
    if is_public(path) and not is_public(target):
        return "a public header includes a private one"
    if path.parts[0] not in ("src", "include") and target.parts[0] == "src":
        return "only public headers may be used outside src/"
    for folder in ("engine", "conformance"):
        if path.parts[0] in ("apps", "examples", "bench") and target.parts[:2] == (folder, "src"):
            return f"only the public headers of {folder}/ may be used outside it"
    if target_part not in allowed_parts(part):
        return f"{part.rstrip(':')} may not include {target_part.rstrip(':')}"
    return None


def check_foreign_include(path, name):
    if STANDARD.match(name):
        return None
    if is_public(path):
        return "public headers include only fovea/ and standard headers"
    if name.startswith("fovea/"):
        return "no such file"
    folder = "src" if path.parts[0] == "include" else path.parts[0]
    if SYSTEM.match(name) and folder in ("src", "engine", "conformance", "apps"):
        return None
    if LIBRARIES[folder].match(name):
        return None
    return f"{folder}/ may not include this library's header (or there is no such file)"


def check_file(root, path):
    text = (root / path).read_text(encoding="utf-8")
    code = repository.without_comments(text, keep_strings=True)
    for match in INCLUDE.finditer(code):
        name = match.group(1) or match.group(2)
        line = code.count("\n", 0, match.start(0)) + 1
        target = resolve(root, path, name)
        problem = check_own_include(path, normal(target)) if target else check_foreign_include(path, name)
        if problem:
            yield f"{path}:{line}: #include {name}: {problem}"
    bare = repository.without_comments(text)
    for match in DEFINE.finditer(bare):
        yield f"{path}:{bare.count(chr(10), 0, match.start(0)) + 1}: no macros of our own"
    if path.parts[0] in ("src", "include", "engine", "conformance"):
        for match in FORBIDDEN_CALLS.finditer(bare):
            line = bare.count("\n", 0, match.start(0)) + 1
            yield f"{path}:{line}: library code neither prints, ends the process nor reads the environment: {match.group(0)}"


def mirrors(path):
    """Where the test of a source file may be; empty for a file that needs none of its own."""
    stem, p = path.stem + "_test.cpp", path.parts
    if p[:2] == ("src", "backends"):
        if "kernels" in p or len(p) == 3:  # kernels are covered through the impl, the list of backends by select's tests
            return []
        return [f"tests/backends/{p[2]}_{stem}", f"tests/backends_{p[2]}/{stem}"]
    if p[0] == "src":
        return [f"tests/{p[1]}/{stem}"]
    if p[:2] == ("engine", "src"):
        return [f"tests/engine/{stem}", f"tests/engine_golden/{stem}"]
    if p[:2] == ("conformance", "src"):
        return [f"tests/conformance/{stem}"]
    return []


def check(root):
    sources = [f for f in repository.files(root, repository.CPP_SUFFIXES)
               if f.parts[0] in ("include", "src", "engine", "conformance", "apps", "examples", "bench", "fuzz")]
    violations = []
    for path in sources:
        violations += check_file(root, path)
        if path.suffix in (".cpp", ".cu"):
            places = mirrors(path)
            if places and not any((root / place).is_file() for place in places):
                violations.append(f"{path}: has no test; expected {' or '.join(places)}")
    for path in repository.files(root, (".cpp", ".h")):
        if path.parts[0] == "tests" and DEFINE.search(repository.without_comments((root / path).read_text())):
            violations.append(f"{path}: no macros of our own")
    return len(sources), violations


if __name__ == "__main__":
    sys.exit(repository.main(__doc__, check))
