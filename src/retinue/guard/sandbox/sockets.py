"""Sockets of programs that would act outside of the sandbox for a command: terminals, containers, agents, desktops.

A command that somebody allowed in general, by a mode or by a rule, does not reach them, because the program
behind such a socket sees every file. An allow rule that names the program of a service opens that service:
`Bash(docker:*)` opens the sockets of containers.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from glob import glob
from itertools import chain
from pathlib import Path

from msgspec import Struct


class _Service(Struct, frozen=True):
    programs: str
    """A rule that allows one of these programs by name opens the service."""
    places: str
    """Where its sockets are, as patterns: `{run}` is the user's folder below /run, `{home}` the home folder."""
    variables: str
    """Variables that lead to it."""


_SERVICES = (
    _Service("tmux tmate byobu tmuxp", "/tmp/tmux-{uid}", "TMUX TMUX_PANE"),  # noqa: S108 - where tmux puts them
    _Service("screen byobu", "/run/screen {home}/.screen", "STY"),
    _Service("zellij", "/tmp/zellij-{uid}", "ZELLIJ ZELLIJ_SESSION_NAME"),  # noqa: S108
    _Service(
        "docker docker-compose podman podman-compose nerdctl buildah ctr crictl kind minikube k3d act lxc incus",
        "/run/docker.sock /run/docker /run/podman /run/containerd /run/crio /run/buildkit /run/k3s {run}/docker.sock "
        "{run}/podman {home}/.docker/run {home}/.docker/desktop {home}/.colima/*/docker.sock {home}/.rd/docker.sock "
        "/var/lib/incus/unix.socket /var/lib/lxd/unix.socket /var/snap/lxd/common/lxd/unix.socket /run/libvirt",
        "DOCKER_HOST DOCKER_CONTEXT CONTAINER_HOST",
    ),
    _Service(
        "ssh scp sftp rsync ssh-add git",
        "/tmp/ssh-*/agent.* {home}/.ssh/agent {run}/keyring {run}/ssh-agent* {run}/gcr",  # noqa: S108
        "SSH_AUTH_SOCK SSH_AGENT_PID",
    ),
    _Service("gpg gpg2 git pass", "{home}/.gnupg/S.* {run}/gnupg", "GPG_AGENT_INFO"),
    _Service(
        "systemctl systemd-run loginctl busctl gdbus dbus-send notify-send",
        "{run}/bus {run}/systemd /run/dbus/system_bus_socket /run/systemd/private /run/snapd.socket",
        "DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS",
    ),
    _Service(
        "xdg-open xdotool xclip xsel wl-copy wl-paste",
        "/tmp/.X11-unix/* {run}/wayland-*",  # noqa: S108
        "DISPLAY WAYLAND_DISPLAY XAUTHORITY",
    ),
    _Service(
        "code cursor nvim emacsclient kitty wezterm",
        "/tmp/vscode-*.sock {run}/vscode-* {run}/nvim* {run}/emacs /tmp/emacs{uid} /tmp/kitty-*",  # noqa: S108
        "VSCODE_IPC_HOOK_CLI VSCODE_GIT_IPC_HANDLE NVIM NVIM_LISTEN_ADDRESS KITTY_LISTEN_ON WEZTERM_UNIX_SOCKET",
    ),
)
_PATH = re.compile(r"/[^,;\s]+")


class RuntimeSockets(Struct, frozen=True):
    """`shown` lies in a hidden folder and stays; `variables` would lead to what is hidden."""

    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    variables: frozenset[str] = frozenset()


def find_sockets(environment: Mapping[str, str], home: Path, named: Collection[str]) -> RuntimeSockets:
    """Return the sockets that exist now, but for those of services of which a program is `named`."""
    user = os.getuid()
    run = f"/run/user/{user}"
    hidden: list[str] = []
    shown: list[str] = []
    gone: set[str] = set()
    # All of it: any program of the user may have put a socket there.
    hidden += filter(os.path.isdir, [run])
    for service in _SERVICES:
        variables = service.variables.split()
        patterns = service.places.format(uid=user, run=run, home=home).split()
        paths = [*chain.from_iterable(map(glob, patterns)), *_sockets_of(environment, variables)]
        if named and not set(service.programs.split()).isdisjoint(named):
            shown += (path for path in paths if path.startswith(f"{run}/"))
        else:
            hidden += paths
            gone |= set(variables)
    return RuntimeSockets(tuple(map(Path, hidden)), tuple(map(Path, shown)), frozenset(gone))


def _sockets_of(environment: Mapping[str, str], variables: Collection[str]) -> Iterator[str]:
    """Yield the sockets that variables name, in any notation: `unix:///run/x`, `unix:path=/run/x,guid=1`."""
    for name in variables:
        match = _PATH.search(environment.get(name, ""))
        if match is None:
            continue
        path = "/" + match[0].lstrip("/")
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - by text
                yield path
        except (OSError, ValueError):
            continue
