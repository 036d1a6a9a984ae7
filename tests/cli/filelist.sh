#!/usr/bin/env bash
# Many conversions from a list. usage: filelist.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

many_from() { "$program" convert --filelist "$@" --backend marlin --engine vllm; }
list=list
two_conversions() { printf '%s\n' '# a list' "'$tiny' '$dir/l1' --engine vllm" '' "'$dir/nowhere' '$dir/l2'" "'$tiny' '$dir/l3' --threads 1" >"$list"; }

test_failure_and_again() {
  two_conversions
  many() { "$program" convert --filelist "$list" --backend marlin --engine sglang "$@"; }
  expect 'a list goes on after a failure' 2 '' 'list:4: .*nowhere' many
  expect 'and has the defaults of its command line' 0 '"engine":"sglang"|sglang' '' "$program" verify "$dir/l3" --json
  sed -i '4d; s/--engine vllm/& --sha256/' "$list"
  expect 'a list, again' 2 '"converted":0,"unchanged":1,"failed":1' '' many --json -q
  expect 'the one without SHA256SUMS' 2 '' 'l1: exists and holds marlin of vllm, but it has no SHA256SUMS; --force replaces it' many
  expect 'replaced' 0 '"converted":2,"unchanged":0,"failed":0' '' many --force --json -q
  expect 'nothing to do' 0 '' '0 converted, 2 unchanged, 0 failed' many
}
test_list_from_a_pipe() {
  two_conversions
  sed -i 4d list
  from_pipe() { "$program" convert --filelist <(cat "$list") --backend marlin --engine sglang "$@"; }
  expect 'a list from a pipe' 0 '' '2 converted, 0 unchanged, 0 failed' from_pipe
  expect 'a list that is not there' 2 '' 'error: --filelist .*/nowhere: cannot open: No such file' \
    "$program" convert --filelist "$dir/nowhere" --backend marlin --engine vllm
  expect 'a folder' 2 '' 'error: --filelist .*: a folder' "$program" convert --filelist "$dir" --backend marlin --engine vllm
}
test_bad_lines() {
  bad_line() { printf -- "$1\n" | "$program" convert --filelist - --backend marlin --engine vllm; }
  line='; a line is CKPT OUT and options, as for convert$'
  expect 'a bad line' 2 '' "error: -:1: no option --nothing$line" bad_line 'a b --nothing'
  expect 'a mistyped option' 2 '' "error: -:1: no option --bakend; did you mean --backend. A line is CKPT OUT" bad_line 'a b --bakend x'
  expect 'a line that asks for help' 2 '' 'error: -:1: no option -h$' bad_line -h
  expect 'a line of words too many, in their order' 2 '' "error: -:1: 'c', 'd' are words too many$line" bad_line 'a b c d'
  expect 'a line without OUT' 2 '' "error: -:1: OUT is missing$line" bad_line a
  expect 'a line with a quote too many' 2 '' 'error: -:1: a quote " that is not closed' bad_line 'a "b'
  expect 'a line with a byte 0' 2 '' 'error: -:1: a byte 0, which is in no name' bad_line 'a b\000c'
  expect 'a line with an empty name' 2 '' 'error: -:1: a name in quotes that is empty$' bad_line '"" x'
  expect 'a line with a backslash' 2 '' 'error: -:1: a backslash, which escapes nothing here; put the name in quotes$' bad_line 'a\\\\ b c'
  expect 'a line in UTF-16' 2 '' 'error: -:1: a byte 0' bad_line '\377\376a\000'
}
test_comments() {
  comment() { printf "'%s' '%s' --threads 1  # the \"small one\\n" "$tiny" "$dir/com#ment" | many_from -; }
  expect 'a comment behind a conversion' 0 '' '1 converted, 0 unchanged, 0 failed$' comment
  expect 'and a # within a word' 0 '' '' test -f "$dir/com#ment/mxfp4-pack.json"
  quoted() { printf "'%s' '#o'\n" "$tiny" | (cd "$dir" && many_from - -q); }
  expect 'and a # in quotes' 0 '' '' quoted
  expect 'which names this OUT' 0 '' '' test -f "$dir/#o/mxfp4-pack.json"
}
test_empty_lists() {
  none='no conversion in it; write one a line: CKPT OUT and options$'
  printf '# nothing\n\n' >"$dir/nothing"
  expect 'a list of comments' 2 '' "error: --filelist $dir/nothing: $none" many_from "$dir/nothing"
  expect 'an empty list, as JSON' 2 '"kind":"input"' '' many_from /dev/null --json
  from_folder() { many_from - <"$dir"; }
  expect 'a folder as standard input' 2 '' 'error: --filelist -: a folder$' from_folder
  from_nothing() { many_from - <&-; }
  expect 'a standard input that is closed' 2 '' 'error: --filelist -: cannot read: Bad file descriptor$' from_nothing
  expect 'a list that cannot be read' 2 '' 'error: --filelist /proc/self/mem: cannot read: Input/output error$' many_from /proc/self/mem
}
# A closed terminal returns the data that were written to it, and then EIO.
test_list_that_fails_in_the_middle() {
  broken() { printf "'%s' '%s'\n" "$tiny" "$dir/half" | python3 -c '
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
os.write(theirs, sys.stdin.buffer.read())
os.close(theirs)
sys.exit(subprocess.call(sys.argv[1:], stdin=ours))' "$program" convert --filelist - --backend marlin --engine vllm "$@"; }
  expect 'a list with an error in the middle' 2 '' 'error: --filelist -: cannot read: Input/output error$' broken
  expect 'of which nothing is converted' 1 '' '' test -e "$dir/half"
}
test_late_pipes() {
  two_conversions
  sed -i 4d list
  slow_pipe() { (sleep 0.3; cat "$list") | many_from - --force; }
  expect 'a pipe whose writer begins late' 0 '' 'converted, . unchanged, 0 failed' slow_pipe
  mkfifo "$dir/fifo"
  late_fifo() { (sleep 0.3; cat "$list" >"$dir/fifo") & many_from "$dir/fifo" --force; }
  expect 'a named pipe whose writer opens late' 0 '' 'converted, . unchanged, 0 failed' late_fifo
}
test_byte_order_mark_and_quotes() {
  mkdir "$dir/two words"
  prepare cp -r "$tiny" "$dir/two words/it\\"
  marked() { printf '\xef\xbb\xbf"%s"/it\\ %s\r\n' "$dir/two words" "'$dir/two words/o'" | sed "s/it./'&'/" |
    "$program" convert --filelist - --backend marlin --engine vllm -q; }
  expect 'a byte order mark, and quotes within words' 0 '' '' marked
  expect 'which name this OUT' 0 '' '' test -f "$dir/two words/o/mxfp4-pack.json"
  expect 'a list and a checkpoint' 2 '' 'excludes' "$program" convert "$tiny" "$dir/o9" --filelist "$list" --backend marlin --engine vllm
}
test_list_that_adds_sets() {
  printf '%s\n' "'$tiny' '$dir/added'" "'$tiny' '$dir/added' --engine sglang --add" \
    "'$tiny' '$dir/added' --engine vllm --backend triton-hopper --tp-size 2 --add" >"$list"
  added() { "$program" convert --filelist "$list" --backend marlin --engine vllm --json -q; }
  expect 'a list that adds sets' 0 '"converted":3,"unchanged":0,"failed":0' '' added
  expect 'all of which are right' 0 'right at level bytes.*' '' "$program" verify "$dir/added" --source "$tiny" --level bytes
  expect 'the third set' 0 '"backend":"triton-hopper"' '' "$program" verify "$dir/added" --json --level bytes
  expect 'a list that adds them again' 0 '"converted":0,"unchanged":3,"failed":0' '' added
}
# Two lines with one OUT: the second would replace what the first wrote.
test_one_out_on_two_lines() {
  printf '%s\n' "$tiny $dir/one --backend marlin --engine vllm" "$tiny $dir/x/../one/ --backend marlin --engine sglang" >"$dir/twice"
  mkdir -p "$dir/x"
  for how in '' --force; do
    expect "one OUT on two lines $how" 2 '' 'lines 1 and 2 write to .*/one; give each an OUT of its own, or --add' \
      "$program" convert --filelist "$dir/twice" $how -q
  done
  printf '%s\n' "$tiny $dir/one --backend marlin --engine vllm" "$tiny $dir/one/in --backend marlin --engine vllm" >"$dir/twice"
  expect 'one OUT in another' 2 '' 'lines 1 and 2 write to .*/one/in and .*/one;' "$program" convert --filelist "$dir/twice" -q
  expect 'nothing is written' 1 '' '' test -e "$dir/one"
  printf '%s\n' "$tiny $dir/one --backend marlin --engine vllm" "$tiny $dir/one --backend marlin --engine sglang --add" >"$dir/twice"
  expect 'a set that is added' 0 '' '' "$program" convert --filelist "$dir/twice" -q
}
run_cases
