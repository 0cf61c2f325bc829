"""Batches are a function of the seed and the epoch, and hold every example once."""

from collections import Counter

import numpy as np
import pytest

from isosent.errors import InputError
from isosent.training.settings import BATCHINGS
from isosent.training.trainer import batch_sampler, example_lengths

N_EXAMPLES = 203
LENGTHS = np.random.default_rng(1).integers(3, 60, size=(N_EXAMPLES, 2))
OPTIONS = {"random": {}, "length": {"lengths": LENGTHS}}


def batches_of(batching="random", *, n_examples=N_EXAMPLES, batch_size=8, seed=0, epoch=0, **more):
    sampler = batch_sampler(**OPTIONS[batching] | more)(range(n_examples), batch_size=batch_size, seed=seed)
    sampler.set_epoch(epoch)
    return sampler


def padded_tokens(batch):
    return len(batch) * LENGTHS[batch].max(axis=0).sum()


@pytest.mark.parametrize("n_processes", [1, 3])
@pytest.mark.parametrize("batching", BATCHINGS)
def test_every_example_is_in_one_batch(batching, n_processes):
    batches = list(batches_of(batching, n_processes=n_processes))
    assert sorted(row for batch in batches for row in batch) == list(range(N_EXAMPLES))


@pytest.mark.parametrize("batching", BATCHINGS)
def test_seed_and_epoch_say_it_all(batching):
    assert list(batches_of(batching, epoch=2)) == list(batches_of(batching, epoch=2))
    others = [list(batches_of(batching, epoch=e, seed=s)) for e, s in ((0, 0), (1, 0), (0, 1))]
    assert others[0] != others[1] != others[2] != others[0]


@pytest.mark.parametrize("n_processes", [1, 2, 4])
@pytest.mark.parametrize("batching", BATCHINGS)
def test_the_length_is_exact_and_the_same_in_every_epoch(batching, n_processes):
    sampler = batches_of(batching, n_processes=n_processes)
    lengths = set()
    for epoch in range(5):
        sampler.set_epoch(epoch)
        assert len(sampler) == len(list(sampler))
        lengths.add(len(sampler))
    assert len(lengths) == 1
    assert lengths.pop() % n_processes == 0


@pytest.mark.parametrize("batching", ["random", "length"])
def test_batches_have_the_size_that_was_asked_for(batching):
    assert Counter(map(len, batches_of(batching))) == {8: 25, 3: 1}


def test_batches_of_similar_length_need_less_padding():
    random, length = (sum(map(padded_tokens, batches_of(name))) / LENGTHS.sum() for name in BATCHINGS)
    assert random > 1.5 > length > 1.05


def test_no_examples_give_no_batches():
    for batching in BATCHINGS:
        more = {} if batching == "random" else {"lengths": np.zeros((0, 2), int)}
        assert list(batches_of(batching, n_examples=0, **more)) == []


@pytest.mark.parametrize("batching", ["random", "length"])
@pytest.mark.parametrize("seed", range(5))
def test_no_text_is_twice_in_a_batch(batching, seed):
    rng = np.random.default_rng(seed)
    columns = [[f"text {number}" for number in rng.integers(60, size=N_EXAMPLES)] for _ in range(2)]
    batches = list(batches_of(batching, distinct=columns, seed=seed))
    assert len(batches) == 26
    assert max(map(len, batches)) == 8
    for batch in batches:
        texts = [text for row in batch for text in {columns[0][row], columns[1][row]}]
        assert len(texts) == len(set(texts))


def test_a_text_of_more_examples_than_batches_is_put_somewhere():
    batches = list(batches_of(distinct=[["same"] * N_EXAMPLES]))
    assert sorted(row for batch in batches for row in batch) == list(range(N_EXAMPLES))
    assert len(batches) == 26


def test_processes_take_neighboring_lengths_at_a_step():
    batches = list(batches_of("length", n_processes=2))
    means = np.array([LENGTHS[batch].sum(axis=1).mean() for batch in batches]).reshape(-1, 2)
    assert np.abs(means[:, 0] - means[:, 1]).mean() < np.abs(means[:-1] - means[1:]).mean() / 2


@pytest.mark.parametrize("n_processes", [2, 3])
@pytest.mark.parametrize("batching", BATCHINGS)
def test_accelerate_gives_each_process_its_share(batching, n_processes):
    data_loader = pytest.importorskip("accelerate.data_loader")
    shards = [
        list(
            data_loader.BatchSamplerShard(
                batches_of(batching, n_processes=n_processes), n_processes, process, even_batches=False
            )
        )
        for process in range(n_processes)
    ]
    assert len(set(map(len, shards))) == 1
    assert sorted(row for shard in shards for batch in shard for row in batch) == list(range(N_EXAMPLES))


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_run_that_goes_on_skips_what_is_done(batching):
    accelerate = pytest.importorskip("accelerate")
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(range(N_EXAMPLES), batch_sampler=batches_of(batching), collate_fn=list)
    loader = accelerate.data_loader.prepare_data_loader(loader, num_processes=1, process_index=0, put_on_device=False)
    rest = accelerate.skip_first_batches(loader, 5)
    rest.set_epoch(3)
    assert list(rest) == list(batches_of(batching, epoch=3))[5:]


def test_the_trainer_of_sentence_transformers_takes_it(tmp_path):
    pytest.importorskip("accelerate")
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer import losses, modules, training_args
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(20)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    model = SentenceTransformer(modules=[modules.StaticEmbedding(tokenizer, embedding_dim=4)], device="cpu")
    texts = [" ".join(map(str, range(1 + row % 7))) for row in range(20)]
    lengths = example_lengths(model.preprocess, [texts])
    seen = []

    class Loss(losses.CosineSimilarityLoss):
        def forward(self, features, labels):
            seen.append(len(labels))
            return super().forward(features, labels)

    arguments = training_args.SentenceTransformerTrainingArguments(
        str(tmp_path),
        batch_sampler=batch_sampler(lengths=lengths),
        num_train_epochs=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    data = Dataset.from_dict({"a": texts, "b": texts, "score": np.linspace(0, 1, 20)})
    SentenceTransformerTrainer(model, arguments, data, loss=Loss(model)).train()
    sampler = batch_sampler(lengths=lengths)(data, batch_size=8, seed=arguments.seed)
    expected = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected += map(len, sampler)
    assert seen == expected


def test_every_text_is_tokenized_once():
    asked = []

    def tokenize(part):
        asked.extend(part)
        return {"attention_mask": [[1, 1, 1], [1, 0, 0], [0, 0, 0]]}

    assert example_lengths(tokenize, [["a b c", "a", "", "a b c"]]).tolist() == [[3], [1], [0], [3]]
    assert asked == ["a b c", "a", ""]


def test_lengths_in_a_table_are_read_off_the_offsets():
    features = {"input_ids": [4, 4, 5, 6], "offsets": [0, 2, 2]}
    assert example_lengths(lambda _: features, [["x", "", "y"]]).tolist() == [[2], [0], [2]]


def test_no_texts_have_no_lengths():
    assert example_lengths(lambda _: pytest.fail("called"), [[], []]).shape == (0, 2)


def test_example_lengths_have_a_column_a_text():
    def tokenize(part):
        return {"attention_mask": [[1] * len(text) + [0] * (9 - len(text)) for text in part]}

    assert example_lengths(tokenize, [["a", "bb"], ["ccc", "d"]]).tolist() == [[1, 3], [2, 1]]


def test_data_of_another_size_are_refused():
    with pytest.raises(InputError, match="lengths must have one row per example, 3; got 2"):
        batch_sampler(lengths=[1, 2])(range(3))


def test_more_processes_than_examples_are_refused():
    with pytest.raises(InputError, match="4 processes need as many examples, and there are 3"):
        len(batch_sampler(n_processes=4)(range(3)))
