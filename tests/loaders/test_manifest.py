"""Manifests and configs that are damaged, edited, hostile or of other models."""

import json
import os
import tempfile
import unittest
from unittest import mock

import xxh3
from mxfp4_pack import Manifest, Refused, _library, is_packed, read_config
from mxfp4_pack._entries import entry_of, path_of
from mxfp4_pack._safetensors import read_header
from test_hostile_files import Output


class OtherModels(unittest.TestCase):
    """is_packed is asked of every model that an engine starts with."""

    def test_what_is_not_packed(self):
        packed = {"quant_method": "mxfp4_pack"}
        others = [b"", b"{", b"[]", b"null", b'"mxfp4_pack"', b"\xff\xfe{", b"[" * 100_000, b"{}",
                  b'{"quantization_config": null}', b'{"text_config": null}', b'{"quantization_config": []}',
                  b'{"quantization_config": "mxfp4_pack"}', b'{"text_config": {"quantization_config": null}}',
                  b'{"quantization_config": {"quant_method": ["mxfp4_pack"]}}', json.dumps([packed]).encode()]
        ours = [json.dumps({"quantization_config": packed}).encode(),
                b"\xef\xbb\xbf" + json.dumps({"quantization_config": packed}).encode(),
                json.dumps({"quantization_config": None, "text_config": {"quantization_config": packed}}).encode()]
        with tempfile.TemporaryDirectory() as directory:
            self.assertFalse(is_packed(directory))
            for text in others + ours:
                with open(os.path.join(directory, "config.json"), "wb") as file:
                    file.write(text)
                with self.subTest(config=text[:60]):
                    self.assertEqual(is_packed(directory), text in ours)
                    self.assertIsInstance(read_config(directory), dict)

    def test_what_is_no_directory(self):
        for name in ("openai/gpt-oss-20b", "", "s3://bucket/model", "a\0b", None, 7):
            with self.subTest(name=name):
                self.assertFalse(is_packed(name))


class Hostile(Output):
    def setUp(self):
        super().setUp()
        self.manifest = self.path("mxfp4-pack.json")
        with open(self.manifest) as file:
            self.text = file.read()

    def refuses(self, message):
        self.assertIn(message, self.refusal())

    def test_as_written_it_is_read(self):
        self.assertEqual(len(Manifest(self.directory, "vllm").sets), 1)

    def test_other_versions_are_refused(self):
        for version in (1, 2):
            self.edit(lambda manifest, set_, tensor: manifest.update(format_version=version))
            self.refuses(f"made by a pre-release (format {version})")
        for version in (0, 4, "3", 3.0, True, None):
            self.edit(lambda manifest, set_, tensor: manifest.update(format_version=version))
            self.refuses("this loader reads 3")

    def test_its_own_checksum(self):
        for text in (self.text.replace('"moe_tp_size": 1', '"moe_tp_size": 2'), self.text + " "):
            with open(self.manifest, "w") as file:
                file.write(text)
            self.refuses("does not have its own checksum")
        with open(self.manifest, "w") as file:
            file.write(self.text)
        Manifest(self.directory, "vllm")
        with mock.patch.dict(os.environ, MXFP4_PACK_LIBRARY="/none.so"):
            self.refuses("the library libmxfp4_pack.so is missing")

    def test_no_manifest(self):
        for text in ("", "[]", "{}", "{", '{"format_version": 1}', '{"format_version": 1, "xxh3_128": 5}'):
            with open(self.manifest, "w") as file:
                file.write(text)
            with self.subTest(text=text), self.assertRaises(Refused):
                Manifest(self.directory, "vllm")
        self.edit(lambda manifest, set_, tensor: manifest.pop("source"))
        self.refuses("mxfp4-pack.json: source: missing")

    def test_file_names(self):
        names = dict.fromkeys(("/etc/passwd", "../out/config.json", "packed/../../x", "packed//x", "./x", "", "a\\b"))
        for name in names:
            names[name] = f"unsafe file name {name!r}"
        names |= {"a\0b": "text without control characters was expected", None: "null, a string was expected",
                  3: "3, a string was expected"}
        for name, message in names.items():
            for key in ("file", "canary"):
                with self.subTest(name=name, key=key):
                    self.edit(lambda manifest, set_, tensor: (set_ if key == "canary" else tensor).update({key: name}))
                    self.refuses(message)

    def test_links_that_lead_out(self):
        outside = os.path.join(os.path.dirname(self.directory), "outside")
        for name in ("packed/packed-00001.safetensors", "packed/canary-0.safetensors", "config.json"):
            path = os.path.join(self.directory, name)
            os.rename(path, outside)
            os.symlink(outside, path)
            self.refuses(f"{path} is a link out of the directory")
            os.remove(path)
            os.rename(outside, path)
        os.rename(os.path.join(self.directory, "packed"), outside)
        os.symlink(outside, os.path.join(self.directory, "packed"))
        self.refuses("is a link out of the directory")

    def test_links_inside_are_followed(self):
        path = os.path.join(self.directory, "packed/packed-00001.safetensors")
        os.rename(path, path + ".moved")
        os.symlink("packed-00001.safetensors.moved", path)
        link = self.directory + "-link"
        os.symlink(self.directory, link)
        self.assertEqual(len(Manifest(link, "vllm").sets), 1)
        self.assertTrue(os.path.exists(path_of(link, "packed/packed-00001.safetensors")))

    def snapshot(self, entry):
        """Makes the directory a snapshot in an entry of Hugging Face's cache, every file a link to a blob."""
        blobs = os.path.join(entry, "blobs")
        os.makedirs(blobs)
        os.makedirs(os.path.join(entry, "snapshots"))
        moved = os.path.join(entry, "snapshots", "6cee5e8")
        os.rename(self.directory, moved)
        self.directory = moved
        for folder, _, names in list(os.walk(moved)):
            for name in names:
                path, blob = os.path.join(folder, name), os.path.join(blobs, f"{len(os.listdir(blobs)):064x}")
                os.rename(path, blob)
                os.symlink(os.path.relpath(blob, folder), path)

    def test_a_snapshot_links_to_its_own_blobs(self):
        cache = os.path.dirname(self.directory)
        entry = os.path.join(cache, "models--a--b")
        self.snapshot(entry)
        set_ = Manifest(self.directory, "vllm").sets[0]
        self.assertTrue(read_header(path_of(self.directory, set_["canary"]))[0])
        path = os.path.join(self.directory, set_["canary"])
        blob = os.path.realpath(path)
        os.symlink("models--a--b/snapshots/6cee5e8", os.path.join(cache, "link"))  # a link to a snapshot is one, too
        self.assertEqual(len(Manifest(os.path.join(cache, "link"), "vllm").sets), 1)
        for elsewhere in ("models--a--c/blobs/f", "models--a--b/blobs-2/f", "models--a--b/snapshots/0/f",
                          "models--a--b/refs/main", "blobs/f"):
            with self.subTest(elsewhere=elsewhere):
                other = os.path.join(cache, elsewhere)
                os.makedirs(os.path.dirname(other), exist_ok=True)
                os.rename(blob, other)
                os.remove(path)
                os.symlink(other, path)
                self.refuses(f"{path} is a link out of the directory")
                os.rename(other, blob)
        os.remove(path)
        os.symlink(blob, path)
        self.assertEqual(len(Manifest(self.directory, "vllm").sets), 1)
        os.remove(blob)
        with self.assertRaisesRegex(Refused, "No such file"):
            read_header(path_of(self.directory, set_["canary"]))

    def test_blobs_of_what_is_no_snapshot(self):
        entry = os.path.join(os.path.dirname(self.directory), "entry")
        self.snapshot(entry)
        moved = os.path.join(entry, "other")
        os.rename(os.path.dirname(self.directory), moved)
        self.directory = os.path.join(moved, "6cee5e8")
        self.refuses("is a link out of the directory")

    def test_sizes_and_strides(self):
        def view(**changes):
            return lambda manifest, set_, tensor: tensor["view"].update(changes)
        view_of = self.good["sets"][0]["tensors"][0]["view"]
        strides = view_of["strides"]
        for change, message in (
                (view(strides=[0, *strides[1:]]), "a whole number from 1 to"),
                (view(strides=[-1, *strides[1:]]), "a whole number from 1 to"),
                (view(strides=[1, 1, 1]), "overlap or leave holes"),
                (view(strides=[strides[0] * 2, *strides[1:]]), "overlap or leave holes"),
                (view(strides=strides[:2]), "are not as many as sizes"),
                (view(dtype="int32"), "not as large as the stored tensor"),
                (view(shape=[view_of["shape"][0] - 1, *view_of["shape"][1:]]), "not as large as the stored tensor"),
                (lambda m, s, t: t.update(shape=[2, 0, 5]), "a whole number from 1 to"),
                (lambda m, s, t: t.update(shape=[2, 1.5]), "a whole number from 1 to"),
                (lambda m, s, t: t.update(shape=[2, True]), "a whole number from 1 to"),
                (lambda m, s, t: t.update(shape=[2, 1 << 62]), "a whole number from 1 to"),
                (lambda m, s, t: t.update(experts=3), "dtype, shape and experts do not agree"),
                (lambda m, s, t: t.update(torch_dtype="complex128"), "dtype, shape and experts do not agree"),
                (lambda m, s, t: t.update(dtype="I32"), "dtype, shape and experts do not agree")):
            self.edit(change)
            with self.subTest(message=message):
                self.refuses(message)

    def test_the_view_that_outputs_for_cpus_lack(self):
        tensor = {"name": "t", "parameter": "w13_weight", "file": "f", "dtype": "U8", "torch_dtype": "uint8", "experts": 2,
                  "shape": [2, 3, 7, 32], "xxh3_128": "", "layout": "vllm_cpu.codes"}
        self.assertEqual(entry_of(tensor).view, ("uint8", (2, 96, 7), (672, 7, 1)))
        self.assertIsNone(entry_of(tensor | {"layout": "plain"}).view)


class Xxh3(unittest.TestCase):

    def test_every_length(self):
        data = bytes(i * 7 % 256 for i in range(2100))
        for length in range(len(data) + 1):
            self.assertEqual(_library.hexdigest(data[:length]), xxh3.hexdigest(data[:length]), length)


if __name__ == "__main__":
    unittest.main()
