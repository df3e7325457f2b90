# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between this package and a host; every message says what was found and what to do."""


class LoadError(RuntimeError):
    """The plug-in was not loaded: the base of all below."""


class HostMissing(LoadError):
    """No supported llama.cpp is installed, or several are and none was named."""


class PluginMissing(LoadError):
    """libggml-routerelay.so is not where it was looked for."""


class PluginRefused(LoadError):
    """The plug-in or the host said no; the message holds the line that it printed."""


class ModelAlreadyLoaded(LoadError):
    """A model was loaded first. Contexts take the back ends that exist when they are made."""


class AlreadyLoaded(LoadError):
    """The plug-in was loaded before, by something else or otherwise. It reads its variables once a process."""


class FlashAttentionOff(RuntimeError):
    """A model or its parameters leave flash attention off, so that the plug-in gets nothing to do."""
