# SPDX-License-Identifier: Apache-2.0
"""check_layers.py accepts a tree that keeps the rules and names each broken one."""

import unittest

from tree import TreeTest


class CheckLayers(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("include/fovea/base/dtype.h", "#include <cstdint>\n#include <vector>\n")
        self.write("include/fovea/kv/layout.h", '#include "fovea/base/dtype.h"\n')
        self.write("include/fovea/attention/mask.h", '#include "fovea/kv/layout.h"\n')
        self.write("include/fovea/attention/backend.h", '#include "fovea/attention/mask.h"\n')
        self.write("include/fovea/select/registry.h", '#include "fovea/attention/backend.h"\n')
        self.write("include/fovea/fovea.h", '#include "fovea/select/registry.h"\n')
        self.write("src/backends/builtin_backends.h", '#include "fovea/attention/backend.h"\n')
        self.write("src/select/registry.cpp", '#include "backends/builtin_backends.h"\n#include <fmt/core.h>\n')
        self.write("tests/select/registry_test.cpp", "")
        for name in ("cpu", "other"):
            self.write(f"src/backends/{name}/impl.h", '#include "fovea/attention/backend.h"\n')
            self.write(f"src/backends/{name}/kernels/tile.h", '#include "fovea/attention/mask.h"\n')
        self.write("engine/include/fovea/engine/engine.h", '#include "fovea/fovea.h"\n')
        self.write("engine/src/gemm.cpp", '#include <dnnl.hpp>\n#include "fovea/engine/engine.h"\n')
        self.write("tests/engine/gemm_test.cpp", "")
        self.write("apps/fovea/main.cpp", '#include <CLI/CLI.hpp>\n#include <cstdio>\n#include "fovea/engine/engine.h"\n'
                   'int main() { std::printf("hello"); }\n')

    def expect(self, path, text, *parts):
        """Writing text to path makes exactly one violation, which holds all parts."""
        self.write(path, text)
        found = self.violations("check_layers.py")
        self.assertEqual(len(found), 1, found)
        for part in (path, *parts):
            self.assertIn(part, found[0])

    def expect_include(self, path, name, *parts):
        self.expect(path, f"\n#include {name}\n", path + ":2", *parts)

    def test_a_tree_that_keeps_the_rules(self):
        self.assertEqual(self.violations("check_layers.py"), [])

    def test_an_empty_tree_is_not_accepted(self):
        code, _ = self.run_tool("check_layers.py", "--root", str(self.root / "tests" / "select"))
        self.assertEqual(code, 1)

    def test_base_uses_nothing(self):
        self.expect_include("include/fovea/base/tensor.h", '"fovea/kv/layout.h"', "base may not include kv")

    def test_kv_does_not_use_attention(self):
        self.expect_include("src/kv/pool.h", '"fovea/attention/mask.h"', "kv may not include attention")

    def test_attention_does_not_use_select(self):
        self.expect_include("src/attention/layer.h", "<fovea/select/registry.h>", "may not include select")

    def test_select_uses_no_backend_but_the_list(self):
        self.expect_include("src/select/rank.h", '"backends/cpu/impl.h"', "may not include backend:cpu")

    def test_backend_does_not_use_select(self):
        self.expect_include("src/backends/cpu/table.h", '"fovea/select/registry.h"', "may not include select")

    def test_backend_does_not_use_a_sibling(self):
        self.expect_include("src/backends/cpu/table.h", '"backends/other/impl.h"', "may not include backend:other")

    def test_backend_does_not_use_a_sibling_by_a_relative_path(self):
        self.expect_include("src/backends/cpu/table.h", '"../other/impl.h"', "may not include backend:other")

    def test_kernels_include_no_policy(self):
        self.expect_include("src/backends/cpu/kernels/tile.h", '"fovea/attention/backend.h"', "kernels include only")

    def test_kernels_do_not_include_their_own_backend(self):
        self.expect_include("src/backends/cpu/kernels/tile.h", '"backends/cpu/impl.h"', "kernels include only")

    def test_kernels_do_not_include_a_sibling_s_kernels(self):
        self.expect_include("src/backends/cpu/kernels/tile.h", '"backends/other/kernels/tile.h"', "kernels include only")

    def test_public_header_includes_nothing_third_party(self):
        for name in ("<fmt/core.h>", "<sys/mman.h>", "<immintrin.h>"):
            self.expect_include("include/fovea/base/tensor.h", name, "only fovea/ and standard headers")

    def test_engine_s_public_header_includes_nothing_third_party(self):
        self.expect_include("engine/include/fovea/engine/gemm.h", "<dnnl.hpp>", "only fovea/ and standard headers")

    def test_public_header_includes_no_private_one(self):
        self.expect_include("include/fovea/attention/list.h", '"backends/builtin_backends.h"', "a private one")

    def test_engine_uses_public_headers_only(self):
        self.expect_include("engine/src/gemm.h", '"backends/cpu/impl.h"', "only public headers")

    def test_fuzzers_use_the_readers_and_what_tests_write_with(self):
        self.write("apps/fovea/prompts.h", "#include <vector>\n")
        self.write("tests/engine/gguf_writer.h", "#include <vector>\n")
        self.write("engine/src/reader.h", "")
        self.write("fuzz/gguf_fuzz.cpp", '#include "engine/gguf_writer.h"\n#include "fovea/prompts.h"\n'
                   '#include "fovea/engine/engine.h"\n#include "reader.h"\n')
        self.assertEqual(self.violations("check_layers.py"), [])
        self.expect_include("fuzz/gguf_fuzz.cpp", "<CLI/CLI.hpp>", "this library")

    def test_apps_use_the_engine_s_public_headers_only(self):
        self.write("engine/src/gemm.h", "")
        self.expect_include("apps/fovea/command.h", '"../../engine/src/gemm.h"', "public headers of engine")

    def test_library_does_not_use_the_engine(self):
        self.expect_include("src/attention/layer.h", '"fovea/engine/engine.h"', "may not include engine")

    def test_libraries_stay_where_they_belong(self):
        for path, name in (("src/kv/pool.h", "<dnnl.hpp>"), ("src/kv/pool.h", "<nlohmann/json.hpp>"),
                           ("engine/src/gemm.h", "<CLI/CLI.hpp>"), ("apps/fovea/command.h", "<pcre2.h>")):
            with self.subTest(path=path, name=name):
                self.expect_include(path, name, "may not include this library's header")
                (self.root / path).unlink()

    def test_a_header_that_is_not_there(self):
        self.expect_include("src/kv/pool.h", '"fovea/kv/gone.h"', "no such file")

    def test_library_calls_that_are_not_allowed(self):
        for call in ('std::getenv("A")', "getenv(name)", 'printf("x")', "std::fprintf(stderr, text)", "std::cout << 1",
                     "std::cerr << 1", "abort()", "std::abort()", "exit(1)", "std::exit(1)", "std::terminate()",
                     "assert(x)", 'fmt::print("x")', "puts(text)"):
            for path in ("src/kv/pool.h", "include/fovea/kv/pool.h", "engine/src/pool.h"):
                with self.subTest(call=call, path=path):
                    self.expect(path, f"void f() {{\n  {call};\n}}\n", path + ":2", "library code")
                    (self.root / path).unlink()

    def test_what_only_looks_like_a_forbidden_call(self):
        self.write("src/kv/pool.h", '// abort() and printf()\n/* exit(1)\n #define A */\nconst char* t = "assert(x) \\" exit(1)";\n'
                   "static_assert(sizeof(int) == 4);\nint n = 1'000; std::snprintf(a, b, c); pool.on_exit(1); exit_code(2);\n"
                   'auto r = R"(std::cout " abort())";\n')
        self.assertEqual(self.violations("check_layers.py"), [])

    def test_macros(self):
        for path in ("src/kv/pool.h", "apps/fovea/command.h", "engine/src/pool.h", "tests/select/help.h"):
            with self.subTest(path=path):
                self.expect(path, "#pragma once\n# define MAX(a) a\n", "no macros")
                (self.root / path).unlink()

    def test_a_source_file_without_its_test(self):
        for path in ("src/kv/pool.cpp", "engine/src/pool.cpp", "src/backends/cpu/impl.cpp"):
            with self.subTest(path=path):
                self.expect(path, "int x;\n", "has no test")
                (self.root / path).unlink()


if __name__ == "__main__":
    unittest.main()
