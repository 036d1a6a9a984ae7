#!/usr/bin/env bash
# INT, TERM and HUP end every command soon, and writing leaves nothing but what the same command continues.
# usage: signals.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# A shell has its background jobs ignore INT.
default=(env --default-signal=INT,HUP "$program")
# stop SIGNAL DELAY COMMAND...: the command's exit code after the signal; 99 if it took longer than 3 seconds to end
stop() {
  "${@:3}" &
  local pid=$! from
  sleep "$2"
  kill "-$1" $pid 2>/dev/null
  from=$(date +%s%N)
  wait $pid
  local code=$?
  [ $(($(date +%s%N) - from)) -lt 3000000000 ] && return $code
  return 99
}

# kernels that compute for a minute
synth gpt-oss-20b "$once/large" --layers 1 --experts 32 --hidden 1536 --intermediate 1536 --vocab 32
convert "$once/large" "$once/out" --backend marlin --engine vllm
verify() { exec "${default[@]}" verify "$once/out" --source "$once/large" --layers all --tokens 4096,8192 --threads 1 "$@"; }
# an index of many files, none of which is there: it takes seconds to read
mkdir "$once/index"
cp "$tiny/config.json" "$once/index"
python3 - "$once/index/model.safetensors.index.json" <<'PYTHON'
import json, sys
names = {f"model.layers.{i}.weight": f"model-{i}.safetensors" for i in range(400_000)}
json.dump({"weight_map": names}, open(sys.argv[1], "w"))
PYTHON

test_kernels() {
  expect 'verify, while kernels compute: INT' 130 '' 'interrupted by signal 2' stop INT 2 verify
  expect 'verify, while kernels compute: TERM' 143 '' 'interrupted by signal 15' stop TERM 2 verify
  expect 'verify, while kernels compute: HUP' 129 '' 'interrupted by signal 1$' stop HUP 2 verify
  expect 'HUP as JSON' 129 '"lines":\["interrupted by signal 1"\]' '' stop HUP 2 verify --json
  expect 'as JSON' 143 '"kind":"interrupted"' '' stop TERM 2 verify --json
}
# signals that were ignored when the program was started stay ignored, as with nohup and in a shell's background jobs
test_ignored() {
  deaf() {
    "${@:2}" "$program" verify "$once/out" --source "$once/large" --tokens 16 --threads 1 -q &
    local pid=$!
    sleep 0.3  # until it is the program and not the shell that gets the signal
    for _ in 1 2 3 4 5; do kill "-$1" $pid 2>/dev/null; sleep 0.02; done
    wait $pid
  }
  expect 'INT, ignored' 0 '' '' deaf INT env --ignore-signal=INT
  expect 'HUP, ignored' 0 '' '' deaf HUP env --ignore-signal=HUP
  expect 'HUP, by nohup' 0 '' '' deaf HUP nohup
  expect 'TERM is never ignored' 143 '' 'interrupted by signal 15' stop TERM 2 env --ignore-signal=TERM \
    "$program" verify "$once/out" --source "$once/large" --layers all --tokens 4096,8192 --threads 1
}
test_index_of_many_files() {
  inspect() { exec "${default[@]}" inspect "$once/index"; }
  expect 'inspect, while an index is read' 143 '' 'interrupted' stop TERM 0.3 inspect
  plan() { exec "${default[@]}" convert "$once/index" "$dir/planned" --backend marlin --engine vllm; }
  expect 'convert, before anything is written' 130 '' 'interrupted' stop INT 0.3 plan
  expect 'the same: HUP' 129 '' 'interrupted by signal 1$' stop HUP 0.3 plan
  expect 'nothing is left of it' 0 '^0$' '' sh -c "ls -A '$dir' | grep -c planned; true"
}
# by the end of the process that started it, where MXFP4_PACK_PARENT names that
test_end_of_the_parent() {
  orphan() {
    sh -c 'MXFP4_PACK_PARENT=$$ "$@" 2>"$0.err" & sleep 0.3' "$dir/orphan" "$program" inspect "$once/index"
    for _ in $(seq 100); do grep -q . "$dir/orphan.err" && break; sleep 0.1; done
    cat "$dir/orphan.err" >&2
  }
  expect 'where its parent ends' 0 '' 'interrupted by signal 15' orphan
  sh -c 'echo $$' >"$dir/gone"
  expect 'where it has ended already' 143 '' 'interrupted by signal 15' \
    env MXFP4_PACK_PARENT="$(cat "$dir/gone")" "$program" inspect "$once/index"
  expect 'where it is no process' 2 '' "error: MXFP4_PACK_PARENT: 'x' is no process" env MXFP4_PACK_PARENT=x "$program" --version
  expect 'where another runs it' 0 '^mxfp4-pack' '' env MXFP4_PACK_PARENT=$$ "$program" --version
}
# a list of as many problems is cut
test_many_problems() {
  cp -r "$once/index" index
  sed -i 's/model-[0-9]*[1-9][0-9][0-9]\.safetensors/gone.safetensors/g' "index/model.safetensors.index.json"
  lines() { "$program" inspect index 2>&1 | grep -c 'missing; incomplete'; "$program" inspect index; }
  expect 'a hundred lines of a kind' 2 '^100$' '\.\.\. and [0-9]+ more of the same kind' lines
}
# while an output is written
test_output_is_written() {
  synth gpt-oss-20b "$dir/many" --tiny --layers 400
  write() { exec "${default[@]}" convert "$dir/many" "$dir/written" --backend marlin --engine vllm --threads 1 "$@"; }
  stop HUP 0.2 write -q 2>/dev/null >&2
  code=$?
  expect 'convert after HUP' 0 '' '' test $code -eq 129 -o $code -eq 0
  for delay in 0.05 0.1 0.2 0.3 0.4 0.6; do
    stop TERM $delay write -q 2>/dev/null >&2
    code=$?
    expect "convert after $delay s" 0 '' '' test $code -eq 143 -o $code -eq 0
    [ -e "$dir/written" ] && rm -r "$dir/written"
  done
  expect 'and the same again' 0 '' 'check it with' "$program" convert "$dir/many" "$dir/written" --backend marlin --engine vllm
  expect 'it is right' 0 'right' '' "$program" verify "$dir/written" --source "$dir/many"
}
run_cases
