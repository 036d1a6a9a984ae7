"""The distribution: pip installs it, and an older one beside it is named."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from importlib import metadata
from unittest import mock

import mxfp4_pack
from mxfp4_pack import vllm
from mxfp4_pack.manifest import OLD_DISTRIBUTIONS, Manifest, Refused

LOADERS = os.path.dirname(os.path.dirname(os.path.abspath(mxfp4_pack.__file__)))
HAS_PIP = importlib.util.find_spec("pip") is not None


def tree(directory):
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)


class Install(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.parent = temporary.name

    @unittest.skipUnless(HAS_PIP, "pip is not there: the installation is not tested here")
    def test_pip_installs_and_writes_nothing_beside_the_sources(self):
        sources, target = os.path.join(self.parent, "sources"), os.path.join(self.parent, "target")
        shutil.copytree(LOADERS, sources, ignore=shutil.ignore_patterns("__pycache__"))
        before = tree(sources)
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--target", target, sources], check=True)
        self.assertEqual(tree(sources), before)
        made, = metadata.distributions(name="mxfp4-pack", path=[target])
        self.assertEqual({(e.group, e.name, e.value) for e in made.entry_points},
                         {("vllm.general_plugins", "mxfp4-pack", "mxfp4_pack.vllm:register"),
                          ("sglang.srt.plugins", "mxfp4-pack", "mxfp4_pack.sglang:register")})
        python = os.path.join("mxfp4_pack", "")
        self.assertEqual([f for f in map(str, made.files) if f.startswith(python) and f.endswith(".py")],
                         [os.path.relpath(f, LOADERS) for f in tree(os.path.join(LOADERS, "mxfp4_pack"))
                          if f.endswith(".py")])

    def test_an_older_distribution_is_named(self):
        for name in OLD_DISTRIBUTIONS:
            information = os.path.join(self.parent, f"{name.replace('-', '_')}-0.1.0.dist-info")
            os.mkdir(information)
            with open(os.path.join(information, "METADATA"), "w") as file:
                file.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        with mock.patch.object(sys, "path", [self.parent, *sys.path]), self.assertRaises(Refused) as caught:
            Manifest(self.parent, "vllm")
        self.assertIn(f"pip uninstall -y {' '.join(OLD_DISTRIBUTIONS)}", str(caught.exception))

    def test_an_older_distribution_registers_first(self):
        old = types.ModuleType("mxfp4_pack_vllm")
        old.register = mock.Mock()
        with mock.patch.dict(sys.modules, mxfp4_pack_vllm=old):
            vllm.register_old()
        old.register.assert_called_once()
        vllm.register_old()


if __name__ == "__main__":
    unittest.main()
