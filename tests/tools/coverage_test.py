# SPDX-License-Identifier: Apache-2.0
"""coverage.py over real objects: a header in two of them, a file that never ran, a library from elsewhere."""

import os
import subprocess
import unittest

from tree import TreeTest

HEADER = """template <class T>
T sign(T x) {
  if (x < 0)
    return -1;
  return 1;
}
"""
RUNS = '#include "../../include/part/sign.h"\nint half(int x) { return sign(x); }\nint unused() { return 2; }\n'
NEVER = '#include "../../include/part/sign.h"\ndouble never(double x) { return sign(x); }\n'
MAIN = "int half(int);\nint main() { return half(3) == 1 ? 0 : 1; }\n"


class Coverage(TreeTest):
    def build(self):
        self.write("include/part/sign.h", HEADER)
        self.write("src/part/runs.cpp", RUNS)
        self.write("src/other/never.cpp", NEVER)
        self.write("tests/main.cpp", MAIN)
        build = self.root / "build"
        build.mkdir()
        compiler = os.environ.get("CXX", "g++")
        for source in ("src/part/runs.cpp", "src/other/never.cpp", "tests/main.cpp"):
            subprocess.run([compiler, "--coverage", "-O0", "-c", str(self.root / source)], cwd=build, check=True)
        subprocess.run([compiler, "--coverage", "main.o", "runs.o", "-o", "main"], cwd=build, check=True)

    def cover(self, *arguments):
        return self.run_tool("coverage.py", str(self.root / "build"), "--root", str(self.root), *arguments)

    def test_lines_by_folder(self):
        self.build()
        subprocess.run([str(self.root / "build" / "main")], check=True)
        code, output = self.cover("--uncovered", str(self.root / "uncovered.txt"))
        self.assertEqual(code, 0, output)
        rows = [line.split() for line in output.splitlines()]
        self.assertEqual(rows, [["include/part", "75.0", "%", "3", "of", "4"], ["src/other", "0.0", "%", "0", "of", "1"],
                                ["src/part", "50.0", "%", "1", "of", "2"], ["all", "57.1", "%", "4", "of", "7"]])
        self.assertEqual((self.root / "uncovered.txt").read_text(encoding="utf-8"),
                         "include/part/sign.h: 4\nsrc/other/never.cpp: 2\nsrc/part/runs.cpp: 3\n")

    def test_notes_of_a_failed_compilation_are_left_out(self):
        self.build()
        (self.root / "build" / "never.o").unlink()
        self.write("build/never.gcno", "")
        subprocess.run([str(self.root / "build" / "main")], check=True)
        code, output = self.cover()
        self.assertEqual(code, 0, output)
        self.assertNotIn("src/other", output)

    def test_broken_notes_fail(self):
        self.build()
        self.write("build/never.gcno", "")
        code, output = self.cover()
        self.assertEqual(code, 1)
        self.assertIn("gcov ended with code", output)

    def test_nothing_has_run(self):
        self.build()
        self.assertEqual(self.cover()[0], 1)

    def test_nothing_was_built(self):
        (self.root / "build").mkdir()
        code, output = self.cover()
        self.assertEqual(code, 1)
        self.assertIn("nothing", output)


if __name__ == "__main__":
    unittest.main()
