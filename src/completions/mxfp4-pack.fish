# fish completion of mxfp4-pack: commands, options and their values are those that --help prints
function __mxfp4_pack_words
    set -l words (commandline -opc)
    set -l help ($words[1] $words[2] --help 2>/dev/null)
    set -l before $words[-1]
    set -l front ''
    set -l typed (string match -r '^(--[a-z-]+)=' -- (commandline -ct))
    if test (count $typed) -eq 2
        set before $typed[2]
        set front $typed[1]
    end
    if test "$before" = --backend
        echo $front"auto"
        $words[1] backends 2>/dev/null | awk -v front=$front 'NR > 1 {print front $1}' | sort -u
    else if test "$words[2..]" = synth
        $words[1] synth --help 2>/dev/null | sed -n '/^Models:/,/^$/p' | sed 's/^Models://' | tr -s ', ' '\n'
    else if test "$before" = --gpu
        $words[1] backends --help 2>/dev/null | sed -n '/^GPUs:/,/^$/p' | sed 's/^GPUs://' | tr -s ',() ' '\n' | sed "s/^./$front&/"
    else if string match -qr '^--' -- $before; and printf '%s\n' $help | grep -qE "^ +$before [^ ]+[|]"
        printf '%s\n' $help | sed -nE "s/^ +$before ([^ ]+).*/\1/p" | tr '|' '\n' | grep -v '[A-Z]' | sed "s/^/$front/"
    else if string match -qr '^--' -- $before; and printf '%s\n' $help | grep -qE "^ +$before [A-Z:]+( |\$)"
        __fish_complete_path (string replace -- "$front" '' (commandline -ct)) | sed "s/^/$front/"
    else if test (count $words) -eq 1; or test "$words[2..]" = help
        $words[1] --help | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p'
        printf '%s\n' help --help --version
    else if string match -q -- '-*' (commandline -ct)
        printf '%s\n' $help | grep -oE '^  (-[a-z], )?--[a-z0-9-]+' | grep -oE -- '--.*'
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c mxfp4-pack -f -a '(__mxfp4_pack_words)'
