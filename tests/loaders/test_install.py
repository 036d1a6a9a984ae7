"""The distribution: its entry points and its program."""

import os
import re
import sys
import tempfile
import unittest
from importlib import metadata
from unittest import mock

from mxfp4_pack import _program

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Install(unittest.TestCase):
    def setUp(self):
        self.parent = self.enterContext(tempfile.TemporaryDirectory())

    def test_entry_points_lead_to_functions(self):
        with open(os.path.join(ROOT, "pyproject.toml")) as file:  # Python 3.10 has no reader of TOML
            tables = re.findall(r'(?m)^\[project\.entry-points\."(.*)"\]\n((?:\S+ = ".*"\n)*)', file.read())
        groups = {name: dict(re.findall(r'(\S+) = "(.*)"', points)) for name, points in tables}
        self.assertEqual({group: list(points) for group, points in groups.items()},
                         {"vllm.general_plugins": ["mxfp4-pack"], "sglang.srt.plugins": ["mxfp4-pack"]})
        for group, points in groups.items():
            point = metadata.EntryPoint("mxfp4-pack", points["mxfp4-pack"], group)
            self.assertTrue(callable(point.load()))

    def test_the_program_is_the_one_beside_the_package(self):
        package, script = os.path.join(self.parent, "mxfp4_pack"), os.path.join(self.parent, "bin", "mxfp4-pack")
        os.makedirs(os.path.dirname(script))
        with mock.patch.object(_program, "HERE", package), mock.patch.dict(os.environ, PATH=os.path.join(self.parent, "x")):
            self.assertIsNone(_program.program())
            with open(script, "w") as file:
                file.write("#!/bin/sh\n")
            self.assertIsNone(_program.program())  # no program yet
            os.chmod(script, 0o755)
            self.assertEqual(_program.program(), script)

    def test_the_program_is_the_one_that_pip_recorded(self):
        package, script = os.path.join(self.parent, "lib", "mxfp4_pack"), os.path.join(self.parent, "bin", "mxfp4-pack")
        information = os.path.join(self.parent, "lib", "mxfp4_pack-0.1.0.dist-info")
        for folder in (package, information, os.path.dirname(script)):
            os.makedirs(folder)
        with open(os.path.join(information, "METADATA"), "w") as file:
            file.write("Metadata-Version: 2.1\nName: mxfp4-pack\nVersion: 0.1.0\n")
        with open(os.path.join(information, "RECORD"), "w") as file:
            file.write("../share/bash-completion/completions/mxfp4-pack,,\n../bin/mxfp4-pack,,\n")
        with open(script, "w") as file:
            os.fchmod(file.fileno(), 0o755)
        path = [os.path.dirname(package), *sys.path]
        with mock.patch.object(sys, "path", path), mock.patch.object(_program, "HERE", package):
            self.assertEqual(os.path.realpath(_program.program()), os.path.realpath(script))


if __name__ == "__main__":
    unittest.main()
