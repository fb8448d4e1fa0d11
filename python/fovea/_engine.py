"""fovea/c_engine.h by ctypes, and the thread that hands an engine's outputs to their requests."""

import ctypes
import itertools
import json
import os
import threading
import weakref
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._lib import check, lib

DECODER, ENCODER, ENCODER_DECODER = 0, 1, 2
FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR = range(5)


class CChat(Structure):
    _fields_ = [("size", c_uint32), ("continue_final_message", c_int32)]
    _fields_ += [(name, c_char_p) for name in ("messages", "tools", "documents", "template_kwargs", "template_name")]
    _fields_ += [("no_generation_prompt", c_int32), ("unused", c_int32)]


class CRequest(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("priority", c_int32),
        ("prompt", c_char_p),
        ("prompt_bytes", c_int64),
        ("prompt_ids", POINTER(c_int32)),
        ("num_prompt_ids", c_size_t),
        ("sampling", c_char_p),
        ("client", c_char_p),
        ("tag", c_uint64),
        ("raw_text", c_int32),
        ("unused", c_int32),
        ("encoder_ids", POINTER(c_int32)),
        ("num_encoder_ids", c_size_t),
        ("encoder_features", POINTER(c_float)),
        ("num_encoder_features", c_size_t),
        ("lora", c_char_p),
    ]


class CTokenLogprob(Structure):
    _fields_ = [("token_id", c_int32), ("rank", c_int32), ("logprob", c_float)]


class CTokenLogprobs(Structure):
    _fields_ = [("token", CTokenLogprob), ("num_top", c_int32), ("top", POINTER(CTokenLogprob))]


class COutput(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("index", c_int32),
        ("id", c_uint64),
        ("tag", c_uint64),
        ("text", c_void_p),
        ("text_bytes", c_size_t),
        ("token_ids", POINTER(c_int32)),
        ("num_token_ids", c_size_t),
        ("logprobs", POINTER(CTokenLogprobs)),
        ("num_logprobs", c_size_t),
        ("finish", c_int32),
        ("stop_token", c_int32),
        ("stop_string", c_char_p),
        ("error", c_char_p),
        ("error_status", c_int32),
        ("prompt_tokens", c_int32),
        ("cached_tokens", c_int32),
        ("completion_tokens", c_int32),
        ("prompt_logprobs", POINTER(CTokenLogprobs)),
        ("num_prompt_logprobs", c_size_t),
        ("queue_seconds", c_double),
        ("prefill_seconds", c_double),
        ("decode_seconds", c_double),
    ]


class COutputs(Structure):
    _fields_ = [("size", c_uint32), ("unused", c_uint32), ("count", c_size_t), ("outputs", POINTER(POINTER(COutput)))]


_IDS = [POINTER(POINTER(c_int32)), POINTER(c_size_t)]
_TEXT = [POINTER(c_void_p), POINTER(c_size_t)]
_FUNCTIONS = {
    "fovea_model_kind": (c_int, [c_char_p, POINTER(c_int32)]),
    "fovea_free": (None, [c_void_p]),
    "fovea_engine_create": (c_int, [c_char_p, POINTER(c_void_p)]),
    "fovea_engine_destroy": (None, [c_void_p]),
    "fovea_engine_info_json": (c_int, [c_void_p, POINTER(c_void_p)]),
    "fovea_engine_stats_json": (c_int, [c_void_p, POINTER(c_void_p)]),
    "fovea_engine_tokenize": (c_int, [c_void_p, c_char_p, c_int64, c_int32] + _IDS),
    "fovea_engine_detokenize": (c_int, [c_void_p, POINTER(c_int32), c_size_t, c_int32] + _TEXT),
    "fovea_engine_token_bytes": (c_int, [c_void_p, c_int32] + _TEXT),
    "fovea_engine_apply_chat_template": (c_int, [c_void_p, POINTER(CChat)] + _TEXT),
    "fovea_engine_submit": (c_int, [c_void_p, POINTER(CRequest), POINTER(c_uint64)]),
    "fovea_engine_check": (c_int, [c_void_p, POINTER(CRequest)]),
    "fovea_engine_cancel": (c_int, [c_void_p, c_uint64]),
    "fovea_engine_load_lora": (c_int, [c_void_p, c_char_p, c_char_p]),
    "fovea_engine_unload_lora": (c_int, [c_void_p, c_char_p]),
    "fovea_engine_poll": (c_int, [c_void_p, c_int64, POINTER(POINTER(COutputs))]),
    "fovea_outputs_free": (None, [POINTER(COutputs)]),
    "fovea_engine_wait": (c_int, [c_void_p, c_int64, POINTER(c_int32)]),
    "fovea_embedder_create": (c_int, [c_char_p, POINTER(c_void_p)]),
    "fovea_embedder_destroy": (None, [c_void_p]),
    "fovea_embedder_info_json": (c_int, [c_void_p, POINTER(c_void_p)]),
    "fovea_embedder_tokenize": (c_int, [c_void_p, c_char_p, c_int64, c_int32] + _IDS),
    "fovea_embedder_embed": (c_int, [c_void_p, POINTER(c_int32), POINTER(c_size_t), c_size_t, POINTER(c_float), c_size_t]),
}
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


class TokenLogprobs(NamedTuple):
    """(token id, rank, log probability), of the token and of the most probable ones."""

    token: Tuple[int, int, float]
    top: List[Tuple[int, int, float]]


class Output(NamedTuple):
    """A fovea_output as Python's objects."""

    index: int
    text: str
    token_ids: List[int]
    logprobs: List[TokenLogprobs]
    finish: int
    stop_token: int
    stop_string: str
    error: str
    error_status: int
    cached_tokens: int
    prompt_logprobs: List[TokenLogprobs]
    seconds: Tuple[float, float, float]


Sink = Callable[[Output], None]


def _logprobs(given: Any, count: int) -> List[TokenLogprobs]:
    out = []
    for i in range(count):
        one = given[i]
        t = one.token
        out.append(TokenLogprobs((t.token_id, t.rank, t.logprob), [(x.token_id, x.rank, x.logprob) for x in one.top[: one.num_top]]))
    return out


def _output(c: COutput) -> Output:
    return Output(
        c.index,
        ctypes.string_at(c.text, c.text_bytes).decode("utf-8", "replace"),
        c.token_ids[: c.num_token_ids] if c.num_token_ids else [],
        _logprobs(c.logprobs, c.num_logprobs),
        c.finish,
        c.stop_token,
        c.stop_string.decode("utf-8", "replace"),
        c.error.decode("utf-8", "replace"),
        c.error_status,
        c.cached_tokens,
        _logprobs(c.prompt_logprobs, c.num_prompt_logprobs),
        (c.queue_seconds, c.prefill_seconds, c.decode_seconds),
    )


def int32_array(ids: Sequence[int], name: str) -> Any:
    """`ids` for a call. ctypes would drop the upper bits of what is larger."""
    for i, value in enumerate(ids):
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
            try:
                if -(2**31) <= value.__index__() < 2**31 and not isinstance(value, bool):
                    continue  # an integer of numpy or torch
            except AttributeError:
                pass
            raise ValueError(f"token {i} of {name} is {value!r}; it must be a token id, an integer of 0 or more")
    return (c_int32 * len(ids))(*ids)


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} has an unpaired surrogate; it must be text that UTF-8 can hold") from None


def _take_text(pointer: c_void_p, size: Optional[int] = None) -> bytes:
    try:
        return ctypes.string_at(pointer.value or 0, -1 if size is None else size)
    finally:
        lib.fovea_free(pointer)


def _take_ids(ids: Any, count: c_size_t) -> List[int]:
    try:
        return ids[: count.value]
    finally:
        lib.fovea_free(ctypes.cast(ids, c_void_p))


def model_kind(model: str) -> int:
    kind = c_int32()
    check(lib.fovea_model_kind(_utf8(model, "model"), byref(kind)))
    return kind.value


def _pump(handle: c_void_p, sinks: Dict[int, Tuple[Sink, List[int]]]) -> None:
    """The thread of an engine. It must not keep the Engine alive, whose end is what ends it."""
    batch = POINTER(COutputs)()
    while lib.fovea_engine_poll(handle, -1, byref(batch)) == 0:
        if not batch:
            continue
        try:
            outputs = batch.contents.outputs
            for i in range(batch.contents.count):
                c = outputs[i].contents
                entry = sinks.get(c.tag)
                if entry is None:  # its caller has left
                    continue
                sink, unfinished = entry
                if c.finish != FINISH_NONE:
                    unfinished[0] -= 1
                    if unfinished[0] == 0:
                        sinks.pop(c.tag, None)
                try:
                    sink(_output(c))
                except Exception:  # an event loop that was closed: its request has no reader any more
                    if sinks.pop(c.tag, None) is not None:
                        lib.fovea_engine_cancel(handle, c.id)
        finally:
            lib.fovea_outputs_free(batch)
    for sink, _ in list(sinks.values()):
        try:
            sink(_ENDED)
        except Exception:
            pass
    sinks.clear()


_ENDED = Output(0, "", [], [], FINISH_ERROR, -1, "", "the engine was destroyed", 6, 0, [], (0.0, 0.0, 0.0))


def _destroy(handle: c_void_p) -> None:
    lib.fovea_engine_destroy(handle)


class Engine:
    """A fovea_engine. Thread-safe. It is destroyed by close(), or with its last reference, or at the interpreter's end."""

    def __init__(self, options: Dict[str, Any]) -> None:
        self._handle = c_void_p()
        check(lib.fovea_engine_create(json.dumps(options).encode(), byref(self._handle)))
        self._sinks: Dict[int, Tuple[Sink, List[int]]] = {}
        self._tags = itertools.count(1)
        self._start = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._finalizer = weakref.finalize(self, _destroy, self._handle)
        self.info: Dict[str, Any] = self._json(lib.fovea_engine_info_json)

    def close(self) -> None:
        """Ends all requests: their readers get an error."""
        self._finalizer()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _json(self, function: Any) -> Any:
        text = c_void_p()
        check(function(self._handle, byref(text)))
        return json.loads(_take_text(text))

    def stats(self) -> Dict[str, Any]:
        return self._json(lib.fovea_engine_stats_json)

    def tokenize(self, text: str, add_special_tokens: bool) -> List[int]:
        data = _utf8(text, "the prompt")
        ids, count = POINTER(c_int32)(), c_size_t()
        check(lib.fovea_engine_tokenize(self._handle, data, len(data), int(add_special_tokens), byref(ids), byref(count)))
        return _take_ids(ids, count)

    def detokenize(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        array = int32_array(ids, "ids")
        text, size = c_void_p(), c_size_t()
        check(
            lib.fovea_engine_detokenize(self._handle, array, len(array), int(skip_special_tokens), byref(text), byref(size))
        )
        return _take_text(text, size.value).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        text, size = c_void_p(), c_size_t()
        check(lib.fovea_engine_token_bytes(self._handle, token_id, byref(text), byref(size)))
        return _take_text(text, size.value)

    def apply_chat_template(
        self,
        messages: Any,
        tools: Any = None,
        documents: Any = None,
        template_kwargs: Any = None,
        template_name: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        chat = CChat(size=ctypes.sizeof(CChat))
        chat.messages = json.dumps(messages).encode()
        chat.tools = json.dumps(tools).encode() if tools else None
        chat.documents = json.dumps(documents).encode() if documents else None
        chat.template_kwargs = json.dumps(template_kwargs).encode() if template_kwargs else None
        chat.template_name = template_name.encode() if template_name else None
        chat.no_generation_prompt = int(not add_generation_prompt)
        chat.continue_final_message = int(continue_final_message)
        text, size = c_void_p(), c_size_t()
        check(lib.fovea_engine_apply_chat_template(self._handle, byref(chat), byref(text), byref(size)))
        return _take_text(text, size.value).decode("utf-8", "replace")

    def submit(
        self,
        prompt_ids: Sequence[int],
        sampling: str,
        answers: int,
        sink: Sink,
        priority: int = 0,
        encoder_ids: Sequence[int] = (),
        client: str = "",
        lora: str = "",
    ) -> Tuple[int, int]:
        """Returns (id, tag), for cancel(). `sink` is called for each output on another thread, and must be short."""
        self._ensure_thread()
        request = CRequest(size=ctypes.sizeof(CRequest))
        ids, encoder = int32_array(prompt_ids, "the prompt"), int32_array(encoder_ids, "the encoder's prompt")
        request.prompt_ids, request.num_prompt_ids = ids, len(ids)
        request.encoder_ids, request.num_encoder_ids = encoder, len(encoder)
        request.sampling = sampling.encode()
        request.priority = c_int32(priority).value
        if request.priority != priority:
            raise ValueError(f"priority is {priority}; it must fit 32 bits")
        request.client = client.encode()
        request.lora = lora.encode()
        request.tag = tag = next(self._tags)
        self._sinks[tag] = (sink, [answers])  # outputs may come before submit returns
        id = c_uint64()
        try:
            check(lib.fovea_engine_submit(self._handle, byref(request), byref(id)))
        except BaseException:
            self._sinks.pop(tag, None)
            raise
        return id.value, tag

    def load_lora(self, name: str, path: str) -> None:
        check(lib.fovea_engine_load_lora(self._handle, name.encode(), os.fsencode(path)))

    def unload_lora(self, name: str) -> None:
        check(lib.fovea_engine_unload_lora(self._handle, name.encode()))

    def cancel(self, handle: Tuple[int, int]) -> None:
        """The sink is not called again, except by a call that is running."""
        if self._sinks.pop(handle[1], None) is not None:
            lib.fovea_engine_cancel(self._handle, handle[0])

    def _ensure_thread(self) -> None:
        if self._thread is None:
            with self._start:
                if self._thread is None:
                    thread = threading.Thread(target=_pump, args=(self._handle, self._sinks), name="fovea-outputs", daemon=True)
                    thread.start()
                    self._thread = thread


class Embedder:
    """A fovea_embedder. Thread-safe; destroyed as an Engine is."""

    def __init__(self, options: Dict[str, Any]) -> None:
        self._handle = c_void_p()
        check(lib.fovea_embedder_create(json.dumps(options).encode(), byref(self._handle)))
        self._finalizer = weakref.finalize(self, lib.fovea_embedder_destroy, self._handle)
        text = c_void_p()
        check(lib.fovea_embedder_info_json(self._handle, byref(text)))
        self.info: Dict[str, Any] = json.loads(_take_text(text))

    def close(self) -> None:
        self._finalizer()

    def tokenize(self, text: str, truncate: bool) -> List[int]:
        data = _utf8(text, "the prompt")
        ids, count = POINTER(c_int32)(), c_size_t()
        check(lib.fovea_embedder_tokenize(self._handle, data, len(data), int(truncate), byref(ids), byref(count)))
        return _take_ids(ids, count)

    def embed(self, inputs: Sequence[Sequence[int]]) -> List[List[float]]:
        width = int(self.info["dimensions"])
        ids = int32_array([token for tokens in inputs for token in tokens], "the prompts")
        lengths = (c_size_t * len(inputs))(*(len(tokens) for tokens in inputs))
        out = (c_float * (width * len(inputs)))()
        check(lib.fovea_embedder_embed(self._handle, ids, lengths, len(inputs), out, len(out)))
        return [out[i * width : (i + 1) * width] for i in range(len(inputs))]
