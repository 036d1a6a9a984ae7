#!/usr/bin/env bash
# Parts that nodes write independently, and their merge. usage: part.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

many=$once/many single=$once/single parts=.k.mxfp4-pack/parts
kind=(--backend marlin --engine vllm --tp-size 2 --link)
on() { "$program" convert "$many" k "${kind[@]}" "$@"; }
part() { on --part "$@"; }
# all_of N: every part
all_of() { for i in $(seq 0 $(($1 - 1))); do prepare part "$i/$1" -q; done; }
merge() { "$program" merge k "$@"; }
a_shard() { find "$1" -name '*.safetensors' | sort | head -n 1; }
# like OUT: k has the bytes of the single run, or of OUT, and nothing is beside it
like() {
  expect "the bytes of ${1##*/}" 0 '' '' diff -r "$1" k
  nothing_beside
}
nothing_beside() { expect 'nothing is left beside OUT' 1 '' '' compgen -G '.k.*'; }
parts_stay() { expect 'the parts stay' 0 . '' compgen -G "$parts/0-of-*"; }
# of several shards, two without experts: they are files of OUT, beside one of experts and one of the rest
synth deepseek-v4-flash "$many" --tiny --layers 4
convert "$many" "$single" "${kind[@]}"
# other bytes under equal headers, older than OUT
cp -rp "$many" "$once/tuned"
for file in "$once"/tuned/*.safetensors; do put_last "$file" '\125' && touch -d '1 hour ago' "$file"; done
convert "$once/tuned" "$once/of-tuned" "${kind[@]}"
instead() { "$program" convert "$many" k --backend triton-hopper --engine vllm --force "$@"; }

test_one_part() {
  expect 'a part' 0 '' 'k: part 1 of 3: [0-9]+ files?, ' part 1/3
  expect 'once more, nothing is done' 0 '' 'part 1 of 3: .*done already' part 1/3
  expect 'what it did, as JSON' 0 '"part": ?1, ?"parts": ?3.*"unchanged": ?true' '' part 1/3 --json -q
  nothing k
  expect 'what is missing, as an array' 1 '^0,2$' 'k: 2 of 3 parts are missing; write these: 0,2' merge
  expect 'and as JSON' 1 '"parts": ?3, ?"missing": ?\[0, ?2\], ?"array": ?"0,2"' 'are missing' merge --json
  expect 'clean lists it' 0 'k: parts of an output; merge joins them' 'nothing was removed; --remove discards these' "$program" clean .
}
test_no_parts() {
  expect 'no parts at all' 2 '' 'there are no parts of it' "$program" merge none
  expect 'a folder of others' 2 '' 'there are no parts of it, and it is not an output of mxfp4-pack' "$program" merge "$many"
  cp -r "$single" k
  truncate -s -1 "$(a_shard k/packed)"
  expect 'an output with a file that is cut' 2 '' 'k: there are no parts of it, and the output is not as' merge
  expect 'no such part' 2 '' '--part 3/3: I/N was expected' part 3/3
}
test_other_parts() {
  prepare part 1/3 -q
  expect 'another number' 2 '' 'part 1 of 3 is one of 3, not of 4; write the others with --part I/3, or discard the parts: mxfp4-pack clean .*k --remove' part 0/4
  expect 'one that is to replace OUT' 2 '' 'part 1 of 3 is of a command without --force; first write and merge all parts with their own' part 0/3 --force
  expect 'other options' 2 '' 'was made with other options' "$program" convert "$many" k --backend marlin --engine vllm --link --part 0/3
  cp -r "$many" again
  expect 'another download of the model' 2 '' 'was made from another source' "$program" convert again k "${kind[@]}" --part 0/3
  expect 'synth sees them' 2 '' 'parts of it exist; join them with merge, or discard them: mxfp4-pack clean .*k --remove$' \
    "$program" synth gpt-oss-20b k --tiny
}
test_advice_discards_parts() {
  mkdir late
  prepare "$program" convert "$many" late/k "${kind[@]}" --part 0/3 -q
  all_of 4
  eval "\"\$program\" $(part 0/5 2>&1 | sed -n 's/.* discard the parts: mxfp4-pack \(.*\)/\1/p') -q"
  nothing "$parts"
  expect 'those of others stay' 0 . '' compgen -G 'late/.k.*'
}
test_two_on_one_part() {
  part 0/3 -q & one=$!
  part 0/3 -q & two=$!
  expect 'the one' 0 '' '' wait $one
  expect 'the other' 0 '' '' wait $two
  expect 'one of them is there' 0 '' 'done already' part 0/3
}
test_last_part_merges() {
  prepare part 0/3 -q
  prepare part 1/3 -q
  expect 'the last part' 0 '"merged":true' '' part 2/3 --merge --json -q
  like "$single"
}
test_more_parts_than_files() {
  part 0/60 -q --merge
  for i in $(seq 1 59); do part "$i/60" -q --merge 2>/dev/null || break; done
  like "$single"
  expect 'one without files comes late' 0 '' 'part 59 of 60: 0 files, 0 B, all is merged already' part 59/60
}
test_after_the_merge() {
  cp -rp "$single" k
  expect 'a second merge' 0 '' 'k: already complete, no parts to merge: marlin of vllm at tp 2$' merge
  expect 'as JSON' 0 '^\{"out":".*k","unchanged":true\}$' '' merge --json -q
  expect 'one that reads all bytes' 0 '' 'k: its bytes have their checksums' merge --verify
  expect 'a part' 0 '' 'part 0 of 3: .*all is merged already' part 0/3
  expect 'a part, as JSON' 0 '"part":0.*"unchanged":true' '' part 0/3 --json -q
  expect 'a part that is to replace it' 0 '' 'part 0 of 3: .*all is merged already' part 0/3 --force
  for other in 0/3 59/60; do  # with files and without
    expect "part $other of something else" 2 '' 'k: exists, and is not what its parts make; choose another place, or' \
      "$program" convert "$many" k --backend marlin --engine vllm --part $other
  done
  like "$single"
  put_last "$(a_shard k/packed)" '\125'
  expect 'a wrong byte' 2 '' 'does not have the (right )?(checksum|SHA-256)' merge --verify
}
test_source_that_changed() {
  cp -r "$many" source
  convert source k "${kind[@]}"
  touch source/*.safetensors
  expect 'a part' 2 '' 'k: exists, and is not what its parts make' "$program" convert source k "${kind[@]}" --part 0/3
}
test_part_that_comes_late() {
  mkdir late
  prepare "$program" convert "$many" late/k "${kind[@]}" --part 0/3 -q
  cp -rp "$single" k
  cp -r late/.k.mxfp4-pack .
  expect 'the next merge tidies it' 0 '' 'k: all is merged already' merge
  like "$single"
  cp -r late/.k.mxfp4-pack .
  put_last "$(a_shard k/packed)" '\125'
  expect 'not while the bytes of OUT are wrong' 2 '' 'does not have the (right )?(checksum|SHA-256)' merge --verify
  parts_stay
  rm -r k && cp -rp "$single" k
  expect 'it goes if they are right' 0 '' 'its bytes have their checksums' merge --verify
  nothing_beside
}
tuned() { "$program" convert "$once/tuned" k "${kind[@]}" --force --part "$1/3"; }
test_parts_replace_out() {
  for i in 0 1 2; do  # one of them has a share that is the same
    rm -rf k .k.* && cp -rp "$single" k
    expect "part $i of other weights, the first" 0 '' "part $i of 3: .* in [0-9]" tuned $i
  done
  for i in 0 1; do prepare tuned $i; done 2>/dev/null
  expect 'replaced' 0 '' 'check it with' merge
  like "$once/of-tuned"
}
test_out_of_other_weights_appears() {
  all_of 3
  cp -r "$once/of-tuned" k
  expect 'a merge' 2 '' 'exists, and is not what its parts make; move it away' merge
  parts_stay
}
test_refused_run_keeps_parts() {
  cp -r "$single" k
  prepare instead --part 0/2 -q
  echo edited >>k/config.json
  expect 'an edited file in OUT' 2 '' 'config.json was changed since|config.json' instead
  parts_stay
  rm -r k .k.*
  all_of 2
  mkdir k && touch k/mine
  expect 'an OUT of others' 2 '' 'exists' on
  rm -r k
  expect 'the parts are merged' 0 '' 'check it with' merge
}
test_out_that_parts_do_not_replace() {
  cp -r "$single" k
  echo mine >k/notes.txt
  expect 'with a file of others' 2 '' 'k: notes.txt was not made by mxfp4-pack; move it' instead --part 0/2
  rm -r k && echo mine >k
  expect 'a file' 2 '' 'k: is a file, not a folder; choose' instead --part 0/2
  : >k
  expect 'an empty file' 2 '' 'k: is a file, not a folder; choose' part 0/2
  nothing_beside
}
test_damaged_source() {
  cp -r "$single" damaged
  put_last damaged/rest-00001.safetensors '\125'  # a copied tensor of an OUT that is CKPT
  for i in 0 1 2; do "$program" convert damaged k --backend marlin --engine vllm --part $i/3 2>>said.txt || echo "$i: $?"; done >codes.txt
  expect 'one part finds it' 0 '^[012]: 2$' '' cat codes.txt
  also . 1
  expect 'and names it' 0 'damaged: 1 of [0-9]+ tensors do not have the checksum in mxfp4-pack.json, ' '' cat said.txt
}
test_first_part_that_fails() {
  cp -r "$many" nan
  for file in nan/*.safetensors; do  # scales of 0xFF: every byte behind the header
    header=$((8 + $(od -A n -t u8 -N 8 "$file")))
    { head -c $header "$file" && tail -c +$((header + 1)) "$file" | tr '\0-\376' '\377'; } >new && mv new "$file"
  done
  expect 'a scale that is none' 2 '' 'scale' "$program" convert nan k --backend marlin --engine vllm --part 0/1
  nothing_beside
}
test_file_of_others_in_a_part() {
  all_of 2
  echo mine >"$(compgen -G "$parts/0-of-2.*")/notes.txt"
  expect 'a merge' 0 '' 'notes.txt was not made by mxfp4-pack; move it away' merge
  expect 'the next' 0 '' 'k: all is merged already' merge
  also 'notes.txt was not made by mxfp4-pack; move it away'
  rm "$parts"/*/notes.txt
  expect 'tidies the part' 0 '' 'k: ' merge
  nothing_beside
}
test_damaged_part() {
  all_of 4
  file=$(a_shard "$parts")
  put_last "$file" '\377'
  expect 'a merge that reads packs it again' 0 '' 'of [0-9]+ steps are done already' merge --verify
  also "${file#"$parts"/*/}: not as it was written; steps that are done again: 1$"
  like "$single"
}
test_part_lacks_a_file() {
  all_of 4
  rm "$(a_shard "$parts")"
  expect 'the part is missing' 1 '^[0-3]$' '1 of 4 parts are missing' merge
}
test_part_without_a_record() {
  all_of 2
  late=$(compgen -G "$parts/0-of-2.*")
  cp -r "$late" "${late}0"
  : >"${late}0/part-record"
  expect 'beside whole ones' 0 '' 'check it with' merge
  nothing_beside
}
test_two_merges() {
  all_of 4
  merge -q 2>/dev/null & one=$!
  merge -q 2>/dev/null & two=$!
  wait $one; wait $two
  like "$single"
}
# merging NAME: the lock of a merge, which names host and process
merging() { mkdir -p "$parts/merging/$1"; }
this_host() { hostname | sed 's/[^A-Za-z0-9-]/_/g'; }
test_merge_on_another_node() {
  all_of 2
  merging elsewhere.7
  expect 'is not disturbed' 2 '' 'k: is being merged or continued by process elsewhere.7' merge
  for how in '' --force; do
    expect "nor by a run $how" 2 '' 'k: is being merged or continued by process elsewhere.7' on $how
  done
  touch -d '1 hour ago' "$parts/merging"
  expect 'nor waited for if it is dead' 0 '' 'check it with' merge
  like "$single"
}
test_merge_of_a_dead_process() {
  all_of 2
  (sh -c 'echo $$ >dead' & exec sleep 30) &  # sleep does not wait for its child
  until grep -q '^State:.Z' "/proc/$(cat dead)/status"; do sleep 0.02; done 2>/dev/null
  merging "$(this_host).$(cat dead)"
  expect 'that nobody waited for is known on this host' 0 '' 'check it with' merge
  kill $!
}
test_merge_of_a_living_process() {
  all_of 2
  merging "$(this_host).$$"
  touch -d '1 hour ago' "$parts/merging"
  expect 'is waited for' 2 '' 'is being merged or continued by process .*[.][0-9]+' merge
}
test_single_run_continues_parts() {
  prepare part 0/2 -q
  expect 'a run' 0 '' '[0-9]+ of [0-9]+ steps are done already' on
  like "$single"
}
test_part_that_another_node_may_write() {
  prepare part 0/2 -q
  mkdir -m 700 "$parts/.1-of-2.other.1.1.mxfp4-pack"
  expect 'a run' 2 '' 'other nodes may be writing parts' on
  expect 'clean' 0 '^kept: .*k: parts of an output' '' "$program" clean k --remove
  touch -d '1 hour ago' "$parts/.1-of-2.other.1.1.mxfp4-pack"
  mkdir -m 700 "$parts/.1-of-2.$(this_host).$$.1.mxfp4-pack"
  expect 'one of a living process' 2 '' 'other nodes may be writing parts' on
  rmdir "$parts"/.1-of-2."$(this_host)".*
  mkdir -m 700 "$parts/.1-of-2.$(this_host).$(sh -c 'echo $$').1.mxfp4-pack"
  expect 'those that nobody writes any more' 0 '' '[0-9]+ of [0-9]+ steps are done already' on
  like "$single"
}
test_run_with_other_options() {
  prepare part 0/2 -q
  other=(--backend marlin --engine vllm --tp-size 2)
  expect 'is refused' 2 '' 'part 0 of 2 was made with other options.* discard the parts: mxfp4-pack clean .*k --remove' \
    "$program" convert "$many" k "${other[@]}"
  expect 'discards the parts with --force' 0 '' 'check it with' "$program" convert "$many" k "${other[@]}" --force
  nothing_beside
}
# stop_part: part 0 of 2 stands still while it is written; its process is $late
stop_part() {
  for try in $(seq 200); do
    rm -rf k .k.*
    (exec "$program" convert "$many" k "${kind[@]}" --part 0/2 --threads 1 2>late.txt) &
    late=$!
    until compgen -G "$parts/.0-of-2.*.mxfp4-pack/new" >/dev/null; do kill -0 $late || break; done
    kill -STOP $late && ! compgen -G "$parts/0-of-2.*" && return
    kill -CONT $late
    wait $late
  done 2>/dev/null
  return 1
}
test_second_of_two_on_one_part_ends_after_the_merge() {
  prepare stop_part
  all_of 2
  expect 'a merge does not wait for it' 0 '' 'check it with' merge
  expect 'it finds its part there' 0 '' 'part 0 of 2: .*done already' go_on $late late.txt
  like "$single"
}
test_part_ends_after_out_appeared() {
  prepare stop_part
  cp -r "$single" k
  expect 'it ends' 0 '' 'part 0 of 2: .*done already, and all is merged' go_on $late late.txt
  nothing_beside
}
test_nodes_of_other_umasks() {
  umask 022
  (umask 077 && prepare part 0/2 -q) && prepare part 1/2 -q && prepare merge -q
  expect 'files are as the one that merges makes them' 0 '' '' find k -type f ! -perm 644
}
test_parts_add_a_set() {
  cp -r "$single" k
  cp -r "$single" added
  kind=(--add --backend triton-hopper --engine vllm --tp-size 2)
  convert "$many" added "${kind[@]}"
  all_of 3
  expect 'merged' 0 '' 'beside 1 earlier set' merge
  like added
  expect 'right' 0 'right' '' "$program" verify k --source "$many"
  own() { "$program" convert k k --add --backend triton-blackwell --engine vllm --tp-size 2 "$@"; }
  convert "$many" added --add --backend triton-blackwell --engine vllm --tp-size 2
  expect 'from OUT itself' 0 '' 'part 0 of 2' own --part 0/2
  expect 'and the other part' 0 '' 'beside 2 earlier sets' own --part 1/2 --merge
  like added
}
test_linked_shards() {
  kind=(--backend marlin --engine vllm --link)
  convert "$many" linked "${kind[@]}"
  all_of 2
  expect 'merged' 0 '' 'check it with' merge
  like linked
}
test_layout_file_that_is_gone() {
  prepare "$program" layout layout.json --backend marlin --engine vllm --model "$many" -q
  kind=(--layout "$dir/layout.json" --no-loader)
  convert "$many" by-file "${kind[@]}"
  all_of 2
  rm layout.json
  expect 'merged' 0 '' 'check it with' merge
  like by-file
}

# verdicts OUT N [OPTION...]: the exit codes of verify's parts
verdicts() {
  local i
  for i in $(seq 0 $(($2 - 1))); do
    "$program" verify "$1" --part "$i/$2" "${@:3}" >"verdict-$i.txt"
    echo -n "$? "
  done
}
test_verify_by_parts() {
  expect 'three' 0 '^0 0 0 $' '' verdicts "$single" 3 --source "$many"
  expect 'a verdict of each' 0 '^.*/single: part 0 of 3: right at level kernels' '' cat verdict-0.txt
  expect 'of the level that it reached' 0 'part 1 of 2: right at level bytes' '' "$program" verify "$single" --source "$many" --layers 1 --part 1/2
  expect 'more parts than files' 0 '^(0 ){9}$' '' verdicts "$single" 9
  expect 'layers are dealt out' 0 '^layers.1.ffn' '' "$program" verify "$single" --source "$many" --layers all --part 1/4
  also 'layers.[023]' 0
  expect 'as JSON' 0 '"part":1,"parts":4' '' "$program" verify "$single" --part 1/4 --json
}
test_one_part_of_verify_finds_a_wrong_byte() {
  cp -r "$single" out
  for file in $(find out -name '*.safetensors' ! -name '*canary*'); do
    cp --remove-destination "$file" kept
    cp --remove-destination kept "$file" && put_last "$file" '\125'
    expect "in ${file##*/}" 0 '^(0 )*1 (0 )*$' '' verdicts out 4
    mv kept "$file"
  done
  echo >>out/config.json
  expect 'in a small file, the first' 0 '^1 0 0 0 $' '' verdicts out 4
}

# the man page's line that writes missing parts again
write_again() { (
  mxfp4-pack() { "$program" "${@/#out\//k}"; }
  sbatch() { echo "submitted: $*"; }
  eval "$(sed -n '/^missing=/p' "$root/man/mxfp4-pack.1")"
); }
test_script_of_the_manual() {
  prepare grep -q '^missing=' "$root/man/mxfp4-pack.1"
  kind=(--backend marlin --engine vllm)
  expect 'no part at all: all are submitted' 0 '^submitted: --wait --array=0-4 convert.sbatch$' 'there are no parts of it' write_again
  prepare part 1/3 -q
  expect 'missing parts are submitted' 0 '^submitted: --wait --array=0 convert.sbatch$' 'are missing' write_again
  prepare part 0/3 -q
  prepare part 2/3 -q --merge
  expect 'nothing is missing' 0 '' 'already complete, no parts to merge' write_again
}

auto() { rm -rf .auto.* && env "$@" "$program" convert "$many" auto --backend marlin --engine vllm --part auto; }
test_part_auto() {
  expect 'no launcher' 2 '' 'no variable of Slurm, Kubernetes .* part of how many' auto
  expect 'an index without its count' 2 '' 'PMI_RANK=3 is set without PMI_SIZE' auto PMI_RANK=3
  expect 'an array of one task says nothing of all parts' 2 '' '_COUNT=1, _MIN=4, .*are no whole array; set MXFP4_PACK_PARTS' \
    auto SLURM_ARRAY_TASK_ID=4 SLURM_ARRAY_TASK_COUNT=1 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_MAX=4 SLURM_ARRAY_TASK_STEP=1
  expect 'two that disagree' 2 '' 'OMPI_.*SIZE=2 and PMI_RANK=3, PMI_SIZE=8 disagree' \
    auto PMI_RANK=3 PMI_SIZE=8 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2
  expect 'a count without a number' 2 '' 'part of how many beside MXFP4_PACK_PARTS=4; use --part' auto MXFP4_PACK_PARTS=4
  expect "a count that is not the launcher's" 2 '' 'PMI_RANK=1, PMI_SIZE=2 and MXFP4_PACK_PARTS=4 disagree' \
    auto PMI_RANK=1 PMI_SIZE=2 MXFP4_PACK_PARTS=4
  expect 'one that is' 0 '' 'part 1 of 2' auto PMI_RANK=1 PMI_SIZE=2 MXFP4_PACK_PARTS=2
  expect 'an indexed job' 0 '' 'part 1 of 2' auto JOB_COMPLETION_INDEX=1 MXFP4_PACK_PARTS=2
  expect 'tasks of srun' 0 '' 'part 0 of 2' auto SLURM_PROCID=0 SLURM_NTASKS=2 PMI_RANK=0 PMI_SIZE=2
  expect 'no number' 2 '' "PMI_SIZE='x' is no number" auto PMI_RANK=0 PMI_SIZE=x
}
test_part_auto_in_an_array() {
  array=(SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_STEP=2)
  expect 'its script is task 0' 0 '' 'part 2 of 3' auto "${array[@]}" SLURM_ARRAY_TASK_MAX=7 SLURM_PROCID=0
  expect 'a piece of one' 2 '' '_MAX=9, .*are no whole array; set MXFP4_PACK_PARTS' auto "${array[@]}" SLURM_ARRAY_TASK_MAX=9
  expect 'of how many, is said' 0 '' 'part 7 of 20' auto "${array[@]}" SLURM_ARRAY_TASK_MAX=9 MXFP4_PACK_PARTS=20
}
run_cases
