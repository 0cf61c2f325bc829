"""Static models distilled in closed form: the equations, the folder in other libraries, and what must not matter."""

import asyncio
import base64
import json

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient
from tiny_models import WORDS

import isosent
from isosent.api.client import Upstream
from isosent.api.dialects import DIALECTS
from isosent.cli.main import main
from isosent.cli.serve import open_source
from isosent.distributed import engine_for
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import FileFormatError, InputError
from isosent.evaluation.overlap import text_hashes
from isosent.evaluation.tables import task_table
from isosent.exports import export
from isosent.exports.check import space_of
from isosent.jobs.token_sums import TokenSums, reading_tokens
from isosent.jobs.worker import Worker
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.sparse_ridge import TokenShares, solve
from isosent.postprocessing import Postprocessing
from isosent.search import Index
from isosent.server import create_app
from isosent.server.maps import Maps
from isosent.server.proxy import Proxy, create_proxy
from isosent.training import distill as distill_module
from isosent.training import token_rows as module
from isosent.training.distill import distill, distill_files
from isosent.transforms.maps import GroupMaps, MapStep
from isosent.transforms.whitening import PrincipalComponents

VOCAB, N_TEXTS, DIM, PENALTY = 500, 2000, 6, 0.03


@pytest.fixture(scope="module")
def system():
    """Random tokens, targets and prior; the last 20 tokens are in no text."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 20, N_TEXTS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = (rng.zipf(1.3, offsets[-1]) % (VOCAB - 20)).astype(np.int32)
    shares = TokenShares(ids, offsets, VOCAB)
    return shares, rng.standard_normal((N_TEXTS, DIM)), rng.standard_normal((VOCAB, DIM))


def solved(shares, targets, prior, block_rows=8192):
    blocks = module.in_blocks((targets[start : start + 7] for start in range(0, len(targets), 7)), block_rows)
    right = shares.transposed(blocks) - shares.transposed(shares.vectors(prior))
    return prior + solve(shares, right, PENALTY, tolerance=1e-7)


def dense(shares):
    matrix = np.zeros((len(shares), shares.vocab_size))
    for row, (start, stop) in enumerate(zip(shares.offsets[:-1], shares.offsets[1:], strict=True)):
        np.add.at(matrix[row], shares.ids[start:stop], 1 / max(1, stop - start))
    return matrix


def test_the_closed_form_is_the_least_squares_solution_of_the_stacked_system(system):
    shares, targets, prior = system
    stacked = np.vstack([dense(shares), np.sqrt(PENALTY) * np.eye(VOCAB)])
    expected = np.linalg.lstsq(stacked, np.vstack([targets, np.sqrt(PENALTY) * prior]), rcond=None)[0]
    np.testing.assert_allclose(solved(shares, targets, prior), expected, atol=5e-5)
    np.testing.assert_allclose(shares.squares(), (dense(shares) ** 2).sum(axis=0))


def test_rows_of_tokens_that_no_text_has_equal_the_prior(system):
    shares, targets, prior = system
    absent = np.setdiff1d(np.arange(VOCAB), shares.ids)
    assert len(absent) >= 20
    assert (solved(shares, targets, prior)[absent] == prior[absent]).all()


def test_threads_do_not_change_a_bit(system, monkeypatch):
    shares, targets, _ = system
    monkeypatch.setattr("isosent.numeric.sparse_ridge._BLOCK_COLUMNS", 2)
    monkeypatch.setattr("isosent.numeric.sparse_ridge.PART_TEXTS", 300)
    bits = []
    for n_threads in "1", "3":
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        bits.append(solved(shares, targets, np.zeros((VOCAB, DIM)), 300).tobytes())
    assert bits[0] == bits[1]


def test_texts_that_are_taken_keep_their_tokens(system):
    shares = system[0]
    chosen = np.array([3, 4, 900])
    assert (dense(shares.take(chosen)) == dense(shares)[chosen]).all()


def test_blocks_of_vectors_do_not_change_the_parts():
    rows = np.random.default_rng(0).standard_normal((100, 3)).astype(np.float32)
    numbers = np.array([0, 5, 6, 40, 99])
    parts = [
        np.concatenate(list(module.rows_in_parts((rows[i : i + n] for i in range(0, 100, n)), numbers)))
        for n in (1, 7, 100)
    ]
    assert parts[0].tobytes() == parts[1].tobytes() == parts[2].tobytes()


@pytest.fixture(scope="module")
def texts():
    """Sentences of the words that tiny models know."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(500)]


@pytest.fixture(scope="module")
def reference(tiny_model):
    return f"hf:{tiny_model('bert')}"


@pytest.fixture(scope="module")
def model(reference):
    return isosent.load(reference)


@pytest.fixture(scope="module")
def distilled(model, texts, tmp_path_factory):
    return distill(model, texts, tmp_path_factory.mktemp("distilled") / "static")


def model_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "isosent.json"}


def test_other_libraries_give_its_vectors(distilled, texts, tmp_path):
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    static = isosent.load(distilled.path)
    vectors = static.encode(texts[:20])
    theirs = [
        StaticModel.from_pretrained(str(distilled.path)).encode(texts[:20]),
        SentenceTransformer(str(distilled.path), device="cpu").encode(texts[:20]),
    ]
    for each in theirs:
        np.testing.assert_allclose(each, vectors, atol=1e-6)
    assert export(static, "onnx", tmp_path / "onnx").agreement.holds


@pytest.mark.parametrize(
    "options",
    ["", "?layers=1,-1&query_prompt=find the ", "?pooling=cls", pytest.param("?backend=onnx", marks=pytest.mark.slow)],
)
def test_a_token_in_context_has_the_mean_of_its_states(reference, texts, options):
    model = isosent.load(f"{reference}{options}")
    encoder, texts = model.encoder.for_queries(), [*texts[:40], texts[0], ""]
    is_read = np.arange(len(texts)) % 3 > 0
    is_read[-2] = True  # the first of equal texts counts, which is not read
    alone = np.random.default_rng(0).standard_normal((len(list(encoder.vocabulary())), model.dim))
    alone[:3], expected, counts = 0, 30 * alone, np.full(len(alone), 30)
    n_leading = 1 + len(encoder.tokenizer.tokenize(encoder.prompt))
    for text in (text for text, read in zip(texts[:40], is_read[:40], strict=True) if read):
        ids, states = encoder.tokenize([text]).ids[n_leading:-1], encoder.token_embeddings(text)[n_leading:-1]
        for number, state in zip(ids, isosent.model.unit_rows(states), strict=True):
            expected[number] += state
            counts[number] += 1
    expected = expected[3:] / counts[3:, None]
    sums = TokenSums(model.dim)
    vectors = reading_tokens(model, is_read, sums)(texts)
    rows = module.contextual_rows(alone, sums)
    np.testing.assert_allclose(rows[3:], expected - expected.mean(axis=0), atol=1e-5)
    assert not rows[:3].any()
    np.testing.assert_allclose(vectors, model.encode_query(texts), atol=1e-5)


def test_tokens_of_long_texts_are_read_window_by_window(reference, texts):
    model = isosent.load(f"{reference}?max_length=6&long=windows&overlap=0")
    encoder, text = model.encoder, "the dog and the cat and the dog"
    [ids] = [encoder.tokenize([text]).ids[1:-1]]
    sums, expected = TokenSums(model.dim), {}
    reading_tokens(model, np.array([True, True]), sums)([text, "the"])
    for window in (*np.array_split(ids, range(4, len(ids), 4)), encoder.tokenize(["the"]).ids[1:-1]):
        states = encoder.token_embeddings(encoder.decode(window.tolist()))[1:-1]
        for number, state in zip(window.tolist(), isosent.model.unit_rows(states), strict=True):
            expected[number] = expected.get(number, 0) + state
    found = sums.arrays()
    assert found["counts"].sum() == len(ids) + 1
    assert set(found["ids"].tolist()) == set(expected)
    np.testing.assert_allclose(found["sums"], [expected[number] for number in found["ids"].tolist()], atol=1e-5)


def test_poolings_side_by_side_have_the_prior_of_tokens_alone(reference, texts, tmp_path):
    result = distill(isosent.load(f"{reference}?pooling=mean,cls"), texts, tmp_path / "wide")
    assert result.report["prior"] == "tokens alone"  # a hidden state is narrower than the vectors


def test_the_prior_that_predicts_other_texts_better_is_taken(model, texts, tmp_path):
    tokenizer = module.static_tokenizer(model, tmp_path / "tokenizer.json")
    corpus, vectors = module.TokenizedTexts([texts], tokenizer), model.encode(texts)
    corpus.keep(vectors.any(axis=1))
    alone = module.prior_rows(model, tokenizer, None)
    noise = np.random.default_rng(0).standard_normal(alone.shape)
    chosen, good, bad = (
        module.Fit(corpus, lambda: iter([vectors]), priors).prior for priors in ([noise, alone], [alone], [noise])
    )
    assert (chosen == good).all()
    assert (chosen != bad).any()


def test_its_vectors_are_nearer_to_those_of_the_model_than_chance(distilled, model, texts):
    static = isosent.load(distilled.path)
    cosines = np.einsum("ij,ij->i", static.encode(texts), isosent.model.unit_rows(model.encode(texts)))
    assert cosines.mean() > 0.5
    assert static.encoder.shared_space.fingerprint == model.fingerprint
    assert distilled.report["r2"] == json.loads((distilled.path / "isosent.json").read_text())["distilled"]["r2"]
    assert all(distilled.lines())


def test_an_evaluation_says_which_of_its_texts_a_model_was_distilled_from(distilled, texts, tmp_path):
    pairs = [(texts[i].upper(), f"new words, {i}", str(i)) for i in range(8)] + [(texts[8], texts[9], "3")]
    lines = "\n".join("\t".join(pair) for pair in [("sentence1", "sentence2", "score"), *pairs])
    (tmp_path / "pairs.tsv").write_text(lines, "utf-8")
    result = isosent.evaluate(isosent.load(distilled.path), tmp_path / "pairs.tsv", n_resamples=1)
    [counts] = result.fitting["distilled_from"].values()
    assert counts == {"n_texts": 18, "n_same": 10, "n_items": 9, "n_items_same": 1}
    assert "pairs: 10 of 18 texts are among those" in task_table(result).caption
    assert isosent.load(distilled.path).encoder.fitted_texts.tolist() == np.unique(text_hashes(texts)).tolist()
    hashes = distilled.path / "texts.safetensors"
    content = hashes.read_bytes()
    for damaged in (content[:-1], b"", content.replace(b"hashes", b"others")):
        hashes.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"texts\.safetensors"):
            isosent.load(distilled.path)
    hashes.write_bytes(content)


def test_a_transform_is_folded_into_the_rows_and_leaves_the_space(model, texts, tmp_path, progress):
    result = distill(model, texts, tmp_path / "short", transform=isosent.Whitening(n_components=5), progress=progress)
    n_read, n_texts, _, n_systems = progress.complete()
    assert (n_read, n_texts, n_systems) == (500, 500, 9)
    static = isosent.load(result.path)
    assert static.dim == 5
    assert result.shares is None
    assert static.encoder.shared_space is None
    assert static.encoder.fitted_texts.tolist() == np.unique(text_hashes(texts)).tolist()


def test_workers_and_the_number_of_files_change_no_bit(reference, model, texts, tmp_path, distilled):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n", "utf-8")
    results = [
        distill_files([str(file)], tmp_path / name, model, reference=reference, engine=engine, say=lambda _: None)
        for name, engine in (("here", None), ("workers", engine_for(None, 1, 0)))
    ]
    files = [model_files(result.path) for result in results]
    assert files[0] == files[1] == model_files(distilled.path)
    assert not (tmp_path / "here.shards").exists()


def test_a_killed_run_resumes_and_gives_the_same_files(reference, model, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(distill_module, "WINDOW", 100)
    file, make, said = tmp_path / "texts.txt", Worker.make, []
    file.write_text("\n".join(texts) + "\n", "utf-8")

    def run(name):
        return distill_files([str(file)], tmp_path / name, model, reference=reference, say=said.append)

    def killed(self, shard, *rest):
        if shard.number == 2:
            raise KeyboardInterrupt
        return make(self, shard, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "make", killed)
        with pytest.raises(KeyboardInterrupt):
            run("killed")
    assert not (tmp_path / "killed").exists()
    assert model_files(run("killed").path) == model_files(run("whole").path)
    assert "2 of 5" in "".join(said)
    assert [line.partition(":")[0] for line in said[-4:]] == ["reading tokens", "encoding", "encoding", "solving"]


def test_given_vectors_must_be_those_of_the_model(model, texts, tmp_path):
    given = distill(model, texts, tmp_path / "given", vectors=model.encode(texts))
    assert given.report["r2"] > 0
    other = np.random.default_rng(0).standard_normal((len(texts), model.dim))
    with pytest.raises(InputError, match="unknown origin"):
        distill(model, texts, tmp_path / "other", vectors=other)


def test_what_cannot_be_distilled_is_refused(model, wordllama, texts, tmp_path):
    with pytest.raises(InputError, match="transformer"):
        distill(wordllama, texts, tmp_path / "out")
    with pytest.raises(InputError, match="5 different texts"):
        distill(model, texts[:5] * 100, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(isosent.IsosentError, match="mine"):
        distill(model, texts, tmp_path / "mine")


def test_an_index_takes_its_queries_and_states_what_they_find(distilled, model, texts, wordllama):
    static = isosent.load(distilled.path)
    index = Index.create(texts, model, query_model=static)
    measured = index.stats().queries
    assert 0 < measured.recall <= measured.reranked <= 1
    query = texts[3]
    by_static = index.search(query, k=3)
    expected = model.encode(texts) @ static.encode([query])[0] / np.linalg.norm(model.encode(texts), axis=1)
    np.testing.assert_allclose(by_static.scores[0], np.sort(expected)[::-1][:3], atol=1e-5)
    exact = Index.create(texts, model).search(query, k=1)
    assert index.search(query, k=1, rerank=True).scores[0] == pytest.approx(exact.scores[0], abs=1e-5)
    with pytest.raises(InputError, match="rerank"):
        Index.create(texts, model).search(query, rerank=True)
    with pytest.raises(InputError, match="space of no other model"):
        Index.create(texts, model, query_model=wordllama)


UNKNOWN = "\u2603"  # no token of the static model


def test_a_server_answers_queries_by_the_static_model(distilled, model, texts, running):
    static = isosent.load(distilled.path)
    index = Index.create(texts, model, query_model=static)
    app = create_app({"pair": (model, static), "index": index})
    inputs, documents = [texts[0], UNKNOWN], model.encode([texts[0], UNKNOWN])
    queries = np.vstack([static.encode(inputs[:1]), isosent.model.unit_rows(model.encode_query(inputs[1:]))])
    with (
        running(app) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False) as client,
    ):
        for name in ("pair", "index"):
            for side, expected in (("query", queries), ("document", isosent.model.unit_rows(documents))):
                body = {"model": name, "input": inputs, "input_type": side}
                answer = client.post("/v1/embeddings", json=body)
                found = [row["embedding"] for row in answer.json()["data"]]
                np.testing.assert_allclose(found, expected, atol=1e-5)
                assert answer.headers["X-Isosent-Space"] == model.fingerprint
        hits = client.post("/search", json={"query": texts[3], "k": 3}).json()["hits"]
        np.testing.assert_allclose([hit["score"] for hit in hits], index.search(texts[3], 3).scores[0], atol=1e-6)
        compared = {"source_sentence": texts[0], "sentences": texts[1:3]}
        sides = [{"inputs": compared, "parameters": {"prompt_name": side}} for side in ("query", "document")]
        by_side = [client.post("/similarity", json=body).json() for body in sides]
        np.testing.assert_allclose(*by_side, atol=1e-5)  # cosines are those of the model
        assert {each["query_model"] for each in client.get("/status").json()["models"]} == {"static:static"}
        assert 'model="pair queries"' in client.get("/metrics").text


def test_only_a_static_model_of_its_space_answers_queries_of_a_model(
    distilled, reference, model, texts, wordllama, tmp_path, tiny_model
):
    source = open_source(f"{reference}?max_length=20&query_model={distilled.path}")
    assert source[0].encoder.options["max_length"] == "20"
    with pytest.raises(InputError, match="cannot be compared"):
        create_app({"other": (isosent.load(f"hf:{tiny_model('distilbert')}"), source[1])})
    with pytest.raises(InputError, match="space of no other model"):
        create_app({"pair": (model, wordllama)})
    Index.create(texts, model, folder=tmp_path / "index")
    with pytest.raises(InputError, match="--query-model"):
        open_source(f"{tmp_path / 'index'}?query_model={distilled.path}")


def test_a_proxy_asks_the_api_for_no_query_that_the_static_model_knows(distilled, model, texts, tmp_path):
    static, asked = isosent.load(distilled.path), []
    isosent.SentenceEncoder(PrecomputedVectors.of_space(model.dim, space_of(model))).save(tmp_path / "map")

    def answer(request):
        asked.extend(inputs := json.loads(request.content)["input"])
        rows = [base64.b64encode(row).decode() for row in model.encode(inputs)]
        return httpx.Response(200, json={"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]})

    async def vectors(side):
        client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        api = Upstream("http://api/v1", DIALECTS["openai"], "big", client)
        maps = Maps({"map": tmp_path / "map"}, {"map": str(distilled.path)})
        maps.reload()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(create_proxy(Proxy(api, maps)))) as caller:
            body = {"input": [UNKNOWN, texts[0]], "input_type": side}
            response = await caller.post("http://127.0.0.1/v1/embeddings", json=body)
        return [row["embedding"] for row in response.json()["data"]]

    by_model = isosent.model.unit_rows(model.encode([UNKNOWN, texts[0]]))
    expected = np.vstack([by_model[:1], static.encode(texts[:1])])
    np.testing.assert_allclose(asyncio.run(vectors("query")), expected, atol=1e-5)
    assert asked == [UNKNOWN]
    np.testing.assert_allclose(asyncio.run(vectors("document")), by_model, atol=1e-5)
    with pytest.raises(InputError, match="space of no other model"):
        Maps({"map": tmp_path / "map"}, {"map": "wordllama"})


def test_a_query_model_is_saved_with_the_index_and_belongs_to_its_model(distilled, model, texts, tmp_path, tiny_model):
    index = Index.create(texts, model, query_model=isosent.load(distilled.path), folder=tmp_path / "index")
    index.save(tmp_path / "copy")
    first, again = index.search(texts[:5]), Index.open(tmp_path / "copy").search(texts[:5])
    assert (first.ids == again.ids).all()
    static, other, refused = isosent.load(distilled.path), f"hf:{tiny_model('distilbert')}", tmp_path / "refused"
    assert (Index.open(tmp_path / "copy", query_model=static).search(texts[:5]).ids == first.ids).all()
    for another in (model, isosent.load()):
        with pytest.raises(InputError, match="is not the query model of"):
            Index.open(tmp_path / "copy", query_model=another)
    Index.create(texts, model, folder=tmp_path / "without")
    with pytest.raises(InputError, match="made without a query model"):
        Index.open(tmp_path / "without", query_model=static)
    with pytest.raises(InputError, match="cannot be compared"):
        Index.create(texts, isosent.load(other), query_model=static, folder=refused)
    with pytest.raises(InputError, match="two texts or more"):
        Index.create(texts[:1], model, query_model=static, folder=refused)
    assert not refused.exists()  # nothing was written


def test_a_query_without_a_known_token_finds_nothing_when_reranked(distilled, model, texts, tmp_path):
    static = isosent.load(distilled.path)
    index = Index.create(texts, model, query_model=static, folder=tmp_path / "index")
    assert not static.encode(["\u2603"]).any()
    assert index.search(["\u2603", texts[0]], k=3, rerank=True).n_hits.tolist() == [0, 3]


def test_queries_of_a_group_are_encoded_by_the_model(model, texts, tmp_path):
    back = LinearMap(-np.eye(model.dim), np.zeros(model.dim))
    grouped = SentenceEncoder(model.encoder, Postprocessing((MapStep(groups=GroupMaps("lang", "en", {"de": back})),)))
    static = isosent.load(distill(grouped, texts, tmp_path / "static").path)
    languages = ["en", "de"] * (len(texts) // 2) + ["en"] * (len(texts) % 2)
    index = Index.create(texts, grouped, query_model=static, metadata={"lang": languages})
    for rerank in (False, True):
        found = index.search(texts[1], 1, group="de", rerank=rerank)
        assert found.scores[0] == pytest.approx(1, abs=1e-4)
    with TestClient(create_app({"index": index})) as client:
        [hit] = client.post("/search", json={"query": texts[1], "k": 1, "group": "de"}).json()["hits"]
        assert client.post("/search", json={"like": 0, "group": ""}).status_code == 422
    assert hit["score"] == pytest.approx(1, abs=1e-4)


def test_an_index_of_a_map_states_the_recall_of_queries_and_of_the_original_vectors(model, texts, tmp_path):
    mapped = model.fitted(texts, PrincipalComponents(n_components=8))
    static = isosent.load(distill(mapped, texts, tmp_path / "static").path)
    index = Index.create(texts, mapped, query_model=static, folder=tmp_path / "index")
    assert index.recall.original_recall == Index.create(texts, mapped).recall.original_recall is not None
    index.compact()
    assert index.stats().queries == Index.open(tmp_path / "index").stats().queries is not None
    with pytest.raises(InputError, match="needs texts"):
        index.search(model.encode(texts[:2]), rerank=True)


def test_the_command_distils_and_its_index_reranks(reference, texts, tmp_path, capsys, monkeypatch):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n", "utf-8")
    folder, static = str(tmp_path / "index"), str(tmp_path / "static")
    printed = []
    for arguments in (
        ["distill", reference, str(file), "-o", static],
        ["index", str(file), "-m", reference, "--query-model", static, "-o", folder],
        ["search", folder, texts[0], "--rerank", "-k", "1"],
        ["distill", reference, str(file), "-o", str(tmp_path / "short"), "--dims", "4"],
        ["info", static],
        ["info", str(tmp_path / "short")],
    ):
        monkeypatch.setattr("sys.argv", ["isosent", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        printed.append(capsys.readouterr().out)
    assert "wordllama" in printed[0]
    assert "--rerank" in printed[1]
    assert texts[0] in printed[2]
    for described, space in zip(
        printed[4:], ("whose embedding space it shares", "with a separate embedding space"), strict=True
    ):
        [line] = [line for line in described.splitlines() if line.startswith("distilled")]
        assert "from hf:" in line
        assert space in line
        assert "prior of tokens" in line
        assert "ten nearest kept" in described
    assert isosent.load(tmp_path / "short").dim == 4
