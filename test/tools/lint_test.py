# SPDX-License-Identifier: Apache-2.0
"""./dev lint finds what it is there to find, and is silent about a small tree that is right."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import changed
import lint
import lint_docs
import repo

HEADER = "// SPDX-License-Identifier: Apache-2.0\n// What this file is for.\n"


class Lint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(setattr, repo, "ROOT", repo.ROOT)
        repo.ROOT = pathlib.Path(folder.name)
        self.write("dev", "command_test() {\n  --asan\n}\n")
        self.write("cli/main.cc", HEADER + 'app.add_subcommand("info", ""); "--json";\n')
        self.write("src/core/rows.h", HEADER)

    def write(self, path, text):
        (repo.ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (repo.ROOT / path).write_text(text)

    def found(self, check):
        return [f"{path}:{number}: {what}" for path, number, what in check(repo.files())]

    def assertFinds(self, check, start):
        self.assertTrue([line for line in self.found(check) if line.startswith(start)], self.found(check))

    def test_layers(self):
        self.write("src/cpu/attend/launch.cc", HEADER + '#include "core/rows.h"\n')
        self.write("test/cpu/attend_test.cc", HEADER + '#include "reference/attend.h"\n')
        self.assertEqual(self.found(lint.check_layers), [])
        self.write("src/core/stages.cc", HEADER + '#include "cpu/attend/attend.h"\n#include <ggml.h>\n')
        self.write("src/cpu/attend/launch.cc", HEADER + '#include "reference/attend.h"\n')
        self.assertFinds(lint.check_layers, "src/core/stages.cc:3: core includes cpu")
        self.assertFinds(lint.check_layers, "src/core/stages.cc:4: ggml.h: only plugins/")
        self.assertFinds(lint.check_layers, "src/cpu/attend/launch.cc:3: cpu includes reference")

    def test_stages(self):
        self.write("cmake/isa.cmake", "set(RR_FLAGS_avx2 -mavx2)\n")
        self.write("src/cpu/attend/kernel_avx3.cc", HEADER)
        self.write("src/cpu/select/launch.cc", HEADER)
        self.assertFinds(lint.check_stages, "src/cpu/attend/kernel_avx3.cc:1: 'avx3' is no instruction set")
        self.assertFinds(lint.check_stages, "src/cpu/select/launch.cc:1: 'select' is no stage")
        self.assertFinds(lint.check_stages, "src/reference/relay.cc:1: missing")
        self.assertFinds(lint.check_stages, "test/cpu/route_test.cc:1: missing")

    def test_headers_and_text(self):
        self.write("src/core/rows.cc", "#include <vector>\n")
        self.write("src/core/exec.cc", HEADER + "void f() { std::abort(); }\n// " + "TO" + "DO: later \n")
        self.write("docs/a.md", "See /ho" + "me/someone/notes.\n")
        self.assertFinds(lint.check_headers, "src/core/rows.cc:1: opens without")
        self.assertFinds(lint.check_text, "src/core/exec.cc:3: the library never prints")
        self.assertFinds(lint.check_text, "src/core/exec.cc:4: holds an unfinished mark")
        self.assertFinds(lint.check_text, "src/core/exec.cc:4: ends in white space")
        self.assertFinds(lint.check_text, "docs/a.md:1: holds a path of one machine")

    def test_docs(self):
        for page in ("AGENTS.md", "CHANGELOG.md"):
            self.write(page, "A page.\n")
        self.write("examples/attend.cc", HEADER + "int main() {}\n")
        right = "```cpp\n// What this file is for.\nint main() {}\n```\n"
        self.write("README.md", f"`src/core/*.h`, `./dev test --asan`, `routerelay info --json`\n\n{right}")
        self.assertEqual(self.found(lint_docs.check_docs), [])
        self.write("README.md", "`src/core/gone.h` `./dev fly` `./dev test --fast` `routerelay jump` [x](docs/y.md)\n")
        for what in ("names src/core/gone.h", "names './dev fly'", "names './dev test --fast'",
                     "names 'routerelay jump'", "links to docs/y.md", "its C++ block differs"):
            self.assertFinds(lint_docs.check_docs, f"README.md:1: {what}")

    def test_reasons(self):
        self.write("plugins/ggml/reason.h", HEADER + 'kReasonNames = {\n    "none", "few_rows",\n    "alibi"};\n')
        table = "| reason | what |\n|---|---|\n| `few_rows` | `x` |\n{}\nEnd of `it`.\n"
        self.write("docs/llama.md", table.format("| `alibi` | y |\n"))
        self.assertEqual(self.found(lint_docs.check_reasons), [])
        self.write("docs/llama.md", table.format("| `sinks` | y |\n"))
        self.assertEqual(self.found(lint_docs.check_reasons),
                         ["docs/llama.md:1: alibi: the table of reasons lacks it",
                          "docs/llama.md:1: sinks: plugins/ggml/reason.h has no such reason"])

    def test_changed(self):
        self.assertEqual(changed.pattern(["docs/recipes.md"]), "")
        self.assertEqual(changed.pattern(["test/cpu/route_test.cc"]), "^(cpu)")
        self.assertEqual(changed.pattern(["src/trace/file.cc"]), "^(bench|c_api|cli|flow|plugins|python|trace)")
        self.assertEqual(changed.pattern(["CMakeLists.txt", "docs/a.md"]), ".")


if __name__ == "__main__":
    unittest.main()
