#!/usr/bin/env bash
# What another user exchanges or adds in a shared folder at the moment that matters: nothing becomes more public, is lost
# or is passed off as something else. usage: exchanged.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

exchange() { python3 "$root/tests/cli/exchange.py" once "$shared/private" "$shared/public"; }
files_of() { (cd "$1" && find . -type f -exec sha256sum {} + | sort -k 2); }
third() { setpriv --reuid=65533 --regid=65533 --clear-groups "$@"; }
[ "$(id -u)" = 0 ] && setpriv --reuid=65534 --clear-groups true 2>/dev/null || skip 'needs root, to be two users'
strace -o /dev/null -e trace=flock -e inject=flock:delay_enter=1 true 2>/dev/null || skip 'needs strace'

chmod 755 "$once"
shared=$once/shared
out=$shared/o
marlin=(--backend marlin --engine vllm -q)
export ASAN_OPTIONS=detect_leaks=0
other() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
fresh() { rm -rf "$shared" && mkdir "$shared" && chmod 777 "$shared"; }
# slowly CALL SIDE N COMMAND...: 1.5 s before ("enter") or after ("exit") its Nth call of CALL
slowly() {
  local call=$1 side=$2 number=$3
  shift 3
  strace -f -qq -o /dev/null -e "trace=$call" -e "inject=$call:delay_$side=1500000:when=$number" "$@"
}
# killed_at CALL N COMMAND...
killed_at() {
  local call=$1 number=$2
  shift 2
  strace -f -qq -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$number" "$@"
} 2>/dev/null
# calls_until_named CALL COMMAND...: the number of these calls until OUT has its name: the journal is still there.
calls_until_named() {
  strace -f -qq -o trace -e trace=fsync,renameat2 "${@:2}" && sed '/rename.*"o"/q' trace | grep -c "$1("
}
all_private() { [ -z "$(find "$1" -not -type l -perm /077)" ] && echo private; }
all_kept() { grep -rl "^mine" "$shared" | wc -l; }

prepare "$program" convert "$tiny" "$once/first" "${marlin[@]}"

# The source is exchanged for a public one while it is read.
source_of() { # NAME TEXT MODE
  cp -r "$tiny" "$shared/$1" && echo "$2" >"$shared/$1/notes.txt" && chmod -R "$3" "$shared/$1"
}
test_source_exchanged_while_it_is_read() {
  rounds=0
  for round in $(seq 12); do
    for how in convert unpack; do
      fresh
      source_of private secret u=rwX,go=
      source_of public public u=rwX,go=rX
      read_from() { "$program" convert "$shared/private" "$out" "${marlin[@]}"; }
      if [ $how = unpack ]; then
        for name in private public; do
          "$program" convert "$shared/$name" "$shared/packed-$name" "${marlin[@]}" && rm -r "${shared:?}/$name" && mv "$shared/packed-$name" "$shared/$name"
        done
        read_from() { "$program" unpack "$shared/private" "$out" -q; }
      fi
      python3 "$root/tests/cli/exchange.py" loop "$shared/private" "$shared/public" &
      looping=$!
      read_from 2>"$dir/said"
      code=$?
      kill $looping && wait $looping 2>/dev/null
      [ $code = 0 ] || continue
      rounds=$((rounds + 1))
      grep -q secret "$out/notes.txt" && expect "$how: what is private stays so" 0 '^private$' '' all_private "$out"
    done
  done
  expect 'most runs end well while their source is exchanged' 0 '^yes$' '' bash -c '[ "$1" -ge 12 ] && echo yes' - "$rounds"
}
# A small file that changes after it was compared with its published hash.
test_small_file_changes() {
  fresh
  source_of source one u=rwX,go=rX
  (cd "$shared/source" && sha256sum *) >"$dir/published"
  (sleep 0.7 && echo other >"$shared/source/notes.txt") &
  expect 'a small file that changes' 2 '' 'notes.txt: changed while it was read' \
    slowly mkdirat enter 2 "$program" convert "$shared/source" "$out" "${marlin[@]}" --published "$dir/published"
  wait
  expect 'and no OUT' 1 '' '' test -e "$out"
}
# The same exchange, when a run is about to look at the source's modes, and back before it reads on.
test_source_exchanged_at_its_modes() {
  fresh
  source_of private secret u=rwX,go=
  source_of public public u=rwX,go=rX
  (sleep 0.7 && exchange && sleep 1.5 && exchange) &
  strace -f -qq -o /dev/null -e trace=fstatfs,mkdirat -e inject=fstatfs:delay_enter=1500000:when=3 \
    -e inject=mkdirat:delay_enter=1500000:when=2 "$program" convert "$shared/private" "$out" "${marlin[@]}" 2>/dev/null
  wait
  expect 'what is private stays so in a directed exchange' 0 '^private$' '' all_private "$out"
}
# A shard is linked, and its name leads to another file at that moment.
test_linked_shard_is_exchanged() {
  prepare python3 "$root/tests/cli/split_shards.py" "$tiny" "$dir/model"
  fresh
  cp -r "$dir/model" "$shared/private" && cp -r "$dir/model" "$shared/public" && chown -R 65534 "$shared/public"
  (sleep 0.7 && exchange && sleep 1.5 && exchange) &
  prepare strace -f -qq -o trace -e trace=linkat -e inject=linkat:delay_enter=1500000:delay_exit=1500000:when=1 \
    "$program" convert "$shared/private" "$out" "${marlin[@]}" --link
  wait
  expect 'a linked shard is the file that was read' 0 '' '' cmp "$shared/private/model-00002-of-00002.safetensors" "$out/model-00002-of-00002.safetensors"
  expect 'and is linked' 0 '' '' test "$shared/private/model-00002-of-00002.safetensors" -ef "$out/model-00002-of-00002.safetensors"
}
# Killed after OUT has its name. Then another folder of this user takes the staging directory's name, or OUT's.
test_private_folder_takes_the_hidden_name() {
  fresh
  number=$(($(calls_until_named fsync "$program" convert "$tiny" "$out" "${marlin[@]}" --threads 1) + 1))
  killed_late() { killed_at fsync $number "$program" convert "$tiny" "$out" "${marlin[@]}" --threads 1; }
  for then in convert clean; do
    fresh
    killed_late
    expect 'killed: OUT and its journal' 0 '' '' test -e "$out/packed" -a -e "$shared/.o.mxfp4-pack/journal"
    mkdir -m 700 "$shared/mine" && echo mine >"$shared/mine/key"
    other mv "$shared/.o.mxfp4-pack" "$shared/away" && other mv "$shared/mine" "$shared/.o.mxfp4-pack"
    if [ $then = clean ]; then "$program" clean "$shared" --remove; else "$program" convert "$tiny" "$out" "${marlin[@]}"; fi >/dev/null 2>&1
    expect "$then: a private folder under the hidden name stays there" 0 '^mine$' '' cat "$shared/.o.mxfp4-pack/key"
  done
}
# An equal copy of the replaced output takes the place of the output that a killed run has published.
test_copy_of_the_old_output_takes_its_place() {
  fresh
  prepare cp -a "$once/first" "$out"
  forced=(convert "$tiny" "$out" --tp-size 2 --force "${marlin[@]}" --threads 1)
  number=$(($(calls_until_named fsync "$program" "${forced[@]}") + 1))
  for then in convert clean; do
    fresh
    prepare cp -a "$once/first" "$out"
    killed_at fsync $number "$program" "${forced[@]}"
    cp -a "$once/first" "$shared/backup"
    other mv "$out" "$shared/new-out" && other mv "$shared/backup" "$out"
    if [ $then = clean ]; then "$program" clean "$shared" --remove; else "$program" convert "$tiny" "$out" "${marlin[@]}"; fi >/dev/null 2>&1
    expect "$then: the copy in OUT's place stays" 0 '' '' diff -r "$once/first" "$out"
    expect "$then: and the replaced output" 0 '' '' diff -r "$once/first" "$shared/.o.mxfp4-pack/new"
    expect "$then: and the new one" 0 'right' '' "$program" verify "$shared/new-out" --source "$tiny"
    other mv "$out" "$shared/backup" && other mv "$shared/new-out" "$out"
    expect "$then: the run ends if OUT is back" 0 '' '' "$program" "${forced[@]}"
    expect "$then: nothing is left" 1 '' '' compgen -G "$shared/.o.*"
  done
}
# clean: another output with an edited file takes the staging directory's name between the look and the removal.
test_edited_output_takes_the_hidden_name() {
  fresh
  "$program" convert "$tiny" "$shared/b" "${marlin[@]}" && echo mine >"$shared/b/generation_config.json"
  chmod 700 "$shared/b"
  "$program" convert "$tiny" "$out" "${marlin[@]}"
  killed_at renameat2 1 "$program" convert "$tiny" "$out" --backend marlin --engine sglang --force -q
  (sleep 0.7 && other mv "$shared/.o.mxfp4-pack" "$shared/away" && other mv "$shared/b" "$shared/.o.mxfp4-pack") &
  slowly flock enter 2 "$program" clean "$shared" --remove >/dev/null 2>&1
  wait
  expect 'clean: an edited file under the hidden name stays' 0 '^1$' '' all_kept
}
# --force: files that arrive while OUT is looked at.
test_files_that_arrive() {
  for number in 3 4 5; do
    fresh
    "$program" convert "$tiny" "$out" --backend marlin --engine sglang -q
    (sleep 0.7 && echo mine >"$out/notes.txt" && mkdir -p "$out/sub" && echo mine >"$out/sub/more") &
    slowly fstatfs enter $number "$program" convert "$tiny" "$out" "${marlin[@]}" --force 2>/dev/null
    wait
    expect '--force: files that arrive stay' 0 '^2$' '' all_kept
  done
}
# Files with the names that --add gives to its own.
test_files_with_names_of_an_added_set() {
  for name in packed/set1-packed-00001.safetensors packed/canary-1.safetensors .mxfp4-pack-run; do
    fresh
    "$program" convert "$tiny" "$out" "${marlin[@]}" && echo mine >"$out/$name"
    "$program" convert "$tiny" "$out" --backend triton-hopper --engine vllm --add -q 2>/dev/null
    expect "--add: $name stays" 0 '^1$' '' all_kept
  done
  fresh
  "$program" convert "$tiny" "$out" "${marlin[@]}" && echo mine >"$out/.mxfp4-pack-run"
  "$program" convert "$tiny" "$out" --backend marlin --engine sglang --force -q 2>/dev/null
  expect '--force: .mxfp4-pack-run stays' 0 '^1$' '' all_kept
}
test_owner_closes_out() {
  for how in --force --add; do # its owner closes OUT, and then writes a secret into it
    fresh
    "$program" convert "$tiny" "$out" "${marlin[@]}"
    (sleep 0.7 && chmod 700 "$out" && echo mine >"$out/n.txt") &
    slowly fsync enter 5 "$program" convert "$tiny" "$out" --backend triton-hopper --engine vllm $how -q 2>/dev/null
    wait
    expect "$how: OUT stays closed" 1 '' 'Permission denied' other cat "$out/n.txt"
  done
}
# Folders of this user that take the staging directory's name.
test_folders_take_the_hidden_name() {
  fresh
  mkdir -m 700 "$shared/notes" && mkdir -p "$shared/notes/parts/merging" && echo mine >"$shared/notes/parts/merging/thesis"
  find "$shared/notes" -exec touch -d '1 hour ago' {} +
  other mv "$shared/notes" "$shared/.o.mxfp4-pack"
  expect 'a folder that looks like a merge: convert' 2 '' 'merging: was not made by mxfp4-pack' "$program" convert "$tiny" "$out" "${marlin[@]}"
  "$program" merge "$out" -q 2>/dev/null
  expect 'and it stays' 0 '^1$' '' all_kept
  fresh
  "$program" convert "$tiny" "$shared/download" "${marlin[@]}" --part 0/1 && chmod 755 "$shared/.download.mxfp4-pack"
  other mv "$shared/.download.mxfp4-pack" "$shared/.o.mxfp4-pack"
  expect 'parts that others may enter' 2 '' 'is open to others' "$program" convert "$tiny" "$out" "${marlin[@]}"
  fresh
  "$program" convert "$tiny" "$shared/download" "${marlin[@]}" --part 0/1
  other mv "$shared/.download.mxfp4-pack" "$shared/.o.mxfp4-pack"
  expect 'parts of another output' 2 '' 'is a part of download' "$program" convert "$tiny" "$out" "${marlin[@]}"
  fresh
  killed_at renameat2 1 "$program" convert "$tiny" "$shared/other" "${marlin[@]}"
  other mv "$shared/.other.mxfp4-pack" "$shared/.o.mxfp4-pack"
  expect 'a run of another output' 2 '' 'it belongs to a run that writes other' "$program" convert "$tiny" "$out" "${marlin[@]}"
  expect 'which stays' 0 '' '' test -e "$shared/.o.mxfp4-pack/new/mxfp4-pack.json"
  fresh
  mkdir -m 700 "$shared/film" && printf '\0\0\0 ftypmp42 mine' >"$shared/film/journal" && echo mine >"$shared/film/other"
  other mv "$shared/film" "$shared/.o.mxfp4-pack"
  expect 'a folder with other files' 2 '' 'other was not made by mxfp4-pack; move it away first' "$program" convert "$tiny" "$out" "${marlin[@]}"
  rm "$shared/.o.mxfp4-pack/other"
  expect 'a file that is no journal' 2 '' 'is no journal of mxfp4-pack; move it away' "$program" unpack "$once/first" "$out"
  expect 'stays' 0 '' '' grep -q mine "$shared/.o.mxfp4-pack/journal"
  expect "one folder of another user's does not stop clean" 0 'd: a partial|it belongs to user 65534' '' bash -c \
    'setpriv --reuid=65534 --regid=65534 --clear-groups mkdir -m 700 "$1/.a.mxfp4-pack"; "$2" clean "$1" -q' - "$shared" "$program"
}
# A part whose folder cannot be made.
test_parts_folder_that_cannot_be_made() {
  fresh
  mkdir -m 500 "$shared/closed" && chown 65533 "$shared" "$shared/closed" && mv "$shared/closed" "$shared/.o.mxfp4-pack"
  expect 'a part ends if its folder cannot be made' 2 '' 'parts: cannot create: Permission denied' \
    third env HOME= XDG_CACHE_HOME= timeout 20 "$program" convert "$tiny" "$out" "${marlin[@]}" --part 0/2
}
# A staging directory that is renamed away before its run ends, and back later.
test_staging_directory_put_back() {
  fresh
  "$program" convert "$tiny" "$out" --backend marlin --engine sglang -q && cp -rp "$out" "$shared/backup" && echo mine >"$shared/backup/notes"
  (sleep 0.7 && other mv "$shared/.o.mxfp4-pack" "$shared/stolen") &
  slowly renameat2 exit 1 "$program" convert "$tiny" "$out" "${marlin[@]}" --force 2>/dev/null
  wait
  other mv "$out" "$shared/away" && other mv "$shared/stolen" "$shared/.o.mxfp4-pack" && other mv "$shared/backup" "$out"
  "$program" convert "$tiny" "$out" "${marlin[@]}" 2>/dev/null
  "$program" clean "$shared" --remove >/dev/null 2>&1
  expect 'a staging directory that is put back removes nothing' 0 '^1$' '' all_kept
}
# Files of another user in OUT, and OUT's group.
test_files_of_another_user_in_out() {
  fresh
  "$program" convert "$tiny" "$out" "${marlin[@]}" && chmod 1777 "$out"
  other sh -c "umask 077; echo key >'$out/key'; mkdir '$out/d'; echo key >'$out/d/key'"
  prepare "$program" convert "$tiny" "$out" --backend triton-hopper --engine vllm --add -q
  expect 'what another user has in OUT stays his' 0 '^nobody 600 nobody 700 $' '' stat --printf '%U %a ' "$out/key" "$out/d"
  fresh
  "$program" convert "$tiny" "$out" "${marlin[@]}" && chgrp games "$out" && chmod 750 "$out"
  prepare "$program" convert "$tiny" "$out" --backend marlin --engine sglang --force -q
  expect 'a new OUT has the group of the old one' 0 '^games 750$' '' stat -c '%G %a' "$out"
}
# The source is closed while it is read.
test_source_is_closed() {
  fresh
  source_of source secret u=rwX,go=rX
  (sleep 0.7 && chmod 700 "$shared/source") &
  prepare slowly mkdirat enter 2 "$program" convert "$shared/source" "$out" "${marlin[@]}"
  wait
  expect 'OUT is closed as its source is' 0 '^700$' '' stat -c %a "$out"
}
# Parts are no proof of what was published.
test_parts_and_published() {
  fresh
  source_of source one u=rwX,go=rX
  (cd "$shared/source" && sha256sum *) >"$dir/published"
  "$program" convert "$shared/source" "$out" "${marlin[@]}" --part 0/1
  expect 'parts and --published' 2 '' 'whose bytes were not compared' "$program" convert "$shared/source" "$out" "${marlin[@]}" --published "$dir/published"
  expect 'also after they were moved' 2 '' 'whose bytes were not compared' "$program" convert "$shared/source" "$out" "${marlin[@]}" --published "$dir/published"
  expect 'without it' 0 '' '' "$program" convert "$shared/source" "$out" "${marlin[@]}" --no-published
}
# verify --save writes below the folder that it found, though somebody puts a link in its place.
test_save_and_a_link() {
  fresh
  prepare "$program" convert "$tiny" "$out" "${marlin[@]}"
  mkdir "$shared/team" home && chmod 777 "$shared/team" && chmod 700 home
  echo mine >home/batches
  is_held() { find /proc/[0-9]*/fd -lname "$1" 2>/dev/null | grep -q .; }
  {
    until is_held "$shared/team"; do sleep 0.02; done
    other mv "$shared/team" "$shared/away"
    other ln -s "$dir/home" "$shared/team"
  } &
  expect 'verify --save' 0 '' '' slowly getdents64 enter 3 "$program" verify "$out" --source "$tiny" --save "$shared/team/batches" -q
  wait
  expect 'the file behind the link stays' 0 '^mine$' '' cat home/batches
  expect 'the new file is where the folder is' 0 '' '' test -s "$shared/away/batches"
}
# convert --force that is killed while it removes the old OUT: another command, which is refused, changes nothing there.
test_killed_while_the_old_out_is_removed() {
  for number in 4 5 6 7 8; do
    fresh
    prepare "$program" convert "$tiny" "$shared/first" "${marlin[@]}"
    cp -a "$shared/first" "$out"
    killed_at renameat,renameat2,unlinkat,mkdirat $number "$program" convert "$tiny" "$out" --tp-size 2 --force "${marlin[@]}"
    files_of "$out" >"$dir/before"
    expect "unpack after kill $number is refused" 2 '' 'o: exists; choose another place' "$program" unpack "$shared/first" "$out"
    files_of "$out" >"$dir/after"
    expect "and OUT stays (kill $number)" 0 '' '' diff "$dir/before" "$dir/after"
    expect "convert --force goes on (kill $number)" 0 '' '' "$program" convert "$tiny" "$out" --tp-size 2 --force "${marlin[@]}"
    expect "OUT is right (kill $number)" 0 '' '' "$program" verify "$out" --source "$tiny" -q
    expect "nothing is left (kill $number)" 1 '' '' compgen -G "$shared/.o.*"
  done
}
run_cases
