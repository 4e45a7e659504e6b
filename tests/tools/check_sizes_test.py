# SPDX-License-Identifier: Apache-2.0
"""check_sizes.py: each limit holds at its last line and fails one line later."""

import sys
import unittest

from tree import TOOLS, TreeTest

sys.path.insert(0, str(TOOLS))
import check_sizes  # noqa: E402


class CheckSizes(TreeTest):
    def test_limits(self):
        for path, limit in (("include/fovea/kv/a.h", 150), ("engine/include/fovea/engine/a.h", 150),
                            ("src/kv/a.h", 350), ("src/kv/a.cpp", 350), ("tests/kv/a_test.cpp", 450), ("tests/kv/help.cpp", 350),
                            ("src/backends/cpu/kernels/a.h", 600), ("tools/a.py", 350), ("scripts/a.sh", 350)):
            with self.subTest(path=path):
                self.write(path, "x\n" * limit)
                self.assertEqual(self.violations("check_sizes.py"), [])
                self.write(path, "x\n" * (limit + 1))
                found = self.violations("check_sizes.py")
                self.assertEqual(len(found), 1, found)
                self.assertIn(f"{path}: {limit + 1} lines", found[0])
                (self.root / path).unlink()

    def test_an_exception_raises_the_limit_of_one_file(self):
        self.write("src/kv/a.cpp", "x\n" * 400)
        self.write("src/kv/b.cpp", "x\n" * 400)
        _, found = check_sizes.check(self.root, {"src/kv/a.cpp": (400, "a table")})
        self.assertEqual(found, ["src/kv/b.cpp: 400 lines, a source file has at most 350"])
        _, found = check_sizes.check(self.root, {"src/kv/a.cpp": (399, "a table"), "src/kv/b.cpp": (400, "a table")})
        self.assertEqual(found, ["src/kv/a.cpp: 400 lines, a source file has at most 399"])

    def test_an_exception_that_is_not_needed(self):
        self.write("src/kv/a.cpp", "x\n" * 350)
        exceptions = {"src/kv/a.cpp": (400, "a table"), "src/kv/gone.cpp": (400, "a table")}
        _, found = check_sizes.check(self.root, exceptions)
        self.assertEqual([line.split(":")[0] for line in found], ["src/kv/a.cpp", "src/kv/gone.cpp"])

    def test_every_exception_of_the_repository_has_a_reason(self):
        for path, (limit, reason) in check_sizes.EXCEPTIONS.items():
            self.assertTrue(limit > 0 and reason.strip(), path)


if __name__ == "__main__":
    unittest.main()
