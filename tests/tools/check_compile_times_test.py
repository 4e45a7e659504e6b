# SPDX-License-Identifier: Apache-2.0
"""check_compile_times.py: processor time above the budget fails, waiting does not."""

import json
import sys
import unittest

from tree import TOOLS, TreeTest

sys.path.insert(0, str(TOOLS))
import check_compile_times  # noqa: E402

# Compilers that need a second of processor time, next to none, and that fail; the first two write the file behind -o.
IDLE = "import pathlib,sys\npathlib.Path(sys.argv[sys.argv.index('-o') + 1]).touch()\n"
WORK = "import time\nwhile time.process_time() < 1: pass\n" + IDLE
BROKEN = "import sys\nsys.exit(1)\n"


class CheckCompileTimes(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("work.py", WORK)
        self.write("idle.py", IDLE)
        self.write("broken.py", BROKEN)

    def build(self, *units):
        """units: (object, seconds in the log, compiler or None)."""
        log = ["# ninja log v5"]
        commands = []
        for unit, seconds, compiler in units:
            log.append(f"1000\t{1000 + round(seconds * 1000)}\t1\t{unit}\tabc")
            if compiler is not None:
                command = f"ccache {sys.executable} {self.root / compiler}.py -MD -MF {unit}.d -o {unit} -c x.cpp"
                commands.append({"directory": str(self.root), "command": command, "file": "x.cpp"})
        self.write(".ninja_log", "\n".join(log) + "\n")
        self.write("compile_commands.json", json.dumps(commands))

    def check(self):
        code, output = self.run_tool("check_compile_times.py", str(self.root))
        return code, output.splitlines()

    def with_budget(self, seconds):
        """The same, with a budget small enough for a test: run through a program that sets it."""
        self.write("run.py", "import re,sys\n"
                   f"sys.path.insert(0, {str(TOOLS)!r})\nimport check_compile_times as c\n"
                   f"c.BUDGETS = (('all', {seconds}, re.compile('')),)\nsys.exit(c.main())\n")
        code, output = self.run_tool(str(self.root / "run.py"), str(self.root))
        return code, output.splitlines()

    def test_fast_units_pass_and_are_not_compiled_again(self):
        self.build(("src/a.cpp.o", 2, "broken"), ("src/b.cpp.o", 3, "broken"))
        self.assertEqual(self.check(), (0, ["2 translation units, 5 s in all; the slowest by the clock:",
                                            "     3.0 s  src/b.cpp.o", "     2.0 s  src/a.cpp.o",
                                            "0 violations in 2 translation units"]))

    def test_processor_time_above_the_budget_fails(self):
        self.build(("src/a.cpp.o", 5, "work"), ("src/b.cpp.o", 0.01, "work"))
        code, lines = self.with_budget(0.9)
        self.assertEqual(code, 1)
        self.assertRegex(lines[-2], r"^src/a.cpp.o: 1\.\d s of processor time, the budget is 0.9 s$")
        self.assertEqual(lines[-1], "1 violations in 2 translation units")
        self.assertFalse((self.root / "src").exists())  # nothing of the build is touched

    def test_waiting_passes(self):
        self.build(("src/a.cpp.o", 5, "idle"))
        code, lines = self.with_budget(0.9)
        self.assertEqual(code, 0, lines)
        self.assertIn("the rest was waiting", lines[-2])

    def test_units_of_the_past_pass(self):
        self.build(("src/gone.cpp.o", 5, None), ("src/broken.cpp.o", 5, "broken"))
        code, lines = self.with_budget(0.9)
        self.assertEqual(code, 0)
        self.assertEqual(sum("not compiled again" in line for line in lines), 2)

    def test_the_last_compilation_counts_and_only_objects_do(self):
        self.write(".ninja_log", "# ninja log v5\n0\t900000\t1\tsrc/a.cpp.o\tx\n0\t1000\t2\tsrc/a.cpp.o\tx\n0\t900000\t1\tbin/fovea\tx\n")
        self.assertEqual(self.check()[1][1:], ["     1.0 s  src/a.cpp.o", "0 violations in 1 translation units"])

    def test_precompiled_headers_count(self):
        self.build(("apps/cmake_pch.hxx.gch", 5, "work"))
        self.assertEqual(self.with_budget(0.9)[0], 1)

    def test_ten_are_shown(self):
        self.build(*((f"src/{i}.cpp.o", i, None) for i in range(12)))
        lines = self.check()[1]
        self.assertEqual(len(lines), 12)
        self.assertEqual(lines[1], "    11.0 s  src/11.cpp.o")

    def test_the_program_has_a_budget_of_its_own(self):
        for unit in ("apps/fovea/x.cpp.o", "bench/x.cpp.o", "tests/CMakeFiles/fovea_tests_apps_golden.dir/apps_golden/x.cpp.o"):
            self.assertGreater(check_compile_times.budget_of(unit), check_compile_times.budget_of("src/x.cpp.o"))

    def test_no_log_and_an_empty_one_fail(self):
        self.assertEqual(self.check()[0], 1)
        for text in ("", "# ninja log v5\n", "something else\n"):
            self.write(".ninja_log", text)
            self.assertEqual(self.check()[0], 1)


if __name__ == "__main__":
    unittest.main()
