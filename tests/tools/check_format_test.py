# SPDX-License-Identifier: Apache-2.0
"""check_format.sh accepts formatted files, refuses others and refuses to check nothing."""

import shutil
import unittest

from tree import TOOLS, TreeTest


class CheckFormat(TreeTest):
    def setUp(self):
        super().setUp()
        shutil.copy(TOOLS.parent / ".clang-format", self.root)

    def test_formatted(self):
        self.write("src/a.cpp", "int f(int x) { return x; }\n")
        self.write("build/b.cpp", "int  g( );\n")
        code, output = self.run_tool("check_format.sh", str(self.root))
        self.assertEqual((code, output), (0, "1 files are formatted\n"))

    def test_not_formatted(self):
        for path in ("src/a.cpp", "include/fovea/a.h"):
            with self.subTest(path=path):
                self.write(path, "int  f( );\n")
                code, output = self.run_tool("check_format.sh", str(self.root))
                self.assertNotEqual(code, 0)
                self.assertIn(path + ":1:", output)
                (self.root / path).unlink()

    def test_nothing_to_check(self):
        code, output = self.run_tool("check_format.sh", str(self.root))
        self.assertNotEqual(code, 0)
        self.assertIn("no C++ file", output)


if __name__ == "__main__":
    unittest.main()
