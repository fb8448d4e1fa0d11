"""LoRA adapters that requests choose, by vLLM's class."""

import os
from typing import Any, Dict, List, NamedTuple, Union


class LoRARequest(NamedTuple):
    """An adapter in PEFT's format. LLM loads it with the first request that has it; afterwards `lora_name` alone counts.

    Args:
        lora_name: its name among the model's adapters.
        lora_int_id: vLLM's number; without effect.
        lora_path: a folder, or a hub id found in the local cache.
    """

    lora_name: str
    lora_int_id: int = 1
    lora_path: Union[str, "os.PathLike[str]"] = ""


class Adapters:
    """The adapters that an engine has loaded. Two threads that load one name at a time may find it in use."""

    def __init__(self, engine: Any, loaded: Dict[str, str]) -> None:
        self._engine = engine
        self._loaded = dict(loaded)

    def names_of(self, given: Any, count: int) -> List[str]:
        """The adapter of each of `count` prompts; "" = none."""
        several = isinstance(given, (list, tuple)) and not isinstance(given, LoRARequest)  # which is a tuple itself
        every = list(given) if several else [given] * count
        if len(every) != count:
            raise ValueError(f"lora_request has {len(every)} members for {count} prompts; give one for each")
        return [self._name_of(one) for one in every]

    def _name_of(self, given: Any) -> str:
        if given is None:
            return ""
        if not isinstance(given, LoRARequest):
            raise ValueError(f"lora_request is {given!r}; it must be a LoRARequest or None")
        if given.lora_name not in self._loaded:
            path = os.fspath(given.lora_path)
            self._engine.load_lora(given.lora_name, path)
            self._loaded[given.lora_name] = path
        return given.lora_name

    def unload(self, name: str) -> None:
        self._engine.unload_lora(name)
        self._loaded.pop(name, None)
