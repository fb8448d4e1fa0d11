# Completion of fovea for fish: the program itself lists the possible continuations.
function __fovea_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($before[1] completion --words $before[2..-1] "$current" 2>/dev/null)
    set -l flag (string match -r -- '^--[^=]*=' "$current")
    set -l value (string replace -r -- '^--[^=]*=' '' "$current")
    switch "$lines[1]"
        case files
            for path in (__fish_complete_path "$value")
                printf '%s\n' "$flag$path"
            end
        case folders
            for path in (__fish_complete_directories "$value")
                printf '%s\n' "$flag$path"
            end
        case names
            printf '%s\n' $lines[2..-1]
    end
end
complete -c fovea -f -a '(__fovea_complete)'
