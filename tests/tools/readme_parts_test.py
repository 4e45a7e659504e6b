# SPDX-License-Identifier: Apache-2.0
"""readme_parts.py: a stale part fails, writing mends it."""

import unittest

from tree import TreeTest

README = "before\n<!-- begin a.cpp -->\n{}<!-- end a.cpp -->\n<!-- begin fovea hello -->\n{}<!-- end fovea hello -->\nafter\n"
CODE = "```cpp\nint a;\n```\n"


class ReadmeParts(TreeTest):
    def run_it(self, *arguments):
        self.write("a.cpp", "// SPDX-License-Identifier: Apache-2.0\nint a;\n")
        return self.run_tool("readme_parts.py", "--program", "echo", "--readme", str(self.root / "README.md"), *arguments)

    def text(self):
        return (self.root / "README.md").read_text(encoding="utf-8")

    def test_true_parts_pass(self):
        self.write("README.md", README.format(CODE, "hello\n"))
        self.assertEqual(self.run_it(), (0, ""))

    def test_stale_parts_fail_and_stay(self):
        for parts in (("", "hello\n"), (CODE, "goodbye\n"), ("```cpp\nint b;\n```\n", "hello\n")):
            self.write("README.md", README.format(*parts))
            code, output = self.run_it()
            self.assertEqual(code, 1)
            self.assertIn("stale", output)
            self.assertEqual(self.text(), README.format(*parts))

    def test_writing(self):
        self.write("README.md", README.format("", ""))
        self.assertEqual(self.run_it("--write")[0], 0)
        self.assertEqual(self.text(), README.format(CODE, "hello\n"))

    def test_a_readme_without_parts_fails(self):
        self.write("README.md", "nothing\n")
        self.assertEqual(self.run_it()[0], 1)


if __name__ == "__main__":
    unittest.main()
