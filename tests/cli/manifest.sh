#!/usr/bin/env bash
# The manifest is the example of mxfp4-pack-format(5). usage: manifest.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

convert "$tiny" "$dir/out" --backend marlin --engine vllm
sed -n '/^{"format_version"/,/}$/p' "$root/man/mxfp4-pack-format.5" | sed '/^\.Ed/,$d' >"$dir/example.json"
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
expect 'the example is the manifest' 0 '^equal$' '' compare "$dir/example.json" "$dir/out/mxfp4-pack.json"
sed 's/"padded_hidden": 256/"padded_hidden": 512/' "$dir/example.json" >"$dir/other.json"
expect 'another is not' 1 '' 'padded_hidden: 512, the manifest has 256' compare "$dir/other.json" "$dir/out/mxfp4-pack.json"
finish
