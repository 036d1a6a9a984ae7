#!/usr/bin/env bash
# The Debian package in a fresh Debian 12: installs, works, and leaves nothing. Needs root. usage: deb.sh DEB
. "$(dirname "$0")/lib.sh"
fresh_root man-db

# The files of packages, and files that packages leave outside of caches, logs and the list of packages.
files() { (cd "$root" && find . \( -path ./proc -o -path ./tmp -o -path ./var/cache -o -path ./var/log -o -path ./var/lib/apt -o -path ./var/lib/dpkg \) -prune -o -print) | sort; }
cp "$1" "$root/tmp/mxfp4-pack.deb"
inside apt-get update -qq
# Its libraries first: they are not its own, and stay.
needed=$(dpkg-deb -f "$1" Depends | sed 's/ ([^)]*)//g; s/,//g')
inside apt-get install -y -qq --no-install-recommends $needed >"$dir/apt.log" 2>&1
files >"$dir/before"
inside apt-get install -y -qq /tmp/mxfp4-pack.deb >"$dir/apt.log" 2>&1 || { cat "$dir/apt.log"; exit 1; }
main_job
inside ldconfig -p | grep 'libmxfp4_pack.so.1' >/dev/null
inside apt-get remove -y -qq mxfp4-pack >"$dir/apt.log" 2>&1
inside apt-get purge -y -qq mxfp4-pack >"$dir/apt.log" 2>&1
files >"$dir/after"
diff "$dir/before" "$dir/after"
if inside dpkg -l mxfp4-pack 2>/dev/null | grep '^.[^n]' >/dev/null; then exit 1; fi
echo 'installed, used, removed: nothing is left'
