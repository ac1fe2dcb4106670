#include "cli/completion.h"

namespace lockstep::cli {

// Needs nothing of the bash-completion package. $2 is the word as bash cuts it, which ends words at
// = and : too (COMP_WORDBREAKS); the program reads the line itself.
std::string_view bash_completion() {
  return R"bash(# Completion of lockstep for bash: source this file, or
#   lockstep completion bash > ~/.local/share/bash-completion/completions/lockstep
_lockstep() {
  local program=${COMP_WORDS[0]} value typed=$2 before='' line file value_quoted
  local -a answer
  COMPREPLY=()
  program=${program/#\~\//$HOME/}
  type -P -- "$program" >/dev/null || program=lockstep
  mapfile -t answer < <("$program" __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  ((${#answer[@]} >= 2)) || return
  value=${answer[1]}

  for line in "${answer[@]:2}"; do
    COMPREPLY+=("${line%%$'\t'*}")
  done
  if [[ -n ${answer[0]} ]]; then
    compopt -o filenames 2>/dev/null # quotes what needs it, and marks folders
    if [[ ${answer[0]} == '*' ]]; then
      while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$value")
    else
      while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -d -- "$value")
      if [[ ${answer[0]} != / ]]; then
        while IFS= read -r file; do
          [[ -d ${file/#\~\//$HOME/} || $file != ${answer[0]} ]] || COMPREPLY+=("$file")
        done < <(compgen -f -- "$value")
      fi
    fi
  elif [[ ${COMP_WORDS[COMP_CWORD]} != [\"\']* ]]; then
    for line in "${!COMPREPLY[@]}"; do
      printf -v value_quoted %q "${COMPREPLY[line]}"
      COMPREPLY[line]=${value_quoted//\\,/,}
    done
  fi

  # Bash replaces only what it takes for the word.
  if [[ $typed == --*=* ]]; then
    before=${typed%%=*}=
  elif [[ $value != "$typed" && -n $value && $value == *"$typed" ]]; then
    value=${value%"$typed"}
    COMPREPLY=("${COMPREPLY[@]#"$value"}")
  fi
  [[ -z $before ]] || COMPREPLY=("${COMPREPLY[@]/#/$before}")
  # What waits for more gets no space.
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *: ]] || compopt -o nospace 2>/dev/null
}
complete -F _lockstep lockstep
)bash";
}

// Loaded by name, the file is the function's body and must run it; sourced, it registers it.
std::string_view zsh_completion() {
  return R"zsh(#compdef lockstep
# Completion of lockstep for zsh: put this file into a folder of $fpath as _lockstep, or source it
# after compinit.
_lockstep() {
  local program=${words[1]} line word
  local -a answer values
  integer found=1
  program=${program/#\~\//$HOME/}
  (( $+commands[$program] )) || [[ $program == */* && -x $program ]] || program=lockstep
  answer=("${(@f)$("$program" __complete words "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
  (( $#answer >= 1 )) || return 1
  [[ $PREFIX != --*=* ]] || compset -P 1 '*='
  for line in "${(@)answer[3,-1]}"; do
    word=${line%%$'\t'*}
    [[ -z $word ]] || values+=("${word//:/\\:}${${line#*$'\t'}:+:${line#*$'\t'}}")
  done
  if (( $#values )); then
    _describe -t values value values && found=0
  fi
  case $answer[1] in
    '') ;;
    '*') _files && found=0 ;;
    /) _files -/ && found=0 ;;
    *) _files -g "$answer[1](-.)" && found=0 ;;
  esac
  return found
}
if [[ $funcstack[1] == _lockstep ]]; then
  _lockstep "$@"
else
  compdef _lockstep lockstep
fi
)zsh";
}

}  // namespace lockstep::cli
