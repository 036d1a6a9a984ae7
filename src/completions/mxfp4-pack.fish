# fish completion of mxfp4-pack: commands, options and their values are those that --help prints
function __mxfp4_pack_words
    set -l words (commandline -opc)
    set -l help ($words[1] $words[2] --help 2>/dev/null)
    set -l before $words[-1]
    if test "$before" = --backend
        $words[1] backends 2>/dev/null | awk 'NR > 1 {print $1}' | sort -u
    else if string match -qr '^--' -- $before; and printf '%s\n' $help | grep -qE "^  $before [^ ]+[|]"
        printf '%s\n' $help | sed -nE "s/^  $before ([^ =]+).*/\1/p" | tr '|' '\n'
    else if string match -qr '^--' -- $before; and printf '%s\n' $help | grep -qE "^  $before [A-Z:]+[^a-z]"
        __fish_complete_path (commandline -ct)
    else if test (count $words) -eq 1
        printf '%s\n' $help | sed -nE '/^Subcommands:/,$s/^  ([a-z]+) .*/\1/p'
        printf '%s\n' --help --version
    else if string match -q -- '-*' (commandline -ct)
        printf '%s\n' $help | grep -oE '^  (-[a-z],)?--[a-z0-9-]+' | grep -oE -- '--.*'
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c mxfp4-pack -f -a '(__mxfp4_pack_words)'
