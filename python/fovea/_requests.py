"""From outputs of the engine, piece by piece, to a RequestOutput; and prompts in each form that vLLM takes."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from ._engine import FINISH_CANCELLED, FINISH_ERROR, FINISH_LENGTH, FINISH_NONE, FINISH_STOP, Output, TokenLogprobs
from ._lib import error_of
from .outputs import CompletionOutput, Logprob, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams

_REASONS = {FINISH_NONE: None, FINISH_STOP: "stop", FINISH_LENGTH: "length", FINISH_CANCELLED: "abort"}

DecodeToken = Callable[[int], str]


class Prompt(NamedTuple):
    """One prompt, not tokenised yet: text or ids of the decoder, and of the encoder where the model has one."""

    text: Optional[str] = None
    ids: Optional[Sequence[int]] = None
    encoder_text: Optional[str] = None
    encoder_ids: Optional[Sequence[int]] = None


_FORMS = 'a string, a list of token ids, {"prompt": str}, {"prompt_token_ids": [int]} or {"encoder_prompt": ..., "decoder_prompt": ...}'


def _is_ids(value: Any) -> bool:
    """A sequence of integers; also an array of numpy or torch."""
    return not isinstance(value, (str, bytes, dict)) and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _one(prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(text=prompt)
    if isinstance(prompt, dict):
        known = {"prompt", "prompt_token_ids", "encoder_prompt", "decoder_prompt"}
        unknown = sorted(str(key) for key in prompt if key not in known and prompt[key] is not None)
        if unknown:
            raise ValueError(f"a prompt has {unknown[0]!r}; it must be {_FORMS}")
        if prompt.get("encoder_prompt") is not None:
            encoder, decoder = _one(prompt["encoder_prompt"]), Prompt()
            if prompt.get("decoder_prompt") is not None:
                decoder = _one(prompt["decoder_prompt"])
            return Prompt(decoder.text, decoder.ids, encoder.text, encoder.ids)
        if prompt.get("prompt_token_ids") is not None:
            return Prompt(text=prompt.get("prompt"), ids=_ids(prompt["prompt_token_ids"]))
        if isinstance(prompt.get("prompt"), str):
            return Prompt(text=prompt["prompt"])
        raise ValueError(f"a prompt is {prompt!r:.80}; it must be {_FORMS}")
    if _is_ids(prompt):
        return Prompt(ids=_ids(prompt))
    raise ValueError(f"a prompt is {prompt!r:.80}; it must be {_FORMS}")


def _ids(value: Any) -> Sequence[int]:
    ids = value.tolist() if hasattr(value, "tolist") else list(value)
    for i, item in enumerate(ids):
        if isinstance(item, bool) or not isinstance(item, int):
            raise ValueError(f"token {i} of a prompt is {item!r:.40}; a prompt must be {_FORMS}")
    return ids


def prompts_of(given: Any) -> List[Prompt]:
    """One prompt, or a list of them."""
    if isinstance(given, (list, tuple)) and not (given and all(isinstance(item, int) for item in given)):
        return [_one(item) for item in given]
    return [_one(given)]


class Answering:
    """A request whose outputs arrive. Not thread-safe: it belongs to the reader."""

    def __init__(
        self,
        request_id: str,
        prompt: Optional[str],
        prompt_ids: List[int],
        params: SamplingParams,
        decode_token: DecodeToken,
        kind: RequestOutputKind,
    ) -> None:
        self.kind = kind
        self._params = params
        self._decode_token = decode_token
        self._delta = kind is RequestOutputKind.DELTA
        self._request = RequestOutput(request_id, prompt, prompt_ids)
        self._answers = [self._fresh(index) for index in range(params.n)]
        self._cumulative = [0.0] * params.n
        self._finished = 0

    @property
    def finished(self) -> bool:
        return self._finished == self._params.n

    def _fresh(self, index: int) -> CompletionOutput:
        return CompletionOutput(index, logprobs=None if self._params.logprobs is None else [])

    def _named(self, given: TokenLogprobs) -> Dict[int, Logprob]:
        decode = self._decode_token if self._params.detokenize else (lambda token_id: None)
        token_id, rank, logprob = given.token
        out = {token_id: Logprob(logprob, rank, decode(token_id))}
        for token_id, rank, logprob in given.top:
            out.setdefault(token_id, Logprob(logprob, rank, decode(token_id)))
        return out

    def _stop_reason(self, output: Output) -> Any:
        if output.stop_token < 0:
            return output.stop_string or None
        return output.stop_token if output.stop_token in (self._params.stop_token_ids or ()) else None

    def add(self, output: Output) -> None:
        """Raises what ended the request, if it failed."""
        if output.finish == FINISH_ERROR:
            raise error_of(output.error_status, f"request {self._request.request_id}: {output.error}")
        index = output.index
        if self._delta:
            self._answers[index] = self._fresh(index)
        answer = self._answers[index]
        if self._params.detokenize:
            answer.text += output.text
        answer.token_ids.extend(output.token_ids)
        if answer.logprobs is not None:
            answer.logprobs.extend(map(self._named, output.logprobs))
            self._cumulative[index] += sum(one.token[2] for one in output.logprobs)
            answer.cumulative_logprob = self._cumulative[index]
        request = self._request
        request.num_cached_tokens = output.cached_tokens if index == 0 else request.num_cached_tokens
        if index == 0:
            request.queue_seconds, request.prefill_seconds, request.decode_seconds = output.seconds
        if output.finish == FINISH_NONE:
            return
        answer.finish_reason = _REASONS[output.finish]
        answer.stop_reason = self._stop_reason(output)
        self._finished += 1
        if index == 0 and self._params.prompt_logprobs is not None and output.finish != FINISH_CANCELLED:
            request.prompt_logprobs = [None]
            request.prompt_logprobs += map(self._named, output.prompt_logprobs)
        request.finished = self.finished

    def result(self, index: Optional[int] = None) -> RequestOutput:
        """All answers; of a stream a snapshot, with only the answer that has news where outputs are deltas."""
        answers = self._answers if index is None or not self._delta else [self._answers[index]]
        copies = [
            CompletionOutput(
                a.index, a.text, list(a.token_ids), a.cumulative_logprob, None if a.logprobs is None else list(a.logprobs),
                a.finish_reason, a.stop_reason,
            )
            for a in answers
        ]
        r = self._request
        return RequestOutput(
            r.request_id, r.prompt, r.prompt_token_ids, copies, r.finished, r.prompt_logprobs, r.num_cached_tokens,
            r.queue_seconds, r.prefill_seconds, r.decode_seconds,
        )
