"""How an LLM samples tokens and when an answer ends: vLLM's SamplingParams."""

import copy
import enum
import json
import math
import operator
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Union

_MAX_CHOICES = 128


class RequestOutputKind(enum.Enum):
    """The contents of each output of a stream."""

    CUMULATIVE = 0
    """The whole answer so far."""
    DELTA = 1
    """Only what is new since the last output."""
    FINAL_ONLY = 2
    """One output, when the answer is complete."""


def _number(name: str, value: Any, allowed: str, good: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            value = float(value.item())  # a scalar of numpy or torch
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"{name} is {value!r}; it must be {allowed}") from None
    if not (math.isfinite(value) and good(value)):
        raise ValueError(f"{name} is {value!r}; it must be {allowed}")
    return float(value)


def _integer(name: str, value: Any, allowed: str, low: int, high: int = 2**31 - 1) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; it must be {allowed}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} is {value!r}; it must be {allowed}")
    return number


def _texts(name: str, value: Any) -> List[str]:
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else list(value)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name} has {text!r}; it must be a string that is not empty, or a list of them")
    return texts


def _ids(name: str, value: Any) -> List[int]:
    return [_integer(f"an id of {name}", item, "a token id, 0 or more", 0) for item in value]


@dataclass
class SamplingParams:
    """vLLM's parameters with its names, defaults and limits; docs/serving.md explains them. The constructor checks what does
    not depend on the model (ValueError); the rest is checked when a request is submitted.

    Logits are processed in this order: allowed_token_ids, bad_words, min_tokens, logit_bias, the penalties,
    temperature, min_p, top_k, top_p. The same seed gives the same answer, in any batch."""

    n: int = 1
    """Number of answers to each prompt, up to 128; more than 1 needs a temperature above 0."""
    presence_penalty: float = 0.0
    """-2 to 2; 0 = off."""
    frequency_penalty: float = 0.0
    """-2 to 2; 0 = off."""
    repetition_penalty: float = 1.0
    """Above 0; 1 = off."""
    temperature: float = 1.0
    """0 = greedy: the exact argmax, on a tie the lowest id."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1 = off."""
    min_p: float = 0.0
    seed: Optional[int] = None
    """None or -1: derived from the engine's seed and the number of previous requests."""
    stop: Union[None, str, Sequence[str]] = None
    stop_token_ids: Optional[Sequence[int]] = None
    bad_words: Optional[Sequence[str]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    """None = up to the end of the context."""
    min_tokens: int = 0
    logprobs: Optional[int] = None
    """Number of most probable tokens to report at each position; 0 = only the sampled token, -1 = all."""
    prompt_logprobs: Optional[int] = None
    """The same for the prompt's tokens."""
    detokenize: bool = True
    """False: outputs have no text. Cannot be combined with `stop`."""
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    """Must be True."""
    include_stop_str_in_output: bool = False
    truncate_prompt_tokens: Optional[int] = None
    """Keeps only this many tokens from the end of the prompt; -1 = as many as fit into the model's context."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    """For stream() and generate_async()."""
    logit_bias: Optional[Dict[int, float]] = None
    """Values added to the logits of these token ids, -100 to 100."""
    allowed_token_ids: Optional[Sequence[int]] = None
    structured_outputs: Any = None
    """Must be None: constrained decoding is not supported."""
    logits_processors: Any = None
    """Must be None."""
    extra_args: Optional[Dict[str, Any]] = None
    """Must be None."""

    def __post_init__(self) -> None:
        self.n = _integer("n", self.n, f"1 to {_MAX_CHOICES}", 1, _MAX_CHOICES)
        for name in ("presence_penalty", "frequency_penalty"):
            setattr(self, name, _number(name, getattr(self, name), "-2 to 2 (0 = off)", lambda x: -2 <= x <= 2))
        self.repetition_penalty = _number(
            "repetition_penalty", self.repetition_penalty, "a finite number above 0 (1 = off)", lambda x: x > 0
        )
        self.temperature = _number("temperature", self.temperature, "a finite number, 0 or more", lambda x: x >= 0)
        self.top_p = _number("top_p", self.top_p, "above 0 and at most 1 (1 = off)", lambda x: 0 < x <= 1)
        self.top_k = _integer("top_k", self.top_k, "1 or more, or 0 or -1 for off", -1)
        self.min_p = _number("min_p", self.min_p, "0 (off) to 1", lambda x: 0 <= x <= 1)
        if self.seed is not None:
            self.seed = _integer("seed", self.seed, "an integer of 64 bits", -(2**63), 2**64 - 1)
            if self.seed == -1:
                self.seed = None
        self.stop = _texts("stop", self.stop)
        self.stop_token_ids = _ids("stop_token_ids", self.stop_token_ids or ())
        self.bad_words = _texts("bad_words", self.bad_words)
        if self.max_tokens is not None:
            self.max_tokens = _integer("max_tokens", self.max_tokens, "1 or more, or None", 0)
        self.min_tokens = _integer("min_tokens", self.min_tokens, "0 or more", 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens is {self.min_tokens}; it must be at most max_tokens, which is {self.max_tokens}")
        if self.max_tokens == 0 and self.prompt_logprobs is None:
            raise ValueError("max_tokens is 0; it must be 1 or more, except with prompt_logprobs")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, _integer(name, value, "0 or more, -1 for the whole vocabulary, or None", -1))
        if self.truncate_prompt_tokens is not None:
            self.truncate_prompt_tokens = _integer(
                "truncate_prompt_tokens", self.truncate_prompt_tokens, "1 or more, or -1", -1
            )
            if self.truncate_prompt_tokens == 0:
                raise ValueError("truncate_prompt_tokens is 0; it must be 1 or more, or -1")
        if self.logit_bias is not None:
            self.logit_bias = {
                _integer("a key of logit_bias", int(key), "a token id", 0): _number(
                    f"logit_bias of token {key}", bias, "-100 to 100", lambda x: -100 <= x <= 100
                )
                for key, bias in self.logit_bias.items()
            }
        if self.allowed_token_ids is not None:
            self.allowed_token_ids = _ids("allowed_token_ids", self.allowed_token_ids)
            if not self.allowed_token_ids:
                raise ValueError("allowed_token_ids is empty, which leaves nothing to draw; give at least one id, or None")
        for name in ("ignore_eos", "detokenize", "skip_special_tokens", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), (bool, int)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be True or False")
        if not self.spaces_between_special_tokens:
            raise ValueError("spaces_between_special_tokens is False; only True is possible here")
        if not self.detokenize and self.stop:
            raise ValueError("stop needs the text of the answer; leave detokenize True")
        for name in ("structured_outputs", "logits_processors", "extra_args"):
            if getattr(self, name):
                raise ValueError(f"{name} is given; this engine has no such thing: leave it None")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise ValueError(f"output_kind is {self.output_kind!r}; it must be a member of RequestOutputKind")
        if self.n > 1 and self.temperature < 1e-5:
            raise ValueError(
                f"n is {self.n} with temperature {self.temperature}: all answers would be the same; "
                "give a temperature above 0, or n = 1"
            )

    def clone(self) -> "SamplingParams":
        return copy.deepcopy(self)

    def to_json(self) -> str:
        """The JSON for fovea_request.sampling."""
        members = {
            name: getattr(self, name)
            for name in (
                "n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
                "seed", "stop", "stop_token_ids", "bad_words", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs",
                "allowed_token_ids",
            )
        }
        for name in ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"):
            members[name] = bool(getattr(self, name))
        members["logit_bias"] = {str(key): bias for key, bias in (self.logit_bias or {}).items()}
        return json.dumps(members, allow_nan=False)
