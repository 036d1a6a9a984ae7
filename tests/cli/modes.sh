#!/usr/bin/env bash
# Who may read an output: no more than may read its source. usage: modes.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

on() { "$program" convert "$dir/in" "$dir/$1" --engine vllm -q "${@:2}"; }
export MXFP4_PACK_BACKEND=marlin
# the modes of all files, or of all folders, below a directory
modes() { find "$1" -type "$2" -printf '%m\n' | sort -u | tr '\n' ' '; }
# check NAME DIRECTORY FILES FOLDERS
check() {
  expect "$1: files" 0 "^$3 \$" '' modes "$dir/$2" f
  expect "$1: folders" 0 "^$4 \$" '' modes "$dir/$2" d
}
source_with() { rm -rf "$dir/in" && cp -r "$tiny" "$dir/in" && chmod 755 "$dir/in" && chmod "$1" "$dir"/in/*; }

umask 002
source_with 644
prepare on public
check 'a public source' public 644 755
prepare on linked --link --sha256
check 'with shards kept and checksums' linked 644 755
source_with 664
prepare on shared
check 'a source that a group may write' shared 664 755
umask 022
source_with 664
prepare on within
check 'the umask holds' within 644 755
source_with 644
chmod 640 "$dir/in/model-00000-of-00001.safetensors"
prepare on grouped
check 'one shard for the group' grouped 640 750
source_with 644
chmod 600 "$dir/in/generation_config.json"
prepare on private
check 'one private companion' private 600 700
source_with 644
mkdir "$dir/in/secret"
echo text >"$dir/in/secret/notes.txt"
chmod 700 "$dir/in/secret"
prepare on inner
check 'a private folder within' inner 600 700
source_with 644
chmod 700 "$dir/in"
prepare on hidden
check 'a private folder' hidden 600 700
source_with 444
prepare on readonly
check 'a source that nobody may write' readonly 644 755

prepare "$program" unpack "$dir/private" "$dir/unpacked" -q
check 'unpacked' unpacked 600 700
prepare "$program" convert "$dir/grouped" "$dir/sglang" --backend marlin --engine sglang -q
check 'from one packed form to another' sglang 640 750
source_with 600
prepare on public --add --backend triton-hopper --tp-size 2
expect 'what is added is private' 0 '^600 600 $' '' bash -c "stat -c %a $dir/public/packed/canary-1.safetensors $dir/public/mxfp4-pack.json | tr '\n' ' '"
prepare on within --force
check 'a replaced output is as private as its source, whatever the old one was' within 600 700

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
for mask in 000 022 077; do
  umask $mask
  rm -rf "$dir/passing" && mkdir "$dir/passing"
  if acl "$dir/passing" 2>/dev/null; then
    source_with 600
    chmod 700 "$dir/in"
    prepare on passing/private --sha256
    check "under an access list, umask $mask" passing/private 600 700
    prepare on passing/private --add --backend triton-hopper
    check "with a set added" passing/private 600 700
    prepare "$program" unpack "$dir/passing/private" "$dir/passing/back" -q
    check "unpacked" passing/back 600 700
    expect "no access list is there, umask $mask" 0 '' '' lists "$dir/passing/private"
    source_with 644
    prepare on passing/public
    case $mask in 077) check "a public source, umask $mask" passing/public 600 700 ;; *) check "a public source, umask $mask" passing/public 644 755 ;; esac
    expect "no access list is there either, umask $mask" 0 '' '' lists "$dir/passing/public"
  fi
done
umask 022
if [ "$(id -u)" = 0 ]; then
  source_with 640
  chmod 750 "$dir/in"
  mkdir -p "$dir/others" && chgrp 1 "$dir/others" && chmod 2775 "$dir/others"
  prepare on others/out
  check 'files of another group than the source' others/out 600 '2700'
  chgrp -R 1 "$dir/in"
  prepare on others/same
  check 'files of the same group' others/same 640 '2750'
fi

# Folders permit no more than the source's, and nobody whom the source denies reads OUT as one of the others.
source_with 644
chmod 711 "$dir/in"
prepare on unlisted
check 'a source that cannot be listed' unlisted 644 711
source_with 644
if setfacl -m u:65534:--- "$dir/in/config.json" 2>/dev/null; then
  prepare on listed
  check 'an access list that denies' listed 600 700
fi
if [ "$(id -u)" = 0 ]; then
  source_with 604
  chmod 705 "$dir/in"
  chgrp -R 65534 "$dir/in"
  prepare on denied
  check 'a group that is denied what others may' denied 600 700
fi

# who is root writes anywhere but without that capability
user=(env)
[ "$(id -u)" -ne 0 ] || user=(setpriv --inh-caps=-all --bounding-set=-all)
"${user[@]}" true 2>/dev/null || { echo 'no user without capabilities: read-only folders are not tested' && finish; }
source_with 644
mkdir "$dir/parent"
chmod a-w "$dir/parent"
expect 'a read-only parent' 2 '' 'parent/o: cannot be made in .*/parent: Permission denied' \
  "${user[@]}" "$program" convert "$dir/in" "$dir/parent/o" --backend marlin --engine vllm
expect 'leaves nothing' 0 '' '' find "$dir/parent" -mindepth 1
chmod -R a-w "$dir/public"
expect 'a read-only OUT is replaced' 0 '' '' \
  "${user[@]}" "$program" convert "$dir/in" "$dir/public" --backend marlin --engine vllm --force -q
expect 'and is right' 0 'right' '' "$program" verify "$dir/public" --source "$dir/in"
expect 'nothing stays beside it' 0 '' '' find "$dir" -maxdepth 1 -name '.public*'
chmod u+w "$dir/parent"
finish
