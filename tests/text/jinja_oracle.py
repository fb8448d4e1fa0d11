"""The template questions of text_probe, answered by jinja2 set up as transformers does."""
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationTag(jinja2.ext.Extension):
    """{% generation %} marks text for training; rendering ignores it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(form):
    return datetime.datetime.now().strftime(form)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[GenerationTag, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def answer(env, job):
    try:
        return env.from_string(job["template"]).render(**json.loads(job["variables"]))
    except Exception as error:  # whatever it is, the question is whether we refuse as well
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    env = environment()
    questions = json.load(sys.stdin)
    json.dump({"templates": [answer(env, job) for job in questions["templates"]]}, sys.stdout)


if __name__ == "__main__":
    main()
