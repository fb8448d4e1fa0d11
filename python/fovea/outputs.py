"""What an LLM returns: vLLM's names of the fields."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Union


@dataclass
class Logprob:
    """A token's log probability in one place, from the model's distribution before any sampling parameter."""

    logprob: float
    """Natural logarithm."""
    rank: Optional[int] = None
    """From 1; lower ids first on a tie."""
    decoded_token: Optional[str] = None
    """The token's bytes as text; parts of characters are U+FFFD."""


@dataclass
class CompletionOutput:
    """One of the n answers to a prompt."""

    index: int
    text: str = ""
    token_ids: List[int] = field(default_factory=list)
    """Without the end token, unless ignore_eos."""
    cumulative_logprob: Optional[float] = None
    """The sum over token_ids, if logprobs were asked for."""
    logprobs: Optional[List[Dict[int, Logprob]]] = None
    """For each of token_ids: its own and the most probable ones."""
    finish_reason: Optional[str] = None
    """"stop", "length", "abort"; None while the answer grows."""
    stop_reason: Union[None, int, str] = None
    """The stop string, or the one of stop_token_ids, that ended it."""

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """A prompt's answers."""

    request_id: str
    prompt: Optional[str]
    """None if the prompt was token ids."""
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    """All answers are complete."""
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]] = None
    """For each of prompt_token_ids; the first is None. There when the request has ended."""
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache."""
    queue_seconds: float = 0.0
    """Of the first answer: until its first step."""
    prefill_seconds: float = 0.0
    """From there to its first token."""
    decode_seconds: float = 0.0
    """From there to now."""


@dataclass
class EmbeddingOutput:
    embedding: List[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass
class EmbeddingRequestOutput:
    """A text's vector."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: List[int]
    finished: bool = True
