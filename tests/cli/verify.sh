#!/usr/bin/env bash
# verify: its levels and options, and that it finds a wrong byte. usage: verify.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# experts of more than 64 KB, gate and up in turn, are read band by band while they are compared
large() { synth gpt-oss-20b "$dir/$1" --tiny --hidden 512 --intermediate 512 --seed "$2"; }
# the last code of layer 0's experts
last_code() { python3 - "$@" <<'PYTHON'
import glob, json, sys
for path in glob.glob(sys.argv[1] + "/*.safetensors"):
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        tensor = json.loads(file.read(length)).get("model.layers.0.mlp.experts.gate_up_proj_blocks")
        if tensor:
            file.seek(8 + length + tensor["data_offsets"][1] - 1)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
PYTHON
}
of_lossy() { "$program" verify "$dir/edited" --level "$@"; }
# loss EXPRESSION: the manifest with another loss, in Python, and its checksum
loss() {
  rm -rf "$dir/edited"
  cp -r "$dir/lossy" "$dir/edited"
  PYTHONPATH=$root/tests/loaders python3 - "$dir/edited/mxfp4-pack.json" "$1" <<'PYTHON'
import json, pathlib, sys
from xxh3 import hexdigest
path = pathlib.Path(sys.argv[1])
manifest = json.loads(path.read_text()) | {"xxh3_128": "0" * 32}
manifest["sets"][0]["loss"] = eval(sys.argv[2], {"loss": manifest["sets"][0]["loss"]})
text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
path.write_text(text.replace("0" * 32, hexdigest(text.encode()), 1))
PYTHON
}
o=$once/o
convert "$tiny" "$o" --backend marlin --engine vllm
lossy=(--backend flashinfer-humming --engine vllm --no-loader)
synth deepseek-v4-flash "$once/v4" --tiny
verify() { "$program" verify "$o" "$@"; }
from_source() { verify --source "$tiny" "$@"; }

test_levels_and_options() {
  expect 'verify' 0 'right at level kernels' '' from_source
  expect 'verify bytes only' 0 'right at level bytes' '' from_source --level bytes
  expect 'verify one layer' 0 '^ +4 +[23]/3 .* right$' '' from_source --layers 1 --tokens 4 --seed 3
  expect 'verify all layers as JSON' 0 '"kernels":[{]"kernel":"marlin","device":"cpu".*layers.2.mlp.experts' '' \
    from_source --layers all --json
  expect 'verify with a tolerance that nothing meets' 1 'relative L2 error .*no likely mistake explains it' '' \
    from_source --tokens 1 --tolerance 1e-12
  expect 'verify on the CPU by name' 0 'kernel marlin on cpu' '' from_source --device cpu --tokens 1
  expect 'layers and tokens, each given twice' 0 '^6 of 6 batches right' '' \
    "$program" verify "$o" --source "$tiny" --layers 0 --layers 1 --tokens 1 --tokens 16
  expect 'kernels need the source' 2 '' 'give it with --source' verify --level kernels
}
test_bad_numbers() {
  for layer in 1e3 1.7 -1 99999999999999999999; do
    expect "no number of a layer: $layer" 2 '' 'not the number of a layer' from_source --layers $layer
  done
  for list in 0, ,0 0,,1 ,; do
    expect "a list with a gap: $list" 2 '' "error: --layers: '$list' has a comma too many" from_source --layers $list
    expect "of batches too: $list" 2 '' "error: --tokens: '$list' has a comma too many" from_source --tokens $list
  done
  expect 'a list of layers before OUT' 0 '4 of 4 batches right' '' \
    "$program" verify --source "$tiny" --tokens 2 --layers 0,2 "$o"
  expect 'no such layer' 2 '' 'error: --layers 99: .* has the MoE layers 0, 1, 2$' from_source --layers 0,99
  expect 'layers of a lower level' 2 '' 'error: --layers belongs to level kernels, but --level names a lower level' from_source --level bytes --layers 1
  expect 'layers without the source' 2 '' 'error: --layers requires --source' "$program" verify "$o" --layers 1
  for tolerance in nan inf 1e400 0 x; do
    expect "no tolerance: $tolerance" 2 '' "error: --tolerance: $tolerance is not a finite number above 0" from_source --tolerance $tolerance
  done
}
test_without_the_source() {
  expect 'verify without the source' 0 'right at level bytes' '' verify
  "$program" convert "$tiny" "$dir/half" --backend marlin --engine vllm --tp-size 2 -q
  expect 'verify, quiet' 0 '' '' verify -q
  odd=$dir/$(printf 'o\033[31m')
  prepare cp -r "$dir/half" "$odd"
  expect 'a name with an escape' 0 '/o.x1b\[31m: right' '' "$program" verify "$odd"
  expect 'in diff too' 1 '^only in .*/o.x1b\[31m: marlin of vllm at tp 2, rank 1$' '' "$program" diff "$odd" "$o"
}
test_other_checkpoints() {
  expect 'verify against another source' 2 '' 'error: .*deepseek-v4: not the model that .*/o was made from: 60 of its 60 tensors are missing here or have another shape, .* first$' verify --source "$root/testdata/tiny/deepseek-v4"
  expect 'no output of convert' 2 '' 'gpt-oss: no mxfp4-pack.json; an output of' "$program" verify "$tiny"
}
# --save: what another kernel needs; the same whatever set is verified
test_save() {
  expect 'verify --save' 0 'right at level kernels' '' from_source --save "$dir/batches" --tokens 4
  expect 'x, ids, weights and out of two batches' 0 '"0.out":\{"dtype":"F64","shape":\[4,96\].*"1.x":\{"dtype":"F32"' '' \
    head -c 2000 "$dir/batches"
  convert "$tiny" "$dir/other" --backend triton-hopper --engine sglang
  expect 'verify --save of another set' 0 'right' '' \
    "$program" verify "$dir/other" --source "$tiny" --save "$dir/batches-2" --tokens 4
  expect 'the same batches' 0 '' '' cmp "$dir/batches" "$dir/batches-2"
  expect 'verify --save without the checkpoint' 2 '' 'give it with --source' verify --save "$dir/none"
  expect 'verify --save at level bytes' 2 '' 'belongs to level kernels' from_source --level bytes --save "$dir/none"
  expect 'and nothing is written' 2 '' 'No such file' ls "$dir/none"
  expect 'verify --save over a file' 2 '' 'batches: exists; choose the name of a new file' from_source --save "$dir/batches"
  expect 'verify --save into OUT' 2 '' 'o/new: is inside .*o; choose a FILE of --save outside of it' from_source --save "$o/new"
}
# a level is reached only if its checks ran
test_reached_level() {
  prepare cp -r "$o" foreign && touch foreign/packed/foreign
  expect 'nothing is read' 1 'foreign: wrong: 1 problem at level files$' 'warning: saved: not written, because no layer was computed$' \
    "$program" verify foreign --source "$tiny" --save saved
  nothing saved
  expect 'as JSON' 1 '"level":"files","sets":\[[{][^}]*"level":"files"[}]\]' '' "$program" verify foreign --source "$tiny" --json
}
test_damage() {
  cp -r "$o" o && o=o
  touch o/packed/foreign
  expect 'a file of somebody' 1 '^packed/foreign: not listed in mxfp4-pack.json$' '' verify
  rm o/packed/foreign
  # the last word of layer 0's w13 codes of expert 0 holds columns beyond hidden: a pad
  put "$dir/o/packed/packed-00001.safetensors" $((4096 + 65536 - 1)) '\001'
  expect 'a wrong pad byte' 1 'w13_weight: expert 0: 1 pad byte is wrong, the first in row [0-9]+, byte 12[0-9]: 0x[0-9a-f]+, 0x00 expected' '' \
    from_source
  expect 'a wrong pad byte as JSON' 1 '^\{"ok":false' '' from_source --json
  put "$dir/o/packed/packed-00001.safetensors" 4096 '\377'
  expect 'a wrong code' 1 "bytes differ from the source's .*gate_up_proj_blocks" '' from_source
}
test_large_experts() {
  large wide 0
  large wide-9 9
  prepare cp -r "$dir/wide" "$dir/wide-2"
  prepare last_code "$dir/wide-2"
  convert "$dir/wide" "$dir/wide-out" --backend marlin --engine vllm
  expect 'verify of large experts' 0 'right at level bytes' '' \
    "$program" verify "$dir/wide-out" --source "$dir/wide" --level bytes
  expect 'verify of large experts against other ones' 1 ": 1 byte differs from the source's .*gate_up_proj_blocks" '' \
    "$program" verify "$dir/wide-out" --source "$dir/wide-2" --level bytes
  other() { "$program" verify "$dir/wide-out" --source "$dir/wide-9" "$@" | sed 's/.*/[&]/' | tr -d '\n'; }
  whole='wide-9: not the checkpoint that .*/wide-out was made from: [0-9]+ of [0-9]+ packed and [0-9]+ of [0-9]+ copied tensors differ'
  expect 'another checkpoint of that form, in one line' 0 \
    "^.[^]]*$whole here; .*/wide-out itself matches its manifest..[^]]*wide-out: wrong: 1 problem at level bytes.\$" '' other
  expect 'and with its ranks' 0 "$whole" '' sh -c "
    '$program' convert '$dir/wide' '$dir/two' --backend marlin --engine vllm --tp-size 2 -q &&
    '$program' verify '$dir/two' --source '$dir/wide-9' | sed s/two/wide-out/g"
  put_last "$dir/wide-out/packed/packed-00001.safetensors" '\377'
  expect 'every line where the output is damaged too' 1 "bytes differ from the source's" '' \
    "$program" verify "$dir/wide-out" --source "$dir/wide-9" --level bytes
}
test_fewer_layers() {
  synth gpt-oss-20b "$dir/short" --tiny --layers 2
  synth gpt-oss-20b "$dir/long" --tiny --layers 3
  convert "$dir/long" "$dir/long-out" --backend marlin --engine vllm
  missing() { "$program" verify "$dir/long-out" --source "$dir/short" 2>&1 | wc -l; }
  expect 'one with fewer layers, in one line' 0 '^1$' '' missing
}
# limits of single layers, as Ling has them
test_limits_of_layers() {
  synth ling "$dir/ling" --tiny
  python3 - "$dir/ling/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config["expert_swiglu_limit_list"] = [0.0] + [7.0] * (config["num_hidden_layers"] - 1)
json.dump(config, open(sys.argv[1], "w"))
PYTHON
  convert "$dir/ling" "$dir/ling-out" --backend marlin --engine vllm
  expect 'a limit that is not computed with' 0 'right at level kernels' \
    'config.json: expert_swiglu_limit_list limits the activation of layer 1; the packed layer and the reference are computed without it' \
    "$program" verify "$dir/ling-out" --source "$dir/ling" --tokens 1
}
# a lossy backend's counts of changed values
test_loss() {
  convert "$once/v4" "$dir/lossy" "${lossy[@]}"
  loss 'loss'
  expect 'the counts as they are' 0 right '' of_lossy bytes --source "$once/v4"
  loss 'loss | {"minus_zeros": 0}'
  expect 'counts that may be, without the source' 0 right '' of_lossy files
  expect 'are compared with it' 1 'mxfp4-pack.json: flashinfer-humming of vllm: loss: minus_zeros is 0, [0-9]+ expected from the source' '' \
    of_lossy bytes --source "$once/v4"
  loss 'loss | {"groups": 3}'
  expect 'other groups' 1 'mxfp4-pack.json: flashinfer-humming of vllm: loss: 3 groups, the tensors have [0-9]+' '' of_lossy files
  loss 'loss | {"groups_clamped": 99999999}'
  expect 'more clamped than there are' 1 'loss: 99999999 groups_clamped of' '' of_lossy files
  for value in '{}' 7 None '[1]' '{"groups": -1}' '"none"'; do
    loss "$value"
    expect "loss $value" 1 'loss: not the five counts of a lossy backend' '' of_lossy files
  done
}
test_files_that_may_not_be_read() {
  reads() { if [ "$(id -u)" = 0 ]; then setpriv --bounding-set=-dac_override,-dac_read_search -- "$@"; else "$@"; fi; }
  reads true 2>/dev/null || skip 'setpriv cannot drop capabilities'
  cp -r "$o" unread
  for file in config.json packed/packed-00001.safetensors; do
    chmod 0 unread/$file
    expect "$file: not checked" 2 '' "error: $file: cannot be read: Permission denied$" reads "$program" verify unread
    chmod 644 unread/$file
  done
}
run_cases
