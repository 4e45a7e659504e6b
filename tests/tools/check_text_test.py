# SPDX-License-Identifier: Apache-2.0
"""check_text.py accepts clean files and names each broken rule with its line."""

import unittest

from tree import LICENCE, TreeTest


class CheckText(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/kv/pool.cpp", f"// {LICENCE}\n// Takes notes; a hack is no word of ours, sharing is.\nint x = a / work / b;\n")
        self.write("scripts/run.sh", f"#!/usr/bin/env bash\n# {LICENCE}\nls build/wo" f"rk/x ${{TMPDIR:-/tmp}} \"$HOME/wo" "rk/x\"\n")
        self.write("CMakeLists.txt", f"# {LICENCE}\n")
        self.write("README.md", "# Title\n")

    def expect(self, path, text, *parts):
        self.write(path, text)
        found = self.violations("check_text.py")
        self.assertEqual(len(found), 1, found)
        for part in (path, *parts):
            self.assertIn(part, found[0])

    def test_a_clean_tree(self):
        self.assertEqual(self.violations("check_text.py"), [])

    def test_licence_line(self):
        for path in ("src/kv/pool.cpp", "src/kv/list.cpp.in", "src/kv/pool.h", "tools/a.py", "scripts/run.sh",
                     "cmake/a.cmake", "cmake/a.cmake.in", "tests/CMakeLists.txt", ".ci/run"):
            with self.subTest(path=path):
                self.setUp()
                self.expect(path, "\n", ":1: no line")
        self.setUp()
        self.expect("src/kv/pool.h", f"\n// {LICENCE}\n", ":1: no line")

    def test_unfinished_work(self):
        for word in ("TO" "DO", "FIX" "ME", "X" "XX", "HA" "CK"):
            for path in ("README.md", "docs/a.md"):
                with self.subTest(word=word, path=path):
                    self.setUp()
                    self.expect(path, f"one\n{word}: two\n", ":2: mark of unfinished work")

    def test_placeholders_in_pages(self):
        self.expect("docs/a.md", "one\n@SPE" "ED@\n", ":2: placeholder")
        self.setUp()
        self.write("cmake/a.cmake.in", f"# {LICENCE}\n@PACKAGE_INIT@\n")
        self.write("docs/a.md", "mail someone@example.org and @someone\n")
        self.assertEqual(self.violations("check_text.py"), [])

    def test_paths_of_one_machine(self):
        for path in ("/wo" "rk/x", "/ro" "ot/x", "/t" "mp/x", "/ho" "me/user"):
            with self.subTest(path=path):
                self.setUp()
                self.expect("docs/a.md", f"see `{path}`\n", ":1: path")

    def test_folder_outside(self):
        for path in ("../shar" "ed/x", "shar" "ed/golden/x.json"):
            with self.subTest(path=path):
                self.setUp()
                self.expect("docs/a.md", f"see {path}\n", ":1: reference")

    def test_blanks(self):
        for text, problem in (("a\tb\n", "tab"), ("a \n", "trailing blank"), ("a\r\n", "trailing blank"),
                              ("a", "no newline")):
            with self.subTest(text=text):
                self.setUp()
                self.expect("docs/a.md", text, problem)


if __name__ == "__main__":
    unittest.main()
