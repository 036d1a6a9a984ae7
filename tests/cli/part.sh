#!/usr/bin/env bash
# Parts that nodes write independently, and their merge.
# usage: part.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

many=$dir/many k=$dir/k parts=$dir/.k.mxfp4-pack/parts
# of shards, two without experts: they are files of OUT, beside one of experts and one of the rest
synth deepseek-v4-flash "$many" --tiny --layers 4
kind=(--backend marlin --engine vllm --tp-size 2 --link --sha256)
part() { "$program" convert "$many" "$k" "${kind[@]}" --part "$@"; }
all_of() { for i in $(seq 0 $(($1 - 1))); do prepare part "$i/$1" -q; done; }
merge() { "$program" merge "$k" "$@"; }
same() { diff -r "$dir/single" "$k"; }
clear() { rm -rf "$k" "$dir"/.k.*; }
convert "$many" "$dir/single" "${kind[@]}"

expect 'a part' 0 '' 'k: part 1 of 3: [0-9]+ files?, ' part 1/3
expect 'once more, nothing is done' 0 '' 'part 1 of 3: .*done already' part 1/3
expect 'what it did, as JSON' 0 '"part": ?1, ?"parts": ?3.*"unchanged": ?true' '' part 1/3 --json -q
expect 'OUT is not there before the merge' 1 '' '' test -e "$k"
expect 'what is missing, as an array' 1 '^0,2$' 'k: 2 of 3 parts are missing; write these: 0,2' merge
expect 'and as JSON' 1 '"parts": ?3, ?"missing": ?\[0, ?2\], ?"array": ?"0,2"' 'are missing' merge --json
expect 'another number of parts' 2 '' 'part 1 of 3 is one of 3, not of 4; write the others with --part I/3; discard the parts: mxfp4-pack clean .*/k --remove' part 0/4
expect 'a part that is to replace OUT, beside others that are not' 2 '' 'was made with other options \(--add and --force count\) or' part 0/3 --force
expect 'other options' 2 '' 'was made with other options' \
  "$program" convert "$many" "$k" --backend marlin --engine vllm --link --part 0/3
cp -r "$many" "$dir/again"
expect 'another download of the model' 2 '' 'was made from another source' \
  "$program" convert "$dir/again" "$k" "${kind[@]}" --part 0/3
expect 'synth sees the parts' 2 '' 'parts of it exist; join them with merge, or discard them: mxfp4-pack clean .*/k --remove$' \
  "$program" synth gpt-oss-20b "$k" --tiny
expect 'clean lists them' 0 'k: parts of an output; merge joins them' 'nothing was removed; use --remove' "$program" clean "$dir"
part 0/3 -q & one=$!
part 0/3 -q & two=$!
expect 'two on one part: the one' 0 '' '' wait $one
expect 'and the other' 0 '' '' wait $two
expect 'the last part, and the merge' 0 '"merged":true' '' part 2/3 --merge --json -q
expect 'the bytes of a single run' 0 '' '' same
expect 'nothing is left beside it' 1 '' '' compgen -G "$dir/.k.*"
expect 'a second merge changes nothing' 0 '' 'k: already complete, no parts to merge: marlin of vllm at tp 2$' merge
expect 'as JSON' 0 '^\{"out":".*k","unchanged":true\}$' '' merge --json -q
expect 'nor one that reads all bytes' 0 '' 'k: its bytes have their checksums' merge --verify
shard=$(find "$k/packed" -name '*.safetensors' | sort | head -n 1)
cp "$shard" "$dir/kept"
put_last "$shard" '\125'
expect 'which finds a wrong one' 2 '' 'does not have the (right )?(checksum|SHA-256)' merge --verify
mv "$dir/kept" "$shard"
cp -r "$k" "$dir/broken"
truncate -s -1 "$(find "$dir/broken/packed" -name '*.safetensors' | sort | head -n 1)"
expect 'nor does a file that is not whole pass for OUT' 2 '' 'broken: there are no parts of it, and the output is not as' \
  "$program" merge "$dir/broken"
expect 'nor a folder of others' 2 '' 'there are no parts of it, and it is not an output of mxfp4-pack' "$program" merge "$many"
expect 'a part of what is there' 0 '' 'part 0 of 3: .*all is merged already' part 0/3
expect 'also by JSON' 0 '"part":0.*"unchanged":true' '' part 0/3 --json -q
expect 'and one without files' 0 '' 'part 59 of 60: 0 files, 0 B, all is merged already' part 59/60
other() { "$program" convert "$many" "$k" --backend marlin --engine vllm --part "$1"; }
expect 'a part of something else' 2 '' 'k: exists, and is not what its parts make; choose another place, or' other 0/3
expect 'and one of it without files' 2 '' 'k: exists, and is not what its parts make' other 59/60
touch "$many"/*.safetensors
expect 'a part of a source that has changed since' 2 '' 'k: exists, and is not what its parts make' part 0/3
find "$many" -name '*.safetensors' -exec touch -d '1 hour ago' {} +
mkdir "$dir/late"
prepare "$program" convert "$many" "$dir/late/k" "${kind[@]}" --part 0/3 -q
cp -r "$dir/late/.k.mxfp4-pack" "$dir"
expect 'a part that came late is tidied by the next merge' 0 '' 'k: all is merged already' merge
expect 'nothing is left beside it' 1 '' '' compgen -G "$dir/.k.*"
cp -r "$dir/late/.k.mxfp4-pack" "$dir"
mv "$k" "$dir/right"
cp -r "$dir/right" "$k"
put_last "$(find "$k/packed" -name '*.safetensors' | sort | head -n 1)" '\125'
expect 'not while the bytes of OUT are wrong' 2 '' 'does not have the (right )?(checksum|SHA-256)' merge --verify
expect 'the part stays' 0 . '' compgen -G "$parts/0-of-3.*"
rm -r "$k"
mv "$dir/right" "$k"
expect 'it goes where they are right' 0 '' 'its bytes have their checksums' merge --verify
expect 'and nothing is left' 1 '' '' compgen -G "$dir/.k.*"
expect 'a part that is to replace it, run again after the merge' 0 '' 'part 0 of 3: .*all is merged already' part 0/3 --force
expect 'leaves nothing beside it' 1 '' '' compgen -G "$dir/.k.*"
# other bytes under equal headers, older than OUT
cp -rp "$many" "$dir/tuned"
for file in "$dir"/tuned/*.safetensors; do
  put_last "$file" '\125'
  touch -d '1 hour ago' "$file"
done
tuned() { "$program" convert "$dir/tuned" "$k" "${kind[@]}" --force --part "$1/3"; }
convert "$dir/tuned" "$dir/of-tuned" "${kind[@]}"
for i in 0 1 2; do # one of them has a share that is the same
  clear
  cp -rp "$dir/single" "$k"
  expect "part $i of other weights, the first to replace it" 0 '' "part $i of 3: .* in [0-9]" tuned $i
done
for i in 0 1; do prepare tuned $i; done 2>/dev/null
expect 'replaced' 0 '' 'check it with' merge
expect 'by the bytes of those weights' 0 '' '' diff -r "$dir/of-tuned" "$k"
clear
for i in 0 1 2; do prepare part $i/3 -q; done
cp -r "$dir/of-tuned" "$k"
expect 'parts of other weights than those of an OUT that came meanwhile' 2 '' 'exists, and is not what its parts make; move it away' merge
expect 'stay' 0 . '' compgen -G "$parts/0-of-3.*"
clear
cp -r "$dir/single" "$k"
instead() { "$program" convert "$many" "$k" --backend triton-hopper --engine vllm --force "$@"; }
prepare instead --part 0/2 -q
echo edited >>"$k/config.json"
expect 'a run that is refused' 2 '' 'config.json was changed since|config.json' instead
expect 'keeps the parts' 0 . '' compgen -G "$parts/0-of-2.*"
clear
cp -r "$dir/single" "$k"
echo mine >"$k/notes.txt"
expect 'a part that is to replace an OUT with a file of others' 2 '' 'k: notes.txt was not made by mxfp4-pack; move it' instead --part 0/2
rm -r "$k"
echo mine >"$k"
expect 'or a file' 2 '' 'k: exists, and nothing in it says that' instead --part 0/2
: >"$k"
expect 'be it empty' 2 '' 'k: exists, and is not what its parts make' part 0/3
expect 'begins nothing' 1 '' '' compgen -G "$dir/.k.*"

# an OUT as CKPT, a copied tensor of which is damaged
clear
cp -r "$dir/single" "$dir/damaged"
put_last "$dir/damaged/rest-00001.safetensors" '\125'
from_damaged() {
  for i in 0 1 2; do "$program" convert "$dir/damaged" "$k" --backend marlin --engine vllm --part $i/3 2>>"$dir/damaged.txt" || echo "part $i: $?"; done
}
expect 'damage is found by the part that copies it' 0 '^part [012]: 2$' '' from_damaged
cp "$dir/out.txt" "$dir/found.txt"
expect 'by that one alone' 0 '^1$' '' grep -c . "$dir/found.txt"
expect 'and named' 0 'damaged: 1 of [0-9]+ tensors do not have the checksum in mxfp4-pack.json, ' '' cat "$dir/damaged.txt"

clear
all_of 2
echo mine >"$(compgen -G "$parts/0-of-2.*")/notes.txt"
expect 'a file of others in a part does not stop a merge' 0 '' 'notes.txt was not made by mxfp4-pack; move it away' merge
expect 'nor the next' 0 '' 'k: all is merged already' merge
cp "$dir/err.txt" "$dir/left.txt"
expect 'which names what is left' 0 'notes.txt was not made by mxfp4-pack; move it away' '' cat "$dir/left.txt"
rm "$parts"/*/notes.txt
expect 'and tidies it when that is gone' 0 '' 'k: ' merge
expect 'so that nothing is left' 1 '' '' compgen -G "$dir/.k.*"

clear
all_of 4
file=$(find "$parts" -name '*.safetensors' | sort | head -n 1)
put "$file" $(($(stat -c %s "$file") - 1)) '\377'
damaged=${file#*/.k.mxfp4-pack/parts/*/}
expect 'damage is found before it gets a SHA-256, and mended' 0 '' 'of [0-9]+ steps are done already' merge
cp "$dir/err.txt" "$dir/named.txt"
expect 'and named' 0 "$damaged: not as it was written; steps that are done again: 1$" '' cat "$dir/named.txt"
expect 'to the bytes of a single run' 0 '' '' same

clear
part 0/60 -q --merge
for i in $(seq 1 59); do part "$i/60" -q --merge 2>/dev/null || break; done
expect 'more parts than files, each of which may merge' 0 '' '' same
expect 'nothing is left beside it' 1 '' '' compgen -G "$dir/.k.*"
expect 'one without files comes late' 0 '' 'part 59 of 60: 0 files' part 59/60

clear
all_of 4
advice=$("$program" convert "$many" "$k" "${kind[@]}" --part 0/5 2>&1 | sed -n 's/.* discard the parts: mxfp4-pack \([^;]*\);.*/\1/p')
eval "\"\$program\" $advice -q"
expect 'what a mismatch advises ends it' 1 '' '' compgen -G "$parts"
expect 'and leaves those of others' 0 . '' compgen -G "$dir/late/.k.*"
all_of 4
rm "$(find "$parts" -name '*.safetensors' | sort | head -n 1)"
expect 'a file that is gone' 1 '^[0-3]$' '1 of 4 parts are missing' merge
part "$(merge 2>/dev/null)/4" -q
merge -q 2>"$dir/one.txt" & one=$!
merge -q 2>"$dir/two.txt" & two=$!
wait $one; wait $two
expect 'two merges at once' 0 '' '' same

clear
all_of 2
mkdir -p "$parts/merging/elsewhere.7"
expect 'a node that merges is not disturbed' 2 '' 'k: is being merged or continued by process elsewhere.7' merge
touch -d '1 hour ago' "$parts/merging"
expect 'nor waited for when it is dead' 0 '' 'check it with' merge
expect 'the same bytes' 0 '' '' same
clear
all_of 2
mkdir -p "$parts/merging/$(hostname | sed 's/[^A-Za-z0-9-]/_/g').$(sh -c 'echo $$')"
expect 'a dead process of this host is known' 0 '' 'check it with' merge
clear
all_of 2
mkdir -p "$parts/merging/$(hostname | sed 's/[^A-Za-z0-9-]/_/g').$$"
touch -d '1 hour ago' "$parts/merging"
expect 'one that lives is waited for however long it takes' 2 '' 'is being merged or continued by process .*[.][0-9]+' merge

clear
all_of 2
late=$(compgen -G "$parts/0-of-2.*")
cp -r "$late" "${late}0"
: >"${late}0/part-record"
expect 'a part whose record is empty, beside whole ones' 0 '' 'check it with' merge
expect 'goes with them' 1 '' '' compgen -G "$dir/.k.*"

clear
all_of 2
mkdir "$k" && touch "$k/mine"
expect 'parts outlive a run that is refused' 2 '' 'exists' "$program" convert "$many" "$k" "${kind[@]}"
rm -r "$k"
expect 'and are merged' 0 '' 'check it with' merge

clear
all_of 2
mkdir -p "$parts/merging/elsewhere.7"
for how in '' --force; do
  expect "nor does a run $how go beside one that merges" 2 '' 'k: is being merged or continued by process elsewhere.7' \
    "$program" convert "$many" "$k" "${kind[@]}" $how
done

clear
prepare part 0/2 -q
expect 'a single run goes on with parts' 0 '' '[0-9]+ of [0-9]+ steps are done already' \
  "$program" convert "$many" "$k" "${kind[@]}"
expect 'to the same bytes' 0 '' '' same

clear
prepare part 0/2 -q
mkdir -m 700 "$parts/.1-of-2.other.1.1.mxfp4-pack"
expect 'a part that may be written now' 2 '' 'other nodes may be writing parts' \
  "$program" convert "$many" "$k" "${kind[@]}"
expect 'clean keeps them, too' 0 '^kept: .*k: parts of an output' '' "$program" clean "$k" --remove
touch -d '1 hour ago' "$parts/.1-of-2.other.1.1.mxfp4-pack"
expect 'one that nobody writes any more' 0 '' '[0-9]+ of [0-9]+ steps are done already' \
  "$program" convert "$many" "$k" "${kind[@]}"
expect 'ends in the same bytes' 0 '' '' same
clear
prepare part 0/2 -q
other=(--backend marlin --engine vllm --tp-size 2 --link)
expect 'parts of another command are refused' 2 '' 'part 0 of 2 was made with other options.* discard the parts: mxfp4-pack clean .*/k --remove' \
  "$program" convert "$many" "$k" "${other[@]}"
expect 'and discarded with --force' 0 '' 'check it with' "$program" convert "$many" "$k" "${other[@]}" --force
expect 'all of them' 1 '' '' compgen -G "$dir/.k.*"
expect 'no parts at all' 2 '' 'there are no parts of it' "$program" merge "$dir/none"

clear
# scales of 0xFF: every byte behind the header
mkdir "$dir/nan"
cp "$many"/*.json "$dir/nan"
for file in "$many"/*.safetensors; do
  header=$((8 + $(od -A n -t u8 -N 8 "$file")))
  { head -c $header "$file" && tail -c +$((header + 1)) "$file" | tr '\0-\376' '\377'; } >"$dir/nan/${file##*/}"
done
expect 'a first part that fails' 2 '' 'scale' "$program" convert "$dir/nan" "$k" --backend marlin --engine vllm --part 0/1
expect 'leaves nothing' 1 '' '' compgen -G "$dir/.k.*"

# stop_part: part 0 of 2 stands still while it is written; its process is $late
stop_part() {
  for try in $(seq 200); do
    clear
    (exec "$program" convert "$many" "$k" "${kind[@]}" --part 0/2 --threads 1 2>"$dir/late.txt") &
    late=$!
    until compgen -G "$parts/.0-of-2.*.mxfp4-pack/new" >/dev/null; do kill -0 $late || break; done
    kill -STOP $late && ! compgen -G "$parts/0-of-2.*" && return
    kill -CONT $late
    wait $late
  done 2>/dev/null
  return 1
}
prepare stop_part
all_of 2
expect 'a merge that does not need the second of two on one part' 0 '' 'check it with' merge
expect 'which finds its part there' 0 '' 'part 0 of 2: .*done already' go_on $late "$dir/late.txt"
expect 'and leaves nothing' 1 '' '' compgen -G "$dir/.k.*"
expect 'nor changes anything' 0 '' '' same
prepare stop_part
cp -r "$dir/single" "$k"
expect 'a part that ends when OUT is there' 0 '' 'part 0 of 2: .*done already, and all is merged' go_on $late "$dir/late.txt"
expect 'leaves nothing either' 1 '' '' compgen -G "$dir/.k.*"

clear
umask 022
(umask 077 && prepare part 0/2 -q) && prepare part 1/2 -q && prepare merge -q
expect 'nodes of other umasks: files are as the one that merges makes them' 0 '' '' find "$k" -type f ! -perm 644

kind=(--add --backend triton-hopper --engine vllm --tp-size 2)
cp -r "$k" "$dir/added"
convert "$many" "$dir/added" "${kind[@]}"
all_of 3
expect 'a set is added by parts' 0 '' 'beside 1 earlier set' merge
expect 'as by a single run' 0 '' '' diff -r "$dir/added" "$k"
expect 'it is right' 0 'right' '' "$program" verify "$k" --source "$many"
own() { "$program" convert "$k" "$k" --add --backend triton-blackwell --engine vllm --tp-size 2 "$@"; }
convert "$many" "$dir/added" --add --backend triton-blackwell --engine vllm --tp-size 2
expect 'from OUT itself, too' 0 '' 'part 0 of 2' own --part 0/2
expect 'and the other part' 0 '' 'beside 2 earlier sets' own --part 1/2 --merge
expect 'as from the source' 0 '' '' diff -r "$dir/added" "$k"

clear
kind=(--backend marlin --engine vllm --link)
convert "$many" "$dir/linked" "${kind[@]}"
all_of 2
expect 'linked shards' 0 '' 'check it with' merge
expect 'are those of a single run' 0 '' '' diff -r "$dir/linked" "$k"

clear
prepare "$program" layout "$dir/layout.json" --backend marlin --engine vllm --model "$many" -q
kind=(--layout "$dir/layout.json" --no-loader)
convert "$many" "$dir/by-file" "${kind[@]}"
all_of 2
rm "$dir/layout.json"
expect 'a layout file that is gone by now' 0 '' 'check it with' merge
expect 'gave the same bytes' 0 '' '' diff -r "$dir/by-file" "$k"

# verdicts OUT N [OPTION...]: the exit codes of verify's parts
verdicts() {
  local i
  for i in $(seq 0 $(($2 - 1))); do
    "$program" verify "$1" --part "$i/$2" "${@:3}" >"$dir/verdict-$i.txt"
    echo -n "$? "
  done
}
expect 'verify by parts' 0 '^0 0 0 $' '' verdicts "$dir/single" 3 --source "$many"
expect 'a verdict of each' 0 '^.*/single: part 0 of 3: right at level kernels' '' cat "$dir/verdict-0.txt"
expect 'of the level that it reached' 0 'part 1 of 2: right at level bytes' '' "$program" verify "$dir/single" --source "$many" --layers 1 --part 1/2
expect 'more parts than files' 0 '^(0 ){9}$' '' verdicts "$dir/single" 9
expect 'layers are dealt out' 0 '^layers.1.ffn' '' "$program" verify "$k" --source "$many" --layers all --part 1/4
expect 'and the others left' 1 '' '' grep -q 'layers.[023]' "$dir/out.txt"
expect 'as JSON' 0 '"part":1,"parts":4' '' "$program" verify "$k" --part 1/4 --json
for out in single by-file; do # one with SHA256SUMS, one without
  for file in $(find "$dir/$out" -name '*.safetensors' ! -name '*canary*'); do
    cp "$file" "$dir/kept"
    put_last "$file" '\125'
    expect "$out: a wrong byte in ${file##*/} is found by one part" 0 '^(0 )*1 (0 )*$' '' verdicts "$dir/$out" 4
    mv "$dir/kept" "$file"
  done
  echo >>"$dir/$out/config.json"
  expect "$out: a small file that was edited, by the first" 0 '^1 0 0 0 $' '' verdicts "$dir/$out" 4
done

# the man page's line that writes missing parts again
again=$(sed -n '/^missing=/p' "$root/man/mxfp4-pack.1")
prepare test -n "$again"
write_again() { (
  mxfp4-pack() { "$program" "${@/#out\//$k}"; }
  sbatch() { echo "submitted: $*"; }
  eval "$again"
); }
clear
kind=(--backend marlin --engine vllm)
convert "$many" "$k" "${kind[@]}"
expect 'nothing is missing, and nothing is submitted' 0 '' 'already complete, no parts to merge' write_again
rm -r "$k"
expect 'nor where there is an error' 0 '' 'there are no parts of it' write_again
prepare part 1/3 -q
expect 'what is missing is' 0 '^submitted: --array=0 convert.sbatch$' 'are missing' write_again

auto() { env "$@" "$program" convert "$many" "$dir/auto" --backend marlin --engine vllm --part auto; }
expect 'no launcher' 2 '' 'no variable of Slurm, Kubernetes .* part of how many' auto
expect 'an index without its count' 2 '' 'PMI_RANK=3 is set without PMI_SIZE' auto PMI_RANK=3
expect 'an array of one task says nothing of all parts' 2 '' '_COUNT=1, _MIN=4, .*are no whole array; set MXFP4_PACK_PARTS' \
  auto SLURM_ARRAY_TASK_ID=4 SLURM_ARRAY_TASK_COUNT=1 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_MAX=4 SLURM_ARRAY_TASK_STEP=1
expect 'two that disagree' 2 '' 'OMPI_.*SIZE=2 and PMI_RANK=3, PMI_SIZE=8 disagree' \
  auto PMI_RANK=3 PMI_SIZE=8 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2
expect 'a count without a number' 2 '' 'part of how many beside MXFP4_PACK_PARTS=4; use --part' auto MXFP4_PACK_PARTS=4
expect 'a count that is not the launcher'"'"'s' 2 '' 'PMI_RANK=1, PMI_SIZE=2 and MXFP4_PACK_PARTS=4 disagree' \
  auto PMI_RANK=1 PMI_SIZE=2 MXFP4_PACK_PARTS=4
expect 'one that is' 0 '' 'part 1 of 2' auto PMI_RANK=1 PMI_SIZE=2 MXFP4_PACK_PARTS=2
rm -rf "$dir"/.auto.*
expect 'an indexed job' 0 '' 'part 1 of 2' auto JOB_COMPLETION_INDEX=1 MXFP4_PACK_PARTS=2
rm -rf "$dir"/.auto.*
array=(SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_STEP=2)
expect 'an array of Slurm, where its script is task 0' 0 '' 'part 2 of 3' auto "${array[@]}" SLURM_ARRAY_TASK_MAX=7 SLURM_PROCID=0
rm -rf "$dir"/.auto.*
expect 'a piece of one' 2 '' '_MAX=9, .*are no whole array; set MXFP4_PACK_PARTS' auto "${array[@]}" SLURM_ARRAY_TASK_MAX=9
expect 'of how many, is said' 0 '' 'part 7 of 20' auto "${array[@]}" SLURM_ARRAY_TASK_MAX=9 MXFP4_PACK_PARTS=20
rm -rf "$dir"/.auto.*
expect 'tasks of srun' 0 '' 'part 0 of 2' auto SLURM_PROCID=0 SLURM_NTASKS=2 PMI_RANK=0 PMI_SIZE=2
expect 'no number' 2 '' "PMI_SIZE='x' is no number" auto PMI_RANK=0 PMI_SIZE=x
expect 'no part' 2 '' '--part 3/3: I/N was expected' part 3/3
finish
