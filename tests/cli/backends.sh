#!/usr/bin/env bash
# The list of backends. usage: backends.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# The tables of README and the manual pages name the GPUs and the engine's kernel of each backend.
table() {
  "$program" backends --json | PYTHONPATH=$root/tests/engines python3 -B -c '
import json, sys
from matrix import GPUS, KERNELS, in_engine
runs = {}
for b in json.load(sys.stdin)["backends"]:
    if b["loader"]:
        kernels = [value for name, value in b["requires"].items() if name.startswith("moe_")] or ["no name"]
        runs.setdefault((b["engine"], b["backend"]), set()).add((b["gpu"], *kernels))
wrong = [(key, runs) for key, runs in runs.items()
         if key[1] not in GPUS or (in_engine(GPUS, *key), in_engine(KERNELS, *key)) not in runs]
print(*wrong, sep="\n", end="")
assert runs'
}
test_list() {
  expect 'backends' 0 '^marlin +sglang' 'CUDA' "$program" backends
  expect 'backends as JSON' 0 '"backend":"marlin","engine":"vllm"' '' "$program" backends --json
  expect 'nothing of the kind' 2 '' 'error: nothing of the kind can be written' "$program" backends --engine sglang --gpu cpu
  expect 'nor as JSON' 2 '"error":.*nothing of the kind' '' "$program" backends --engine sglang --gpu cpu --json
}
test_tables_name_gpus_and_kernels() {
  expect 'the tables name GPUs and kernels' 0 '' '' table
}
test_of_a_release() {
  release() { "$program" backends --engine "$1"; }
  expect 'of an engine release' 0 '^marlin +vllm' 'CUDA' release vllm==0.33.0
  expect 'of one that is not said' 2 '' 'error: --engine vllm==: no release after ==' release vllm==
}
test_what_each_requires() {
  requires() { "$program" backends --engine vllm --gpu h100 -v "$@"; }
  expect 'what each requires' 0 '^    requires moe_backend marlin, VLLM_MARLIN_INPUT_DTYPE unset$' 'LOADER' requires
  expect 'where the model decides it' 0 '^    requires moe_backend triton or triton_unfused$' 'LOADER' requires
}
test_of_a_model() {
  for engine in vllm sglang; do
    expect "$engine: all of a model, also what no release loads" 0 '^deepgemm +[a-z]+ +1  +' '' \
      "$program" backends --engine $engine --model "$tiny" -q
  done
  expect 'what they require' 0 '^    requires moe_backend triton$' LOADER "$program" backends --engine vllm --gpu h100 -v --model "$tiny"
}
test_kernel_that_a_release_lacks() {
  triton_on_sm120() { "$program" backends --engine "vllm==$1" --gpu sm120 -q | grep -o '^triton-[a-z]*'; }
  expect 'a kernel that a release lacks there' 1 '' '' triton_on_sm120 0.31.0
  expect 'and has' 0 '^triton-blackwell$' '' triton_on_sm120 0.32.0
}
test_name_of_the_engine_on_a_gpu() {
  fits() { "$program" convert "$tiny" "$dir/none" --engine "$1" --backend "$2" --gpu "$3" --dry-run | grep -A1 ', layout version'; }
  expect 'which is said of what it fits' 0 '^made for: vllm 0.26.0 to [0-9.]+ on SM10x, SM12x .not 0.26.0 to 0.31.0 on SM12x.; ' '' \
    fits vllm triton-blackwell b200
  expect 'a name of the engine, on a GPU' 0 '^flashinfer-trtllm of sglang' '' fits sglang flashinfer_mxfp4 b200
  expect 'on another' 0 '^flashinfer-cutlass-mxfp8 of sglang' '' fits sglang flashinfer_mxfp4 rtx5090
  expect 'of two that which the engine prefers' 0 '^aiter-a16w4 of sglang' '' fits sglang aiter mi355x
  expect 'on one that it is not for' 1 '' 'error: --backend triton: of vllm that is triton-hopper on SM90 or .*; nothing on sm80$' \
    fits vllm triton a100
}
test_an_output_is_no_checkpoint() {
  convert "$tiny" "$dir/out" --backend marlin --engine vllm
  expect 'an output' 2 '' 'out: an output of mxfp4-pack; mxfp4-pack inspect lists the engines that read it$' \
    "$program" backends --model "$dir/out"
}
run_cases
