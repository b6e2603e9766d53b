# fish completion of switchyard: candidates come from the program, files where it has none.
function __switchyard_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] complete -- $words[2..-1] 2>/dev/null)
    count $found >/dev/null; and printf '%s\n' $found; or __fish_complete_path $words[-1]
end
complete -c switchyard -f -a '(__switchyard_complete)'
