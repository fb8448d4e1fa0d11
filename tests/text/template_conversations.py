"""Conversations that every template of templates/ is rendered with."""

USER = {"role": "user", "content": "What is 2 + 2?"}
SYSTEM = {"role": "system", "content": "You are terse.\n"}
ANSWER = {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n4"}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a \"city\" <now> é 🙂",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                   "required": ["city"]}}}]
RICH_TOOLS = TOOLS + [
    {"type": "function", "function": {
        "name": "search", "description": "Search.\n  Two lines & 'quotes'",
        "parameters": {"type": "object", "properties": {
            "query": {"type": "string", "description": "What to look for", "enum": ["a", "b c", "d\"e"], "default": "a"},
            "filters": {"type": "object", "description": "", "properties": {
                "tags": {"type": "array", "items": {"type": "string"}}, "since": {"type": ["string", "null"]}}, "required": ["tags"]},
            "limit": {"oneOf": [{"type": "integer", "default": 10}, {"type": "boolean"}]}, "weights": {"type": "array", "items": {"type": "number"}},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}}, "any": {}}, "required": ["query"]},
        "return": {"type": "array", "items": {"type": "string"}}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "x": None, "y": 1.5}}}]}
CALL_TEXT = {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}}]}
CALL_TWICE = {"role": "assistant", "content": "Let me look.", "reasoning_content": "two\ncalls", "thinking": "hm", "tool_calls": [
    {"id": "abcdef001", "type": "function", "function": {"name": "search", "arguments": {
        "query": "b c", "filters": {"tags": ["x", "é\"\\"], "since": None}, "limit": True, "weights": [1.0, 2.5e-7, 3]}}},
    {"id": "abcdef002", "type": "function", "function": {"name": "now", "arguments": {}}}]}
RESULT = {"role": "tool", "content": "{\"temperature\": 21}"}
RESULTS = [{"role": "tool", "tool_call_id": "abcdef001", "name": "search", "content": "[\"one\", \"zwei\"]"},
           {"role": "tool", "tool_call_id": "abcdef002", "name": "now", "content": "12:00"}]
IMAGE_PARTS = [{"type": "text", "text": " What is on this? "}, {"type": "image"}, {"type": "image_url", "image_url": {"url": "data:,"}},
               {"type": "text", "text": "And this?"}]
DOCUMENTS = [{"title": "On cats", "text": "Cats sleep.\nA lot."}, {"title": "Über Hunde", "text": "Dogs \"bark\" <b>", "pages": [1, 2]}]
UNICODE = {"role": "user", "content": "naïve 中文 👩‍💻 \u2028 ‮ \u00a0x\t\r\n<|im_end|> {{ 1 }} {% raw %} \\n \"q\" 'q' </think>"}

CONVERSATIONS = [
    {"messages": [USER]},
    {"messages": [SYSTEM, USER]},
    {"messages": [SYSTEM, USER, ANSWER, USER], "add_generation_prompt": True},
    {"messages": [USER, ANSWER, {"role": "user", "content": " spaces \n\n"}], "add_generation_prompt": True,
     "enable_thinking": False},
    {"messages": [USER, {"role": "assistant", "content": "4", "reasoning_content": "\nadd\n"}, USER, ANSWER],
     "add_generation_prompt": False, "enable_thinking": True},
    {"messages": [SYSTEM, USER], "tools": TOOLS, "add_generation_prompt": True},
    {"messages": [SYSTEM, USER, CALL, RESULT, RESULT, ANSWER, USER], "tools": TOOLS, "add_generation_prompt": True},
    {"messages": [USER, CALL_TEXT, RESULT], "tools": TOOLS + TOOLS, "add_generation_prompt": True},
    {"messages": [USER, CALL, RESULT], "tools": TOOLS, "tools_in_user_message": False, "date_string": "1 Jan 2025"},
    {"messages": [{"role": "user", "content": "emoji 👩‍💻 \u0000 <|eot_id|> {{ x }}"}], "add_generation_prompt": True},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "text", "text": " two"}]}]},
    {"messages": []},
    {"messages": [{"role": "wrong", "content": "x"}]},
    {"messages": [SYSTEM, USER, CALL_TWICE, *RESULTS], "tools": RICH_TOOLS, "add_generation_prompt": True},
    {"messages": [USER, CALL_TWICE, *RESULTS, ANSWER, UNICODE, CALL, {**RESULT, "tool_call_id": "abcdef003"}], "tools": RICH_TOOLS,
     "add_generation_prompt": True, "enable_thinking": False, "reasoning_effort": "high"},
    {"messages": [{"role": "system", "content": ""}, USER], "tools": RICH_TOOLS, "tools_in_user_message": False, "add_generation_prompt": True},
    {"messages": [{"role": "system", "content": "/no_think budget=40 please"}, USER], "add_generation_prompt": True},
    {"messages": [{"role": "system", "content": "/system_override /think budget=40"}, UNICODE], "add_generation_prompt": True},
    {"messages": [{"role": "developer", "content": "Be brief."}, USER, ANSWER], "model_identity": "Wren"},
    {"messages": [{"role": "user", "content": IMAGE_PARTS}], "add_generation_prompt": True, "add_vision_id": True},
    {"messages": [{"role": "system", "content": [{"type": "text", "text": "See well."}]}, {"role": "user", "content": IMAGE_PARTS},
                  {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}, {"role": "user", "content": [{"type": "text", "text": "Sure?"}]}],
     "tools": TOOLS, "add_generation_prompt": True},
    {"messages": [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": "4"}]},
                  UNICODE]},
    {"messages": [USER, {"role": "assistant", "content": [{"type": "audio", "audio": "x"}]}, USER]},
    {"messages": [USER], "documents": DOCUMENTS, "add_generation_prompt": True, "controls": {"citations": True, "length": "long"}},
    {"messages": [SYSTEM, USER, ANSWER, UNICODE], "documents": DOCUMENTS, "tools": RICH_TOOLS, "citation_mode": "fast",
     "add_generation_prompt": True},
    {"messages": [USER], "documents": [], "tools": [], "thinking": True, "add_generation_prompt": True},
    {"messages": [USER, USER]},
    {"messages": [ANSWER, USER]},
    {"messages": [USER, ANSWER, SYSTEM, UNICODE, {"role": "assistant", "content": None}]},
    {"messages": [{"role": "user", "name": "Ada", "content": "hi"}, {"role": "assistant", "name": "bot", "content": "  hello  \n"}, RESULT],
     "add_generation_prompt": True},
    {"messages": [USER, {**ANSWER, "content": "Wait,"}], "add_generation_prompt": False},
    {"messages": [USER], "tools": None, "documents": None, "add_generation_prompt": True},
    {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": []}, USER, {"role": "assistant", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": ""}}]}, {"role": "tool", "content": [{"output": 1}, "two"]}]},
    {"messages": [USER] + [ANSWER, USER] * 12, "add_generation_prompt": True},
]
