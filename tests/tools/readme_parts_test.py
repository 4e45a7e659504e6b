# SPDX-License-Identifier: Apache-2.0
"""readme_parts.py: a stale part of any page fails, writing mends it."""

import unittest

from tree import TreeTest

README = "before\n<!-- begin a.cpp -->\n{}<!-- end a.cpp -->\n<!-- begin fovea hello -->\n{}<!-- end fovea hello -->\nafter\n"
SUPPORT = "# Support\n<!-- begin fovea rows --all -->\n{}<!-- end fovea rows --all -->\n"
CODE = "```cpp\nint a;\n```\n"
TRUE_README, TRUE_SUPPORT = README.format(CODE, "hello\n"), SUPPORT.format("rows --all\n")


class ReadmeParts(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("a.cpp", "// SPDX-License-Identifier: Apache-2.0\nint a;\n")
        self.write("README.md", TRUE_README)
        self.write("docs/support.md", TRUE_SUPPORT)
        self.write("docs/plain.md", "nothing generated\n")

    def run_it(self, *arguments):
        return self.run_tool("readme_parts.py", "--program", "echo", "--root", str(self.root), *arguments)

    def text(self, page):
        return (self.root / page).read_text(encoding="utf-8")

    def test_true_parts_pass(self):
        self.assertEqual(self.run_it(), (0, ""))

    def test_stale_parts_fail_and_stay(self):
        for parts in (("", "hello\n"), (CODE, "goodbye\n"), ("```cpp\nint b;\n```\n", "hello\n")):
            self.write("README.md", README.format(*parts))
            code, output = self.run_it()
            self.assertEqual(code, 1)
            self.assertRegex(output, r"^README.md is stale")
            self.assertEqual(self.text("README.md"), README.format(*parts))

    def test_a_stale_support_page_fails_too(self):
        self.write("docs/support.md", SUPPORT.format("rows --some\n"))
        code, output = self.run_it()
        self.assertEqual(code, 1)
        self.assertRegex(output, r"^docs/support.md is stale.*\n$")

    def test_so_does_any_other_page(self):
        self.write("src/part/README.md", SUPPORT.format(""))
        self.assertRegex(self.run_it()[1], r"^src/part/README.md is stale")

    def test_writing(self):
        self.write("README.md", README.format("", ""))
        self.write("docs/support.md", SUPPORT.format("old\n"))
        self.assertEqual(self.run_it("--write"), (0, ""))
        self.assertEqual(self.text("README.md"), TRUE_README)
        self.assertEqual(self.text("docs/support.md"), TRUE_SUPPORT)
        self.assertEqual(self.text("docs/plain.md"), "nothing generated\n")

    def test_a_page_that_lost_its_part_fails(self):
        for page in ("README.md", "docs/support.md"):
            with self.subTest(page=page):
                self.setUp()
                self.write(page, "nothing\n")
                code, output = self.run_it("--write")
                self.assertEqual(code, 1)
                self.assertIn(page, output)
                (self.root / page).unlink()
                self.assertEqual(self.run_it()[0], 1)

    def test_a_mark_without_its_end_fails(self):
        for page, text in (("docs/plain.md", ""), ("README.md", TRUE_README)):
            self.write(page, text + "<!-- begin fovea hello -->\nhello\n")
            code, output = self.run_it("--write")
            self.assertEqual(code, 1)
            self.assertIn(f"{page}: ", output)


if __name__ == "__main__":
    unittest.main()
