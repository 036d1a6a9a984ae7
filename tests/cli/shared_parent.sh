#!/usr/bin/env bash
# OUT's parent belongs to several users, without a sticky bit. One user renames the staging directory of another user's
# run and replaces it by a link to that user's private folder. Nothing in that folder may change.
# usage: shared_parent.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

other() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
[ "$(id -u)" = 0 ] && setpriv --reuid=65534 --clear-groups true 2>/dev/null || skip 'needs root, to be two users'

chmod 755 "$once"
shared=$once/shared
marlin=(--backend marlin --engine vllm -q)
# The private folder has the names that a run writes or removes.
private() {
  rm -rf "$once/private" "$shared"
  mkdir -m 700 "$once/private" "$once/private/packed"
  mkdir -m 777 "$shared"
  chmod 777 "$shared"
  for name in config.json mxfp4-pack.json model.safetensors.index.json authorized_keys .mxfp4-pack-run SHA256SUMS \
    rest-00001.safetensors packed/packed-00001.safetensors packed/canary-0.safetensors part-record \
    model-00000-of-00001.safetensors; do
    echo secret >"$once/private/$name"
  done
  before=$(state)
}
state() { (cd "$once/private" && find . -printf '%p %m %s %C@\n' | sort && find . -type f -exec cat {} +) | sha256sum; }

# attack NAME HIDDEN MOMENT COMMAND...: the command ends, and the private folder is as it was. Without a moment that came
# the check says nothing: a run may also be over before it.
attack() {
  local name=$1 hidden=$2 moment=$3 what
  shift 3
  what=$(python3 "$root/tests/cli/shared_parent.py" "$shared" "$hidden" "$once/private" "$moment" -- \
    timeout 60 "$@" 2>"$dir/said" | tail -n 1)
  expect "$name, $moment: the private folder" 0 '^same$' '' bash -c '[ "$1" = "$2" ] && echo same' - "$before" "$(state)"
  case $what in
    'swapped 0' | 'swapped 2') swaps=$((swaps + 1)) ;;
    'not swapped 0') ;;
    *) expect "$name, $moment: how it ended" 0 'never' '' echo "$what: $(head -n 3 "$dir/said")" ;;
  esac
}
swaps=0
stage=.o.mxfp4-pack
# swapped NUMBER: so many attacks came at their moment at least
swapped() { expect 'the swaps happened' 0 '' '' test $swaps -ge $1; }

# A hostile checkpoint: a companion of its own choice.
cp -r "$tiny" "$once/in"
echo hostile >"$once/in/authorized_keys"

test_convert() {
  for moment in - . new new/.mxfp4-pack-run journal new/packed new/packed/packed-00001.safetensors new/rest-00001.safetensors \
    new/packed/canary-0.safetensors new/config.json new/mxfp4-pack.json loop; do
    private
    attack 'convert' "$stage" "$moment" "$program" convert "$once/in" "$shared/o" "${marlin[@]}"
  done
  swapped 6
}
test_replaced_and_added() {
  for moment in . new/packed new/mxfp4-pack.json parts loop; do
    private
    convert "$once/in" "$shared/o" --backend marlin --engine sglang
    attack 'convert --force' "$stage" "$moment" "$program" convert "$once/in" "$shared/o" "${marlin[@]}" --force
    private
    convert "$once/in" "$shared/o" --backend marlin --engine sglang
    attack 'convert --add' "$stage" "$moment" "$program" convert "$once/in" "$shared/o" "${marlin[@]}" --add
    private
    attack 'convert --part' "$stage" "$moment" \
      "$program" convert "$once/in" "$shared/o" "${marlin[@]}" --part 0/2
  done
  swapped 6
}
test_unpack_synth_and_merge() {
  convert "$once/in" "$dir/out" --backend marlin --engine vllm
  for moment in . new/config.json loop; do
    private
    attack 'unpack' "$stage" "$moment" "$program" unpack "$dir/out" "$shared/o" -q
    private
    attack 'synth' "$stage" "$moment" "$program" synth gpt-oss-20b "$shared/o" --tiny -q
    private
    for part in 0 1; do convert "$once/in" "$shared/o" --backend marlin --engine vllm --part $part/2; done
    attack 'merge' "$stage" "$moment" "$program" merge "$shared/o" -q
  done
  swapped 3
}
test_clean() {
  convert "$once/in" out --backend marlin --engine vllm
  for round in 1 2 3 4 5 6 7 8; do
    private
    convert "$once/in" "$shared/o" --backend marlin --engine vllm --part 0/2
    cp -r "$dir/out" "$shared/$stage/new"
    (cd "$dir/out" && printf "o\nrun" && find . -type f -printf '\t%P') >"$shared/$stage/new/.mxfp4-pack-run"
    attack "clean, round $round" "$stage" loop "$program" clean "$shared" --remove -q
  done
}
# The folder that is replaced, while its files are removed.
test_old_out_is_removed() {
  for round in 1 2 3 4 5 6; do
    private
    convert "$once/in" "$shared/o" --backend marlin --engine sglang
    attack "what is replaced, round $round" o loop "$program" convert "$once/in" "$shared/o" "${marlin[@]}" --force
  done
}
# Another folder of the same user's, moved to the staging directory's name before a run begins.
test_folder_of_the_same_user() {
  for what in thesis parts/merging-papers/one new/config.json old/config.json journal; do
    private
    mkdir -m 700 "$shared/notes"
    mkdir -p "$(dirname "$shared/notes/$what")"
    echo text >"$shared/notes/$what"
    prepare other mv "$shared/notes" "$shared/$stage"
    for how in '' --force; do "$program" convert "$once/in" "$shared/o" "${marlin[@]}" $how 2>/dev/null; done
    "$program" clean "$shared" --remove >/dev/null 2>&1
    expect "a folder with $what that became the staging directory stays" 0 '^text$' '' cat "$shared/$stage/$what"
  done
}
test_out_after_it_was_looked_at() {
  if command -v strace >/dev/null; then
    private
    convert "$once/in" "$shared/o" --backend marlin --engine sglang
    mkdir -m 700 "$shared/thesis"
    echo text >"$shared/thesis/config.json"
    (sleep 0.7 && other sh -c "mv $shared/o $shared/o2 && mv $shared/thesis $shared/o") &
    expect 'OUT exchanged after it was looked at' 2 '' 'o: (another user or program has put|exists, and nothing in it says)' \
      env ASAN_OPTIONS=detect_leaks=0 strace -f -qq -o /dev/null -e trace=fstatfs -e inject=fstatfs:delay_enter=1500000:when=3 \
      "$program" convert "$once/in" "$shared/o" "${marlin[@]}" --force
    wait
    expect 'and what is there stays' 0 '^text$' '' cat "$shared/o/config.json"
  fi
}
run_cases
