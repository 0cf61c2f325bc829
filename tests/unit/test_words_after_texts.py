"""Words after a text, for language models: the last token of a middle layer, as transformers computes it."""

import numpy as np
import pytest
import tiny_models
import torch
import transformers

import isosent
from isosent.errors import ModelReferenceError

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["the cat runs", "a dog", "the cat runs in the big house"]
FRAMES = {"PromptEOL": "{text} in a", "echo": "{text} the {text}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("decoder"), "qwen2")


@pytest.mark.parametrize("layer", [1, 2, tiny_models.N_LAYERS])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_the_last_token_after_words_is_that_of_transformers(frame, layer, folder):
    asked = [frame.replace("{text}", text) for text in TEXTS]
    vectors = isosent.load(f"hf:{folder}?layers={layer}&pooling=last_token").encode(asked)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder).eval()
    for text, vector in zip(asked, vectors, strict=True):
        with torch.inference_mode():
            output = network(
                **tokenizer(text, return_tensors="pt", return_token_type_ids=False), output_hidden_states=True
            )
        np.testing.assert_allclose(vector, output.hidden_states[layer][0, -1].numpy(), atol=2e-6)


@pytest.mark.parametrize("option", ["prompt", "query_prompt", "document_prompt"])
def test_a_prompt_with_a_place_for_the_text_is_refused(option, folder):
    with pytest.raises(ModelReferenceError, match=r"(?s)say \{text\} briefly.*before each text.*in the texts"):
        isosent.load(f"hf:{folder}", **{option: "say {text} briefly"})
