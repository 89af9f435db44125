"""Megatron-LM's command lines as a mapping of flags: shell syntax, flags that matter, flags no plan of ours has."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping

from ...errors import InvalidInput

#: Flags that take a value and decide something of the plan, the training or the model.
VALUED = frozenset(
    """
    --tensor-model-parallel-size --pipeline-model-parallel-size --context-parallel-size --cp-comm-type
    --expert-model-parallel-size --expert-tensor-parallel-size --pipeline-model-parallel-layout
    --num-virtual-stages-per-pipeline-rank --num-layers-per-virtual-pipeline-stage
    --decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers
    --microbatch-group-size-per-virtual-pipeline-stage --data-parallel-sharding-strategy --ddp-bucket-size
    --micro-batch-size --global-batch-size --seq-length --optimizer --fp8-format --recompute-granularity
    --recompute-method --recompute-num-layers --recompute-modules --attention-backend --flash-attention-version
    --num-layers --hidden-size --ffn-hidden-size --num-attention-heads --kv-channels --num-query-groups
    --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim --position-embedding-type
    --max-position-embeddings --vocab-size --padded-vocab-size --make-vocab-size-divisible-by --normalization
    --attention-dropout --hidden-dropout --mtp-num-layers --num-experts --moe-router-topk --moe-ffn-hidden-size
    --moe-layer-freq --moe-shared-expert-intermediate-size --num-distributed-optimizer-instances
    """.split()  # noqa: SIM905  a line a dozen flags reads better
)
#: Flags of torchrun that say how many GPUs there are.
LAUNCHER = ("--nnodes", "--nproc-per-node")
#: Those that may take several values.
LISTS = frozenset({"--cp-comm-type", "--recompute-modules"})
#: Flags without a value that decide something.
SWITCHES = frozenset(
    """
    --sequence-parallel --use-tp-pp-dp-mapping --account-for-embedding-in-pipeline-split
    --account-for-loss-in-pipeline-split --no-overlap-p2p-communication --use-distributed-optimizer
    --use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather --bf16 --fp16
    --accumulate-allreduce-grads-in-fp32 --grad-reduce-in-bf16 --recompute-activations
    --no-gradient-accumulation-fusion --multi-latent-attention --group-query-attention --swiglu
    --disable-bias-linear --no-add-bias-linear --add-qkv-bias --untie-embeddings-and-output-weights --qk-layernorm
    --moe-router-enable-expert-bias --use-rotary-position-embeddings
    """.split()  # noqa: SIM905  a line a dozen flags reads better
)
#: Flags that change the plan in a way ours cannot say, and what they do.
REFUSED = {
    "--use-torch-fsdp2": "gathers parameters once or twice a micro-batch",
    "--use-custom-fsdp": "is the old name of --use-megatron-fsdp",
    "--overlap-moe-expert-parallel-comm": "runs two micro-batches' forward and backward against each other",
    "--delay-wgrad-compute": "moves weight gradients behind others",
    "--hierarchical-context-parallel-sizes": "splits context parallelism in two",
    "--hybrid-context-parallel": "gives sequences context-parallel groups of several sizes",
    "--hybrid-layer-pattern": "makes a hybrid model",
    "--hybrid-override-pattern": "makes a hybrid model",
    "--linear-attention-freq": "mixes in linear attention",
    "--window-size": "attends within a sliding window",
    "--distribute-saved-activations": "splits saved activations over the tensor-parallel ranks",
    "--cpu-offloading-num-layers": "moves activations to the host",
    "--fine-grained-activation-offloading": "moves activations to the host",
    "--optimizer-cpu-offload": "moves optimizer states to the host",
    "--tensor-parallel-num-weight-shards": "shards weights inside the tensor-parallel group",
    "--expert-tensor-parallel-num-weight-shards": "shards experts' weights inside their tensor-parallel group",
    "--heterogeneous-layers-config-path": "makes layers of different shapes",
    "--heterogeneous-layers-config-encoded-json": "makes layers of different shapes",
    "--encoder-num-layers": "makes an encoder",
    "--decoder-num-layers": "makes a decoder beside an encoder",
    "--yaml-cfg": "reads settings from another file",
    "--rampup-batch-size": "changes the global batch as training goes",
    "--step-batch-size-schedule": "changes the global batch as training goes",
    "--defer-embedding-wgrad-compute": "moves weight gradients behind others",
    "--overlap-param-gather-with-optimizer-step": "gathers the first bucket under the optimizer step",
    "--use-precision-aware-optimizer": "keeps optimizer states in other precisions",
    "--moe-latent-size": "makes experts work in a smaller space",
    "--use-mup": "scales initialisation with the width",
}
#: Flags that a plan's line has because others need them.
COMPANIONS = frozenset(
    {"--ckpt-format", "--moe-router-score-function", "--moe-token-dispatcher-type", "--moe-grouped-gemm"}
)
#: Flags near one of the above in spelling that have nothing to do with the plan.
_UNRELATED = frozenset({"--eval-micro-batch-size", "--eval-global-batch-size", "--encoder-seq-length"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*|\d+)(?::?[-=]([^{}]*))?\}|([A-Za-z_]\w*))")
NEARLY = 0.93


class Flags:
    """The flags of one command line that matter, what the launcher says of nodes, and flags that were passed over."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, str] = {}
        self.switches: set[str] = set()
        self.passed_over: list[str] = []
        self.launcher: dict[str, int] = {}
        self._read(text)

    def number(self, flag: str, default: int | None = None) -> int:
        """A whole number.

        Raises:
            InvalidInput: E-FLAG for one that is missing without a default, or no whole number of at least 0.
        """
        text = self.values.get(flag)
        if text is None:
            if default is None:
                raise InvalidInput("E-FLAG", f"{flag} is missing, and Megatron-LM has no default for it", "add it")
            return default
        if not text.isdigit():
            raise InvalidInput("E-FLAG", f"{flag} is {text!r}", "give a whole number")
        return int(text)

    def optional(self, flag: str) -> int | None:
        """A whole number, or None where the flag is absent."""
        return self.number(flag) if flag in self.values else None

    def real(self, flag: str, default: float) -> float:
        """A number; E-FLAG for anything else."""
        text = self.values.get(flag, str(default))
        try:
            return float(text)
        except ValueError:
            raise InvalidInput("E-FLAG", f"{flag} is {text!r}", "give a number") from None

    def word(self, flag: str, words: dict[str, str], default: str) -> str:
        """The meaning of a flag's word.

        Raises:
            InvalidInput: E-FRAMEWORK for a word that means nothing our plans have.
        """
        text = self.values.get(flag, default)
        if text not in words:
            clash = f"{flag} {text}: no plan of ours has it"
            raise InvalidInput("E-FRAMEWORK", clash, f"use {' or '.join(words)}")
        return words[text]

    def __contains__(self, flag: str) -> bool:
        return flag in self.switches or flag in self.values

    def _read(self, text: str) -> None:
        flag = ""
        for word in _words(text):
            if word.startswith("--") and len(word) > 2:
                flag, equals, value = word.partition("=")
                self._flag(flag)
                if equals:
                    self._value(flag, value)
                    flag = ""
            elif flag:
                self._value(flag, word)
                flag = flag if flag in LISTS else ""
        for flag in sorted(VALUED & self.switches):
            raise InvalidInput("E-FLAG", f"{flag} has no value", "give it one")

    def _flag(self, flag: str) -> None:
        if flag in REFUSED:
            clash = f"{flag} {REFUSED[flag]}: no plan of ours has that"
            raise InvalidInput("E-FRAMEWORK", clash, "leave it out to read the rest")
        if flag in VALUED or flag in SWITCHES:
            self.switches.add(flag)
            return
        if flag.replace("_", "-") in LAUNCHER or flag in COMPANIONS:
            return
        near = difflib.get_close_matches(flag, VALUED | SWITCHES, n=1, cutoff=NEARLY)
        if near and flag not in _UNRELATED:
            raise InvalidInput("E-FLAG", f"unknown flag {flag}", f"did you mean '{near[0]}'?")
        if flag not in self.passed_over:
            self.passed_over.append(flag)

    def _value(self, flag: str, value: str) -> None:
        name = flag.replace("_", "-")
        if name in LAUNCHER:
            if not value.isdigit():
                raise InvalidInput("E-FLAG", f"{flag} is {value!r}", "give a whole number")
            self.launcher[name] = int(value)
        elif flag in VALUED:
            several = flag in self.values and flag not in self.switches
            self.values[flag] = f"{self.values[flag]} {value}" if several else value
            self.switches.discard(flag)


def _words(text: str) -> Iterator[str]:
    """Words of a shell script: comments dropped, lines joined, variables that it sets or has a default for put in."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InvalidInput("E-FLAG", f"the command line cannot be read: {error}", "check its quotes") from None
    known: dict[str, str] = {}
    for word in words:
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned and assigned[2] != "(":
            value = assigned[2].removeprefix("(")
            known[assigned[1]] = _expanded(value, known)
            if assigned[2].startswith("(") and value:
                yield value
            continue
        word = word.rstrip(")") if word.count(")") > word.count("(") else word
        if word and word != "(":
            yield _expanded(word, known)


def _expanded(word: str, known: Mapping[str, str]) -> str:
    """A word with its variables' values: ``$X``, ``${X}``, and ``${X:-8}`` (the default where X has no value)."""

    def value(match: re.Match[str]) -> str:
        return known.get(match[1] or match[3]) or (match[0] if match[2] is None else match[2])

    for _ in range(1 + word.count("{")):  # from the inside out: a default may name variables
        word = _VARIABLE.sub(value, word)
    return word
