"""`fledge completion SHELL`: a script that lets a shell complete commands and options, made from the parser itself."""

from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Mapping


def script(shell: str, parser: ArgumentParser, commands: Mapping[str, ArgumentParser]) -> str:
    """The script for a shell, which reads it with `source <(fledge completion bash)`."""
    words = {"": [*_options(parser), *commands]} | {name: _options(one) for name, one in commands.items()}
    """The words that may follow each command; under the empty name, those that may follow `fledge` itself."""
    if shell == "fish":
        lines = ["complete -c fledge -f"]
        for name, options in words.items():
            where = f"__fish_seen_subcommand_from {name}" if name else "__fish_use_subcommand"
            lines.append(f"complete -c fledge -n '{where}' -a '{' '.join(options)}'")
        return "\n".join(lines)
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


def _options(parser: ArgumentParser) -> list[str]:
    words: list[str] = []
    for action in parser._actions:
        words += action.option_strings
        if action.choices and not isinstance(action, _SubParsersAction):
            words += [str(choice) for choice in action.choices]
    return words
