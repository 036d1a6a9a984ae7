#!/usr/bin/env bash
# --device: who packs. usage: device.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

convert "$tiny" "$once/o" --backend marlin --engine sglang

test_device_that_is_not_there() {
  expect 'no such device' 2 '' 'error: --device: no device .gpu.: auto, cpu, cuda, ' \
    "$program" convert "$tiny" "$dir/dev" --backend marlin --engine vllm --device gpu
  expect 'a GPU that is not there' 2 '' 'error: .*(no such device|CUDA)' \
    "$program" convert "$tiny" "$dir/dev" --backend marlin --engine vllm --device cuda:99
  expect 'a GPU that is not there as JSON' 2 '"kind":"device"' '' "$program" unpack "$once/o" "$dir/dev" --device cuda:99 --json
}
test_the_same_bytes() {
  expect 'a GPU or the CPU' 0 '' . env MXFP4_PACK_DEVICE=auto \
    "$program" convert "$tiny" "$dir/dev" --backend marlin --engine sglang
  expect 'the same bytes' 0 '' '' diff -r "$once/o" "$dir/dev"
  expect 'what packed, and why' 0 '"device":{"name":"cpu","why":"asked for"}' '' \
    "$program" convert "$tiny" "$dir/cpu" --backend marlin --engine sglang --device cpu --json -q
}
run_cases
