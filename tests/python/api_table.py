"""What tests of a library-shaped module hold it against: every function and parameter of that library for inference, and what
becomes of it. A parameter that is neither in `hints` nor in `refused` is served: some test must give it a value other than its
default, and compares the result with the definition."""

import collections
import functools
import inspect


class Row:
    def __init__(self, parameters, hints="", refused=None):
        """parameters: in the library's order; "*" where those by keyword only begin. hints: accepted, without effect on results.
        refused: a value and a pattern of the refusal, or a list of them."""
        self.parameters = parameters.split()
        self.hints = set(hints.split())
        self.refused = dict(refused or {})

    def names(self):
        return [name for name in self.parameters if name != "*"]

    def served(self):
        return [name for name in self.names() if name not in self.hints and name not in self.refused]


def same(value, default):
    if value is default:
        return True
    return type(value) is type(default) and isinstance(value, (bool, int, float, str, tuple)) and value == default


class Recorder:
    """Which parameters of which functions got values other than their defaults."""

    def __init__(self):
        self.given = collections.defaultdict(set)

    def function(self, name, function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args, **options):
            bound = signature.bind(*args, **options)
            result = function(*args, **options)
            for parameter, value in bound.arguments.items():
                kind = signature.parameters[parameter].kind
                if kind is inspect.Parameter.VAR_KEYWORD:
                    self.given[name].update(value)
                elif not same(value, signature.parameters[parameter].default):
                    self.given[name].add(parameter)
            return result

        return call

    def methods(self, name, kind, methods):
        for method in methods:
            setattr(kind, method, self.function(f"{name}.{method}", getattr(kind, method)))


def find(modules, name):
    """The object of "module.function" or "module.Class.method"."""
    module, *rest = name.split(".")
    found = modules[module]
    for part in rest:
        found = getattr(found, part)
    return found


def check_signatures(testcase, modules, table):
    """Our parameters are the library's in its order; what Fovea adds is by keyword only or behind them."""
    for name, row in table.items():
        with testcase.subTest(name):
            parameters = [p for p in inspect.signature(find(modules, name)).parameters.values() if p.name != "self"]
            takes_more = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
            ours = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
            by_position = row.parameters[: row.parameters.index("*")] if "*" in row.parameters else row.parameters
            testcase.assertEqual(ours[: len(by_position)], by_position)
            missing = set(row.names()) - {p.name for p in parameters}
            testcase.assertTrue(not missing or takes_more, f"{missing} can't be given")
            unknown = (row.hints | set(row.refused)) - set(row.names())
            testcase.assertFalse(unknown, "not in the row's parameters")


def check_refusals(testcase, table, call):
    """call(name, parameter, value) calls the function with it and with what it needs."""
    for name, row in table.items():
        for parameter, cases in row.refused.items():
            for value, pattern in cases if isinstance(cases, list) else [cases]:
                with testcase.subTest(name, parameter=parameter), testcase.assertRaisesRegex(ValueError, pattern) as caught:
                    call(name, parameter, value)
                testcase.assertIn(parameter, str(caught.exception))


def check_all_served(testcase, table, recorder):
    for name, row in table.items():
        with testcase.subTest(name):
            missing = [parameter for parameter in row.served() if parameter not in recorder.given[name]]
            testcase.assertFalse(missing, "served, and no test gives them a value")
