"""What a machine is, as far as its software stack goes: values, read live or told by a text.

What is not known is None or empty and never guessed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

OperatingSystem = Literal["linux", "windows", "macos"]


class Gpu(msgspec.Struct, frozen=True):
    """One kind of accelerator in the machine.

    `capability` is CUDA's compute capability (``8.6``), `gfx` AMD's target (``gfx1100``).
    """

    name: str | None = None
    capability: str | None = None
    gfx: str | None = None
    memory_gib: float | None = None
    count: int = 1


class Distribution(msgspec.Struct, frozen=True):
    """An installed package. `name` is normalised (PEP 503), `version` the public part (PEP 440).

    `label` is what follows ``+`` in the version (``cu121``, ``cpu``, ``rocm6.2``,
    ``cu12torch2.6cxx11abiFALSE``) or a build told in words; `version` None: there, in a version nobody said.
    """

    name: str
    version: str | None = None
    label: str | None = None
    installer: Literal["pip", "conda", "uv"] | None = None
    requires: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The version as people write it: ``2.8.0+cu128``."""
        return (self.version or "?") + (f"+{self.label}" if self.label else "")


class SharedFile(msgspec.Struct, frozen=True):
    """Files that two installed distributions both own: `example` is one of `count`."""

    first: str
    second: str
    example: str
    count: int = 1


class Shadow(msgspec.Struct, frozen=True):
    """A library that the loader finds before the one that came with a package.

    `library` is its bare name (``libcudnn.so.9``), `found_in` the folder, `owned_by` the package it hides.
    """

    library: str
    found_in: str
    owned_by: str | None = None


class Environment(msgspec.Struct, frozen=True):
    """A machine and one Python environment on it."""

    os: OperatingSystem | None = None
    os_name: str | None = None  # ubuntu, centos, windows, macos
    os_version: str | None = None  # 22.04, 10, 13.7.4
    arch: str | None = None  # x86_64, aarch64 (Linux), arm64 (macOS, Windows)
    glibc: str | None = None
    is_musl: bool | None = None
    is_wsl: bool | None = None
    container: str | None = None  # docker, podman, kubernetes, …
    python: str | None = None  # 3.11 or 3.11.7
    is_free_threaded: bool | None = None
    conda: str | None = None  # name of the conda environment
    driver: str | None = None  # 535.183.01
    driver_cuda: str | None = None  # the newest CUDA the driver carries: 12.2
    gpus: tuple[Gpu, ...] = ()
    has_cuda_device: bool | None = None  # what the framework itself says (is_available)
    toolkit: str | None = None  # CUDA of the first nvcc on PATH
    other_toolkits: tuple[str, ...] = ()  # further ones that are installed
    image_cuda: str | None = None  # CUDA of the container image
    has_cuda_compat: bool | None = None  # the forward-compatibility package is on the library path
    gcc: str | None = None
    cudnn: str | None = None  # cuDNN of the system, or the one a message says was loaded
    nccl: str | None = None
    tensorrt: str | None = None  # of the system
    rocm: str | None = None
    gfx_override: str | None = None  # HSA_OVERRIDE_GFX_VERSION
    neuron: str | None = None
    tpu: str | None = None
    library_path: tuple[str, ...] = ()  # LD_LIBRARY_PATH
    shadows: tuple[Shadow, ...] = ()
    shared_files: tuple[SharedFile, ...] = ()
    distributions: tuple[Distribution, ...] = ()

    def distribution(self, name: str) -> Distribution | None:
        """The installed package of that (normalised) name."""
        return next((item for item in self.distributions if item.name == name), None)
