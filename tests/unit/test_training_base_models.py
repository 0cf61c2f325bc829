"""From a model reference to modules that can be trained; a vocabulary and a small BERT from texts alone."""

import json
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import isosent
from isosent import Whitening
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, IsosentWarning, ModelReferenceError
from isosent.model import SentenceEncoder
from isosent.training.base_models import SPECIAL_TOKENS, ScratchSettings, open_base, train_wordpiece, write_scratch
from isosent.training.run import saving_trained
from isosent.transforms.chain import L2Normalize, chain

SCRATCH = "scratch:?layers=2&dim=8&heads=2&vocab=300&max_length=64"


@pytest.fixture(scope="module", autouse=True)
def few_threads(quick_trainers):
    return quick_trainers


@pytest.fixture(scope="module")
def transformer(texts, tmp_path_factory):
    """Folder of a tiny transformer, with dropout."""
    folder = tmp_path_factory.mktemp("transformer")
    open_base(SCRATCH, texts)[0].save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def glove(tmp_path_factory):
    """Word vectors of 40 words, 6 dimensions."""
    path = tmp_path_factory.mktemp("words") / "glove.txt"
    rows = np.random.default_rng(1).normal(size=(40, 6)).round(3) + 1
    path.write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)))
    return path


WORDS = [f"w{i} w{(7 * i + 3) % 40}" for i in range(40)]


def kinds(base):
    return [type(module).__name__ for module in base]


def assert_same(base, model, texts):
    np.testing.assert_allclose(base.encode(texts), model.encode(texts), atol=2e-6)


def test_scratch_gives_a_network_to_train(texts):
    base, facts = open_base(SCRATCH, texts, seed=3)
    assert (facts["kind"], kinds(base)) == ("scratch", ["Transformer", "Pooling"])
    assert facts["vocab_size"] == 300
    assert facts["dim"] == 8
    assert facts["n_parameters"] == sum(parameter.numel() for parameter in base.parameters())
    assert facts["reference"] == "scratch:?layers=2&dim=8&heads=2&vocab=300&max_length=64&lowercase=true"
    assert base.max_seq_length == 64
    json.dumps(facts)


def test_the_seed_makes_the_weights_and_leaves_the_random_numbers_alone(texts):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, again, other = (open_base(SCRATCH, texts, seed=seed)[0].encode(["a man"]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01
    assert torch.equal(torch.random.get_rng_state(), before)


def test_every_weight_has_a_gradient_and_dropout_is_on_in_training(transformer):
    base = open_base(f"hf:{transformer}")[0]
    assert all(parameter.requires_grad and parameter.dtype == torch.float32 for parameter in base.parameters())
    features = base.preprocess(["a man is riding a horse"])
    base.train()
    first, second = (base(dict(features))["sentence_embedding"] for _ in range(2))
    assert not torch.equal(first, second)
    base.eval()
    first, second = (base(dict(features))["sentence_embedding"] for _ in range(2))
    assert torch.equal(first, second)


def test_a_base_shares_no_weight_with_the_model_on_disk(transformer, texts):
    model = isosent.load(f"hf:{transformer}")
    before = model.encode(texts[:3])
    base = open_base(f"hf:{transformer}")[0]
    with torch.no_grad():
        for parameter in base.parameters():
            parameter.add_(1)
    np.testing.assert_array_equal(isosent.load(f"hf:{transformer}").encode(texts[:3]), before)


@pytest.mark.filterwarnings("ignore::isosent.errors.TruncationWarning")
@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_pooling_and_length_can_be_others(transformer, texts, pooling):
    base, facts = open_base(f"hf:{transformer}", pooling=pooling, max_length=12)
    assert_same(base, isosent.load(f"hf:{transformer}?pooling={pooling}&max_length=12"), texts[:20])
    assert (facts["options"]["pooling"], base.max_seq_length) == (pooling, 12)


def test_scratch_takes_pooling_and_length_too(texts):
    base, facts = open_base(SCRATCH, texts, pooling="mean,max", max_length=12)
    assert (facts["pooling"], facts["dim"], base.max_seq_length) == ("mean,max", 16, 12)


def test_layers_can_be_averaged_with_shares_that_stay(transformer, texts):
    base = open_base(f"hf:{transformer}?layers=0.3*1,0.7*2")[0]
    assert kinds(base) == ["Transformer", "WeightedLayerPooling", "Pooling"]
    assert_same(base, isosent.load(f"hf:{transformer}?layers=0.3*1,0.7*2"), texts[:20])
    fixed = [name for name, parameter in base.named_parameters() if not parameter.requires_grad]
    assert fixed == ["1.layer_weights"]


def test_the_map_of_a_saved_transformer_is_a_module_to_train(transformer, texts, tmp_path):
    model = isosent.load(f"hf:{transformer}").fitted(texts, transform=chain(Whitening(4), L2Normalize()))
    model.save(tmp_path / "model")
    base, facts = open_base(tmp_path / "model")
    assert kinds(base) == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert all(parameter.requires_grad for parameter in base.parameters())
    assert len(facts["fits"]) == 1
    np.testing.assert_allclose(base.encode(texts[:20]), model.encode(texts[:20]), atol=1e-4)


def test_wordllama_is_a_table_of_token_vectors(wordllama, texts):
    base, facts = open_base("wordllama")
    assert (facts["kind"], kinds(base)) == ("static", ["StaticEmbedding"])
    assert facts["n_parameters"] == 32_000 * 256
    assert_same(base, wordllama, texts[:20])


@pytest.mark.parametrize("postprocessing", [(), (L2Normalize(),)])
def test_the_map_of_a_saved_static_model_is_folded_into_its_vectors(glove, tmp_path, postprocessing):
    model = isosent.load(f"words:{glove}").fitted(WORDS, transform=chain(Whitening(3), *postprocessing))
    model.save(tmp_path / "model")
    base, facts = open_base(str(tmp_path / "model"))
    assert kinds(base) == ["StaticEmbedding", *(["Normalize"] if postprocessing else [])]
    assert facts["n_parameters"] == 40 * 3
    assert_same(base, model, [*WORDS, "w1 nothing w2", ""])


def test_weights_of_words_that_are_known_come_along(glove, tmp_path):
    model = isosent.load(f"words:{glove}?weighting=sif").fitted(WORDS, transform=None)
    model.save(tmp_path / "model")
    assert_same(open_base(tmp_path / "model")[0], model, WORDS)


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ("weighting=sif", "has weighting=sif"),
        ("weighting=gem&n_candidates=4&n_removed=2", "has weighting=gem"),
        ("weighting=p_mean&powers=inf&z_norm=false", "has weighting=p_mean"),
        ("unknown=mean", "has unknown=mean"),
    ],
)
def test_other_than_means_of_word_vectors_are_refused(glove, options, got):
    with pytest.raises(
        InputError, match=rf"train: .*{got}\. Leave that out: .* is trained as the mean of its word vectors"
    ):
        open_base(f"words:{glove}?{options}")


def model2vec(folder, *, normalize):
    folder.mkdir()
    vocabulary = {"[UNK]": 0, "[PAD]": 1} | {f"w{i}": i + 2 for i in range(10)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"normalize": normalize, "max_length": 5}))
    save_file(
        {"embeddings": np.random.default_rng(0).normal(size=(12, 4)).astype("float32")}, folder / "model.safetensors"
    )
    return folder


@pytest.mark.filterwarnings("ignore::isosent.errors.TruncationWarning")
def test_a_model2vec_folder_keeps_its_scaling_and_its_limit(tmp_path):
    folder = model2vec(tmp_path / "static", normalize=True)
    base = open_base(f"static:{folder}")[0]
    assert kinds(base) == ["StaticEmbedding", "Normalize"]
    texts = ["w1 w2 other w3", " ".join(f"w{i}" for i in range(10))]
    assert_same(base, isosent.load(f"static:{folder}"), texts)
    with saving_trained(base, tmp_path / "trained"):
        pass
    assert_same(base, isosent.load(tmp_path / "trained"), texts)
    assert isosent.load(f"static:{tmp_path / 'trained' / 'encoder'}").encoder.options["max_length"] == "5"


def test_skipped_unknown_tokens_are_refused_where_they_would_count(tmp_path):
    folder = model2vec(tmp_path / "static", normalize=False)
    with pytest.raises(InputError, match=r"train: .* skips unknown tokens.*normalize=true\.$"):
        open_base(f"static:{folder}")


def test_a_map_behind_scaling_is_refused(tmp_path):
    model = isosent.load(f"static:{model2vec(tmp_path / 'static', normalize=True)}")
    model.fitted(WORDS[:7], transform=Whitening(2)).save(tmp_path / "model")
    with pytest.raises(InputError, match="scales vectors to length 1 before the linear map"):
        open_base(tmp_path / "model")


def test_a_mean_of_queries_is_refused(transformer, texts, tmp_path):
    model = isosent.load(f"hf:{transformer}").fitted(texts[:40], transform=Whitening(4), queries=texts[40:60])
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="has a separate map for queries"):
        open_base(tmp_path / "model")


def test_a_model_of_bare_vectors_is_refused(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
    SentenceEncoder(PrecomputedVectors(4)).fitted_on_vectors(vectors, transform=Whitening(2)).save(tmp_path / "model")
    with pytest.raises(InputError, match=r"train: .* this model takes vectors\.$"):
        open_base(tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("long=windows", "train: long=windows does not work"),
        ("pooling=p_mean", r"train: sentence-transformers has no pooling p_mean\. It has mean, cls"),
        ("layers=1,2&pooling=max", r"train: .*averages layers before pooling.*Use another pooling or one layer\.$"),
    ],
)
def test_readings_without_a_module_are_refused(transformer, options, words):
    with pytest.raises(InputError, match=words):
        open_base(f"hf:{transformer}?{options}")


def test_a_network_that_sees_its_padding_is_refused(tiny_model):
    with pytest.raises(InputError, match="sees its padding"):
        open_base(f"hf:{tiny_model('fnet')}")


def test_pooling_of_words_is_refused():
    with pytest.raises(InputError, match=r"wordllama always pools by mean, not by max"):
        open_base("wordllama", pooling="max")


def test_a_saved_model_brings_its_own_pooling_and_length(glove, tmp_path):
    isosent.load(f"words:{glove}").save(tmp_path / "model")
    with pytest.raises(InputError, match="pooling and max_length of a model saved by isosent cannot be changed"):
        open_base(tmp_path / "model", pooling="cls", max_length=20)


@pytest.mark.parametrize("reference", ["nonsense", "scratchy:", "scratch:bert"])
def test_a_reference_outside_the_grammar_is_refused(reference):
    with pytest.raises(ModelReferenceError):
        open_base(reference)


def test_scratch_needs_texts():
    with pytest.raises(InputError, match="scratch: there are no texts"):
        open_base("scratch:")


def test_length_is_a_whole_number(texts):
    with pytest.raises(InputError, match="train: max_length must be a whole number >= 1; got 0"):
        open_base(SCRATCH, texts, max_length=0)


def test_a_folder_of_sentence_transformers_keeps_its_modules(transformer, texts, tmp_path):
    parts = [modules.Transformer(str(transformer)), modules.Pooling(8), modules.Dense(8, 4), modules.Normalize()]
    model = SentenceTransformer(modules=parts, device="cpu", prompts={"query": "ask: ", "document": ""})
    model.save_pretrained(str(tmp_path / "whole"), create_model_card=False)
    base = open_base(f"hf:{tmp_path / 'whole'}")[0]
    assert kinds(base) == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert base.prompts["query"] == "ask: "
    np.testing.assert_allclose(base.encode(texts[:9]), model.encode(texts[:9]), atol=1e-6)


KOREAN = ["한국어 문장을 나눕니다.", "고양이가 나무 위에 앉아 있다.", "문장 두 개를 비교한다."] * 3


@pytest.mark.parametrize("reference", ["scratch:", "scratch"])
def test_all_options_have_a_default(reference):
    assert ScratchSettings.parse(reference) == ScratchSettings(4, 256, 4, 16_000, 128, True)


def test_a_reference_with_all_sizes_says_the_same():
    settings = ScratchSettings.parse("scratch:?layers=2&dim=96&heads=3&vocab=500&max_length=64&lowercase=False")
    assert settings == ScratchSettings(2, 96, 3, 500, 64, False)
    assert ScratchSettings.parse(settings.reference) == settings


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("scratch:bert", r"'scratch:bert': only options may follow"),
        ("scratch:?size=3", "no option 'size'.*Options: layers, dim, "),
        ("scratch:?layer=3", "Did you mean layers"),
        ("scratch:?layers=two", "layers=two is not a whole number above 0"),
        ("scratch:?layers=0", "layers=0 is not a whole number above 0"),
        ("scratch:?layers", "layers= is not a whole number above 0"),
        ("scratch:?lowercase=no", "lowercase=no is not true or false"),
        ("scratch:?dim=8&dim=9", "dim occurs twice"),
    ],
)
def test_options_from_scratch_outside_the_grammar_are_refused(reference, words):
    with pytest.raises(ModelReferenceError, match=words):
        ScratchSettings.parse(reference)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"dim": 10, "heads": 3}, "heads=3 does not divide dim=10"),
        ({"max_length": 2}, r"max_length=2 is too short.*Choose 3 or more"),
        ({"vocab": 15}, r"vocab=15 is too small\. Choose 16"),
        ({"layers": 0}, "layers must be a whole number >= 1; got 0"),
        ({"heads": 2.0}, "heads must be a whole number >= 1; got 2.0"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(sizes, words):
    with pytest.raises(InputError, match=words):
        ScratchSettings(**sizes)


def test_hangul_syllables_stay_whole():
    tokenizer = train_wordpiece(KOREAN, vocab_size=200, lowercase=True)
    composed = "고양이"
    tokens = tokenizer.encode(composed, add_special_tokens=False).tokens
    assert "".join(tokens).replace("##", "") == composed
    assert tokenizer.encode(unicodedata.normalize("NFD", composed), add_special_tokens=False).tokens == tokens


def test_accents_are_kept_and_letters_lowered():
    tokenizer = train_wordpiece(["Über die Straße", "über", "uber"], vocab_size=100, lowercase=True)
    assert tokenizer.normalizer.normalize_str("ÜBER") == "über"
    assert train_wordpiece(["Über"], vocab_size=100, lowercase=False).normalizer.normalize_str("ÜBER") == "ÜBER"


def test_special_tokens_come_first_and_stand_around_a_text(texts):
    tokenizer = train_wordpiece(texts, vocab_size=300, lowercase=True)
    assert [tokenizer.id_to_token(number) for number in range(4)] == list(SPECIAL_TOKENS)
    assert tokenizer.get_vocab_size() == 300
    encoded = tokenizer.encode("a man", "a dog")
    assert (encoded.tokens[0], encoded.tokens[-1], encoded.type_ids[0], encoded.type_ids[-1]) == (
        "[CLS]",
        "[SEP]",
        0,
        1,
    )


def test_rare_characters_make_way():
    tokenizer = train_wordpiece(["aaaa bbb cc d", "ab"], vocab_size=16, lowercase=True)  # room for 4 of them
    assert tokenizer.encode("abcd", add_special_tokens=False).tokens != ["[UNK]"]
    tokenizer = train_wordpiece(["aaaa bbb cc dd e", "ab"], vocab_size=16, lowercase=True)
    assert tokenizer.encode("e", add_special_tokens=False).tokens == ["[UNK]"]


def test_the_vocabulary_is_the_same_in_every_process():
    code = (
        "import isosent, hashlib; from isosent.training.base_models import train_wordpiece; "
        "v = train_wordpiece(isosent.demo_texts(), vocab_size=900, lowercase=True).get_vocab(); "
        "print(hashlib.sha256(str(sorted(v.items())).encode()).hexdigest())"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)]
    assert len(set(runs)) == 1


@pytest.mark.parametrize(("texts", "words"), [([], "no texts"), (["", " \n"], "all 2 texts are blank")])
def test_texts_without_a_character_are_refused(texts, words):
    with pytest.raises(InputError, match=words):
        train_wordpiece(texts, vocab_size=100, lowercase=True)


def test_a_vocabulary_beyond_the_texts_shrinks_and_says_so(tmp_path):
    settings = ScratchSettings(layers=1, dim=8, heads=2, vocab=5000)
    with pytest.warns(IsosentWarning, match=r"scratch: vocab is \d+, not 5000: the texts do not give more"):
        assert write_scratch(tmp_path, settings, KOREAN) < 300
