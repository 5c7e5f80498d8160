from __future__ import annotations

import pytest

from raceline.catalog import load, runtimes


@pytest.mark.parametrize("name", load.runtimes())
def test_a_lineage_ends_and_is_known(name: str) -> None:
    known = load.runtimes()
    line = list(runtimes.lineage(known[name], known))
    assert line[-1].based_on is None


def test_a_framework_has_the_context_of_what_it_is_built_on() -> None:
    known = load.runtimes()
    assert runtimes.context_mib(known["axolotl"], known) == runtimes.context_mib(known["pytorch"], known)


def test_an_unmeasured_context_is_unknown() -> None:
    known = load.runtimes()
    assert runtimes.context_mib(known["llama.cpp"], known) is None


def test_mixed_precision_keeps_fp32_weights_and_bf16_true_does_not() -> None:
    known = load.runtimes()
    assert runtimes.states(known["accelerate"], "bf16", known) == "amp"
    assert runtimes.states(known["transformers"], "bf16-true", known) == "true"
    assert runtimes.states(known["deepspeed"], "bf16", known) == "master"


def test_the_reserves_of_the_engines() -> None:
    known = load.runtimes()
    assert (known["vllm"].memory_reserve, known["vllm"].memory_fraction) == ("fraction_of_total", 0.92)
    assert known["tensorrt-llm"].memory_reserve == "fraction_of_free"
    assert known["llama.cpp"].memory_reserve is None
