"""Protected paths: those that tools may not see, and those that they may write only after a person agrees. Names and
paths; nothing is looked up.

*Hidden* are secrets at home, and fledge's own settings and state: no tool reads or writes them. *Guarded* are files
that run later with the person's rights, without their doing (shell start-up files, autostart, all of `.git`, `.envrc`,
`.mcp.json`), fledge's own settings in a project, and *code*, the places that fledge itself executes and imports from
(`fledge.own_code`): a tool writes one only after a person has said yes to that very call. A workspace is *broad* if it
holds the whole home folder.
"""

from typing import Final

from fledge.core.value import Value

HIDDEN_AT_HOME: Final = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/hub"),
    *(".config/fledge", ".fledge", ".netrc", ".git-credentials", ".config/git/credentials", ".npmrc", ".yarnrc.yml"),
    *(".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".terraform.d", ".password-store", ".local/share/keyrings"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".config/op", ".config/rclone"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".node_repl_history", ".mozilla"),
    *(".config/google-chrome", ".config/chromium", ".claude", ".claude.json", ".codex", ".openclaw", ".config/openai"),
)
GUARDED_AT_HOME: Final = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
    *(".zshenv", ".zprofile", ".zshrc", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login"),
    *(".config/fish", ".config/zsh", ".config/nushell", ".config/powershell", ".oh-my-zsh", ".pam_environment"),
    *(".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".config/autostart", ".config/autostart-scripts"),
    *(".config/systemd", ".local/share/systemd", ".config/environment.d", ".config/plasma-workspace"),
    *(".config/i3", ".config/sway", ".config/hypr", "Library/LaunchAgents"),
    *(".gitconfig", ".config/git", ".config/direnv", ".local/share/direnv"),
)
GUARDED_ON_MACHINE: Final = ("/etc",)
"""Start-up files and autostart of everybody on the machine; most people cannot write them anyway."""
GUARDED_NAMES: Final = (".git", ".envrc", ".mcp.json", "fledge.json5")
"""Files and folders of these names, wherever they lie in a workspace, with all that is in them."""
STARTUP_MODULES: Final = ("sitecustomize", "usercustomize")
"""Modules that Python imports by itself whenever it starts, out of any import folder."""
AGENTS: Final = "agents"
"""The folder at the top of a project whose Markdown files are agents."""


class Protected(Value, omit_defaults=True):
    """The paths that are protected from one session's tools. All are absolute."""

    home: str = ""
    hidden: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    """Guarded paths besides those that are guarded by name."""
    unguarded: tuple[str, ...] = ()
    """Guarded places, as paths in the workspace, that the settings let tools write unasked."""
    workspaces: tuple[str, ...] = ()
    """Workspaces of all agents: one that lies in another's must not be swapped for something else."""
    code: tuple[str, ...] = ()
    """Places that fledge itself executes and imports from, by real path. No setting makes them unguarded."""
    linking: tuple[str, ...] = ()
    """Folders, by real path, with a link on the way to a place of `code`: in them no entry may be made or renamed."""

    def code_in(self, workspace: str) -> list[str]:
        """The outermost places of `code` inside a workspace; the workspace itself is none."""
        inside = sorted(path for path in self.code if is_within(path, workspace) and path != workspace)
        return [path for path in inside if not any(is_within(path, one) and path != one for one in inside)]

    def linking_in(self, workspace: str) -> list[str]:
        """The folders of `linking` in a workspace, the workspace itself among them, but for those in a place of
        `code`."""
        code = self.code_in(workspace)
        inside = (path for path in self.linking if is_within(path, workspace))
        return [path for path in inside if not any(is_within(path, one) for one in code)]

    def startup_in(self, workspace: str) -> list[str]:
        """Where a file in a workspace would be run by each Python that starts, fledge's next start included."""
        return [path for path in self.code_in(workspace) if path.rpartition("/")[2].split(".")[0] in STARTUP_MODULES]

    def guards(self, inner: str) -> bool:
        """True if a path in the workspace is guarded by its name."""
        parts = [part.casefold() for part in inner.split("/") if part not in ("", ".")]
        if any(is_within(inner, place) for place in self.unguarded):
            return False
        is_agent = len(parts) == 2 and parts[0] == AGENTS and parts[1].endswith(".md")
        return is_agent or any(part in GUARDED_NAMES for part in parts)


UNPROTECTED: Final = Protected()


def protected_at(
    home: str,
    hidden: tuple[str, ...] = (),
    unguarded: tuple[str, ...] = (),
    workspaces: tuple[str, ...] = (),
    code: tuple[str, ...] = (),
    linking: tuple[str, ...] = (),
) -> Protected:
    """The protected paths of a person with this home; `hidden` besides."""
    return Protected(
        home=home,
        hidden=(*(f"{home}/{name}" for name in HIDDEN_AT_HOME), *hidden),
        guarded=(*(f"{home}/{name}" for name in GUARDED_AT_HOME), *GUARDED_ON_MACHINE),
        unguarded=unguarded,
        workspaces=workspaces,
        code=code,
        linking=linking,
    )


def is_within(path: str, folder: str) -> bool:
    """True of the folder itself and everything below it, by their names."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def is_broad(workspace: str, home: str) -> bool:
    """True of a workspace, by its real path, that holds the whole home folder, such as `/` does."""
    return workspace == "/" or is_within(home, workspace)
