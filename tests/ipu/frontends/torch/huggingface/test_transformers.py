"""Examples of transformers, unedited: Trainer, generate, from_pretrained (differential, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch
from tests.ipu.frontends.torch.huggingface.programs import WAYS, Sentences, bits

pytest.importorskip("accelerate", reason="accelerate is not installed; run: make test-huggingface")
transformers = pytest.importorskip("transformers")

# Libraries warn of what they will change; warnings of fpsim are RuntimeWarnings, and errors here.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{category}")
    for category in ("UserWarning", "DeprecationWarning", "FutureWarning")
]
SMALL = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
         "num_attention_heads": 2}


def bert():
    config = transformers.BertConfig(**SMALL, max_position_embeddings=32, num_labels=3)
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(
        **SMALL, num_key_value_heads=1, max_position_embeddings=32, bos_token_id=0, eos_token_id=1
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config)


def t5():
    config = transformers.T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(config)


def trainer(model, folder, classes=0, **options):
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=4, report_to=[], disable_tqdm=True,
        dataloader_pin_memory=False, **{"max_steps": 4, "save_strategy": "no"} | options,
    )
    return transformers.Trainer(
        model, arguments, train_dataset=Sentences(32, classes), eval_dataset=Sentences(8, classes)
    )


EXAMPLES = {
    "text classification": (bert, {"classes": 3, "eval_strategy": "steps", "eval_steps": 2}),
    "language modelling": (gpt2, {"learning_rate": 1e-3}),
    "accumulation and checkpoints": (
        gpt2, {"gradient_accumulation_steps": 2, "gradient_checkpointing": True,
               "lr_scheduler_type": "cosine", "warmup_steps": 1, "label_smoothing_factor": 0.1},
    ),
    "Adafactor": (llama, {"optim": "adafactor"}),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_trainer_follows_torch(example, tmp_path):
    make, options = EXAMPLES[example]

    def train():
        run = trainer(make(), tmp_path, **options)
        result = run.train()
        return [result.training_loss, run.evaluate()["eval_loss"]], result.global_step

    expected, _ = train()
    with machine() as session:
        losses, steps = train()
    report = session.report()
    assert losses == pytest.approx(expected, rel=2e-5)
    assert (session.step, report["native"]) == (steps, 0)
    assert report["host"]["share"] < 1e-2


@pytest.mark.parametrize("way", WAYS)
def test_a_trainer_resumes_bit_by_bit(way, tmp_path):
    """The default optimiser is torch's fused AdamW; the checkpoint is the Trainer's own."""
    models = []
    for checkpoint in (None, str(tmp_path / "checkpoint-4")):
        model = gpt2()
        with machine(**WAYS[way]) as session:
            run = trainer(model, tmp_path, max_steps=8, save_strategy="steps", save_steps=4,
                          save_total_limit=3)
            assert run.args.optim == "adamw_torch_fused"
            run.train(resume_from_checkpoint=checkpoint)
        models.append(bits(model))
    assert models[0] == models[1]
    assert session.report()["steps"] == (4 if "sr" in way else session.step)


HOW = {"greedy": {}, "beams": {"num_beams": 3}, "sampling": {"do_sample": True, "top_k": 5}}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("make", [gpt2, llama, t5])
def test_generated_tokens(make, how):
    """In binary32 those of torch; in binary16 some, all of the vocabulary.

    T5 multiplies 0 by the least number of float32, which is no number of binary16.
    """

    def generate():
        model = make().eval()
        torch.manual_seed(1)
        return model.generate(
            torch.tensor([[2, 3, 4]]), attention_mask=torch.ones(1, 3, dtype=torch.long),
            max_new_tokens=5, pad_token_id=1, **HOW[how],
        )

    expected = generate()
    with machine() as session:
        assert torch.equal(generate(), expected)
    with machine("fp32" if make is t5 else "fp16", sr=True) as narrow:
        tokens = generate()
    assert ((tokens >= 0) & (tokens < 64)).all()
    assert session.report()["native"] == narrow.report()["native"] == 0


@pytest.mark.parametrize("options", [{}, {"low_cpu_mem_usage": True}, {"device_map": "cpu"},
                                     {"dtype": torch.float16}], ids=str)
@pytest.mark.parametrize("make", [bert, gpt2, llama, t5])
@pytest.mark.parametrize("policy", ["fp32", "fp16"])
def test_a_saved_model_is_loaded_as_by_torch(make, options, policy, tmp_path):
    """Models are made on the meta device first."""
    model = make()
    model.save_pretrained(tmp_path)
    expected = type(model).from_pretrained(tmp_path, **options)
    with machine(policy) as session:
        loaded = type(model).from_pretrained(tmp_path, **options)
        assert bits(loaded) == bits(expected)
        assert {x.dtype for x in loaded.parameters()} == {x.dtype for x in expected.parameters()}
    assert session.report()["native"] == 0
