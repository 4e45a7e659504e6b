# SPDX-License-Identifier: Apache-2.0
"""tidy_sources.py over a small tree with a compilation database."""

import json
import os
import unittest

from tree import TreeTest


class TidySources(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("include/part/part.h", "#pragma once\n")
        self.write("include/part/lonely.h", "#pragma once\n")
        self.write("src/part/deep.h", '#include "part/part.h"\n')
        self.write("src/part/a.cpp", "int a();\n")
        self.write("src/part/part.cpp", '#include "deep.h"\n')  # of the header's name in both senses
        self.write("src/other/part.cpp", "int b();\n")  # of the header's name, without including it
        self.write("tests/helper.h", "#pragma once\n")
        self.write("build/pch.cpp", "\n")
        sources = ["src/part/a.cpp", "src/part/part.cpp", "src/other/part.cpp", "build/pch.cpp"]
        self.write("build/compile_commands.json", json.dumps([
            {"directory": str(self.root / "build"), "file": str(self.root / s),
             "command": f"c++ -I{self.root}/include -c {self.root / s}"} for s in sources]))
        before = os.getcwd()
        os.chdir(self.root)
        self.addCleanup(os.chdir, before)

    def sources(self, *arguments):
        code, output = self.run_tool("tidy_sources.py", "build", *arguments)
        return code, output.splitlines()

    def test_all(self):
        self.assertEqual(self.sources(), (0, ["src/other/part.cpp", "src/part/a.cpp", "src/part/part.cpp"]))

    def test_a_source_shows_itself_and_a_header_is_shown_by_one_that_includes_it(self):
        self.assertEqual(self.sources("--for", "src/part/a.cpp"), (0, ["src/part/a.cpp"]))
        for header in ("src/part/deep.h", "include/part/part.h"):
            self.assertEqual(self.sources("--for", header), (0, ["src/part/part.cpp"]))

    def test_nothing_changed_is_nothing_to_do(self):
        self.assertEqual(self.sources("--for"), (0, []))
        self.assertEqual(self.sources("--for", "tests/helper.h"), (0, []))

    def test_a_header_without_a_source_fails(self):
        code, lines = self.sources("--for", "include/part/lonely.h", "src/part/a.cpp")
        self.assertEqual(code, 1)
        self.assertIn("src/part/a.cpp", lines)
        self.assertIn("include/part/lonely.h: no source includes it", lines)

    def test_an_empty_database_fails(self):
        self.write("build/compile_commands.json", "[]")
        self.assertEqual(self.sources()[0], 1)


if __name__ == "__main__":
    unittest.main()
