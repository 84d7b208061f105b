"""Plants violations in a small tree and expects deploy/cmake/check_includes.py to find each."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/cmake/check_includes.py"
TABLE = """
set(TENON_ROOM_DEPENDENCIES
    "core:plugin_abi"
    "plugin_abi:"
    "plugin:core,plugin_abi"
    "schedule:core,plugin"
    "proto:"
    "server:core,plugin,schedule,proto"
    "client:core,proto")
"""


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("deploy/cmake/TenonTargets.cmake", TABLE)
        self.write("backends/plugin/abi.h", "#include <stdint.h>\n")
        self.write("backends/plugin/provider.h",
                   '#include "backends/core/error.h"\n#include "backends/plugin/abi.h"\n')
        self.write("backends/core/error.h", '#include "absl/status/status.h"\n')
        self.write("backends/core/cancel.h", '#include "backends/plugin/abi.h"\n')
        self.write("server/codec.cc",
                   '#include <grpcpp/grpcpp.h>\n#include "tenon/v1/report.pb.h"\n'
                   '#include "google/rpc/error_details.pb.h"\n#include "backends/core/error.h"\n')
        self.write("client/cpp/client.cc", '#include "backends/core/error.h"\n')

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run_check(self):
        result = subprocess.run([sys.executable, str(SCRIPT), "--root", str(self.root)],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout

    def assert_violation(self, where, *words):
        code, output = self.run_check()
        self.assertEqual(code, 1, output)
        lines = [line for line in output.splitlines() if line.startswith(where + ": ")]
        self.assertTrue(lines, f"no message for {where} in:\n{output}")
        for word in words:
            self.assertIn(word, "\n".join(lines))

    def test_a_clean_tree_passes(self):
        self.assertEqual(self.run_check(), (0, ""))

    def test_the_command_uses_the_public_headers_alone(self):
        self.write("client/cpp/tool/info.cc",
                   '#include "client/cpp/tool/text.h"\n#include "tenon/client.h"\n')
        self.assertEqual(self.run_check(), (0, ""))
        self.write("client/cpp/tool/wire.cc", '\n#include "client/cpp/wire.h"\n')
        self.write("client/cpp/tool/channel.cc", '#include <grpcpp/channel.h>\n')
        self.assert_violation("client/cpp/tool/wire.cc:2", "client/cpp/wire.h", "tenon/*.h")
        self.assert_violation("client/cpp/tool/channel.cc:1", "grpcpp/channel.h")

    def test_a_room_that_is_not_listed(self):
        self.write("client/cpp/tool.cc", '// a tool\n#include "backends/schedule/job.h"\n')
        self.assert_violation("client/cpp/tool.cc:2", "'client'", "'schedule'")

    def test_the_table_is_not_transitive(self):
        self.write("backends/schedule/job.h", '#include "backends/plugin/abi.h"\n')
        self.assert_violation("backends/schedule/job.h:1", "'plugin_abi'")

    def test_the_engine_never_uses_the_wire_contract(self):
        for name in ('"tenon/v1/tensor.pb.h"', '"google/rpc/status.pb.h"', "<grpcpp/grpcpp.h>",
                     "<google/protobuf/message.h>"):
            with self.subTest(name):
                self.write("backends/core/bad.cc", f"#include {name}\n")
                self.assert_violation("backends/core/bad.cc:1", "must not use proto")

    def test_the_engine_never_uses_the_server_even_if_the_table_says_so(self):
        self.write("deploy/cmake/TenonTargets.cmake",
                   TABLE.replace('"schedule:core', '"schedule:server,core'))
        self.write("backends/schedule/job.cc", '#include "server/queue.h"\n')
        self.assert_violation("backends/schedule/job.cc:1", "must not use server")

    def test_relative_includes_count(self):
        self.write("backends/core/bad.cc", '#  include "../plugin/provider.h"\n')
        self.assert_violation("backends/core/bad.cc:1", "'core'", "'plugin'")

    def test_rooms_in_a_circle(self):
        self.write("backends/core/bad.h", '#include "backends/plugin/provider.h"\n')
        code, output = self.run_check()
        self.assertEqual(code, 1)
        self.assertIn("rooms include each other: core -> plugin (backends/core/bad.h:1)", output)

    def test_a_circle_in_the_table(self):
        self.write("deploy/cmake/TenonTargets.cmake", TABLE.replace('"core:', '"core:schedule,'))
        code, output = self.run_check()
        self.assertEqual(code, 1)
        self.assertRegex(output, r"TenonTargets.cmake:\d+: the table has a circle: ")

    def test_a_room_that_is_not_in_the_table(self):
        self.write("backends/attic/old.cc", "#include <vector>\n")
        self.assert_violation("backends/attic/old.cc:1", "'attic'")

    def test_products_do_not_use_tests(self):
        self.write("server/bad.cc", '#include "tests/support/test_data.h"\n')
        self.assert_violation("server/bad.cc:1", "tests")

    def test_a_tree_without_a_table_is_refused(self):
        self.write("deploy/cmake/TenonTargets.cmake", "set(SOMETHING_ELSE a b)\n")
        self.assertEqual(self.run_check()[0], 2)


if __name__ == "__main__":
    unittest.main()
