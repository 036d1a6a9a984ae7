#!/usr/bin/env bash
# Two mounts of one folder that see each other's changes late.
# usage: late.sh MXFP4-PACK SOURCE-DIR FOLDER FOLDER
# A command may be refused or report "wrong" for a while, but must never report a wrong output as right. After SETTLE
# seconds (3.5) all changes are visible.
. "$(dirname "$0")/../cli/lib.sh"
here=$3 there=$4
on() { "$program" convert "$1/in" "$1/out" --engine "$3" --backend "$2" "${@:4}"; }
look() { ls -lR "$here" "$there" >"$dir/seen.txt"; }
settle() { sleep "${SETTLE:-3.5}"; }
# code_of COMMAND...: prints the command's exit code, and its messages on stderr
code_of() {
  "$@" >"$dir/said.txt" 2>&1
  echo "code $?"
  cat "$dir/said.txt" >&2
}
verify() { "$program" verify "$1/out" --source "$here/in"; }

cp -r "$tiny" "$here/in"
prepare look
expect 'made here' 0 '' 'check it with' on "$here" marlin vllm
expect 'another one, made there' 0 'code [02]' '.' code_of on "$there" marlin sglang
settle
expect 'whole' 0 'right' '' verify "$there"
prepare look
expect 'replaced there' 0 '' 'check it with' on "$there" marlin sglang --force
expect 'read at once' 0 'code [012]' '.' code_of "$program" verify "$here/out"
prepare look
expect 'a set is added at once' 0 'code [02]' '.' code_of on "$here" triton-hopper vllm --add
settle
expect 'whole again' 0 'right' '' verify "$here"
expect 'a set is added' 0 'code [02]' '.' code_of on "$here" triton-hopper vllm --add
settle
expect 'seen there' 0 'triton-hopper of vllm: right' '' verify "$there"
prepare look
printf X | dd of="$there/in/model-00000-of-00001.safetensors" bs=1 seek=100000 conv=notrunc status=none
settle
expect 'a changed source is seen' 1 'wrong' '' verify "$here"
finish
