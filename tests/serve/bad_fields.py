"""Invalid values of request fields: (API, the field that the refusal must name, values). A field with "+" has objects of
several fields, of which it is the invalid one."""

NOT_NUMBERS = ["1", "x", [], [1], {}]
NOT_INTEGERS = [*NOT_NUMBERS, 1.5, 10**20, -10**20]
NOT_BOOLEANS = ["true", "x", 2, [], {}]
NOT_IDS = ["1", 1, {}, ["a"], [1.5], [None], [[1]], [-1], [10**9], [2**40]]
IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}

BOTH = [
    ("model", [1, [], {}, True]),
    ("temperature", [*NOT_NUMBERS, True, -0.1]),
    ("top_p", [*NOT_NUMBERS, 0, -1, 1.1]),
    ("top_k", [*NOT_INTEGERS, -2]),
    ("min_p", [*NOT_NUMBERS, -0.1, 1.1]),
    ("max_tokens", [*NOT_INTEGERS, 0, -1, 10**30]),
    ("min_tokens", [*NOT_INTEGERS, -1]),
    ("+min_tokens", [{"min_tokens": 5, "max_tokens": 2}]),
    ("n", [*NOT_INTEGERS, 0, -1, 129]),
    ("stop", [1, [1], {}, [None], "", [""], ["a", ""], True]),
    ("stop_token_ids", NOT_IDS),
    ("allowed_token_ids", NOT_IDS),
    ("seed", [*NOT_NUMBERS, 1.5]),
    ("stream", NOT_BOOLEANS),
    ("+stream_options", [{"stream": True, "stream_options": value} for value in ("x", 1, [], {"include_usage": "x"})] +
                        [{"stream_options": {"include_usage": True}}]),
    ("presence_penalty", [*NOT_NUMBERS, -2.1, 2.1]),
    ("frequency_penalty", [*NOT_NUMBERS, -2.1, 2.1]),
    ("repetition_penalty", [*NOT_NUMBERS, 0, -1]),
    ("logit_bias", [[], "x", 1, {"a": 1}, {"-1": 1}, {"99999999": 1}, {"5": "x"}, {"5": {}}, {"5": None}, {"": 1}, {"5x": 1}, {"1" * 40: 1}]),
    ("ignore_eos", NOT_BOOLEANS),
    ("skip_special_tokens", NOT_BOOLEANS),
    ("include_stop_str_in_output", NOT_BOOLEANS),
    ("return_token_ids", NOT_BOOLEANS),
    ("add_special_tokens", NOT_BOOLEANS),
    ("bad_words", ["x", 1, {}, [1], [None], [""]]),
    ("priority", NOT_INTEGERS),
    ("prompt_logprobs", [*NOT_INTEGERS, -2, 21]),
    ("+prompt_logprobs", [{"prompt_logprobs": 1, "stream": True}]),
]

COMPLETION = [
    ("prompt", [1, {}, True, 1.5, [True], [None], [{}], [1, "a"], ["a", 1], [1.5], [[1], ["a"]], [[1], 2], [["a"]], [[[1]]], [[1.5]], [[None]]]),
    ("logprobs", ["x", [], {}, 1.5, 21, -2, 10**20]),
    ("echo", NOT_BOOLEANS),
]

CHAT = [
    ("messages", ["x", 1, {}, [], True, [1], ["a"], [None], [[]], [{}], [{"content": "x"}], [{"role": "user"}], [{"role": "robot", "content": "x"}],
                  [{"role": 1, "content": "x"}], [{"role": None, "content": "x"}], [{"role": "user", "content": 5}], [{"role": "user", "content": {}}],
                  [{"role": "user", "content": [1]}], [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 1}]}],
                  [{"role": "user", "content": [{"text": "x"}]}], [{"role": "user", "content": [{"type": "none", "text": "x"}]}],
                  [{"role": "user", "content": [IMAGE]}], [{"role": "user", "content": None}], [{"role": "user", "content": "x"}, 5]]),
    ("max_completion_tokens", [*NOT_INTEGERS, 0, -1]),
    ("logprobs", ["x", [], {}, 5]),
    ("+top_logprobs", [{"top_logprobs": 2}, {"top_logprobs": 2, "logprobs": False}] +
                      [{"logprobs": True, "top_logprobs": value} for value in ("x", [], {}, 1.5, 21, -2, 10**20)]),
    ("response_format", ["json", 1, [], {"type": 1}, {"type": "none"}, {"type": "json_schema"}]),
    ("add_generation_prompt", NOT_BOOLEANS),
    ("continue_final_message", NOT_BOOLEANS),
]

CASES = [(kind, field, values) for kind, fields in (("completion", BOTH + COMPLETION), ("chat", BOTH + CHAT)) for field, values in fields]
