"""Programs of the hospital as users of transformers and accelerate write them, unedited.

Models are small and random: nothing is downloaded. {a} is the size of the cause.
"""

from __future__ import annotations

from tests.ipu.frontends.hospital import MIXED, Illness

__all__ = ["HEALTHY", "ILLNESSES", "PROGRAMS"]

_TRAINER = """\
import torch
import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

transformers.set_seed({seed})


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        random = torch.Generator().manual_seed(i)
{item}


{model}

arguments = TrainingArguments(
    "out", per_device_train_batch_size=8, max_steps=6, save_strategy="no", report_to=[],
    disable_tqdm=True, {arguments})
{trainer}(model, arguments, train_dataset=Data(){more}).train()
"""
_LOOP = """\
import torch
import transformers
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed({seed})
accelerator = Accelerator(cpu=True)
{model}
ids = torch.arange(64 * 12).reshape(64, 12) % 38 + 2
loader = torch.utils.data.DataLoader(ids, batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr={rate})
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    loss = {loss}
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
accelerator.print("loss", loss.item())
"""
_SENTENCE = """\
        ids = torch.arange(i, i + 12) % 30 + 2
        return {"input_ids": ids, "labels": ids}"""
_REVIEW = """\
        ids = torch.randint(4, 40, (10,), generator=random)
        mask = (torch.arange(10) < 4 + i % 6).long()
        return {"input_ids": ids * mask, "attention_mask": mask, "labels": int(ids[0]) % 4}"""
_PAIR = """\
        ids = torch.randint(2, 40, (8,), generator=random)
        return {"input_ids": ids, "labels": ids.flip(0)}"""
_RECORDING = """\
        wave = torch.sin(torch.arange(400.0) * (0.1 + 0.2 * (i % 2)))
        return {"input_values": wave * {a}, "labels": i % 2}"""

_GPT2 = """\
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
    vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=0,
    eos_token_id=1))"""
_BERT = """\
model = transformers.BertForSequenceClassification(transformers.BertConfig(
    vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, max_position_embeddings=16, num_labels=4))"""
_LLAMA = """\
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16384, bos_token_id=0,
    eos_token_id=1, initializer_range={a}))"""
_T5 = """\
model = transformers.T5ForConditionalGeneration(transformers.T5Config(
    vocab_size=40, d_model=16, d_kv=8, d_ff=64, num_layers=2, num_heads=2,
    decoder_start_token_id=0))
with torch.no_grad():  # as large as those of a checkpoint that was trained in bfloat16
    model.encoder.block[0].layer[1].DenseReluDense.wo.weight *= {a}"""
_WAV2VEC2 = """\
model = transformers.Wav2Vec2ForSequenceClassification(transformers.Wav2Vec2Config(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2,
    num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, classifier_proj_size=8,
    mask_time_prob=0.0, num_labels=2))"""
_AVERAGE = """\


class Average(TrainerCallback):
    def __init__(self, model):
        self.weights = [p.detach().clone() for p in model.parameters()]

    def on_step_end(self, args, state, control, model=None, **kwargs):
        with torch.no_grad():
            for average, p in zip(self.weights, model.parameters()):
                average.mul_({a}).add_(p, alpha=1 - {a})"""
_CONFIDENT = """\


class Confident(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        p = torch.softmax({a} * outputs.logits, dim=-1)
        loss = outputs.loss + 0.01 * (p * torch.log(p)).sum(-1).mean()
        return (loss, outputs) if return_outputs else loss"""


def _trainer(
    item: str, model: str, arguments: str, *, trainer: str = "Trainer", more: str = ""
) -> str:
    texts = {"item": item, "model": model, "arguments": arguments, "trainer": trainer,
             "more": more}
    text = _TRAINER
    for name, value in texts.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _loop(model: str, loss: str, rate: str = "1e-3") -> str:
    return _LOOP.replace("{model}", model).replace("{loss}", loss).replace("{rate}", rate)


#: Of a language model, of a batch.
_LOSS = "model(input_ids=batch, labels=batch).loss"
PROGRAMS = {
    "eps": _trainer(_SENTENCE, _GPT2, "learning_rate=1e-2, adam_epsilon={a}"),
    "average of weights": _trainer(
        _SENTENCE, _GPT2 + _AVERAGE, 'learning_rate=1.0, optim="sgd"',
        more=", callbacks=[Average(model)]"),
    "entropy": _trainer(_REVIEW, _BERT + _CONFIDENT, "learning_rate=1e-2", trainer="Confident"),
    "raw recordings": _trainer(_RECORDING, _WAV2VEC2, "learning_rate=1e-3"),
    "large activations": _trainer(_PAIR, _T5, "learning_rate=1e-3"),
    "small activations": _loop(_LLAMA, _LOSS),
    "weight of a loss": _loop(_GPT2, f"{{a}} * {_LOSS}"),
    "late positions": _loop(
        _LLAMA.replace("{a}", "0.3"), "model(input_ids=batch, labels=batch, "
        "position_ids=torch.arange({a}, {a} + 12).expand(8, -1)).loss"),
    "padded": _trainer(_REVIEW, _BERT, "learning_rate={a}"),
    "language model": _trainer(_SENTENCE, _GPT2, "learning_rate={a}"),
    "relative positions": _trainer(_PAIR, _T5.partition("\nwith")[0], "learning_rate={a}"),
}

ILLNESSES = {
    "eps": Illness(("1e-0?[89]", "zero", "divi"), policy="fp16", sizes=("1e-8", "1e-9"),
                   remedy="fp16+states=f32"),
    "average of weights": Illness(
        ("average|sums", "is 1|unchanged"), policy="fp16", sizes=("0.9999", "0.99995"),
        remedy="mixed"),
    "entropy": Illness(("softmax", "log", "underflow|zero"), sizes=("300.0", "500.0"), well="1.0"),
    "raw recordings": Illness(
        ("conv_layers.0.conv", "convolution", "overflow"), sizes=("32767.0", "30000.0"),
        well="1.0"),
    "large activations": Illness(
        ("layer_norm", "pow", "overflow"), sizes=("3000.0", "5000.0"), well="1.0"),
    "small activations": Illness(
        ("norm", "pow", "overflow", "backward", "no loss scale"), sizes=("0.02", "0.01"),
        remedy=f"{MIXED}+*norm=f32"),
    "weight of a loss": Illness(
        ("gradient", "zero|underflow|vanish"), sizes=("1e-6", "1e-7"), well="1.0"),
    "late positions": Illness(
        ("integers|whole numbers|positions", "rounded|hold", "rotary"), sizes=("5000", "9000"),
        well="0"),
}

#: No advice is given.
HEALTHY = {
    "padded": Illness(("^No ",), sizes=("1e-3", "3e-3")),
    "language model": Illness(("^No ",), sizes=("1e-3", "3e-3")),
    "relative positions": Illness(("^No ",), sizes=("1e-3", "3e-3")),
}
