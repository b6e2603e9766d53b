# bash completion of switchyard: candidates come from the program, files where it has none.
_switchyard() {
    mapfile -t COMPREPLY < <("$1" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
}
complete -o bashdefault -o default -F _switchyard switchyard
