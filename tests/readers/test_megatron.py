"""Models by the arguments of a Megatron-LM launch."""

import pytest

from raceline.models.count import parameters
from raceline.models.graph import Matmul
from raceline.models.read import read_model
from raceline.models.readers.megatron import reference
from raceline.present.errors import InputError

SMALL = {
    "num-layers": 12, "hidden-size": 512, "num-attention-heads": 8, "seq-length": 1024, "vocab-size": 50257,
    "tensor-model-parallel-size": 2, "micro-batch-size": 4,
}  # fmt: skip


def test_a_reference_keeps_what_decides_the_model_in_one_order():
    assert reference(SMALL) == reference(dict(reversed(SMALL.items())))
    assert "micro-batch-size" not in reference(SMALL)


def test_parameters_of_a_small_gpt_are_those_of_the_formula():
    table, positions, layer = 50432 * 512, 1024 * 512, 12 * 512**2 + 13 * 512
    assert parameters(read_model(reference(SMALL))) == table + positions + 12 * layer + 2 * 512


def test_the_vocabulary_is_padded_by_tensor_parallelism():
    assert read_model(reference(SMALL)).vocabulary == 50432
    assert read_model(reference(SMALL | {"tensor-model-parallel-size": 1})).vocabulary == 50304


def test_swiglu_rope_grouped_queries_without_biases():
    changed = {
        "swiglu": True, "disable-bias-linear": True, "position-embedding-type": "rope", "ffn-hidden-size": 1536,
        "group-query-attention": True, "num-query-groups": 2, "normalization": "RMSNorm",
        "untie-embeddings-and-output-weights": True,
    }  # fmt: skip
    layer = 512 * (512 + 2 * 128) + 512 * 512 + 3 * 512 * 1536 + 2 * 512
    assert parameters(read_model(reference(SMALL | changed))) == 2 * 50432 * 512 + 12 * layer + 512


def test_a_pattern_says_which_layers_have_experts():
    model = read_model(reference(SMALL | {"num-experts": 8, "moe-layer-freq": "([0]*3+[1]*9)"}))
    assert {block.name: block.repeat for block in model.blocks[1:-1]} == {
        "layer.dense": 3,
        "layer.experts": 9,
    }
    experts = [op for op in model.blocks[2].ops if isinstance(op, Matmul) and op.experts > 1]
    assert {op.experts for op in experts} == {8} and {op.experts_per_token for op in experts} == {2.0}


@pytest.mark.parametrize(
    ("extra", "family", "objective"),
    [
        ({"script": "pretrain_bert"}, "encoder", "masked"),
        ({"encoder-num-layers": 12, "decoder-num-layers": 12}, "seq2seq", "seq2seq"),
        ({"hybrid-layer-pattern": "M-M*-|M/*-"}, "hybrid", "causal"),
        ({"multi-latent-attention": True, "q-lora-rank": 64, "kv-lora-rank": 64}, "mla", "causal"),
    ],
)
def test_other_kinds_of_models_are_read(extra, family, objective):
    model = read_model(reference(SMALL | extra))
    assert (model.family, model.objective) == (family, objective)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("megatron:{", "models.megatron_wrong"),
        ("megatron:[1]", "models.megatron_wrong"),
        ("megatron:{}", "models.field_missing"),
        ('megatron:{"script":"pretrain_vlm"}', "models.megatron_script"),
        (reference(SMALL | {"num-experts": 8, "moe-layer-freq": "([0]*99)"}), "models.pattern_wrong"),
        (reference(SMALL | {"num-experts": 8, "moe-layer-freq": "__import__('os')"}), "models.pattern_wrong"),
    ],
)
def test_wrong_references_are_refused(text, message):
    with pytest.raises(InputError) as caught:
        read_model(text)
    assert caught.value.message.id == message
