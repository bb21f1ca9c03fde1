"""`retinue completion SHELL`: the script that lets a shell complete commands, options and values.

    bash   eval "$(retinue completion bash)"          in ~/.bashrc
    zsh    eval "$(retinue completion zsh)"           in ~/.zshrc, after compinit
    fish   retinue completion fish | source           in ~/.config/fish/config.fish

The script asks the program itself at every Tab, so that it knows the agents, runs and models that there are at that
moment and need not be renewed.
"""

from __future__ import annotations

import argparse

BASH = r"""
_retinue() {
    local IFS=$'\n' line words
    # bash splits words at "=" and ":"; the program wants them whole.
    words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            :files) compopt -o default 2>/dev/null ;;
            :folders) compopt -o dirnames 2>/dev/null ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <(retinue completion --answer "${words[@]}" 2>/dev/null)
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "${COMP_WORDS[COMP_CWORD]}"
    fi
}
complete -F _retinue retinue
"""

ZSH = r"""
_retinue() {
    local line value
    local -a found
    for line in "${(@f)$(retinue completion --answer "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case "$line" in
            "") ;;
            :files) _files ;;
            :folders) _files -/ ;;
            *)
                value="${line%%$'\t'*}"
                if [[ "$line" == *$'\t'* ]]; then
                    found+=("${value//:/\\:}:${line#*$'\t'}")
                else
                    found+=("${value//:/\\:}")
                fi
                ;;
        esac
    done
    (( ${#found} )) && _describe -V retinue found
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _retinue retinue
"""

FISH = r"""
function __retinue_complete
    set -l words (commandline --cut-at-cursor --tokenize) (commandline --current-token --cut-at-cursor)
    for line in (retinue completion --answer $words[2..-1] 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline --current-token)
            case ':folders'
                __fish_complete_directories (commandline --current-token)
            case '*'
                echo $line
        end
    end
end
complete --command retinue --no-files --keep-order --arguments '(__retinue_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SCRIPTS, help="the shell that runs the script")


def execute(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell].strip())
    return 0
