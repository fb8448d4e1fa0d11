#compdef fovea
# Completion of fovea for zsh: the program itself lists the possible continuations.
_fovea() {
  local line
  local -a lines described
  lines=("${(@f)$("${(Q)~words[1]}" completion --words "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  case $lines[1] in
    files) compset -P '--*='; _files ;;
    folders) compset -P '--*='; _files -/ ;;
    names)
      for line in "${(@)lines[2,-1]}"; do
        described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
      done
      _describe -V fovea described
      ;;
  esac
}
if [ "$funcstack[1]" = _fovea ]; then _fovea "$@"; else compdef _fovea fovea; fi
