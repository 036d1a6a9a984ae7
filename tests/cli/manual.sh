#!/usr/bin/env bash
# What mxfp4-pack(1) promises: its examples run, and it lists every field of JSON. usage: manual.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# listed COMMAND FILE: prints the fields of an object that the rows of a command do not name
listed() {
  python3 - "$page" "$@" <<'PYTHON'
import json, re, sys
page, command, path = sys.argv[1:]
section = open(page).read().split("\n.Sh JSON\n")[1].split("\n.Ed\n")[0]
rows, name = {}, None
for line in section.split(".Bd -literal\n")[1].split("\n"):
    if m := re.match(r"([a-z-]+)\s", line): name = m[1]
    rows[name] = rows.get(name, "") + " " + line
text = rows[command] + (rows["convert"] + rows["unpack"] if command == "merge" else "")
free = {"dtypes", "fits", "requires", "values"}  # objects whose fields are names of dtypes and libraries
def fields(value):
    if isinstance(value, list): return {f for v in value for f in fields(v)}
    if not isinstance(value, dict): return set()
    return set(value) | {f for k, v in value.items() if k not in free for f in fields(v)}
unknown = sorted(fields(json.load(open(path))) - set(re.findall(r"\w+", text)))
print("\n".join(unknown), end="\n" if unknown else "")
PYTHON
}
# fields COMMAND WORDS..: what the command prints with --json has only fields that the page lists
fields() {
  "$program" "$@" --json >"$dir/fields.json" 2>/dev/null
  expect "fields of $*" 0 '' '' listed "$1" "$dir/fields.json"
}
# unlisted PAGE..: prints the fields of a manifest and of its tables, optional ones too, that the program or the loaders
# read and that no page names
unlisted() {
  { grep -ohE '\b(at|has)\("[a-z0-9_]+"' "$root/src/packed/manifest_read.cpp" "$root/src/packed/tables.cpp"
    grep -ohE '\bf\("[a-z0-9_]+"' "$root/src/models/model.h"
    grep -oE '"[a-z0-9_]+\??":' "$root/src/loaders/mxfp4_pack/_fields.py"; } |
    grep -oE '"[a-z0-9_]+' | tr -d '"' | sort -u | grep -vxF "$(grep -ohE '\w+' "$@")"
}
as=(--backend marlin --engine vllm)
page=$root/man/mxfp4-pack.1

test_lists_of_options() {
  expect 'the lists of options are those of the program' 0 '' '' python3 "$root/man/options.py" "$program" "$page" --check
}
# Each line of the first example, with the options that a machine without the engine can check; then the loop.
test_examples() {
  mkdir "$dir/examples"
  synth gpt-oss-120b "$dir/examples/gpt-oss-120b" --tiny
  sed -n '/^\.Sh EXAMPLES/,/^\.Sh SEE/p' "$page" | sed -n '/^\.Bd/,/^\.Ed/p' >"$dir/blocks"
  sed '/^\.Ed/q' "$dir/blocks" | grep -v '^\.' >"$dir/examples.txt"
  sed '1,/^\.Ed/d' "$dir/blocks" | grep -v '^\.' >"$dir/loop.txt"
  prepare [ "$(wc -l <"$dir/examples.txt")" -ge 3 ]
  prepare [ "$(wc -l <"$dir/loop.txt")" -ge 3 ]
  echo gpt-oss-120b looped >"$dir/examples/list"
  example() { (
    cd "$dir/examples" || exit 1
    mxfp4-pack() { "$program" "$@"; }
    vllm() { [ "$1" = serve ] && [ -f "$2/config.json" ]; }
    eval "$1"
  ) >"$dir/example.txt" 2>&1; }
  while read -r line; do
    expect "example: $line" 0 '' '' example "$line"
  done <"$dir/examples.txt"
  expect 'the loop over a list' 0 '' '' example "$(cat "$dir/loop.txt")"
  expect 'converts' 0 '' '' [ -f "$dir/examples/looped/mxfp4-pack.json" ]
  echo none again >>"$dir/examples/list"
  expect 'and fails if one of the list fails' 1 '' '' example "$(cat "$dir/loop.txt")"
  expect 'which gives the checkpoint back' 0 '' '' diff -r "$dir/examples/gpt-oss-120b" "$dir/examples/gpt-oss-120b-again"
}
test_fields_of_the_manifest() {
  expect 'the page has every field that is read' 1 '' '' unlisted "$root"/man/mxfp4-pack-format.5 "$root"/man/mxfp4-pack-layout.5
  grep -v allow_incomplete "$root/man/mxfp4-pack-format.5" >"$dir/lacking.5"
  expect 'one without an optional field lacks it' 0 '^allow_incomplete$' '' unlisted "$dir/lacking.5" "$root/man/mxfp4-pack-layout.5"
  also '^[a-z]' 1
}
test_fields_of_json() {
  fields inspect "$tiny"
  fields convert "$tiny" out "${as[@]}" --dry-run
  fields convert "$tiny" out "${as[@]}"
  fields convert "$tiny" out "${as[@]}"
  fields inspect out
  fields verify out --source "$tiny"
  (cd "$tiny" && sha256sum -- *.safetensors) >SHA256SUMS
  fields verify out --published SHA256SUMS
  fields convert "$tiny" published "${as[@]}" --published SHA256SUMS
  fields unpack out again
  fields diff out published
  fields backends
  prepare "$program" layout layout.json "${as[@]}" --model "$tiny" -q
  fields layout layout.json
  fields synth gpt-oss-20b random --tiny
  fields convert "$tiny" parts "${as[@]}" --part 0/2
  fields verify out --part 0/2
  fields merge parts
  fields clean parts
  fields convert "$tiny" parts "${as[@]}" --part 1/2 --merge
  fields merge parts
}
run_cases
