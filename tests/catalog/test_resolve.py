from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.catalog import load, resolve
from raceline.catalog.own import OwnCatalog, parse
from raceline.catalog.resolve import Ambiguous, Resolved
from raceline.present.errors import InputError

PLAIN = {
    "RTX 4090": "rtx-4090",
    "4090": "rtx-4090",
    "rtx4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "h100pcie": "h100-pcie",
    "RTX3090-24GB (23.58 GiB)": "rtx-3090",
    "RTX3080-10GB": "rtx-3080-10gb",
    "TitanRTX-24GB": "titan-rtx",
    "A10G-24GB": "a10g",
    "Apple M3 Max 128GB unified": "apple-m3-max",
    "TPU v5e": "tpu-v5e",
    "v5e": "tpu-v5e",
    "MI300X": "mi300x",
    "AMD Instinct MI300X OAM": "mi300x",
    "nvidia-a100": "a100-sxm-80gb",
    "L4-24GB": "l4",
    "Gaudi 2": "gaudi2",
    "Tesla T4": "t4",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "K80-12GB (11.17 GiB)": "k80-12gb",
    "RTX 4090 Laptop": "rtx-4090-laptop",
    "NVIDIA GH200 480GB": "gh200-96gb",
}


@pytest.mark.parametrize(("written", "meant"), PLAIN.items())
def test_a_name_that_people_write_has_one_meaning(written: str, meant: str) -> None:
    found = resolve.find_accelerator(written)
    assert isinstance(found, Resolved)
    assert found.accelerator.id == meant


@pytest.mark.parametrize("name", load.accelerators())
def test_every_id_means_itself(name: str) -> None:
    assert resolve.accelerator(name).accelerator.id == name


@pytest.mark.parametrize("name", load.accelerators())
def test_every_full_name_leads_back_to_its_row(name: str) -> None:
    found = resolve.find_accelerator(load.accelerators()[name].name)
    ids = [item.id for item in found.candidates] if isinstance(found, Ambiguous) else [found.accelerator.id]
    assert name in ids


def test_a100_alone_lists_the_candidates_and_the_usual_one() -> None:
    found = resolve.find_accelerator("A100")
    assert isinstance(found, Ambiguous)
    assert {item.id for item in found.candidates} == {
        "a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "a100-pcie-80gb",
    }  # fmt: skip
    assert found.preferred == "a100-sxm-80gb"


def test_the_answer_between_candidates_resolves() -> None:
    found = resolve.find_accelerator("A100")
    assert isinstance(found, Ambiguous)
    assert found.choose("a100-pcie-40gb").accelerator.id == "a100-pcie-40gb"


def test_without_asking_the_usual_one_is_taken_and_said() -> None:
    found = resolve.accelerator("V100")
    assert found.accelerator.id == "v100-sxm2-16gb"
    assert [note.id for note in found.notes] == ["catalog.chose_accelerator"]


def test_a_size_alone_takes_the_usual_card_of_that_size() -> None:
    assert resolve.accelerator("80GB card").accelerator.id == "a100-sxm-80gb"
    assert resolve.accelerator("24GB or larger").accelerator.memory_gib == 24


def test_an_exact_size_in_parentheses_is_what_can_be_used() -> None:
    assert resolve.accelerator("RTX3090-24GB (23.58 GiB)").usable_gib == 23.58
    assert resolve.accelerator("L4-24GB (23034 MiB)").usable_gib == pytest.approx(22.494, abs=0.001)


def test_a_modified_card_keeps_the_size_that_was_written() -> None:
    found = resolve.accelerator("RTX2080Ti-22GB")
    assert found.accelerator.memory_gib == 22
    assert [note.id for note in found.notes] == ["catalog.other_memory"]


def test_shared_memory_is_sold_in_many_sizes() -> None:
    assert resolve.accelerator("M3 Max 64GB").accelerator.memory_gib == 64


def test_a_vendor_s_rounding_is_no_other_card() -> None:
    assert resolve.accelerator("NVIDIA B200 192GB").notes == ()


def test_a_mig_profile_chooses_the_card_that_has_it() -> None:
    found = resolve.accelerator("A100 1g.5gb")
    assert (found.accelerator.memory_gib, found.mig_profile) == (40, "1g.5gb")


def test_a_typo_lists_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        resolve.accelerator("RTX 409")
    assert "rtx-4090" in caught.value.message.params["nearest"]


def test_what_says_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="unknown_accelerator"):
        resolve.accelerator("single GPU")


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [("8 x H100", "H100", 8), ("H100x8", "H100", 8), ("4090×2", "4090", 2), ("GTX 1080", "GTX 1080", None),
     ("MI300X", "MI300X", None), ("RX 7900 XTX", "RX 7900 XTX", None), ("RX7600", "RX7600", None)],
)  # fmt: skip
def test_a_count_can_stand_before_or_after(text: str, name: str, count: int | None) -> None:
    assert resolve.split_count(text) == (name, count)


def test_own_devices_are_known_by_their_names() -> None:
    own: OwnCatalog = parse(
        {"accelerators": [{"id": "lab-card", "like": "rtx-4090", "memory_gib": 48}]}, "mine"
    )
    assert resolve.accelerator("Lab Card", own).accelerator.memory_gib == 48


def test_links_runtimes_processors_and_storage_resolve_forgivingly() -> None:
    assert resolve.link("NDR").id == "ib-ndr"
    assert resolve.link("100GbE").id == "eth-100g"
    assert resolve.runtime("TensorRT LLM").id == "tensorrt-llm"
    assert resolve.runtime("FSDP").id == "pytorch-fsdp2"
    assert resolve.cpu("Ryzen 9 7950X").id == "ryzen-9-7950x"
    assert resolve.storage("gp3").id == "ebs-gp3-default"


def test_an_unknown_runtime_lists_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        resolve.runtime("vlm")
    assert "vllm" in caught.value.message.params["nearest"]


@given(st.text(max_size=300))
def test_any_text_resolves_or_is_refused_in_one_way(text: str) -> None:
    try:
        assert isinstance(resolve.find_accelerator(text), (Resolved, Ambiguous))
    except InputError as error:
        assert error.message.id.startswith("catalog.")


def test_a_processor_is_what_a_model_runs_on_with_its_machines_memory() -> None:
    usual, stated = (
        resolve.accelerator_or_processor(name) for name in ("ryzen-9-7950x", "Ryzen 9 7950X 64GB")
    )
    assert (usual.accelerator.kind, usual.accelerator.memory_gib, stated.accelerator.memory_gib) == (
        "cpu",
        32,
        64,
    )
    assert [note.id for note in usual.notes] == ["catalog.usual_memory"] and not stated.notes


def test_an_unknown_name_lists_accelerators_even_where_processors_would_do() -> None:
    with pytest.raises(InputError) as caught:
        resolve.accelerator_or_processor("RTX 409")
    assert caught.value.message.id == "catalog.unknown_accelerator_nearest"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("昇腾910B", "ascend-910b3"),
        ("摩尔线程 S4000", "mtt-s4000"),
        ("RTX 4090 显卡", "rtx-4090"),
        ("寒武纪 MLU590", "mlu590"),
    ],
)
def test_names_as_chinese_texts_write_them(name: str, meant: str) -> None:
    assert resolve.accelerator(name).accelerator.id == meant
