#!/usr/bin/env bash
# Who may read an output: no more than may read its source. usage: modes.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

export MXFP4_PACK_BACKEND=marlin
umask 022
on() { prepare "$program" convert in "$1" --engine vllm -q "${@:2}"; }
unpack() { prepare "$program" unpack "$@" -q; }
# the modes of all files, or of all folders, below a directory
modes() { find "$1" -type "$2" -printf '%m\n' | sort -u | tr '\n' ' '; }
# check NAME DIRECTORY FILES FOLDERS
check() {
  expect "$1: files" 0 "^$3 \$" '' modes "$2" f
  expect "$1: folders" 0 "^$4 \$" '' modes "$2" d
}
source_with() { rm -rf in && cp -r "$tiny" in && chmod 755 in && chmod "$1" in/*; }
needs_root() { [ "$(id -u)" = 0 ] || skip "$1 needs root"; }

# NAME MODE-OF-FILES CHANGE-OF-SOURCE FILES FOLDERS [OPTION..]
as_source() {
  source_with "$2"
  eval "$3"
  on out "${@:6}"
  check "$1" out "$4" "$5"
  rm -rf out
}
test_as_the_source() {
  umask 002
  as_source 'a public source' 644 : 644 755
  as_source 'with shards kept' 644 : 644 755 --link
  as_source 'a source that a group may write' 664 : 664 755
  as_source 'the umask holds' 664 'umask 022' 644 755
  as_source 'one shard for the group' 644 'chmod 640 in/model-00000-of-00001.safetensors' 640 750
  as_source 'one private companion' 644 'chmod 600 in/generation_config.json' 600 700
  as_source 'a private folder within' 644 'mkdir -m 700 in/secret; echo text >in/secret/notes.txt' 600 700
  as_source 'a private folder' 644 'chmod 700 in' 600 700
  as_source 'a source that nobody may write' 444 : 644 755
  as_source 'a source that cannot be listed' 644 'chmod 711 in' 644 711
}
test_of_an_output() {
  source_with 600
  on private
  unpack private unpacked
  check 'unpacked' unpacked 600 700
  source_with 640
  chmod 750 in
  on grouped
  prepare "$program" convert grouped sglang --backend marlin --engine sglang -q
  check 'from one packed form to another' sglang 640 750
}
test_private_source_and_public_out() {
  source_with 644
  on public
  cp -r public replaced
  source_with 600
  on public --add --backend triton-hopper --tp-size 2
  expect 'what is added is private' 0 '^600 600 $' '' stat --printf '%a ' public/packed/canary-1.safetensors public/mxfp4-pack.json
  on replaced --force
  check 'a replaced output' replaced 600 700
}

# An access list that the folder above passes on gives nobody more, nor does another group.
acl() { python3 - "$@" <<'END'
import os, struct, sys
# user::rwx user:daemon:rwx group::rwx mask::rwx other::rwx
entries = [(1, 7, -1), (2, 7, 1), (4, 7, -1), (16, 7, -1), (32, 7, -1)]
text = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries)
os.setxattr(sys.argv[1], "system.posix_acl_default", text)
END
}
lists() { python3 - "$1" <<'END'
import os, sys
for folder, _, files in os.walk(sys.argv[1]):
    for path in (folder, *(os.path.join(folder, f) for f in files)):
        for name in os.listxattr(path):
            print(path, name)
END
}
test_access_list_of_the_folder_above() {
  for mask in 000 022 077; do
    umask $mask
    rm -rf passing && mkdir passing
    acl passing 2>/dev/null || skip 'no access lists'
    source_with 600
    chmod 700 in
    on passing/private
    check "umask $mask" passing/private 600 700
    on passing/private --add --backend triton-hopper
    check "with a set added, umask $mask" passing/private 600 700
    unpack passing/private passing/back
    check "unpacked, umask $mask" passing/back 600 700
    source_with 644
    on passing/public
    [ $mask = 077 ] && files=600 folders=700 || files=644 folders=755
    check "a public source, umask $mask" passing/public $files $folders
    for out in private public; do expect "no access list, umask $mask" 0 '' '' lists passing/$out; done
  done
}
test_other_groups() {
  needs_root 'a file of another group'
  source_with 640
  chmod 750 in
  mkdir others && chgrp 1 others && chmod 2775 others
  on others/out
  check 'files of another group than the source' others/out 600 2700
  chgrp -R 1 in
  on others/same
  check 'files of the same group' others/same 640 2750
}
# Nobody whom the source denies reads OUT as one of the others.
test_denied_group() {
  needs_root 'a file of another group'
  source_with 604
  chmod 705 in
  chgrp -R 65534 in
  on denied
  check 'a group that is denied what others may' denied 600 700
}
test_access_list_that_denies() {
  source_with 644
  setfacl -m u:65534:--- in/config.json 2>/dev/null || skip 'no access lists'
  on listed
  check 'an access list that denies' listed 600 700
}

test_read_only_places() {
  user=(env)  # root can write anywhere except without that capability
  [ "$(id -u)" -ne 0 ] || user=(setpriv --inh-caps=-all --bounding-set=-all)
  "${user[@]}" true 2>/dev/null || skip 'no user without capabilities'
  source_with 644
  mkdir parent
  chmod a-w parent
  expect 'a read-only parent' 2 '' 'parent/o: cannot be made in .*parent: Permission denied' \
    "${user[@]}" "$program" convert in parent/o --backend marlin --engine vllm
  expect 'leaves nothing' 0 '' '' find parent -mindepth 1
  on public --backend triton-hopper
  chmod -R a-w public
  expect 'a read-only OUT is replaced' 0 '' '' \
    "${user[@]}" "$program" convert in public --backend marlin --engine vllm --force -q
  expect 'and is right' 0 'right' '' "$program" verify public --source in
  nothing .public*
  chmod u+w parent
}
run_cases
