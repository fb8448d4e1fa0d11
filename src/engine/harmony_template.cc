#include "engine/harmony_template.h"

namespace fovea {

std::string_view harmony_template() {
  return R"({%- macro type_of(schema) -%}
  {%- set types = [schema.type] if schema.type is string else (schema.type or []) -%}
  {%- if schema.enum -%}
    {%- for value in schema.enum -%}{{ " | " if not loop.first }}{{ value | tojson }}{%- endfor -%}
  {%- elif schema.oneOf or schema.anyOf -%}
    {%- for option in schema.oneOf or schema.anyOf -%}{{ " | " if not loop.first }}{{ type_of(option) }}{%- endfor -%}
  {%- else -%}
    {%- for type in types -%}
      {{- " | " if not loop.first -}}
      {%- if type == "array" -%}
        {{- type_of(schema["items"]) if schema["items"] is mapping else "any" }}[]
      {%- elif type == "object" and schema.properties -%}
        {{- "{\n" -}}
        {%- for name, property in schema.properties.items() -%}
          {{- name ~ ("" if name in (schema.required or []) else "?") ~ ": " ~ type_of(property) ~ (", " if not loop.last) -}}
        {%- endfor -%}
        {{- "\n}" -}}
      {%- else -%}
        {{- "number" if type == "integer" else type -}}
      {%- endif -%}
    {%- else -%}
      any
    {%- endfor -%}
  {%- endif -%}
  {{- " | null" if schema.nullable -}}
{%- endmacro -%}
{%- macro functions(tools) -%}
  {{- "# Tools\n\n## functions\n\nnamespace functions {\n\n" -}}
  {%- for tool in tools -%}
    {%- set function = tool.function if tool.function is defined else tool -%}
    {%- for line in (function.description or "").split("\n") if line -%}{{ "// " ~ line ~ "\n" }}{%- endfor -%}
    {{- "type " ~ function.name ~ " = (" -}}
    {%- set schema = function.parameters or {} -%}
    {%- if schema.properties -%}
      {{- "_: {\n" -}}
      {%- for name, property in schema.properties.items() -%}
        {%- for line in (property.description or "").split("\n") if line -%}{{ "// " ~ line ~ "\n" }}{%- endfor -%}
        {{- name ~ ("" if name in (schema.required or []) else "?") ~ ": " ~ type_of(property) ~ "," -}}
        {%- if property.default is defined -%}
          {{- " // default: " ~ (property.default if property.default is string else property.default | tojson) -}}
        {%- endif -%}
        {{- "\n" -}}
      {%- endfor -%}
      {{- "}" -}}
    {%- endif -%}
    {{- ") => any;\n\n" -}}
  {%- endfor -%}
  {{- "} // namespace functions" -}}
{%- endmacro -%}
{%- macro text_of(content) -%}
  {%- if content is string -%}{{ content }}
  {%- elif content is iterable -%}
    {%- for part in content -%}{{ part.text if part.text is defined else "" }}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{{- "<|start|>system<|message|>" ~ (model_identity or "You are ChatGPT, a large language model trained by OpenAI.") -}}
{{- "\nKnowledge cutoff: 2024-06\nCurrent date: " ~ (date or strftime_now("%Y-%m-%d")) -}}
{{- "\n\nReasoning: " ~ (reasoning_effort or "medium") -}}
{{- "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message." -}}
{{- "\nCalls to these tools must go to the commentary channel: 'functions'." if tools -}}
{{- "<|end|>" -}}
{%- set instructed = messages[0].role in ["system", "developer"] -%}
{%- set instructions = text_of(messages[0].content) if instructed else "" -%}
{%- if instructions or tools -%}
  {{- "<|start|>developer<|message|>" -}}
  {{- "# Instructions\n\n" ~ instructions if instructions -}}
  {{- "\n\n" if instructions and tools -}}
  {{- functions(tools) if tools -}}
  {{- "<|end|>" -}}
{%- endif -%}
{%- set state = namespace(answer=-1, names={}, name="") -%}
{%- for message in messages -%}
  {%- if message.role == "assistant" and not message.tool_calls and not (loop.last and not add_generation_prompt) -%}
    {%- set state.answer = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- set text = text_of(message.content) -%}
  {%- if loop.first and instructed -%}
  {%- elif message.role == "assistant" -%}
    {%- set thoughts = message.reasoning_content or message.reasoning or message.thinking -%}
    {{- "<|start|>assistant<|channel|>analysis<|message|>" ~ thoughts ~ "<|end|>" if thoughts and loop.index0 > state.answer -}}
    {%- if message.tool_calls -%}
      {{- "<|start|>assistant<|channel|>commentary<|message|>" ~ text ~ "<|end|>" if text -}}
      {%- for call in message.tool_calls -%}
        {%- set function = call.function if call.function is defined else call -%}
        {{- "<|start|>assistant<|channel|>commentary to=functions." ~ function.name ~ " <|constrain|>json<|message|>" -}}
        {{- function.arguments if function.arguments is string else function.arguments | tojson }}{{ "<|call|>" -}}
      {%- endfor -%}
    {%- else -%}
      {{- "<|start|>assistant<|channel|>final<|message|>" ~ text -}}
      {{- "<|end|>" if add_generation_prompt or not loop.last -}}
    {%- endif -%}
  {%- elif message.role == "tool" -%}
    {%- set state.name = message.name or "" -%}
    {%- for other in messages[:loop.index0] if other.role == "assistant" -%}
      {%- for call in other.tool_calls or [] -%}
        {%- if (message.tool_call_id and call.id == message.tool_call_id) or not (message.name or message.tool_call_id) -%}
          {%- set state.name = (call.function if call.function is defined else call).name -%}
        {%- endif -%}
      {%- endfor -%}
    {%- endfor -%}
    {%- if not state.name -%}{{ raise_exception("a tool message answers no call before it") }}{%- endif -%}
    {{- "<|start|>functions." ~ state.name ~ " to=assistant<|channel|>commentary<|message|>" ~ text ~ "<|end|>" -}}
  {%- else -%}
    {{- "<|start|>" ~ ("developer" if message.role == "system" else message.role) ~ "<|message|>" ~ text ~ "<|end|>" -}}
  {%- endif -%}
{%- endfor -%}
{{- "<|start|>assistant" if add_generation_prompt -}})";
}

}  // namespace fovea
