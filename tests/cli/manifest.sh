#!/usr/bin/env bash
# The manifest is the example of mxfp4-pack-format(5), and config.json has a checksum of what it lists. usage: manifest.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# config.json's checksum, computed as mxfp4-pack-format(5) describes it
described() {
  python3 -B -c '
import json, subprocess, sys
manifest, config = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("mxfp4-pack.json", "config.json"))
text = manifest["source"]["fingerprint"] + "\n"
for number, set_ in enumerate(manifest["sets"]):
    tensors = [json.loads(line) for line in open(sys.argv[1] + "/" + set_["table"])]
    for t in sorted(tensors, key=lambda t: (t["rank"], t["name"].encode())):
        text += "{} {} {} {}\n".format(number, t["rank"], t["name"], t["xxh3_128"])
sys.path.insert(0, sys.argv[2] + "/tests/loaders")
from xxh3 import hexdigest
print("equal" if hexdigest(text.encode()) == config["quantization_config"]["mxfp4_pack"]["checksum"] else text)' "$1" "$root"
}
checksum_of() { sed -n 's/^ *"checksum": "\([0-9a-f]*\)".*/\1/p' "$1/config.json"; }
differ() { [ -n "$(checksum_of "$1")" ] && [ "$(checksum_of "$1")" != "$(checksum_of "$2")" ]; }
convert "$tiny" "$once/out" --backend marlin --engine vllm==0.33.0
sed -n '/^{"format_version"/,/}$/p' "$root/man/mxfp4-pack-format.5" | sed '/^\.Ed/,$d' >"$once/example.json"
# The example's names are the manifest's, in their order; its lists have the first entry; ".." ends a text that goes on.
compare() {
  python3 -B -c '
import json, sys
def compare(example, found, path):
    if isinstance(example, dict):
        keys = [key for key in found if key in example]
        assert keys == list(example), f"{path}: {list(example)}, the manifest has {list(found)}"
        for key in keys: compare(example[key], found[key], f"{path}.{key}")
    elif isinstance(example, list) and example and isinstance(example[0], dict):
        assert len(example) == 1, path
        compare(example[0], found[0], f"{path}[0]")
    elif isinstance(example, str) and example.endswith(".."):
        assert found.startswith(example[:-2]), f"{path}: {found}"
    else:
        assert example == found, f"{path}: {example}, the manifest has {found}"
example, found = (json.load(open(path)) for path in sys.argv[1:])
compare(example, found, "")
print("equal")' "$@"
}
example() { sed -n "/^{\"name\": \"$1\"/,/}\$/p" "$root/man/mxfp4-pack-format.5" >"$dir/$2.json"; }
first() { grep -m 1 -F "\"name\": \"$1\"" "$once/out/packed/$2.jsonl" >"$dir/$2.line"; }

test_examples_of_the_manual() {
  for line in 'model.layers.0.mlp.experts.w13_weight tensors-0' 'model.embed_tokens.weight source-tensors'; do
    example $line
    first $line
    expect "the example of ${line#* }" 0 '^equal$' '' compare "$dir/${line#* }.json" "$dir/${line#* }.line"
  done
  expect 'the example is the manifest' 0 '^equal$' '' compare "$once/example.json" "$once/out/mxfp4-pack.json"
  sed 's/"padded_hidden": 256/"padded_hidden": 512/' "$once/example.json" >"$dir/other.json"
  expect 'another is not' 1 '' 'padded_hidden: 512, the manifest has 256' compare "$dir/other.json" "$once/out/mxfp4-pack.json"
}
test_checksum_of_config_json() {
  cp -r "$once/out" out
  prepare "$program" convert "$tiny" "$dir/out" --backend triton-hopper --engine vllm --tp-size 2 --add --no-loader -q
  expect 'it is as described' 0 '^equal$' '' described "$dir/out"
  convert "$tiny" "$dir/a" --backend marlin --engine vllm
  convert "$tiny" "$dir/same" --backend marlin --engine vllm
  expect 'the same bytes have the same config' 0 '' '' cmp "$dir/a/config.json" "$dir/same/config.json"
  for shard in model-00000-of-00001 model-00001-of-00001; do
    rm -rf tuned b && cp -r "$tiny" tuned
    put_last tuned/$shard.safetensors '\021'
    convert tuned b --backend marlin --engine vllm
    expect "other bytes in $shard have another checksum" 0 '' '' differ "$dir/a" b
  done
  expect 'and another set' 0 '' '' differ "$dir/a" "$dir/out"
}
test_damaged_manifest() {
  cp -r "$once/out" out
  put_last out/mxfp4-pack.json 'x'
  for option in '' --force; do
    expect "convert $option" 2 '' '/out: mxfp4-pack.json: .*; it cannot be replaced: choose another place, then remove it' \
      "$program" convert "$tiny" "$dir/out" --backend marlin --engine vllm $option
  done
  expect 'verify' 2 '' 'mxfp4-pack.json: invalid JSON' "$program" verify "$dir/out"
}
run_cases
