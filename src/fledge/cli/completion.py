"""`fledge completion SHELL`: a script that lets a shell complete commands and options, made from the parser itself."""

import argparse


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """What the shell is to read: `source <(fledge completion bash)`."""
    words = _words(parser)
    if shell == "fish":
        return "\n".join(["complete -c fledge -f", *(_fish(name, options) for name, options in words.items())])
    cases = "\n".join(f"    {name}) words='{' '.join(options)}' ;;" for name, options in words.items() if name)
    body = f"""_fledge() {{
  local command=''
  local word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in -*) ;; *) command="$word"; break ;; esac
  done
  local words='{" ".join(words[""])}'
  case "$command" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  [ -z "$COMPREPLY" ] && COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -F _fledge fledge"""
    return f"autoload -U +X bashcompinit && bashcompinit\n{body}" if shell == "zsh" else body


def _words(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """What may follow each command; under the empty name, what may follow `fledge` itself."""
    found = {"": _options(parser)}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found[""] += list(action.choices)
            found |= {name: _options(below) for name, below in action.choices.items()}
    return found


def _options(parser: argparse.ArgumentParser) -> list[str]:
    words: list[str] = []
    for action in parser._actions:
        words += action.option_strings
        if action.choices and not isinstance(action, argparse._SubParsersAction):
            words += [str(choice) for choice in action.choices]
    return words


def _fish(name: str, options: list[str]) -> str:
    where = f"__fish_seen_subcommand_from {name}" if name else "__fish_use_subcommand"
    return f"complete -c fledge -n '{where}' -a '{' '.join(options)}'"
