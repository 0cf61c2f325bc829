import pytest

from isosent.errors import InputError
from isosent.training.memory import MemoryEstimate, NetworkSize, TrainingBatch, estimate_memory, size_of_network

BERT = NetworkSize(110_000, 100_000, 30_000, hidden_dim=64, n_layers=2, n_heads=4, feed_forward_dim=256)
BATCH = TrainingBatch(8, 2, 16)


def test_weights_gradients_and_moments_are_counted():
    found = estimate_memory(BERT, BATCH)
    assert (found.weights, found.gradients, found.optimizer) == (440_000, 520_000, 800_000)
    assert found.total == 440_000 + 520_000 + 800_000 + found.activations


def test_a_layer_of_16_bits_is_that_of_the_paper():
    """On a GPU, equation 1 without its fused second term, and 2 more bytes for the 2 inputs of layer normalisation."""
    one, two = (
        estimate_memory(
            NetworkSize(0, 0, 0, 64, n_layers, 4, 256), BATCH, precision="bfloat16", on_gpu=True
        ).activations
        for n_layers in (1, 2)
    )
    assert two - one == 16 * 16 * 64 * (34 + 2 * 2)


def test_a_layer_of_32_bits_has_twice_the_numbers():
    """Twice equation 1: with as many bytes for a mask as for a number, (36 + 6 a s / h) s b h is it for 16 bits."""
    one, two = (estimate_memory(NetworkSize(0, 0, 0, 64, n_layers, 4, 256), BATCH).activations for n_layers in (1, 2))
    assert two - one == 2 * 16 * 16 * (36 * 64 + 6 * 4 * 16)


def test_recomputing_takes_less():
    deep = NetworkSize(0, 0, 0, 64, 12, 4, 256)
    assert estimate_memory(deep, BATCH, recompute=True).activations < estimate_memory(deep, BATCH).activations / 4


def test_a_static_embedding_keeps_its_vectors_only():
    static = NetworkSize(7_000, 7_000, 7_000, hidden_dim=7)
    assert estimate_memory(static, BATCH).activations == 16 * 7 * 4


def test_it_is_told_as_a_sentence():
    told = str(MemoryEstimate(90_852_864, 90_852_864, 181_705_728, 1_151_336_448))
    assert told == "about 1.5 GB: weights 91 MB, gradients 91 MB, AdamW 182 MB, activations 1.2 GB"


def test_another_precision_is_refused():
    with pytest.raises(InputError, match="precision must be one of float32, bfloat16; got 'int8'"):
        estimate_memory(BERT, BATCH, precision="int8")


@pytest.fixture(scope="module")
def tiny():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=20
    )
    return transformers.BertModel(config)


def test_the_size_of_a_transformer_is_read(tiny):
    library = pytest.importorskip("sentence_transformers")

    class Module(pytest.importorskip("torch").nn.Module):
        def __init__(self):
            super().__init__()
            self.auto_model = tiny

        def get_embedding_dimension(self):
            return 8

    for parameter in tiny.pooler.parameters():
        parameter.requires_grad_(False)
    found = size_of_network(library.SentenceTransformer(modules=[Module()], device="cpu"))
    n_parameters = sum(parameter.numel() for parameter in tiny.parameters())
    assert found == NetworkSize(n_parameters, n_parameters - 72, 512 * 8, 8, 3, 2, 20)


def test_activations_are_those_that_torch_keeps():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256
    )
    model = transformers.BertModel(config, add_pooling_layer=False).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    ids = torch.randint(500, (6, 40))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        columns = [model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state.square().sum() for _ in range(2)]
    estimate = estimate_memory(NetworkSize(0, 0, 0, 64, 3, 4, 256), TrainingBatch(6, 2, 40))
    assert len(columns) == 2
    assert sum(storage.nbytes() for storage in kept.values()) == pytest.approx(estimate.activations, rel=0.05)
