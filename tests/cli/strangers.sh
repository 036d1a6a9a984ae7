#!/usr/bin/env bash
# Files of others at the paths that mxfp4-pack writes are kept.
# usage: strangers.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

from=("$program" convert --backend marlin --engine vllm --threads 1)
# run_to_first_job SOURCE: begins a conversion and stops it after its first job; $pid is its process
run_to_first_job() {
  to_first_job : "$dir/k" "${from[@]}" "$1" "$dir/k" -q
  kill -STOP $pid
}
# meanwhile SOURCE COMMAND...: a run from SOURCE that is stopped after its first job, continues after COMMAND
meanwhile() {
  local source=$1
  shift
  for try in $(seq 100); do
    run_to_first_job "$source"
    "$@"
    kill -CONT $pid
    wait $pid
    local code=$?
    [ $code -eq 0 ] && [ -e "$dir/k/packed" ] && restore && continue  # it had ended before
    cat "$once/said"
    return $code
  done
} 2>/dev/null
# What COMMAND took from the source "short".
restore() { rm -rf "$dir/short" "$dir/gone" && cp -rp "$once/many" "$dir/short"; }
may_not() { if [ "$(id -u)" = 0 ]; then setpriv --bounding-set=-dac_override,-dac_read_search -- "$@"; else "$@"; fi; }
many_to_k() { "${from[@]}" "$once/many" "$dir/k" "$@"; }
ln -s "$tiny" "$once/tiny"  # a name without spaces
synth gpt-oss-20b "$once/many" --tiny --layers 24
# killed after a job, with a file of somebody's in its partial output
leave() {
  killed_run : "$dir/k" "$dir/k" "${from[@]}" "$once/many" "$dir/k" -q &&
    echo text >"$dir/.k.mxfp4-pack/new/packed/thesis"
}
stage=.o.mxfp4-pack partial=.o.mxfp4-pack/new journal=.o.mxfp4-pack/journal
on() { "$program" convert "$dir/in" "$dir/o" --backend marlin --engine vllm -q "$@"; }
cp -r "$tiny" "$once/in"

test_out_that_comes_during_the_run() {
  to_first_job : "$dir/k" "${from[@]}" "$once/many" "$dir/k"
  kill -STOP $pid
  mkdir k
  expect 'is kept' 2 '' 'k: kept [0-9]+ finished steps?; move what is there away, then run the same command again to continue' \
    go_on $pid "$once/said"
  rmdir k
  expect 'and the run goes on' 0 '' 'steps are done already' "${from[@]}" "$once/many" "$dir/k"
}
test_staging_directory_of_others() {
  cp -r "$once/in" in
  mkdir -m 700 "$stage"
  mkdir "$partial"
  echo text >"$partial/thesis"
  for how in '' --force; do
    expect "a folder of the name new ($how)" 2 '' 'move it away first' on $how
    expect "it stays ($how)" 0 text '' cat "$partial/thesis"
  done
  rm -r "$partial"
  echo notes >"$journal"
  expect 'a file of the journal'"'"'s name' 2 '' 'is no journal of mxfp4-pack; move it away' on
  expect 'clean keeps it' 0 '^kept: .*the journal is not mxfp4-pack' '' "$program" clean "$dir" --remove
  expect 'it stays' 0 notes '' cat "$journal"
  truncate -s 0 "$journal"
  truncate -s 1T "$journal"
  expect 'a journal of holes is none' 0 '' '' on
}
test_names() {
  cp -r "$once/in" in
  expect "the staging directory's name" 2 '' 'is the name of the staging directory of .*/o; choose another name$' \
    "$program" convert "$dir/in" "$dir/.o.mxfp4-pack" --backend marlin --engine vllm -q
  expect 'a hidden name of nobody' 0 '' '' "$program" convert "$dir/in" "$dir/.o" --backend marlin --engine vllm -q
  expect 'a folder that takes no files' 2 '' 'error: /proc/o: cannot be made in /proc: no file can be created there$' \
    "$program" convert "$dir/in" /proc/o --backend marlin --engine vllm
}
test_companions() {
  cp -r "$once/in" in
  mkdir "$dir/in/packed"
  echo text >"$dir/in/packed/source-headers"
  echo text >"$dir/in/.mxfp4-pack-run"
  expect 'companions under names of the output are left out' 0 '' '' on
  expect 'which is right' 0 '' '' "$program" verify "$dir/o" --source "$dir/in" -q
  rm -r "$dir/in/packed" "$dir/o"
  echo text >"$dir/in/packed"
  expect 'a companion named as the folder of the output' 0 '' '' on
}
# shards that the index calls as the program calls its own files
test_names_of_shards() {
  for name in .mxfp4-pack-run part-record SHA256SUMS config.json part-record/x.safetensors; do
    cp -r "$tiny" "$dir/named"
    mkdir -p "$(dirname "$dir/named/$name")"
    cp "$dir/named/model-00001-of-00001.safetensors" "$dir/named/$name"
    [ "$name" = config.json ] && cp "$tiny/config.json" "$dir/named"
    sed -i "s|model-00001-of-00001.safetensors|$name|" "$dir/named/model.safetensors.index.json"
    rm "$dir/named/model-00001-of-00001.safetensors"
    expect "a shard called $name" 2 '' "json: file name '$name' is one of mxfp4-pack's own; rename the shard" \
      "$program" convert "$dir/named" "$dir/n" --backend marlin --engine vllm
    rm -r "$dir/named"
  done
  for name in rest-00001.safetensors packed/packed-00001.safetensors model-rank-0-part-0.safetensors; do
    cp -r "$tiny" "$dir/named"
    mkdir -p "$(dirname "$dir/named/$name")"
    mv "$dir/named/model-00001-of-00001.safetensors" "$dir/named/$name"
    sed -i "s|model-00001-of-00001.safetensors|$name|" "$dir/named/model.safetensors.index.json"
    convert "$dir/named" "$dir/n" --backend marlin --engine vllm --link
    expect "a shard called $name: right" 0 '' '' "$program" verify "$dir/n" --source "$dir/named" -q
    expect 'unpacked' 0 '' '' "$program" unpack "$dir/n" "$dir/again" -q
    expect 'to the same files' 0 '' '' diff -r "$dir/named" "$dir/again"
    rm -r "$dir/named" "$dir/n" "$dir/again"
  done
}
# an unreadable directory does not count as missing
test_folders_that_cannot_be_entered() {
  convert "$tiny" "$dir/locked" --backend marlin --engine vllm
  chmod 000 "$dir/locked"
  for command in verify inspect; do
    expect "$command of a folder that cannot be entered" 2 '' 'locked: cannot look for mxfp4-pack.json: Permission denied$' \
      may_not "$program" $command "$dir/locked"
  done
  expect 'unpack of it' 2 '' 'locked: cannot look for mxfp4-pack.json: Permission denied$' \
    may_not "$program" unpack "$dir/locked" "$dir/again"
  chmod 755 "$dir/locked"
  cp -r "$tiny" "$dir/shut"
  mkdir -m 000 "$dir/shut/inner"
  sed -i "s|model-00001-of-00001|inner/model|" "$dir/shut/model.safetensors.index.json"
  expect 'a shard in a folder that cannot be entered' 2 'not recognised' 'inner/model.safetensors: cannot be read: Permission denied$' \
    may_not "$program" inspect "$dir/shut"
  chmod 755 "$dir/shut/inner"
}
test_source_that_is_cut_off() {
  prepare restore
  cut_off() { truncate -s 1000 "$dir"/short/*.safetensors; }
  from_short() { "$program" convert "$dir/short" "$dir/k" --backend marlin --engine vllm "$@"; }
  expect 'a source that is cut off meanwhile' 2 'safetensors: (ends at byte|changed while)' '' meanwhile "$dir/short" cut_off
  expect 'leaves no steps that no run can use' 2 '' 'No such file' ls -d "$dir"/.k.*
}
# the source is held: another folder that takes its name is not read
test_source_that_is_moved() {
  prepare restore
  move_while_it_runs() {
    for try in $(seq 100); do
      run_to_first_job "$dir/short"
      [ -e "$dir/k/packed" ] && kill -CONT $pid && wait $pid && continue  # it had ended before
      mv "$dir/short" "$dir/gone" && cp -r "$dir/gone" "$dir/short" && echo '{}' >"$dir/short/config.json"
      kill -CONT $pid
      wait $pid
      return $?
    done
    return 1
  } 2>/dev/null
  expect 'a source that is moved meanwhile' 0 '' '' move_while_it_runs
  expect 'is read to its end' 0 'right at level kernels' '' "$program" verify "$dir/k" --source "$once/many"
}
test_file_in_a_partial_output() {
  prepare leave
  for how in '' --force; do
    expect "a run $how with a file of others in the partial output" 2 '' 'mxfp4-pack/new: packed/thesis was not made by mxfp4-pack, or was changed since; move it away first' many_to_k $how
  done
  find "$dir" -path '*/.k.*' -exec touch -h -d '1 hour ago' {} +
  expect 'clean keeps it all' 0 "^kept: .*no leftover of this user: packed/thesis was not made" '' "$program" clean "$dir" --remove
  mv "$dir/.k.mxfp4-pack/new/packed/thesis" "$dir/thesis"
  expect 'without it the run goes on' 0 '' 'steps are done already' many_to_k
}
# a run into whose partial output somebody puts a file
test_folder_comes_into_a_partial_output() {
  joined() {
    "$program" convert "$once/many" "$dir/k" --backend marlin --engine vllm --threads 1 -q &
    local pid=$!
    until [ -e "$dir/.k.mxfp4-pack/new/.mxfp4-pack-run" ] || ! kill -0 $pid; do :; done
    mkdir "$dir/.k.mxfp4-pack/new/mine"
    wait $pid
  }
  expect 'a folder that comes into it is seen before OUT appears' 2 '' 'mxfp4-pack/new: mine was not made by mxfp4-pack, or was changed since; move it away' joined
  expect 'there is no OUT' 1 '' '' test -e "$dir/k"
  rmdir "$dir/.k.mxfp4-pack/new/mine"
  expect 'and the run goes on without it' 0 '' 'steps are done already' many_to_k
}
test_old_output_of_others() {
  cp -r "$once/in" in
  to_n() { "$program" convert "$dir/in" "$dir/n" --backend marlin --engine vllm -q "$@"; }
  mkdir -m 700 "$dir/.n.mxfp4-pack" && mkdir "$dir/.n.mxfp4-pack/old" && echo text >"$dir/.n.mxfp4-pack/old/thesis"
  expect 'a folder of the old output'"'"'s name is not put in its place' 2 '' 'mxfp4-pack/old: is an old output, .*; move it away first' to_n
  expect 'nor do its files come into OUT' 2 '' 'mxfp4-pack/old: is an old output, .*; move it away first' to_n --force
  expect 'clean keeps it' 0 "^kept: .*/n: no leftover of this user" '' "$program" clean "$dir" --remove
  expect 'it is there' 0 text '' cat "$dir/.n.mxfp4-pack/old/thesis"
}
test_edited_file() {
  cp -r "$once/in" in
  prepare on
  echo '{}' >"$dir/o/generation_config.json"
  expect 'a small file of OUT that somebody edited' 2 '' 'o: generation_config.json was changed since it was written; move it away' on --force
  expect 'stays' 0 '^\{\}$' '' cat "$dir/o/generation_config.json"
  ln -sf ../mine.json "$dir/o/generation_config.json"
  expect 'or put a link for' 2 '' 'o: generation_config.json was changed since it was written; move it away' on --force
  expect 'stays too' 0 '^\.\./mine.json$' '' readlink "$dir/o/generation_config.json"
  rm "$dir/o/generation_config.json"
  expect 'without it OUT is replaced' 0 '' '' on --force
}
test_whole_output_in_the_staging_directory() {
  cp -r "$once/in" in
  prepare on
  mkdir -m 700 "$dir/.o.mxfp4-pack"
  mv "$dir/o" "$partial"
  for how in '' --force; do
    expect "a whole output in the staging directory, without a journal ($how)" 2 '' 'mxfp4-pack/new: .* was not made by .*; move it away first' on $how
    expect "is there as it was ($how)" 0 '' '' "$program" verify "$partial" --source "$dir/in" -q
  done
  find "$dir" -path '*/.o.*' -exec touch -h -d '1 hour ago' {} +
  expect 'clean keeps it' 0 "^kept: .*o: no leftover of this user" '' "$program" clean "$dir/o" --remove
  expect 'as it was' 0 '' '' "$program" verify "$partial" --source "$dir/in" -q
  rm -r "$partial"
  expect 'then there is room' 0 '' '' on
}
test_current_directory() {
  cp -r "$once/in" in
  mkdir "$dir/here"
  into_here() { cd "$dir/here" && "$program" convert "$dir/in" . --backend marlin --engine vllm; }
  expect 'the folder that it was started in is not replaced' 2 '' 'error: \.: is the current directory' into_here
}
test_run_that_loses_files() {
  for path in .k.mxfp4-pack/new/packed .k.mxfp4-pack/new .k.mxfp4-pack/journal .k.mxfp4-pack; do
    expect "a run that loses $path" 2 'removed (meanwhile|during the run)' '' meanwhile "$once/many" rm -rf "$dir/$path"
    expect 'gives no output' 1 '' '' test -e "$dir/k"
  done
}
# a link in OUT's place: what writes refuses it, what reads follows it
test_links() {
  cp -r "$once/in" in
  prepare on
  ln -s o "$dir/link"
  for name in link link/; do
    for command in "convert $once/tiny OUT --backend marlin --engine vllm" "convert $once/tiny OUT --backend marlin --engine vllm --dry-run" \
      "convert $once/tiny OUT --backend marlin --engine vllm --part 0/2" "convert $once/tiny OUT --backend marlin --engine vllm --force" \
      "convert $once/tiny OUT --backend triton-hopper --engine vllm --add" "unpack o OUT" \
      "synth gpt-oss-20b OUT --tiny" 'merge OUT'; do
      expect "$command: $name" 2 '' "$name: is a link; use its target instead\$" "$program" ${command/OUT/"$dir/$name"}
    done
    expect "verify: $name" 0 'right' '' "$program" verify "$dir/$name"
    expect "diff: $name" 0 'are equal' '' "$program" diff "$dir/$name" "$dir/o"
  done
  expect 'CKPT and OUT are both named' 2 '' "error: .*/in/../o: is the source $dir/o itself; choose another place\$" \
    "$program" convert "$dir/o" "$dir/in/../o" --backend marlin --engine vllm
}
test_inside_an_output() {
  cp -r "$once/in" in
  prepare on
  mkdir -p "$dir/o/deep/er"
  ln -s o/deep "$dir/door"
  for command in "convert $once/tiny OUT --backend marlin --engine vllm" \
    "convert $once/tiny OUT --backend marlin --engine vllm --dry-run" \
    "convert $once/tiny OUT --backend marlin --engine vllm --force --part 0/2" "synth gpt-oss-20b OUT --tiny"; do
    for name in o/x o/deep/er/x door/x; do
      expect "$command: $name" 2 '' "^mxfp4-pack: error: $name: lies inside the output $dir/o; choose another place\$" \
        "$program" ${command/OUT/$name}
    done
  done
  convert "$dir/in" other --backend marlin --engine vllm
  expect 'layout' 2 '' 'error: o/x: lies inside the output .*/o; choose another place' \
    "$program" layout o/x --backend marlin --engine vllm --model "$once/tiny"
  expect 'unpack' 2 '' 'error: o/x: lies inside the output .*/o; choose another place' "$program" unpack other o/x
  rm -r "$dir/o/deep"
  expect 'stays right' 0 right '' "$program" verify "$dir/o" --source "$dir/in"
}
test_places_that_are_none() {
  for command in "convert $once/tiny / --backend marlin --engine vllm" "convert $once/tiny / --backend marlin --engine vllm --part 0/2" \
    'synth gpt-oss-20b / --tiny' 'merge /' 'clean /'; do
    expect "$command" 2 '' '^mxfp4-pack: error: /: is the root of the file system; choose a folder in it$' "$program" $command
  done
  echo file >file
  for name in nope/../zz nope/.. nope/zz; do
    expect "$name" 2 '' "error: $name: the folder $dir/nope does not exist; make it first\$" "${from[@]}" "$once/tiny" $name
  done
  for name in file/zz file/../zz; do
    expect "$name" 2 '' "error: $name: $dir/file is not a folder\$" "${from[@]}" "$once/tiny" $name
  done
}
test_file_in_its_place() {
  echo mine >k
  for command in "convert $once/tiny k --backend marlin --engine vllm" 'synth gpt-oss-20b k --tiny' 'merge k' \
    "convert $once/tiny k --backend marlin --engine vllm --force"; do
    expect "$command" 2 '' '^mxfp4-pack: error: k: is a file, not a folder; choose another place$' "$program" $command
  done
  expect 'stays' 0 '^mine$' '' cat k
}
run_cases
