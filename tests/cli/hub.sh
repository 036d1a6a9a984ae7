#!/usr/bin/env bash
# refs/main of a folder in Hugging Face's cache, and files of a checkpoint or an output that are none or lead elsewhere.
# usage: hub.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

repository=models--openai--gpt-oss-20b
put_main() { rm -rf "$repository/refs/main" && "$@" "$repository/refs/main"; }
is_no_file="$repository: refs/main: not a regular file$"
cached() {  # the repository, and another checkpoint
  mkdir -p "$repository/refs" "$repository/snapshots"
  cp -r "$tiny" "$repository/snapshots/abc"
  cp -r "$tiny" other
}
# inspected NAME EXIT-CODE STDOUT-PATTERN STDERR-PATTERN: the repository, in seconds and in little memory
limit="ulimit -v 4000000"
! is_sanitized || limit=:
inspected() { expect "$1" "$2" "$3" "$4" bash -c "$limit"'; exec timeout 60 "$@"' - "$program" inspect "$repository"; }
refused() {
  inspected "$1" 2 '' "$2"
  also . 1
}
main() { rm -rf "$repository/refs/main" && printf "$1" >"$repository/refs/main"; }

test_revisions() {
  cached
  main 'abc\n'
  inspected 'the snapshot of refs/main' 0 'gpt-oss' 'its snapshot .*snapshots/abc$'
  for outside in "$dir/other" ../../other ../snapshots/abc abc/../abc abc/ . .. '' '\n' 'a b' 'abc\nabc' 'a*' 'a\\0b'; do
    main "$outside"
    refused "no revision: $outside" "^mxfp4-pack: error: $repository: refs/main: '.*'; the name of a folder in snapshots was expected$"
  done
  main 'a\033[31m\302\233b'
  refused 'escapes in it' "refs/main: 'a.x1b\[31m.xc2.x9bb'"
  main abd
  refused 'a revision without a snapshot' "$repository: no snapshots/abd, which refs/main names; "
  ln -s ../../other "$repository/snapshots/abd"
  refused 'a snapshot that is a link' 'snapshots/abd: a link or no folder; '
  rm "$repository/snapshots/abd"
  touch "$repository/snapshots/abd"
  refused 'a snapshot that is a file' 'snapshots/abd: a link or no folder; '
  rm "$repository/snapshots/abd"
}
test_refs_main_that_is_no_file() {
  cached
  put_main mkfifo
  refused 'a FIFO' "$is_no_file"
  put_main mkdir
  refused 'a folder' "$is_no_file"
  put_main truncate -s 1T
  refused 'a terabyte' 'refs/main: 1099511627776 bytes, at most 256 expected$'
  put_main ln -s /dev/zero
  refused 'a link to a device' 'refs/main: links outside the directory, to /dev/zero$'
  put_main ln -s /proc/self/mem
  refused 'a link to memory' 'refs/main: links outside the directory, to /proc/'
  put_main ln -s ../../other/config.json
  refused 'a link to another folder' 'refs/main: links outside the directory, to .*other/config.json$'
  put_main ln -s main
  refused 'a link to itself' 'refs/main: a link that leads to itself; remove it$'
  mkfifo "$repository/refs/fifo"
  put_main ln -s fifo
  refused 'a link to a FIFO' "$is_no_file"
  put_main ln -s none
  refused 'a broken link' 'refs/main: broken link to none; incomplete copy\?$'
}
test_no_refs_main() {
  cached
  inspected 'no refs/main and one snapshot' 0 'gpt-oss' 'its snapshot .*snapshots/abc$'
  mkdir "$repository/snapshots/abd"
  refused 'no refs/main and two' "$repository: no refs/main, and no or several snapshots; "
  rm -r "$repository/snapshots/abc" "$repository/snapshots/abd"
  ln -s ../../other "$repository/snapshots/abc"
  refused 'no refs/main and a link' 'snapshots/abc: a link or no folder; '
}
# a file that another user may not read
test_files_that_may_not_be_read() {
  cached
  [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --clear-groups test -x "$program" 2>/dev/null || skip "needs root"
  chmod a+rX "$once" && chmod -R a+rX "$dir"
  chmod 0 other/config.json
  expect 'a file that may not be read' 2 '' 'config.json: cannot be read: Permission denied$' \
    setpriv --reuid 65534 --clear-groups "$program" inspect other -q
  chmod 0 "$repository/refs"
  expect 'a folder that may not be read' 2 '' 'Permission denied$' \
    setpriv --reuid 65534 --clear-groups "$program" inspect "$repository"
}
# files of an output that lie elsewhere are not read
test_files_of_an_output_elsewhere() {
  convert "$tiny" out --backend marlin --engine vllm
  into() { timeout 60 "$program" convert "$tiny" out --backend triton-hopper --engine vllm "$@" -q; }
  prepare mv out/mxfp4-pack.json aside
  ln -s ../aside out/mxfp4-pack.json
  for how in --add --force; do
    expect "a manifest that lies elsewhere: $how" 2 '' 'mxfp4-pack.json: links outside the directory, to .*aside(; .*)?$' into $how
  done
  prepare rm out/mxfp4-pack.json
  mkfifo out/mxfp4-pack.json
  expect 'a manifest that is a FIFO' 2 '' 'mxfp4-pack.json: not a regular file$' into --add
  prepare mv -f aside out/mxfp4-pack.json
  expect 'the output is as it was' 0 '' '' "$program" verify out -q
}
test_fifos() {
  convert "$tiny" out --backend marlin --engine vllm
  mkfifo fifo.safetensors
  expect 'a FIFO as checkpoint' 2 '' 'fifo.safetensors: Not a directory$' timeout 60 "$program" inspect fifo.safetensors
  expect 'a FIFO as output' 2 '' 'fifo.safetensors: no mxfp4-pack.json; an output ' timeout 60 "$program" verify fifo.safetensors
  expect 'a FIFO to compare' 2 '' 'fifo.safetensors: not a regular file$' timeout 60 "$program" diff out fifo.safetensors
}
run_cases
