"""Which GPU is taken for free, by stand-ins for NVML and CuPy; nothing here says anything of a real device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuad.tools import devices
from gpuad.tools.devices import DeviceError, Found, free_device, state
from gpuad.tools.settings import Settings

GIB = 1 << 30


class NVMLError(Exception):
    """NVML's own."""


@dataclass
class Card:
    """What NVML says of a device."""

    name: str = "Some GPU"
    free: int = 70 * GIB
    busy: int | None = 0
    processes: list[int] = field(default_factory=list)
    mode: int = 0
    split: bool = False
    broken: bool = False


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Card]]:
    """Puts devices into the machine; those that CUDA shows are listed, by their PCI address, in another order than NVML's."""

    def put(*cards: Card, shown: list[int] | None = None) -> list[Card]:
        def handle(address: bytes) -> Card:
            card = cards[int(address)]
            if card.broken:
                raise NVMLError("GPU is lost")
            return card

        def busy(card: Card) -> Any:
            if card.busy is None:
                raise NVMLError("Not Supported")
            return SimpleNamespace(gpu=card.busy)

        def mig(card: Card) -> Any:
            if not card.split and card.mode == 0:
                raise NVMLError("Not Supported")
            return [int(card.split), int(card.split)]

        nvml = SimpleNamespace(
            NVMLError=NVMLError,
            NVML_CLOCK_SM=1,
            NVML_CLOCK_MEM=2,
            NVML_TEMPERATURE_GPU=0,
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetHandleByPciBusId=handle,
            nvmlDeviceGetName=lambda card: card.name.encode(),
            nvmlDeviceGetMigMode=mig,
            nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(free=card.free),
            nvmlDeviceGetComputeMode=lambda card: card.mode,
            nvmlDeviceGetComputeRunningProcesses=lambda card: [SimpleNamespace(pid=pid) for pid in card.processes],
            nvmlDeviceGetUtilizationRates=busy,
            nvmlDeviceGetClockInfo=lambda card, which: {1: 1980, 2: 2619}[which],
            nvmlDeviceGetTemperature=lambda card, which: 41,
        )
        order = range(len(cards)) if shown is None else shown
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(devices, "pci_addresses", lambda: [str(k) for k in order])
        monkeypatch.setattr(devices, "free_memory", lambda index: 5 * GIB)
        return list(cards)

    return put


def wanting(**given: Any) -> Settings:
    return Settings(Path(), **given)


def test_the_first_that_is_free(machine: Callable[..., list[Card]]) -> None:
    machine(Card("A", busy=97), Card("B", processes=[999999]), Card("C"), Card("D"))
    assert free_device(wanting()) == Found(2, "C")


def test_numbers_are_those_of_cuda(machine: Callable[..., list[Card]]) -> None:
    machine(Card("A"), Card("B", busy=50), Card("C"), shown=[1, 2])
    assert free_device(wanting()) == Found(1, "C")


@pytest.mark.parametrize(
    ("card", "why"),
    [
        (Card(free=GIB // 2), "0 (Some GPU) has 0.5 GiB free, of 1.0 wanted"),
        (Card(busy=21), "is 21 % busy"),
        (Card(processes=[999998, 999999]), "has 2 other processes"),
        (Card(processes=[999999], busy=90), "has 1 other process, is 90 % busy"),
        (Card(mode=2), "is closed to computing (compute mode PROHIBITED)"),
        (Card(mode=3, processes=[999999]), "belongs to another process (compute mode EXCLUSIVE_PROCESS), has 1 other process"),
        (Card(broken=True), "0 (?) cannot be asked (GPU is lost)"),
    ],
)
def test_why_one_is_not_free(machine: Callable[..., list[Card]], card: Card, why: str) -> None:
    machine(card)
    with pytest.raises(DeviceError) as caught:
        free_device(wanting())
    assert why in str(caught.value)


@pytest.mark.parametrize("card", [Card(busy=None), Card(busy=20), Card(mode=3), Card(processes=[os.getpid()]), Card(free=GIB)])
def test_what_does_not_matter(machine: Callable[..., list[Card]], card: Card) -> None:
    machine(card)
    assert free_device(wanting()) == Found(0, "Some GPU")


def test_what_the_settings_allow(machine: Callable[..., list[Card]]) -> None:
    machine(Card(busy=90, processes=[999999], free=GIB // 2))
    assert free_device(wanting(gpu_shared=True, gpu_utilisation=95, gpu_free_memory="100 MiB")) == Found(0, "Some GPU")
    machine(Card(mode=3, processes=[999999]))
    with pytest.raises(DeviceError, match="EXCLUSIVE_PROCESS"):
        free_device(wanting(gpu_shared=True))


def test_an_instance_of_a_split_device_is_judged_by_its_own_memory(machine: Callable[..., list[Card]]) -> None:
    machine(Card(split=True, busy=99, free=0, processes=[999999]))
    assert free_device(wanting()) == Found(0, "Some GPU (MIG)")
    with pytest.raises(DeviceError, match=r"0 \(Some GPU \(MIG\)\) has 5.0 GiB free, of 6.0 wanted"):
        free_device(wanting(gpu_free_memory="6 GiB"))


def test_waiting(machine: Callable[..., list[Card]]) -> None:
    (card,) = machine(Card(busy=99))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            card.busy = 0

    assert free_device(wanting(gpu_wait=60), sleep) == Found(0, "Some GPU")
    assert len(slept) == 3
    card.busy = 99
    with pytest.raises(DeviceError, match="no device is free after 10 s: 0 "):
        free_device(wanting(gpu_wait=10), lambda seconds: None)


def test_no_device_at_all(machine: Callable[..., list[Card]], monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    with pytest.raises(DeviceError, match="CUDA shows no device"):
        free_device(wanting())

    def missing() -> list[str]:
        raise ModuleNotFoundError("No module named 'cupy'")

    monkeypatch.setattr(devices, "pci_addresses", missing)
    with pytest.raises(DeviceError, match="CuPy shows no device"):
        free_device(wanting())

    def no_driver() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", no_driver)
    with pytest.raises(DeviceError, match=r"there is no NVIDIA driver \(Driver Not Loaded\)"):
        free_device(wanting())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(DeviceError, match="pip install nvidia-ml-py"):
        free_device(wanting())
    assert state(0) == {}


def test_the_state_that_is_recorded_with_a_time(machine: Callable[..., list[Card]]) -> None:
    machine(Card())
    assert state(0) == {"SM clock MHz": 1980, "memory clock MHz": 2619, "temperature C": 41}
    machine(Card(broken=True))
    assert state(0) == {}
