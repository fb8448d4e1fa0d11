# shellcheck shell=bash
# Completion of fovea for bash: the program itself lists the possible continuations.
_fovea() {
  local current=${COMP_WORDS[COMP_CWORD]} kind='' word
  [ "$current" != = ] || current=''
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    if [ -z "$kind" ]; then kind=$word; else COMPREPLY+=("$word"); fi
  done < <("${COMP_WORDS[0]/#\~/$HOME}" completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case $kind in
    files | folders)
      compopt -o filenames 2>/dev/null
      local what=-f
      [ "$kind" = files ] || what=-d
      mapfile -t COMPREPLY < <(compgen "$what" -- "$current")
      ;;
  esac
}
complete -F _fovea fovea
