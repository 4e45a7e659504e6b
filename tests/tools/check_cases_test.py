# SPDX-License-Identifier: Apache-2.0
"""check_cases.py accepts a page and tests that agree, and names each disagreement."""

import unittest

from tree import TreeTest

PAGE = """# Cases

| Entries | What | Test |
|---|---|---|
| A01 | merging | `kv/case_A01_Merging`, `kv/case_A01_More` |
| A03, B01 | two in one | `backends/case_A03_B01` |
| A05 | levels | `backends/case_A05` |
| Z01, Z03 | with wings |
"""
KV = "TEST(Kv, case_A01_Merging) {}\nTEST(Kv, case_A01_More) {}\nTEST(Kv, case_in_point) {}\n"
BACKENDS = "TEST_P(Rows, case_A03_B01) {\n}\n// TEST(Rows, case_Q07) is a comment\nTYPED_TEST(Rows,\n           case_A05) {}\n"


class CheckCases(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("docs/cases.md", PAGE)
        self.write("tests/kv/merge_test.cpp", KV)
        self.write("tests/backends/rows_test.cpp", BACKENDS)

    def expect(self, path, text, *messages):
        self.write(path, text)
        found = self.violations("check_cases.py")
        self.assertEqual(len(found), len(messages), found)
        for line, parts in zip(found, messages):
            for part in parts:
                self.assertIn(part, line)

    def test_page_and_tests_that_agree(self):
        self.assertEqual(self.violations("check_cases.py"), [])

    def test_a_test_that_is_gone(self):
        self.expect("tests/kv/merge_test.cpp", KV.replace("TEST(Kv, case_A01_More) {}\n", ""),
                    ("docs/cases.md:5", "no test kv/case_A01_More"))

    def test_a_test_that_moved_to_another_folder(self):
        self.write("tests/kv/merge_test.cpp", KV.replace("case_A01_More", "More"))
        self.expect("tests/attention/merge_test.cpp", "TEST(A, case_A01_More) {}\n",
                    ("docs/cases.md:5", "kv/case_A01_More"), ("tests/attention/merge_test.cpp", "case_A01_More", "A01"))

    def test_a_test_that_the_page_does_not_know(self):
        self.expect("tests/kv/more_test.cpp", "TEST_F(Kv, case_C09) {}\n",
                    ("tests/kv/more_test.cpp", "case_C09", "does not name it"))

    def test_a_second_test_of_an_entry(self):
        self.expect("tests/kv/more_test.cpp", "TEST_F(Kv, case_A01_Also) {}\n", ("case_A01_Also", "does not name it for A01"))

    def test_an_entry_of_a_name_that_has_no_row(self):
        renamed = BACKENDS.replace("case_A03_B01", "case_A03_B01_B03")
        self.write("docs/cases.md", PAGE.replace("case_A03_B01", "case_A03_B01_B03"))
        self.expect("tests/backends/rows_test.cpp", renamed, ("case_A03_B01_B03", "for B03"))

    def test_an_entry_of_a_row_that_no_name_has(self):
        self.expect("docs/cases.md", PAGE.replace("| A05 |", "| A05, A07 |"), (":7: no test is named after A07",))

    def test_an_entry_with_two_rows(self):
        self.expect("docs/cases.md", PAGE.replace("Z01, Z03", "Z01, A05"), (":8: A05 has a row already, in line 7",))

    def test_an_entry_without_a_test_says_what_it_waits_for(self):
        self.expect("docs/cases.md", PAGE.replace("with wings", "some day"), (":8: neither a test",))

    def test_a_name_that_hides_its_entry(self):
        for name in ("my_case_A05", "case_A05x"):
            with self.subTest(name=name):
                self.expect("tests/kv/more_test.cpp", f"TEST(Kv, {name}) {{}}\n", (name, "begins with case_"))

    def test_no_page(self):
        (self.root / "docs/cases.md").unlink()
        self.assertEqual(self.violations("check_cases.py"), ["docs/cases.md: no such page"])


if __name__ == "__main__":
    unittest.main()
