"""The outputs of an LLM. Fields have vLLM's names."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Union


@dataclass
class Logprob:
    """A token's log probability at one position, from the model's distribution before any sampling parameter."""

    logprob: float
    """Natural logarithm."""
    rank: Optional[int] = None
    """The token's rank by probability, from 1; on a tie lower ids come first."""
    decoded_token: Optional[str] = None
    """The token's bytes as text; an incomplete character is U+FFFD."""


@dataclass
class CompletionOutput:
    """One of the n answers to a prompt."""

    index: int
    text: str = ""
    token_ids: List[int] = field(default_factory=list)
    """Without the end token, unless ignore_eos."""
    cumulative_logprob: Optional[float] = None
    """The sum over token_ids, if logprobs were requested."""
    logprobs: Optional[List[Dict[int, Logprob]]] = None
    """For each of token_ids, its own entry and those of the most probable tokens."""
    finish_reason: Optional[str] = None
    """"stop", "length" or "abort"; None until the answer is complete."""
    stop_reason: Union[None, int, str] = None
    """The stop string, or the token of stop_token_ids, that ended the answer."""

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """The answers to one prompt."""

    request_id: str
    prompt: Optional[str]
    """None if the prompt was given as token ids."""
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    """Whether all answers are complete."""
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]] = None
    """One entry for each of prompt_token_ids; the first is None. Set when the request has ended."""
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache."""
    queue_seconds: float = 0.0
    """Time from submission to the first step of the first answer."""
    prefill_seconds: float = 0.0
    """Time from the first step to the first token of the first answer."""
    decode_seconds: float = 0.0
    """Time from the first token of the first answer to this output."""


@dataclass
class EmbeddingOutput:
    embedding: List[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass
class EmbeddingRequestOutput:
    """The vector of one text."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: List[int]
    finished: bool = True
