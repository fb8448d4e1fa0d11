"""vLLM's class LLM, on Fovea's engine in this process."""

import itertools
import os
import queue
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._engine import ENCODER, ENCODER_DECODER, Embedder, Engine, Output, model_kind
from ._requests import Answering, Prompt, prompts_of
from .attention_config import AttentionConfig, Backend, options_of
from .lora import Adapters, LoRARequest
from .outputs import EmbeddingOutput, EmbeddingRequestOutput, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams

Params = Union[None, SamplingParams, Sequence[SamplingParams]]
Lora = Union[None, LoRARequest, Sequence[Optional[LoRARequest]]]

# Arguments of vLLM's LLM that have no effect here: the accepted values, and why others are refused.
_ANY = object()
_WITHOUT_EFFECT: Dict[str, Tuple[Any, str]] = {
    "trust_remote_code": (_ANY, ""),
    "disable_log_stats": (_ANY, ""),
    "swap_space": (_ANY, ""),
    "enable_chunked_prefill": ((True, None), "prompts are always split into the steps' chunks"),
    "tensor_parallel_size": ((1, None), "a model runs on one device"),
    "pipeline_parallel_size": ((1, None), "a model runs on one device"),
    "data_parallel_size": ((1, None), "start one LLM per device"),
    "quantization": ((None,), "weights are used as the checkpoint has them"),
    "revision": ((None,), "give the folder of that revision as model"),
    "tokenizer_revision": ((None,), "give the folder of that revision as model"),
    "tokenizer_mode": (("auto", "fast", None), "there is one implementation"),
    "skip_tokenizer_init": ((False, None), "leave it out, and give prompts as token ids"),
    "cpu_offload_gb": ((0, 0.0, None), "weights are not offloaded"),
    "convert": (("auto", "none", None), "decoders are not turned into encoders"),
    "hf_overrides": ((None, {}), "change the model's config.json"),
    "limit_mm_per_prompt": ((None, {}), "models read text"),
}

# The options of fovea_engine_create() that fovea_embedder_create() accepts too.
_OF_EMBEDDERS = {
    "model", "device", "dtype", "attention_backend", "prefill_attention_backend", "decode_attention_backend", "attention_config",
    "batch_invariant", "backend_library", "max_model_len", "max_num_batched_tokens", "threads", "seed", "dummy_weights", "pooling",
    "normalize",
}


class Tokenizer:
    """The model's tokenizer and chat template."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        return self._engine.tokenize(text, add_special_tokens)

    def decode(self, token_ids: Union[int, Sequence[int]], skip_special_tokens: bool = False) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._engine.detokenize(ids, skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, possibly an incomplete character; b"" for an unknown id."""
        return self._engine.token_bytes(token_id)

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tools: Optional[Sequence[Any]] = None,
        documents: Optional[Sequence[Any]] = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> Union[str, List[int]]:
        """Arguments are those of transformers. `chat_template`: the name of one of the model's templates. `kwargs`: variables
        for the template."""
        text = self._engine.apply_chat_template(
            conversation, tools, documents, kwargs, chat_template, add_generation_prompt, continue_final_message
        )
        return self._engine.tokenize(text, False) if tokenize else text


class LLM:
    """A model, loaded into this process: generate(), chat(), stream(), generate_async(), and embed() for encoders. All methods
    are thread-safe. Requests of all callers run in one batch; an answer's bits do not depend on the other requests.

    It is also a context manager; close() frees the model before the last reference is gone. Arguments have vLLM's names and
    defaults where vLLM has them. Unknown arguments, and arguments of vLLM that are not supported, are refused.

    Args:
        model: a folder in Hugging Face format, or a hub id found in the local cache. Nothing is downloaded.
        runner: "auto" (by the model), "generate" or "pooling".
        tokenizer: None, or the same as `model`.
        dtype: "auto" (the checkpoint's), "float32", "bfloat16", "float16", or a dtype of torch.
        device: "auto" (the GPU if there is one), "cpu", "cuda", "cuda:1".
        max_model_len: longest sequence in tokens; None = the model's.
        attention_config: an AttentionConfig or a dict of its fields.
        attention_backend: a name, or a member of AttentionBackendEnum; not together with attention_config's backend.
        kv_cache_dtype: "auto", "fp8", "fp8_e5m2", "int8_per_token_head", ...
        kv_layout: the layout of KV pages: "auto", "nhd", "hnd", ...
        block_size: tokens of a KV page; None = the backend's preferred.
        num_gpu_blocks_override: number of KV cache pages; None = determined by memory_share.
        memory_share: on the CPU, the maximum share of the memory left by the weights that the KV cache uses.
        gpu_memory_utilization: on a GPU, the share of its memory that all programs may take, this KV cache included; None = 0.9.
        enforce_eager: on a GPU, decode steps run without CUDA graphs; the answers have the same bits.
        disable_overlap_schedule: on a GPU, a step is queued only when the one before has ended; likewise.
        seed: for requests without a seed, and for dummy weights.
        max_num_seqs: maximum number of sequences in a step.
        max_num_batched_tokens: maximum number of tokens in a step.
        enable_prefix_caching: whether requests share the keys of common prefixes.
        scheduling_policy: "fcfs", or "priority" for generate(priority=).
        generation_config: "auto" (the model's), "vllm" (none), or a folder or file.
        max_logprobs: the maximum of SamplingParams.logprobs; -1 = no limit.
        chat_template: a file or the template's text, instead of the model's.
        load_format: "auto", or "dummy" for random weights from config.json alone.
        threads: None = one per usable CPU.
        backend_library: shared libraries with external attention backends.
        speculative_config: vLLM's dict, {"method": "ngram", "num_speculative_tokens": 5}, for drafts; the answers stay the same.
            Methods are ngram, suffix, draft_model, eagle, eagle3 and mtp.
        enable_lora: whether generate() and the others take a lora_request; implied by lora_modules.
        lora_modules: adapters to load at the start, {name: folder}.
        max_lora_rank: the largest rank of an adapter; None = 64.
        max_loras: different adapters in one step; None = no limit, on a GPU as many as are loaded at the start, 4 to 32.
        max_cpu_loras: adapters that are loaded at a time; None = no limit.
        pooling, normalize: for embed(): pooling is "mean", "cls" or "last"; None = as in the model's files.

    Raises:
        TypeError: an unknown argument.
        ValueError: a refused value; the text says what is allowed.
        MemoryError, OSError: the weights do not fit into memory, or cannot be read.
    """

    def __init__(
        self,
        model: Union[str, "os.PathLike[str]"],
        *,
        runner: str = "auto",
        tokenizer: Optional[str] = None,
        dtype: Any = "auto",
        device: str = "auto",
        max_model_len: Optional[int] = None,
        attention_config: Union[None, AttentionConfig, Mapping[str, Any]] = None,
        attention_backend: Optional[Backend] = None,
        kv_cache_dtype: str = "auto",
        kv_layout: Optional[str] = None,
        block_size: Optional[int] = None,
        num_gpu_blocks_override: Optional[int] = None,
        memory_share: Optional[float] = None,
        gpu_memory_utilization: Optional[float] = None,
        enforce_eager: Optional[bool] = None,
        disable_overlap_schedule: Optional[bool] = None,
        seed: Optional[int] = 0,
        max_num_seqs: Optional[int] = None,
        max_num_batched_tokens: Optional[int] = None,
        enable_prefix_caching: Optional[bool] = None,
        scheduling_policy: Optional[str] = None,
        generation_config: Optional[str] = "auto",
        max_logprobs: Optional[int] = None,
        chat_template: Optional[str] = None,
        load_format: str = "auto",
        threads: Optional[int] = None,
        backend_library: Sequence[str] = (),
        enable_lora: Optional[bool] = None,
        lora_modules: Optional[Mapping[str, Any]] = None,
        max_lora_rank: Optional[int] = None,
        max_loras: Optional[int] = None,
        max_cpu_loras: Optional[int] = None,
        pooling: Optional[str] = None,
        normalize: Optional[bool] = None,
        speculative_config: Optional[Mapping[str, Any]] = None,
        **others: Any,
    ) -> None:
        _refuse_others(others)
        model = os.fspath(model)
        if tokenizer is not None and os.fspath(tokenizer) != model:
            raise ValueError(f"tokenizer is {tokenizer!r}; the model's own is used: leave it out, or put its files beside the model")
        if runner not in ("auto", "generate", "pooling"):
            raise ValueError(f'runner is {runner!r}; allowed are "auto", "generate" and "pooling"')
        if load_format not in ("auto", "safetensors", "dummy"):
            raise ValueError(f'load_format is {load_format!r}; allowed are "auto", "safetensors" and "dummy"')
        if isinstance(attention_config, AttentionConfig):
            attention_config = attention_config.to_options()
        options = {
            "model": model,
            "device": device,
            "dtype": str(dtype).replace("torch.", ""),
            "max_model_len": max_model_len,
            "attention_config": None if attention_config is None else options_of(attention_config),
            "attention_backend": attention_backend,
            "kv_cache_dtype": None if kv_cache_dtype == "auto" else kv_cache_dtype,
            "kv_layout": kv_layout,
            "page_size": block_size,
            "num_pages": num_gpu_blocks_override,
            "memory_share": memory_share,
            "gpu_memory_utilization": gpu_memory_utilization,
            "disable_cuda_graph": enforce_eager,
            "disable_overlap_schedule": disable_overlap_schedule,
            "seed": seed,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "enable_prefix_caching": enable_prefix_caching,
            "scheduling_policy": scheduling_policy,
            "generation_config": None if generation_config == "auto" else generation_config,
            "max_logprobs": max_logprobs,
            "chat_template": chat_template,
            "dummy_weights": True if load_format == "dummy" else None,
            "threads": threads,
            "backend_library": list(map(os.fspath, backend_library)) or None,
            "enable_lora": enable_lora or None,
            "lora_modules": {name: os.fspath(path) for name, path in lora_modules.items()} if lora_modules else None,
            "max_lora_rank": max_lora_rank,
            "max_loras": max_loras,
            "max_cpu_loras": max_cpu_loras,
            "pooling": pooling,
            "normalize": normalize,
            "speculative_config": None if speculative_config is None else options_of(speculative_config),
        }
        options = options_of(options)
        kind = model_kind(model)
        pools = kind == ENCODER if runner == "auto" else runner == "pooling"
        self._encoder_decoder = kind == ENCODER_DECODER
        self._engine: Optional[Engine] = None
        self._embedder: Optional[Embedder] = None
        if pools:
            extra = sorted(set(options) - _OF_EMBEDDERS)
            if extra:
                raise ValueError(f"{extra[0]} is given, which applies to generation; this model computes embeddings: leave it out")
            self._embedder = Embedder(options)
        else:
            for name in ("pooling", "normalize"):
                if name in options:
                    raise ValueError(f"{name} is given, which applies to embeddings; this model generates text: leave it out")
            self._engine = Engine(options)
            self._adapters = Adapters(self._engine, options.get("lora_modules", {}))
        self._ids = itertools.count()
        self._tokens: Dict[int, str] = {}  # decoded, for log probabilities

    # The resolved configuration.

    @property
    def info(self) -> Dict[str, Any]:
        """The resolved configuration: model_dir, architecture, dtype, max_model_len, attention, ..."""
        return dict(self._any.info)

    def explain(self) -> str:
        """The selected attention backends and the reasons: one line for each phase and kind of layer."""
        return self._any.info["explain"]

    def stats(self) -> Dict[str, Any]:
        """The engine's counters since its start: steps, tokens, pages, prefix cache, gaps between tokens,
        and in "speculative" those of drafts."""
        return self._generator.stats()

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer(self._generator)

    def get_default_sampling_params(self) -> SamplingParams:
        """The defaults of the model's generation_config.json, as in vLLM: max_tokens is 16 if the model has none."""
        given = dict(self._generator.info["default_sampling"])
        if given["max_tokens"] is None:
            del given["max_tokens"]
        given["logit_bias"] = given["logit_bias"] or None
        return SamplingParams(**given)

    # Generation.

    def unload_lora(self, name: str) -> None:
        """Requests that have been submitted finish with the adapter. Another one may have the name afterwards."""
        assert self._generator  # refuses encoders
        self._adapters.unload(name)

    def _loras_of(self, given: Lora, count: int) -> List[str]:
        assert self._generator  # refuses encoders
        return self._adapters.names_of(given, count)

    def generate(
        self,
        prompts: Any,
        sampling_params: Params = None,
        use_tqdm: Any = False,
        lora_request: Lora = None,
        priority: Optional[Sequence[int]] = None,
    ) -> List[RequestOutput]:
        """The answers to prompts, in their order.

        Args:
            prompts: a string, a list of token ids, {"prompt": str}, {"prompt_token_ids": [int]}, for encoder-decoder models
                {"encoder_prompt": ..., "decoder_prompt": ...} (or a string: the encoder's); or a list of these.
            sampling_params: for all prompts, or one for each; None = get_default_sampling_params().
            use_tqdm: whether to show progress, if tqdm is installed.
            lora_request: a LoRARequest for all prompts, or one or None for each.
            priority: one number for each prompt, lower runs earlier; needs scheduling_policy="priority".

        Raises:
            ValueError: a prompt or a parameter is refused; then no prompt is answered.
        """
        arrived: "queue.SimpleQueue[Tuple[int, Output]]" = queue.SimpleQueue()
        given = prompts_of(prompts)
        every = self._params_of(sampling_params, len(given))
        priorities = _priorities(priority, len(given))
        loras = self._loras_of(lora_request, len(given))
        requests: List[Answering] = []
        running: Dict[int, Tuple[int, int]] = {}
        bar = _progress(use_tqdm, len(given))
        try:
            for i, prompt in enumerate(given):
                try:
                    request, handle = self._submit(
                        prompt, every[i], RequestOutputKind.CUMULATIVE, lambda output, i=i: arrived.put((i, output)),
                        priorities[i], lora=loras[i],
                    )
                except ValueError as error:
                    raise error if len(given) == 1 else ValueError(f"prompt {i}: {error}") from None
                requests.append(request)
                running[i] = handle
            while running:
                i, output = arrived.get()
                requests[i].add(output)
                if requests[i].finished:
                    del running[i]
                    bar(1)
        finally:  # an error, or an interrupt
            for handle in running.values():
                self._generator.cancel(handle)
            bar(0)
        return [request.result() for request in requests]

    def stream(
        self, prompt: Any, sampling_params: Optional[SamplingParams] = None, request_id: Optional[str] = None, priority: int = 0,
        lora_request: Optional[LoRARequest] = None,
    ) -> Iterator[RequestOutput]:
        """Streams the answer to one prompt: a RequestOutput for each piece, with the whole answer so far or, with
        output_kind DELTA, only what is new. Closing the iterator cancels the request."""
        arrived: "queue.SimpleQueue[Output]" = queue.SimpleQueue()
        params = self._params_of(sampling_params, 1)[0]
        request, handle = self._submit(_single(prompt), params, params.output_kind, arrived.put, priority, request_id,
                                       self._loras_of(lora_request, 1)[0])
        return self._read(request, handle, arrived)

    def _read(self, request: Answering, handle: Tuple[int, int], arrived: Any) -> Iterator[RequestOutput]:
        try:
            while not request.finished:
                output = arrived.get()
                request.add(output)
                if request.kind is not RequestOutputKind.FINAL_ONLY or request.finished:
                    yield request.result(output.index)
        finally:
            self._generator.cancel(handle)  # no effect once it has ended

    async def generate_async(
        self, prompt: Any, sampling_params: Optional[SamplingParams] = None, request_id: Optional[str] = None, priority: int = 0,
        lora_request: Optional[LoRARequest] = None,
    ) -> AsyncIterator[RequestOutput]:
        """Like stream(), for `async for`. Leaving the loop with aclose(), or cancelling the task, cancels the request."""
        import asyncio

        loop = asyncio.get_running_loop()
        arrived: "asyncio.Queue[Output]" = asyncio.Queue()
        params = self._params_of(sampling_params, 1)[0]
        request, handle = self._submit(
            _single(prompt), params, params.output_kind,
            lambda output: loop.call_soon_threadsafe(arrived.put_nowait, output), priority, request_id,
            self._loras_of(lora_request, 1)[0],
        )
        try:
            while not request.finished:
                output = await arrived.get()
                request.add(output)
                if request.kind is not RequestOutputKind.FINAL_ONLY or request.finished:
                    yield request.result(output.index)
        finally:
            self._generator.cancel(handle)

    def chat(
        self,
        messages: Any,
        sampling_params: Params = None,
        use_tqdm: Any = False,
        lora_request: Lora = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Optional[Sequence[Any]] = None,
        documents: Optional[Sequence[Any]] = None,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
    ) -> List[RequestOutput]:
        """The answers to conversations: a list of {"role": ..., "content": ...}, or a list of such lists.

        Args:
            chat_template: the name of one of the model's templates; a template's text is for LLM(chat_template=).
            tools, documents, chat_template_kwargs: for the template.
            continue_final_message: the answer continues the last message; then add_generation_prompt must be False.
        """
        if not isinstance(messages, (list, tuple)):
            raise ValueError(f"messages is {messages!r:.80}; it must be a list of messages, or a list of conversations")
        many = bool(messages) and isinstance(messages[0], (list, tuple))
        prompts = [
            {"prompt": text, "prompt_token_ids": self._generator.tokenize(text, False)}
            for text in (
                self._generator.apply_chat_template(
                    one, tools, documents, chat_template_kwargs, chat_template, add_generation_prompt, continue_final_message
                )
                for one in (messages if many else [messages])
            )
        ]
        return self.generate(prompts, sampling_params, use_tqdm, lora_request)

    # Embeddings.

    def embed(
        self,
        prompts: Any,
        *,
        truncate_prompt_tokens: Optional[int] = None,
        use_tqdm: Any = False,
        pooling_params: None = None,
        lora_request: None = None,
    ) -> List[EmbeddingRequestOutput]:
        """One vector for each text or list of token ids, in their order.

        Args:
            truncate_prompt_tokens: None = texts longer than max_model_len are refused; -1 = they are cut to it.
        """
        _no_lora(lora_request)
        if pooling_params is not None:
            raise ValueError("pooling_params is given; LLM(pooling=, normalize=) are for all texts: leave it out")
        if truncate_prompt_tokens not in (None, -1):
            raise ValueError(f"truncate_prompt_tokens is {truncate_prompt_tokens!r}; it must be -1 (max_model_len) or None")
        embedder = self._pooler
        inputs: List[List[int]] = []
        for prompt in prompts_of(prompts):
            if prompt.encoder_text is not None or prompt.encoder_ids is not None:
                raise ValueError('a prompt has "encoder_prompt"; embeddings are of a text or of token ids')
            truncate = truncate_prompt_tokens is not None
            if prompt.ids is None:
                inputs.append(embedder.tokenize(prompt.text or "", truncate))
            else:
                inputs.append(list(prompt.ids)[: embedder.info["max_model_len"] if truncate else None])
        vectors = embedder.embed(inputs) if inputs else []
        return [
            EmbeddingRequestOutput(str(next(self._ids)), EmbeddingOutput(vector), ids) for vector, ids in zip(vectors, inputs)
        ]

    # Life.

    def close(self) -> None:
        """Ends all requests, whose readers get a RuntimeError, and frees the model."""
        for part in (self._engine, self._embedder):
            if part is not None:
                part.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    # What they are made of.

    @property
    def _any(self) -> Any:
        return self._embedder if self._engine is None else self._engine

    @property
    def _generator(self) -> Engine:
        if self._engine is None:
            raise ValueError("this LLM makes embeddings; generate with a decoder, or with runner=\"generate\"")
        return self._engine

    @property
    def _pooler(self) -> Embedder:
        if self._embedder is None:
            raise ValueError("this LLM generates; embeddings are made by BERT, RoBERTa and other encoders")
        return self._embedder

    def _params_of(self, given: Params, count: int) -> List[SamplingParams]:
        if given is None:
            given = self.get_default_sampling_params()
        if isinstance(given, SamplingParams):
            return [given] * count
        every = list(given)
        if len(every) != count:
            raise ValueError(f"sampling_params has {len(every)} members for {count} prompts; give one for each, or one for all")
        for params in every:
            if not isinstance(params, SamplingParams):
                raise ValueError(f"sampling_params has {params!r:.80}; it must be SamplingParams, or a list of them")
        return every

    def _decode_token(self, token_id: int) -> str:
        text = self._tokens.get(token_id)
        if text is None:
            text = self._tokens[token_id] = self._generator.token_bytes(token_id).decode("utf-8", "replace")
        return text

    def _tokens_of(self, text: Optional[str], ids: Optional[Sequence[int]], special: bool) -> List[int]:
        if ids is not None:
            return list(ids)
        return [] if text is None else self._generator.tokenize(text, special)

    def _truncated(self, ids: List[int], params: SamplingParams) -> List[int]:
        keep = params.truncate_prompt_tokens
        if keep is None:
            return ids
        if keep == -1:
            keep = max(1, self._generator.info["max_model_len"] - (1 if params.max_tokens is None else params.max_tokens))
        return ids[-keep:]

    def _submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        kind: RequestOutputKind,
        sink: Any,
        priority: int = 0,
        request_id: Optional[str] = None,
        lora: str = "",
    ) -> Tuple[Answering, Tuple[int, int]]:
        encodes = prompt.encoder_text is not None or prompt.encoder_ids is not None
        if self._encoder_decoder and not encodes:
            prompt, encodes = Prompt(None, None, prompt.text, prompt.ids), True
        if encodes and not self._encoder_decoder:
            raise ValueError('a prompt has "encoder_prompt"; this model is a decoder: give the prompt alone')
        encoder_ids = self._tokens_of(prompt.encoder_text, prompt.encoder_ids, True)
        ids = self._truncated(self._tokens_of(prompt.text, prompt.ids, not encodes), params)
        name = str(next(self._ids)) if request_id is None else request_id
        request = Answering(
            name, prompt.encoder_text if encodes else prompt.text, encoder_ids if encodes else ids, params, self._decode_token, kind
        )
        handle = self._generator.submit(ids, params.to_json(), params.n, sink, priority, encoder_ids, lora=lora)
        return request, handle


def _refuse_others(others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if name not in _WITHOUT_EFFECT:
            code = LLM.__init__.__code__
            own = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            raise TypeError(
                f"LLM has no argument {name!r}; it has {', '.join(own)}; accepted without effect are "
                + ", ".join(_WITHOUT_EFFECT)
            )
        allowed, why = _WITHOUT_EFFECT[name]
        if allowed is not _ANY and value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be {allowed[0]!r}: {why}")


def _no_lora(given: Any) -> None:
    if given is not None:
        raise ValueError("lora_request is given; encoders have no adapters: leave it out")


def _single(prompt: Any) -> Prompt:
    given = prompts_of(prompt)
    if len(given) != 1:
        raise ValueError(f"prompt is a list of {len(given)}; a stream has one prompt")
    return given[0]


def _priorities(given: Optional[Sequence[int]], count: int) -> Sequence[int]:
    if given is None:
        return [0] * count
    if len(given) != count:
        raise ValueError(f"priority has {len(given)} members for {count} prompts; give one for each")
    return given


def _progress(wanted: Any, total: int) -> Any:
    """Returns a function that adds a number of finished prompts to the progress bar; 0 closes it."""
    if wanted:
        try:
            from tqdm import tqdm  # type: ignore[import-untyped]
        except ImportError:
            pass
        else:
            bar = (wanted if callable(wanted) else tqdm)(total=total, desc="Processed prompts")
            return lambda count: bar.update(count) if count else bar.close()
    return lambda count: None
