#!/usr/bin/env bash
# The README's two commands, word for word, in a fresh Debian by a user who may sudo, in a folder with a space and an
# umlaut in its name. Prints the seconds of each. Needs root. usage: readme.sh bookworm|trixie [1|2]: that command alone
[ $# -ge 1 ] || { echo "usage: $0 bookworm|trixie [1|2]"; exit 2; }
SUITE=$1
. "$(dirname "$0")/lib.sh"
fresh_root sudo
mount -t devpts -o newinstance,ptmxmode=0666 none "$root/dev/pts"
mount -t tmpfs none "$root/dev/shm"
ln -sf pts/ptmx "$root/dev/ptmx"
inside useradd -m -s /bin/bash founder
echo 'founder ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/founder"
folder="/home/founder/mein Köder"
mkdir "$root$folder"
git -C "$here/../.." archive HEAD | tar -x -C "$root$folder"
inside chown -R founder: /home/founder

# readme BEGINNING: the README's command that begins so
readme() { grep -m1 -E "^    $1" "$root$folder/README.md" | sed 's/^    //'; }
# as_user SCRIPT: with a user's environment, in the folder
as_user() {
  chroot "$root" /usr/bin/env -i su - founder -c \
    "cd '$folder' && LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -c '$1'"
}
run() {
  local begin=$SECONDS code=0
  as_user "$(readme "$2")" >"$dir/log" 2>&1 || code=$?
  [ $code = 0 ] || tail -n "${LINES_OF_LOG:-60}" "$dir/log"
  grep -E 'tests passed|\*\*\*|out of|: right' "$dir/log" || true
  echo "$SUITE, $1 command: exit code $code after $((SECONDS - begin)) s"
  return $code
}
case ${2:-12} in *1*) run first 'sudo apt-get' ;; esac
case ${2:-12} in *2*) run second 'cmake -G Ninja' ;; esac
