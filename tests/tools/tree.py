# SPDX-License-Identifier: Apache-2.0
"""A temporary repository for the tests of the checkers."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
LICENCE = "SPDX-License-Identifier: Apache-2.0"


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def run_tool(self, name, *arguments):
        """Exit code and standard output."""
        command = [sys.executable, str(TOOLS / name)] if name.endswith(".py") else [str(TOOLS / name)]
        done = subprocess.run(command + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def violations(self, name):
        """What a checker reports for the tree; its exit code must agree."""
        code, output = self.run_tool(name, "--root", str(self.root))
        lines = output.splitlines()
        self.assertRegex(lines[-1], r"^\d+ violations in \d+ files$")
        self.assertEqual(code, 1 if len(lines) > 1 else 0, output)
        return lines[:-1]
