"""Files of an output that are no files, are too large or hold values of wrong types: each is refused in a line, at once."""

import contextlib
import copy
import io
import json
import os
import resource
import signal
import socket
import tempfile
import unittest

import torch

import mxfp4_pack
from mxfp4_pack import Manifest, Refused, _files, check, is_packed, read_config
from mxfp4_pack._errors import Misfit, Unconverted, printable
from mxfp4_pack._safetensors import read_header
from mxfp4_pack.learn import NoRearrangement
from mxfp4_pack.learn.layout import read_file
from mxfp4_pack.learn.model import read_model
from mxfp4_pack.expert_update import Update, sources_of
from packed_dir import Checkpoint, random_layer, read_whole, write_manifest

UNSEEN = ("\x00\x07\x1b\x7f\x9b\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
          "\ufeff\ud800")


@contextlib.contextmanager
def bounded(seconds=20, memory=4 << 30):
    """What waits longer than that, or takes more memory, fails."""
    def expired(*_):
        raise AssertionError(f"not done after {seconds} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)


def put_socket(path):
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(os.path.dirname(path))  # paths of sockets are short
    server.bind(os.path.basename(path))
    os.chdir(here)
    server.close()


def put_huge(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def put_link(target):
    return lambda path: os.symlink(target, path)


NO_FILES = {"a FIFO": os.mkfifo, "a folder": os.mkdir, "a socket": put_socket, "a link to a device": put_link("/dev/zero"),
            "a link to memory": put_link("/proc/self/mem"), "a terabyte": put_huge, "a link to itself": lambda path: os.symlink(path, path),
            "a link to a FIFO": lambda path: (os.mkfifo(path + "-fifo"), os.symlink(path + "-fifo", path))}


class Output(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "out")
        checkpoint = Checkpoint("vllm", "triton-hopper", "gpt_oss", 96, 160, {("model", 0): random_layer(1, 2, 96, 160, True)})
        checkpoint.write(self.directory)
        self.good = read_whole(self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def edit(self, change):
        manifest = copy.deepcopy(self.good)
        change(manifest, manifest["sets"][0], manifest["sets"][0]["tensors"][0])
        write_manifest(self.directory, manifest)

    def refusal(self):
        with self.assertRaises(Refused) as caught:
            Manifest(self.directory, "vllm")
        return str(caught.exception)

    @contextlib.contextmanager
    def instead(self, name, put):
        """Something else has a file's name."""
        path = self.path(name)
        os.rename(path, path + "-aside")
        put(path)
        try:
            yield path
        finally:
            os.rmdir(path) if os.path.isdir(path) else os.remove(path)
            if os.path.lexists(path + "-fifo"):
                os.remove(path + "-fifo")
            os.rename(path + "-aside", path)


class NoFiles(Output):
    def each(self, name, action):
        """Calls action(path) with each of NO_FILES in a file's place."""
        for what, put in NO_FILES.items():
            with self.subTest(name=name, what=what), self.instead(name, put) as path, bounded():
                action(path)

    def refuses(self, action, message=""):
        with self.assertRaisesRegex(Refused, message):
            action()

    def test_the_manifest(self):
        def read(_):
            self.refuses(lambda: Manifest(self.directory, "vllm"), r"mxfp4-pack\.json")
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(check.main([self.directory]), 1)
            self.assertRegex(said.getvalue(), r"^wrong: .*mxfp4-pack\.json[^\n]*\n$")
        self.each("mxfp4-pack.json", read)

    def test_the_config(self):
        def read(path):
            self.assertEqual(read_config(self.directory), {})
            self.assertFalse(is_packed(self.directory))
            for read_model_or_layout in (lambda: read_model(self.directory), lambda: read_file(path)):
                with self.assertRaises(NoRearrangement):
                    read_model_or_layout()
        self.each("config.json", read)

    def test_packed_files(self):
        set_ = Manifest(self.directory, "vllm").pick("auto", 1, 0)
        cpu = torch.device("cpu")

        def read(path):
            self.refuses(lambda: read_header(path))
            self.refuses(lambda: set_.read_layer(set_.layers["model", 0], range(2), cpu))
        self.each("packed/packed-00001.safetensors", read)
        self.each("packed/canary-0.safetensors", lambda path: self.refuses(lambda: set_.canary(cpu)))

    def test_the_index(self):
        set_ = Manifest(self.directory, "vllm").pick("auto", 1, 0)
        name = "model.safetensors.index.json"
        with open(self.path(name), "w") as file:
            file.write('{"weight_map": {"a": "f"}}')
        self.assertEqual(set(Update(set_, {}).left), {"a"})
        self.each(name, lambda path: self.refuses(lambda: Update(set_, {}).left, r"index\.json"))
        for text in ("[]", "{", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a\\u001b": "f"}}',
                     "[" * 100_000):
            with open(self.path(name), "w") as file:
                file.write(text)
            with self.subTest(text=text[:40]):
                self.refuses(lambda: Update(set_, {}).left, r"index\.json: ")

    def test_a_file_that_grows_is_as_large_as_when_it_was_opened(self):
        path = self.path("growing")
        with open(path, "wb") as file:
            file.write(b"12345")
        with _files.open_file(path) as file:
            size = _files.size_of(file)
            with open(path, "ab") as more:
                more.write(b"6" * 100)
            self.assertEqual(file.read(size), b"12345")
        with self.assertRaisesRegex(Refused, "105 bytes, at most 104 were expected"):
            _files.read_file(path, 104)
        self.assertEqual(len(_files.read_file(path, 105)), 105)

    def test_a_file_that_may_not_be_read(self):
        os.chmod(self.path("mxfp4-pack.json"), 0)
        if os.geteuid() == 0:
            os.chmod(os.path.dirname(self.directory), 0o755)
            os.seteuid(65534)
            self.addCleanup(os.seteuid, 0)
        self.refuses(lambda: Manifest(self.directory, "vllm"), r"mxfp4-pack\.json: Permission denied$")


class Shown(Output):
    def test_printable(self):
        self.assertEqual(printable("weight_\u00e4\u4e2d.x-1 [2]"), "weight_\u00e4\u4e2d.x-1 [2]")
        self.assertTrue(printable(UNSEEN).isascii())
        self.assertEqual(printable("a\u202eb\x1b[31m\n"), "a\\u202eb\\x1b[31m\\n")
        for c in UNSEEN:
            self.assertNotIn(c, printable(c))
        for kind in (Refused, Misfit, Unconverted, NoRearrangement):
            self.assertEqual(str(kind("a\x1b\u202e\nb")), "a\\x1b\\u202e\nb")

    def test_names_with_control_characters(self):
        name = f"x{UNSEEN}\ny"
        for change in (lambda m, s, t: t.update(file=name), lambda m, s, t: t.update(name=name),
                       lambda m, s, t: t.update(torch_dtype=name), lambda m, s, t: s.update(canary=name),
                       lambda m, s, t: s.update(engine=name), lambda m, s, t: s.update(backend=name),
                       lambda m, s, t: s.update(needs=[name]), lambda m, s, t: m.update(needs=[name]),
                       lambda m, s, t: s["requires"].update({name: "1"}), lambda m, s, t: s.update(table=name),
                       lambda m, s, t: m["source"].update(model_type=name), lambda m, s, t: m.update(format_version=name)):
            self.edit(change)
            text = self.refusal()
            self.assertTrue(text.isprintable(), ascii(text))

    def test_a_folder_with_such_a_name(self):
        moved = os.path.join(os.path.dirname(self.directory), "a\n\x1b[31m\u202eb")
        os.rename(self.directory, moved)
        self.directory = moved
        self.assertTrue(Manifest(moved, "vllm"))
        for change in (lambda m, s, t: t.update(file="../x"), lambda m, s, t: s.update(engine="sglang"),
                       lambda m, s, t: m.pop("source")):
            self.edit(change)
            text = self.refusal()
            self.assertTrue(text.isprintable(), ascii(text))
        os.remove(self.path("mxfp4-pack.json"))
        with self.assertRaisesRegex(Refused, "is missing") as caught:
            Manifest(moved, "vllm")
        self.assertTrue(str(caught.exception).isprintable())

    def test_the_names_of_the_package(self):
        names = dir(mxfp4_pack)
        self.assertLessEqual(set(mxfp4_pack.__all__), set(names))
        self.assertEqual([n for n in names if not n.startswith("__")], sorted(n for n in mxfp4_pack.__all__ if n != "__version__"))
        self.assertFalse({"Any", "Sequence", "Entry", "View"} & set(names) or hasattr(mxfp4_pack, "Any"))
        self.assertRegex(mxfp4_pack.__version__, r"^\d+(\.\d+)*")
        for name in mxfp4_pack.__all__:
            self.assertTrue(hasattr(mxfp4_pack, name), name)


class Types(Output):
    def test_fields(self):
        file, table = "mxfp4-pack.json: ", "packed/tensors-0.jsonl"
        for change, message in (
                (lambda m, s, t: m.update(source=[]), file + "source: a list, an object was expected"),
                (lambda m, s, t: m.update(sets={}), file + "sets: an object, a list was expected"),
                (lambda m, s, t: m.update(sets=[]), file + "sets: a list, a list of 1 to"),
                (lambda m, s, t: m.update(sets=[7]), file + "sets[0]: 7, an object was expected"),
                (lambda m, s, t: m.pop("files"), file + "files: missing"),
                (lambda m, s, t: m["source"].pop("model_type"), file + "source.model_type: missing"),
                (lambda m, s, t: m["source"].update(allow_incomplete=1), file + "source.allow_incomplete: 1, true or false was"),
                (lambda m, s, t: m.update(needs="x"), file + "needs: 'x', a list was expected"),
                (lambda m, s, t: s.pop("table"), file + "sets[0].table: missing"),
                (lambda m, s, t: s.update(table="packed/x"), file + "packed/x is not listed"),
                (lambda m, s, t: s.update(engine=None), file + "sets[0].engine: null, a string was expected"),
                (lambda m, s, t: s.update(moe_tp_size=2), file + r"sets[0].moe_tp_size: 2, but 1 ranks, up to 0, have tensors"),
                (lambda m, s, t: s.update(moe_tp_size=True), file + "sets[0].moe_tp_size: true, a whole number from 1"),
                (lambda m, s, t: s.update(moe_tp_size=1 << 900), file + "sets[0].moe_tp_size: a very large number, a whole"),
                (lambda m, s, t: s.pop("canary"), file + "sets[0].canary: missing"),
                (lambda m, s, t: s.update(tensors=[]), table + ": a list, a list of 1 to"),
                (lambda m, s, t: s.update(layout_file=[]), file + "sets[0].layout_file: a list, an object was expected"),
                (lambda m, s, t: s["requires"].update(moe_backend=1), file + "sets[0].requires.moe_backend: 1, a string was"),
                (lambda m, s, t: s["model"].pop("activation"), file + "sets[0].model.activation: missing"),
                (lambda m, s, t: s["model"]["activation"].update(limit="7"), file + "sets[0].model.activation.limit: '7', a number"),
                (lambda m, s, t: t.update(role="w1"), table + ": [0].role: 'w1', one of w13, w2 was expected"),
                (lambda m, s, t: t.update(shape=[1] * 9), table + ": [0].shape: a list, a list of 1 to 8 values"),
                (lambda m, s, t: t.update(view=[]), table + ": [0].view: a list, an object was expected"),
                (lambda m, s, t: t.update(layer=-1), table + ": [0].layer: -1, a whole number from 0"),
                (lambda m, s, t: t.update(name="x" * 99, layer="y" * 99), f"layer: '{'y' * 59}..., a whole number")):
            with self.subTest(message=message):
                self.edit(change)
                self.assertIn(message, self.refusal())

    def test_sources(self):
        set_ = self.good["sets"][0]
        tensor = set_["tensors"][0]
        known = {"name": "a", "dtype": "U8", "shape": [1]}
        for source, listed, message in (({}, [], f"{tensor['name']}: source: an object, a list was expected"),
                                        ([1], [], r"source\[0\]: 1, a string"), (["a"], [], "a: null, an object"),
                                        (["a"], [known | {"dtype": "X"}], r"a\.dtype: 'X', one of"),
                                        (["a"], [known | {"shape": [-1]}], r"a\.shape\[0\]: -1, a whole")):
            with self.assertRaisesRegex(Refused, message):
                sources_of(set_ | {"tensors": [tensor | {"source": source}]}, 0, listed)

    def test_numbers_and_nesting(self):
        text = json.dumps(self.good)
        for old, new, message in (('"limit": 7.0', '"limit": NaN', "NaN is not a finite number"),
                                  ('"limit": 7.0', '"limit": -Infinity', "-Infinity is not a finite number"),
                                  ('"limit": 7.0', '"limit": 1e999', "1e999 is not a finite number"),
                                  ('"limit": 7.0', '"limit": ' + "9" * 5000, "limit"),
                                  ('"limit": 7.0', '"limit": ' + "[" * 100_000 + "]" * 100_000, "nested too deeply"),
                                  ('"limit": 7.0', '"limit": ' + '{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply")):
            self.assertIn(old, text)
            with open(self.path("mxfp4-pack.json"), "w") as file:
                file.write(text.replace(old, new))
            with self.subTest(new=new[:30]), bounded(), self.assertRaises(Refused) as caught:
                Manifest(self.directory, "vllm")
            self.assertIn(message, str(caught.exception))
            self.assertLess(len(str(caught.exception)), 500)

    def test_configs(self):
        with open(self.path("config.json")) as file:
            good = json.load(file)
        for quantization in (None, [], "x", {"quant_method": []}, {"source_quantization_config": []}):
            with open(self.path("config.json"), "w") as file:
                json.dump(good | {"quantization_config": quantization, "num_hidden_layers": 1.5}, file)
            manifest = Manifest(self.directory, "vllm")
            for name in ("source_quantization", "main_layers"):
                with self.subTest(quantization=quantization), self.assertRaisesRegex(Refused, "config.json has no"):
                    getattr(manifest, name)

    def test_layers_of_nested_configs(self):
        with open(self.path("config.json")) as file:
            good = json.load(file)
        good.pop("num_hidden_layers", None)
        inner = {"num_hidden_layers": 2}
        for more in (*({key: inner} for key in ("text_config", "llm_config", "language_config")), {"num_layers": 2},
                     {"thinker_config": {"text_config": inner}}, {"text_config": {}, **inner}):
            with self.subTest(**more), open(self.path("config.json"), "w") as file:
                json.dump(good | more, file)
            self.assertEqual(Manifest(self.directory, "vllm").main_layers, 2, more)

    def test_configs_of_models_to_learn_from(self):
        for text in ("[]", "1", "{}", '{"model_type": [], "quantization_config": 1}', "[" * 100_000,
                     '{"model_type": "a", "quantization_config": {}, "hidden_size": 1e999, "moe_intermediate_size": 1}',
                     '{"model_type": "a", "text_config": [1], "quantization_config": {}}'):
            with open(self.path("config.json"), "w") as file:
                file.write(text)
            for read in (read_model, read_file):
                with self.subTest(text=text[:40], read=read.__name__), self.assertRaises(NoRearrangement):
                    read(self.path("config.json"))

    def test_headers(self):
        path = self.path("packed/packed-00001.safetensors")
        for text, message in (("[]", "a list, an object"), ('{"a": 1}', "a: 1, an object"), ('{"a": {}}', "a.dtype: missing"),
                              ('{"a": {"dtype": [], "shape": [], "data_offsets": [0, 1]}}', "a.dtype: a list, a string"),
                              ('{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}', "a list of 2 to 2 values"),
                              ('{"a": {"dtype": "U8", "shape": [1e999], "data_offsets": [0, 1]}}', "is not a finite number"),
                              ('{"a\\u001b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}', "without control characters"),
                              ("[" * 100_000, "nested too deeply"), ("\udcff", "not JSON")):
            data = text.encode("utf-8", "surrogateescape")
            with open(path, "wb") as file:
                file.write(len(data).to_bytes(8, "little") + data + b"x")
            with self.subTest(text=text[:40]), self.assertRaises(Refused) as caught:
                read_header(path)
            self.assertIn(message, str(caught.exception))
            self.assertTrue(str(caught.exception).isprintable())


if __name__ == "__main__":
    unittest.main()
