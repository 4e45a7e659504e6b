# SPDX-License-Identifier: Apache-2.0
"""count_tests.py: sums, names, and the exit code that scripts/test.sh ends with."""

import sys
import unittest

from tree import TOOLS, TreeTest

sys.path.insert(0, str(TOOLS))
import count_tests  # noqa: E402

PASSED = '<testcase name="a/A.Good" status="run"><system-out>fine</system-out></testcase>'
FAILED = '<testcase name="a/A.Bad" status="fail"><failure/><system-out>expected 1\ngot 2\n</system-out></testcase>'
NOT_BUILT = '<testcase name="b_NOT_BUILT" status="notrun"><skipped message="Unable to find executable"/></testcase>'
SKIPPED = (
    '<testcase name="a/A.Gpu" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>'
    "a_test.cpp:3: Skipped\nno device\nhere\n[  SKIPPED ] A.Gpu (0 ms)\n</system-out></testcase>"
)
DISABLED = '<testcase name="a/A.Off" status="disabled"><system-out>Disabled</system-out></testcase>'


class CountTests(TreeTest):
    def count(self, *stages):
        """stages: (name, exit code, test cases or None)."""
        lines = []
        for number, (name, code, cases) in enumerate(stages):
            junit = "-"
            if cases is not None:
                junit = str(self.root / f"{number}.xml")
                self.write(junit, f"<testsuite>{''.join(cases)}</testsuite>")
            lines.append(f"{name}\t{code}\t1\t{junit}\n")
        self.write("stages.tsv", "".join(lines))
        code, output = self.run_tool("count_tests.py", str(self.root / "stages.tsv"))
        return code, output.splitlines()

    def test_all_passed(self):
        code, lines = self.count(("build", 0, None), ("ci", 0, [PASSED, PASSED]), ("dev", 0, [PASSED]))
        self.assertEqual((code, lines), (0, ["3 passed, 0 failed, 0 skipped"]))

    def test_a_failed_test_is_named_with_its_output(self):
        code, lines = self.count(("ci", 8, [PASSED, FAILED]))
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["FAILED ci/a/A.Bad", "    expected 1", "    got 2", "1 passed, 1 failed, 0 skipped"])

    def test_a_test_that_was_not_built_failed(self):
        code, lines = self.count(("ci", 8, [PASSED, NOT_BUILT]))
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_failed_build_counts(self):
        code, lines = self.count(("build", 1, None), ("ci", 0, [PASSED]))
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("FAILED build", lines)

    def test_a_stage_that_failed_without_a_failed_test_counts(self):
        code, lines = self.count(("ci", 1, [PASSED]))
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_no_result_or_no_test_counts(self):
        self.write("broken.xml", "<testsuite>")
        for junit, reason in (("gone.xml", "no test result"), ("broken.xml", "no test result"), ("empty.xml", "no test ran")):
            with self.subTest(junit=junit):
                self.write("empty.xml", "<testsuite/>")
                self.write("stages.tsv", f"ci\t0\t1\t{self.root / junit}\n")
                code, output = self.run_tool("count_tests.py", str(self.root / "stages.tsv"))
                self.assertEqual((code, output.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))
                self.assertIn(reason, output)

    def test_skips_are_named_and_not_accepted(self):
        code, lines = self.count(("ci", 0, [PASSED, SKIPPED, DISABLED]))
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["skipped ci/a/A.Gpu: NOT EXPECTED (no device here)",
                                 "skipped ci/a/A.Off: NOT EXPECTED (disabled)", "1 passed, 0 failed, 2 skipped"])

    def test_an_expected_skip_is_accepted(self):
        self.write("0.xml", f"<testsuite>{PASSED}{SKIPPED}</testsuite>")
        self.write("stages.tsv", f"ci\t0\t1\t{self.root / '0.xml'}\n")
        self.addCleanup(count_tests.EXPECTED_SKIPS.clear)
        count_tests.EXPECTED_SKIPS["ci/a/A.Gpu"] = "needs a GPU"
        self.assertEqual(count_tests.main(self.root / "stages.tsv"), 0)

    def test_nothing_at_all_is_not_a_success(self):
        self.write("stages.tsv", "build\t0\t1\t-\n")
        code, _ = self.run_tool("count_tests.py", str(self.root / "stages.tsv"))
        self.assertEqual(code, 1)


if __name__ == "__main__":
    unittest.main()
