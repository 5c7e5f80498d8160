"""NVIDIA's GPUs by NVML and by nvidia-smi: a stand-in for the library, texts for the command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from raceline.measure.gpus import from_nvml, from_table


class Refused(Exception):
    """What NVML raises."""


class Nvml:
    """NVML of a machine with some cards; names in `refused` raise."""

    NVMLError = Refused

    def __init__(self, cards: list[tuple[str, tuple[int, int], int]], *refused: str) -> None:
        self.cards = cards
        self.refused = refused
        self.is_open = False

    def _checked(self, name: str, value: Any) -> Any:
        if name in self.refused:
            raise Refused(name)
        return value

    def nvmlInit(self) -> None:
        self.is_open = bool(self._checked("init", True))

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"535.183.01"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return int(self._checked("cuda", 12020))

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.cards[handle][0]

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return self.cards[handle][1]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return self._checked("memory", SimpleNamespace(total=self.cards[handle][2] * 2**30))


H100 = ("NVIDIA H100 80GB HBM3", (9, 0), 80)


def test_nvml_tells_driver_cuda_and_cards() -> None:
    library = Nvml([H100, H100, ("NVIDIA T400 4GB", (7, 5), 4)])
    found = from_nvml(library)
    assert (found["driver"], found["driver_cuda"]) == ("535.183.01", "12.2")
    assert [(gpu.capability, gpu.memory_gib, gpu.count) for gpu in found["gpus"]] == [
        ("9.0", 80, 2),
        ("7.5", 4, 1),
    ]
    assert not library.is_open


def test_memory_that_nvml_does_not_tell_leaves_the_rest() -> None:
    (gpu,) = from_nvml(Nvml([("NVIDIA GB10", (12, 1), 0)], "memory"))["gpus"]
    assert (gpu.name, gpu.capability, gpu.memory_gib) == ("NVIDIA GB10", "12.1", None)


def test_a_container_without_libcuda_still_tells_the_driver() -> None:
    found = from_nvml(Nvml([H100], "cuda"))
    assert (found["driver"], found["driver_cuda"]) == ("535.183.01", None)


def test_nvml_that_does_not_start_tells_nothing() -> None:
    assert from_nvml(Nvml([H100], "init")) == {}


def test_cards_are_read_from_the_commands_table() -> None:
    found = from_table("NVIDIA GeForce RTX 4090, 560.94, 8.9\nNVIDIA GeForce RTX 4090, 560.94, 8.9\n")
    assert found["driver"] == "560.94"
    assert [(gpu.capability, gpu.count) for gpu in found["gpus"]] == [("8.9", 2)]


def test_an_old_command_tells_no_capability() -> None:
    found = from_table("Tesla K80, 470.141.03\n")
    assert (found["driver"], found["gpus"][0].capability) == ("470.141.03", None)


def test_an_error_of_the_command_is_no_card() -> None:
    text = "NVIDIA-SMI has failed, because it couldn't communicate with the NVIDIA driver\n"
    assert from_table(text) == {}
