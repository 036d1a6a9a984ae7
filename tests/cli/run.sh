#!/usr/bin/env bash
# What a user sees: stdout, stderr and exit codes of the program. usage: run.sh MXFP4-PACK SOURCE-DIR
set -u
program=$1 root=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# expect NAME EXIT-CODE STDOUT-PATTERN STDERR-PATTERN COMMAND...: patterns are grep -E, '' means nothing may be printed
expect() {
  local name=$1 code=$2 out=$3 err=$4
  shift 4
  "$@" >"$dir/out.txt" 2>"$dir/err.txt"
  local got=$?
  if [ $got -eq "$code" ] && matches "$dir/out.txt" "$out" && matches "$dir/err.txt" "$err"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name: exit $got, $code expected"
    sed 's/^/  stdout: /' "$dir/out.txt" | head -n 20
    sed 's/^/  stderr: /' "$dir/err.txt" | head -n 20
  fi
}
matches() { if [ -z "$2" ]; then [ ! -s "$1" ]; else grep -qE -- "$2" "$1"; fi; }

tiny=$root/testdata/tiny/gpt-oss
export MXFP4_PACK_DEVICE=cpu  # the same messages wherever the tests run
commands=$("$program" --help | sed -n '/^Subcommands:/,$p' | awk '/^  [a-z]/ {print $1}')

expect 'help begins with an example' 0 '^mxfp4-pack convert ' '' "$program" --help
expect 'version' 0 '^mxfp4-pack [0-9]+\.[0-9]+' '' "$program" --version
expect 'version says what there is of CUDA' 0 'CUDA' '' "$program" --version
expect 'no command' 2 '' 'error: .*subcommand' "$program"
expect 'unknown option' 2 '' 'error: .*--nothing' "$program" inspect "$tiny" --nothing
expect 'no engine' 2 '' 'error: --engine is required' "$program" convert "$tiny" "$dir/o" --backend marlin
expect 'unknown backend' 2 '' "error: no backend 'x'; 'mxfp4-pack backends' lists them" \
  "$program" convert "$tiny" "$dir/o" --backend x --engine vllm
expect 'usage error as JSON' 2 '^\{"error":\{"kind":"usage","lines":\[".*--engine' '' \
  "$program" convert "$tiny" "$dir/o" --backend marlin --json
expect 'missing checkpoint' 2 '' 'error: .*nowhere: cannot open: No such file' "$program" inspect "$dir/nowhere"
expect 'missing checkpoint as JSON' 2 '"kind":"io"' '' "$program" inspect "$dir/nowhere" --json
expect 'backends' 0 '^marlin +sglang' 'CUDA' "$program" backends
expect 'backends as JSON' 0 '"backend":"marlin","engine":"vllm"' '' "$program" backends --json

expect 'inspect' 0 'layers 0-2: 3 experts, hidden 96, intermediate 160, bias' '' "$program" inspect "$tiny"
cp -r "$tiny" "$dir/cut"
truncate -s -1000 "$dir/cut/model-00000-of-00001.safetensors"
expect 'inspect of a truncated shard' 2 'cut: not recognised \(gpt_oss\), 34 tensors' '213774 present' \
  "$program" inspect "$dir/cut"
expect 'nothing is said to be converted then' 2 '"convert":null.*"pass_through":null' '' "$program" inspect "$dir/cut" --json
expect 'no output of convert' 2 '' 'cut: no mxfp4-pack.json; an output of' "$program" verify "$dir/cut"
expect 'nothing to compare' 2 '' 'nowhere: no such directory' "$program" diff "$dir/nowhere" "$dir/cut"
expect 'inspect as JSON' 0 '"family":"gpt-oss".*"problems":\[\]' '' "$program" inspect "$tiny" --json
expect 'dry run' 0 'experts.w13_weight  I32 \[3, 16, 1024\]  packed/packed-00001.safetensors  196608' '' \
  "$program" convert "$tiny" "$dir/o" --backend marlin --engine vllm --dry-run
expect 'dry run writes nothing' 2 '' '/o: no such directory; an output of' "$program" verify "$dir/o"
expect 'convert says what to do next' 0 '' 'check it with: mxfp4-pack verify' \
  "$program" convert "$tiny" "$dir/o" --backend marlin --engine vllm
expect 'convert refuses an existing place' 2 '' '--force' "$program" convert "$tiny" "$dir/o" --backend marlin --engine vllm
expect 'convert, quiet' 0 '' '' "$program" convert "$tiny" "$dir/q" --backend marlin --engine sglang -q
expect 'convert as JSON' 0 '^\{"backend":"marlin".*"zero_scales":[0-9]+,"seconds":\{"read":[0-9.e-]+,.*"wall":[0-9.]+\},"in_place_bytes":0\}$' '' \
  "$program" convert "$tiny" "$dir/j" --backend marlin --engine sglang --json -q
expect 'verify' 0 'right at level kernels' '' "$program" verify "$dir/o" --source "$tiny"
expect 'verify bytes only' 0 'right at level bytes' '' "$program" verify "$dir/o" --source "$tiny" --level bytes
expect 'verify one layer' 0 'layers.1.mlp.experts +4 +[23]/3 .* right$' '' \
  "$program" verify "$dir/o" --source "$tiny" --layers 1 --tokens 4 --seed 3
expect 'verify all layers as JSON' 0 '"kernels":[{]"kernel":"marlin","device":"cpu".*layers.2.mlp.experts' '' \
  "$program" verify "$dir/o" --source "$tiny" --layers all --json
expect 'verify with a tolerance that nothing meets' 1 'relative L2 error .*no likely mistake explains it' '' \
  "$program" verify "$dir/o" --source "$tiny" --tokens 1 --tolerance 1e-12
expect 'verify on the CPU by name' 0 'kernel marlin on cpu' '' "$program" verify "$dir/o" --source "$tiny" --device cpu --tokens 1
expect 'kernels need the source' 2 '' 'say where it is with --source' "$program" verify "$dir/o" --level kernels
for layer in 1e3 1.7 -1 99999999999999999999; do
  expect "no number of a layer: $layer" 2 '' 'no number of a layer' "$program" verify "$dir/o" --source "$tiny" --layers $layer
done
expect 'no such layer' 2 '' 'none of the layers asked for' "$program" verify "$dir/o" --source "$tiny" --layers 99
expect 'verify without the source' 0 'right at level bytes' '' "$program" verify "$dir/o"
expect 'verify, quiet' 0 '' '' "$program" verify "$dir/o" -q
expect 'verify against another source' 2 '' 'missing in the source' "$program" verify "$dir/o" --source "$root/testdata/tiny/deepseek-v4"
expect 'unpack' 0 '' 'tensors, each with its source' "$program" unpack "$dir/o" "$dir/u"
expect 'what was unpacked is the source' 0 'right' '' "$program" verify "$dir/o" --source "$dir/u"
expect 'packed output as input' 0 '' 'packed tensors for sglang' "$program" convert "$dir/o" "$dir/p" --backend marlin --engine sglang
expect 'gives the same bytes' 0 '' '' diff -r "$dir/p" "$dir/q"
expect 'tensor parallel' 0 'w13_weight.*packed/tp2-rank1-00001' '' \
  "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 2 --dry-run
expect 'a rank that is not there' 2 '' 'error: --rank 2 is not below --tp-size 2' \
  "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 2 --rank 2

# the last word of layer 0's w13 codes of expert 0 holds columns beyond hidden: a pad
printf '\001' | dd of="$dir/o/packed/packed-00001.safetensors" bs=1 seek=$((4096 + 65536 - 1)) conv=notrunc 2>/dev/null
expect 'a wrong pad byte' 1 'w13_weight: expert 0: 1 pad bytes are wrong, the first in row [0-9]+, byte 12[0-9]: 0x[0-9a-f]+, 0x00 expected' '' \
  "$program" verify "$dir/o" --source "$tiny"
expect 'a wrong pad byte as JSON' 1 '^\{"ok":false' '' "$program" verify "$dir/o" --source "$tiny" --json
expect 'unpack notices a wrong pad byte' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u2"
printf '\377' | dd of="$dir/o/packed/packed-00001.safetensors" bs=1 seek=4096 conv=notrunc 2>/dev/null
expect 'a wrong code' 1 "bytes differ from the source's .*gate_up_proj_blocks" '' "$program" verify "$dir/o" --source "$tiny"
expect 'unpack notices a wrong code' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u3"
expect 'and leaves nothing' 2 '' 'cannot open' "$program" inspect "$dir/u3"

expect 'auto chooses and says why' 0 'marlin' 'auto: marlin: .*only one.*runs there' \
  "$program" convert "$tiny" "$dir/auto" --backend auto --gpu sm89 --engine vllm --dry-run
expect 'auto for a GPU by its name' 0 'marlin' 'auto: marlin: ' \
  "$program" convert "$tiny" "$dir/auto" --backend auto --gpu L40S --engine vllm --dry-run
expect 'auto for an unknown GPU' 2 '' '--gpu: h101 is none of sm75 \(t4\), .*sm90 \(h20, h100, .*cpu; see' \
  "$program" convert "$tiny" "$dir/auto" --backend auto --gpu h101 --engine vllm --dry-run
for gpu in $("$program" convert "$tiny" "$dir/auto" --backend auto --engine vllm 2>&1 | sed 's/.*--gpu: //; s/[(),]//g'); do
  expect "man page has --gpu $gpu" 0 . '' grep -E -- "^\.(Cm|It Fl -gpu Cm).* $gpu( |$)" "$root/man/mxfp4-pack.1"
done
expect 'auto without a known order' 2 '' 'not known; say --backend, of marlin' \
  "$program" convert "$root/testdata/tiny/deepseek-v4" "$dir/auto" --backend auto --gpu sm90 --engine sglang --dry-run
expect 'a shape that cannot be served' 2 '' 'cannot serve it: hidden 96 and intermediate 160 must be multiples of 128' \
  "$program" convert "$tiny" "$dir/no" --backend flashinfer-humming --engine vllm
expect 'four warps' 0 'layout version c-w4' '' \
  "$program" convert "$tiny" "$dir/w4" --backend triton-hopper --engine vllm --num-warps 4 --dry-run
expect 'diff of an output with itself' 0 'tensors are equal' '' "$program" diff "$dir/q" "$dir/q"
expect 'diff' 1 'w13_weight: 3 of 3 experts differ.*other row order of w13' '' "$program" diff "$dir/q" "$dir/o"

# several sets in one output
add() { "$program" convert "$tiny" "$dir/several" --add "$@"; }
expect 'nothing to add to' 2 '' 'several: no such directory; an output of' add --backend marlin --engine sglang
"$program" convert "$tiny" "$dir/several" --backend marlin --engine vllm -q
expect 'add: the plan' 0 'copied: nothing; it is there already' '' add --backend marlin --engine sglang --dry-run
expect 'add' 0 '' 'packed tensors for sglang marlin, .* beside 1 earlier set; check' add --backend marlin --engine sglang
expect 'add as JSON' 0 '"set":2,"moe_tp_size":2,"ranks":\[0,1\],' '' \
  add --backend triton-hopper --engine vllm --tp-size 2 --json -q
expect 'add it again' 2 '' 'marlin of sglang is there already' add --backend marlin --engine sglang
expect 'add and force exclude each other' 2 '' 'excludes' add --backend marlin --engine sglang --force
expect 'add of a sharded state' 2 '' 'a sharded state is of one set' \
  add --backend deepgemm --engine sglang --format sharded-state
expect 'add of another checkpoint' 2 '' 'deepseek-v4: not the source that .*several was made from' \
  "$program" convert "$root/testdata/tiny/deepseek-v4" "$dir/several" --add --backend deepgemm --engine vllm
expect 'inspect lists the sets' 0 'set 2: triton-hopper of vllm at tp 2, layout version c: 36 tensors' '' \
  "$program" inspect "$dir/several"
expect 'verify of several sets' 0 'triton-hopper of vllm at tp 2: right at level' '' \
  "$program" verify "$dir/several" --source "$tiny"
expect 'unpack of several sets' 0 '' 'unpacking marlin of vllm' "$program" unpack "$dir/several" "$dir/several-again"
expect 'diff of several sets' 1 'only in .*several: triton-hopper of vllm at tp 2' '' "$program" diff "$dir/several" "$dir/q"
"$program" synth deepseek-v4-flash "$dir/square" --tiny --hidden 256 --intermediate 256 -q
"$program" convert "$dir/square" "$dir/lossy" --backend flashinfer-humming --engine vllm -q
expect 'unpack of a lossy set' 2 '' "flashinfer-humming is lossy: the source's codes and scales are not in it" \
  "$program" unpack "$dir/lossy" "$dir/lossy-again"

# experts of more than 64 KB, gate and up in turn, are read band by band while they are compared
"$program" synth gpt-oss-20b "$dir/wide" --tiny --hidden 512 --intermediate 512 -q
"$program" convert "$dir/wide" "$dir/wide-out" --backend marlin --engine vllm -q
expect 'verify of large experts' 0 'right at level bytes' '' \
  "$program" verify "$dir/wide-out" --source "$dir/wide" --level bytes
expect 'verify of large experts against other ones' 1 "bytes differ from the source's .*gate_up_proj_blocks" '' \
  sh -c "\"$program\" synth gpt-oss-20b \"$dir/wide-2\" --tiny --hidden 512 --intermediate 512 --seed 9 -q &&
    \"$program\" verify \"$dir/wide-out\" --source \"$dir/wide-2\" --level bytes"

# what interrupted runs leave, and two runs at once; a checkpoint of many jobs, so that one is there to be interrupted
many=$dir/many
"$program" synth gpt-oss-20b "$many" --tiny --layers 24 -q
on() { "$program" convert "$many" "$1" --backend marlin --engine vllm --threads 1 "${@:2}"; }
leave() {  # a partial output with some jobs done
  for try in $(seq 200); do
    "$program" convert "$many" "$1" --backend marlin --engine vllm --threads 1 -q & local pid=$!
    until { read -r && read -r; } <"$journal" || ! kill -0 $pid; do :; done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ ! -e "$1" ] && { read -r && read -r; } <"$journal" && return
    rm -rf "$1" "$journal" "$partial"
  done
}
journal=$dir/.k.mxfp4-pack.journal partial=$dir/.k.mxfp4-pack.partial
{ leave "$dir/k"; } 2>/dev/null
expect 'a partial output is not overlooked' 2 '' 'a partial output is there; go on with convert --resume' on "$dir/k"
expect 'nor used with other options' 2 '' 'begun with other options' on "$dir/k" --resume --allow-nan-scales
cp -r "$many" "$dir/copy"
expect 'nor from another source' 2 '' 'begun from another source' \
  "$program" convert "$dir/copy" "$dir/k" --backend marlin --engine vllm --resume
expect 'resume and restart exclude each other' 2 '' 'excludes' on "$dir/k" --resume --restart
expect 'unpack leaves it alone' 2 '' 'a partial output is there' "$program" unpack "$dir/q" "$dir/k"
expect 'resume keeps what is done' 0 '' '[0-9]+ of [0-9]+ jobs are done already' on "$dir/k" --resume
expect 'what was resumed is right' 0 'right' '' "$program" verify "$dir/k" --source "$many"
expect 'nothing is left behind' 1 '' '' test -e "$journal" -o -e "$partial"
rm -r "$dir/k"
{ leave "$dir/k"; } 2>/dev/null
expect 'restart begins anew' 0 '' 'check it with' on "$dir/k" --restart
rm -r "$dir/k"
expect 'resume without a partial output' 0 '' 'check it with' on "$dir/k" --resume
on_top() { "$program" convert "$many" "$dir/k" --add --backend marlin --engine sglang --threads 1 "$@"; }
leave_added() {  # the same of an addition
  for try in $(seq 200); do
    "$program" convert "$many" "$dir/k" --add --backend marlin --engine sglang --threads 1 -q & local pid=$!
    until { read -r && read -r; } <"$journal" || ! kill -0 $pid; do :; done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ ! -e "$dir/k/packed/canary-1.safetensors" ] && { read -r && read -r; } <"$journal" && return
    rm -rf "$dir/k" "$journal" "$partial"
    on "$dir/k" -q
  done
}
{ leave_added; } 2>/dev/null
expect 'an addition that was cut short leaves OUT as it was' 0 'right' '' "$program" verify "$dir/k" --source "$many"
expect 'it is not overlooked' 2 '' 'a partial output is there' on_top
expect 'resume of an addition' 0 '' '[0-9]+ of [0-9]+ jobs are done already' on_top --resume
expect 'it is right' 0 'marlin of sglang: right' '' "$program" verify "$dir/k" --source "$many"
expect 'and leaves nothing behind' 1 '' '' test -e "$journal" -o -e "$partial"
exec 9>"$dir/.locked.mxfp4-pack.journal"
flock 9
expect 'a place that another run writes' 2 '' 'another run of mxfp4-pack is writing it' on "$dir/locked"
exec 9>&-
expect 'a lock of the dead' 0 '' 'check it with' on "$dir/locked"

expect 'convert with SHA-256' 0 '' '' on "$dir/sums" --sha256 -q
expect 'sha256sum accepts it' 0 '' '' sh -c "cd '$dir/sums' && sha256sum -c --quiet --strict SHA256SUMS"
expect 'it names every other file' 0 '' '' \
  bash -c "cd '$dir/sums' && find . -type f ! -name SHA256SUMS | sed 's,^./,,' | LC_ALL=C sort | cmp - <(cut -c67- SHA256SUMS)"
expect 'verify with SHA-256' 0 'right' '' "$program" verify "$dir/sums"
sed -i '1s/^./x/' "$dir/sums/SHA256SUMS"
expect 'verify with a wrong SHA-256' 1 'does not have the checksum in SHA256SUMS' '' "$program" verify "$dir/sums"
expect 'replaced with SHA-256' 0 '' '' on "$dir/sums" --force -q

# many conversions, and those with nothing to do
export XDG_CACHE_HOME=$dir/cache
list=$dir/list
printf '%s\n' '# a list' "'$tiny' '$dir/l1' --engine vllm" '' "'$dir/nowhere' '$dir/l2'" "'$tiny' '$dir/l3' --threads 1" >"$list"
many() { "$program" convert --filelist "$list" --backend marlin --engine sglang "$@"; }
expect 'a list ends at the first failure' 2 '"converted":1,"unchanged":0,"failed":1,"not_begun":1' '' many --fail-fast --json -q
rm -r "$dir/l1"
expect 'a list goes on after a failure' 2 '' 'list:4: .*nowhere' many
expect 'and has the defaults of its command line' 0 '"engine":"sglang"|sglang' '' "$program" verify "$dir/l3" --json
sed -i '4d; s/--engine vllm/& --sha256/' "$list"
expect 'a list, again' 2 '"failed":2' '' many --json -q
expect 'if changed: the one without SHA256SUMS' 0 '"converted":1,"unchanged":1,"failed":0' '' many --if-changed --json -q
expect 'if changed: nothing to do' 0 '' '0 converted, 2 unchanged, 0 failed' many --if-changed
cp -r "$tiny" "$dir/tuned"
"$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm -q
expect 'if changed: a copy of the source' 0 '' 'nothing has changed' \
  "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm --if-changed
shard=$(ls "$dir"/tuned/*.safetensors | head -n 1)
printf '\001' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 1)) conv=notrunc 2>/dev/null
expect 'if changed: one byte' 0 '' 'check it with' \
  "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm --if-changed
expect 'which is then right' 0 'right' '' "$program" verify "$dir/t" --source "$dir/tuned"
sleep 2.1  # what changed within two seconds is not trusted to the cache
expect 'if changed: read and kept' 0 '' 'nothing' "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm --if-changed
expect 'in the cache' 0 '[0-9a-f]{32}' '' ls "$XDG_CACHE_HOME/mxfp4-pack"
expect 'if changed: known from it' 0 '' 'nothing' "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm --if-changed
expect 'if changed: another option' 0 '' 'check it with' \
  "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine sglang --if-changed
expect 'a bad line' 2 '' 'error: -:1: .*--nothing' sh -c "echo a b --nothing | '$program' convert --filelist - --backend marlin --engine vllm"
expect 'a list and a checkpoint' 2 '' 'excludes' "$program" convert "$tiny" "$dir/o9" --filelist "$list" --backend marlin --engine vllm
printf '%s\n' "'$tiny' '$dir/added'" "'$tiny' '$dir/added' --engine sglang --add" \
  "'$tiny' '$dir/added' --engine vllm --backend triton-hopper --tp-size 2 --add" >"$list"
expect 'a list that adds sets' 0 '"converted":3,"unchanged":0,"failed":0' '' \
  "$program" convert --filelist "$list" --backend marlin --engine vllm --json -q
expect 'all of which are right' 0 'right at level bytes.*' '' "$program" verify "$dir/added" --source "$tiny" --level bytes
expect 'the third set' 0 '"backend":"triton-hopper"' '' "$program" verify "$dir/added" --json --level bytes
expect 'a list that adds them again' 2 '"converted":0,"unchanged":0,"failed":3' '' \
  "$program" convert --filelist "$list" --backend marlin --engine vllm --json -q

# the README's pipeline, word for word, twice
mkdir "$dir/pipeline"
sed -n '/^## In a pipeline/,/^## Before/p' "$root/README.md" | sed -n 's/^    //p' >"$dir/pipeline/ci.sh"
pipeline() { (cd "$dir/pipeline" && PATH=$(dirname "$program"):$PATH sh ci.sh && cat result.json); }
expect 'the pipeline' 0 '"converted":2,"unchanged":0,"failed":0' '' pipeline
expect 'the pipeline, again' 0 '"converted":0,"unchanged":2,"failed":0' '' pipeline

expect 'defaults from the environment' 0 '"engine":"sglang"' '' \
  env MXFP4_PACK_BACKEND=marlin MXFP4_PACK_ENGINE=sglang MXFP4_PACK_THREADS=1 "$program" convert "$tiny" "$dir/env" --json -q
expect 'a wrong default' 2 '' 'error: ' env MXFP4_PACK_THREADS=many "$program" verify "$dir/env"

# who packs
expect 'no such device' 2 '' 'error: --device gpu: auto, cpu, cuda' \
  "$program" convert "$tiny" "$dir/dev" --backend marlin --engine vllm --device gpu
expect 'a GPU that is not there' 2 '' 'error: .*(no such device|CUDA)' \
  "$program" convert "$tiny" "$dir/dev" --backend marlin --engine vllm --device cuda:99
expect 'a GPU that is not there as JSON' 2 '"kind":"device"' '' "$program" unpack "$dir/o" "$dir/dev" --device cuda:99 --json
expect 'no such size' 2 '' 'error: --device-memory' "$program" verify "$dir/env" --device-memory 1x
expect 'a GPU or the CPU' 0 '' . env MXFP4_PACK_DEVICE=auto \
  "$program" convert "$tiny" "$dir/dev" --backend marlin --engine sglang --device-memory 64M
expect 'the same bytes' 0 '' '' diff -r "$dir/env" "$dir/dev"

expect 'synth' 0 '' 'at random, seed 7' "$program" synth deepseek-v4-flash "$dir/s" --tiny --seed 7
expect 'synth of an unknown model' 2 '' 'error: ' "$program" synth nothing "$dir/s2"

# times of kernels; no GPU is a clear refusal
shape='--hidden 256 --intermediate 128 --experts 8'
bench() { CUDA_VISIBLE_DEVICES= "$program" verify --bench "$@"; }
expect 'bench without a GPU' 2 '' 'error: --bench times the CUDA kernels: ' bench $shape --top-k 2
expect 'bench without a GPU, as JSON' 2 '"kind":"device"' '' bench $shape --top-k 2 --json
expect 'bench of half a shape' 2 '' '--top-k' bench $shape
expect 'bench of nothing' 2 '' 'OUT is required' bench
expect 'a shape without bench' 2 '' '--bench' "$program" verify $shape --top-k 2

# a whole state for SGLang
sharded() { "$program" convert "$1" "$dir/st" --engine "${3-sglang}" --backend "$2" --format sharded-state --tp-size "${4-2}"; }
expect 'sharded state' 0 '' 'check it with' sharded "$tiny" flashinfer-cutlass
expect 'sharded state is right' 0 'right at level kernels' '' "$program" verify "$dir/st" --source "$tiny"
expect 'sharded state: the config is the checkpoint'"'"'s' 0 '' '' cmp "$dir/st/config.json" "$tiny/config.json"
expect 'sharded state: a default load finds no file' 0 'use--load-format-sharded_state' '' \
  cat "$dir/st/model.safetensors.index.json"
expect 'sharded state: each rank has its parts' 0 '^2$' '' sh -c "ls '$dir'/st | grep -c 'model-rank-1-part-[01].safetensors'"
expect 'sharded state: unpack' 0 '' 'each with its source' "$program" unpack "$dir/st" "$dir/st-u"
part=$dir/st/model-rank-1-part-0.safetensors
printf '\377' | dd of="$part" bs=1 seek=$(($(stat -c %s "$part") - 1)) conv=notrunc 2>/dev/null
expect 'sharded state: a changed byte' 1 'model-rank-1-part-0.safetensors: 1 bytes are not what the copied' '' \
  "$program" verify "$dir/st"
rm -r "$dir/st"
expect 'sharded state: another engine' 2 '' 'not for marlin of vllm' sharded "$tiny" marlin vllm
expect 'sharded state: another backend' 2 '' 'not for triton-hopper of sglang' sharded "$tiny" triton-hopper
expect 'sharded state: another family' 2 '' 'is for GPT-OSS' sharded "$root/testdata/tiny/deepseek-v4" marlin
expect 'sharded state: ranks that do not split' 2 '' 'rows do not split into 5 ranks' sharded "$tiny" marlin sglang 5

# every option of every help text stands in the man page
for command in '' $commands; do
  for option in $("$program" $command --help | grep -oE '^ +(-[a-z],)?--?[a-z-]+' | grep -oE -- '-[a-z-]+' | sort -u); do
    expect "man page has '$command' $option" 0 . '' grep -F -- "Fl ${option#-}" "$root/man/mxfp4-pack.1"
  done
  for option in $("$program" $command --help | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u); do
    for shell in mxfp4-pack.bash _mxfp4-pack mxfp4-pack.fish; do
      expect "$shell has '$command' $option" 0 . '' grep -E -- "(--|-l )${option#--}([^a-z-]|$)" "$root/src/completions/$shell"
    done
  done
  [ -n "$command" ] && expect "man page has $command" 0 . '' grep -F ".It Cm $command" "$root/man/mxfp4-pack.1"
done

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
