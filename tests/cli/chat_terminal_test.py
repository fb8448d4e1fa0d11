#!/usr/bin/env python3
"""`fovea chat` on a pseudo-terminal: keys that a user types, and the output.

Usage: chat_terminal_test.py PROGRAM
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
PATIENCE = 300  # seconds until a wait fails; generous for busy machines
PROMPT = b"\x1b[?2004h"  # of bracketed paste: the line editor waits for a line
UP, LEFT, BACKSPACE = "\x1b[A", "\x1b[D", "\x7f"


def pasted(text):
    return f"\x1b[200~{text}\x1b[201~"


class Chat:
    """The program on a pseudo-terminal. Each wait is for output, never for a fixed time."""

    def __init__(self, folder, *flags, term="xterm-256color", **environment):
        self.master, worker = pty.openpty()
        fcntl.ioctl(worker, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(worker)
        variables = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
        variables |= {"HOME": folder, "XDG_STATE_HOME": folder + "/state", "TERM": term, "LC_ALL": "C.UTF-8", **environment}
        self.child = subprocess.Popen([PROGRAM, "chat", "--temperature", "0", *flags], stdin=worker, stdout=worker, stderr=worker,
                                      cwd=folder, env=variables, start_new_session=True,
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.worker = worker  # kept open, to check the terminal's state after the program
        self.seen = b""

    def read_until(self, *wanted):
        """The output up to the first of `wanted`; the rest stays for the next call."""
        while True:
            places = [self.seen.find(one) + len(one) for one in wanted if one in self.seen]
            if places:
                text, self.seen = self.seen[:min(places)], self.seen[min(places):]
                return text.decode(errors="replace")
            ready, _, _ = select.select([self.master], [], [], PATIENCE)
            assert ready, f"waited for {wanted}, saw {self.seen}"
            self.seen += os.read(self.master, 65536)

    def prompt(self):
        return self.read_until(PROMPT)

    def type(self, text):
        os.write(self.master, text.encode())

    def enter(self, text):
        """Types one line and returns the output up to the next prompt."""
        self.type(text + "\r")
        return self.prompt()

    def messages(self):
        """The messages of the conversation, from /save."""
        name = f"saved-{os.urandom(4).hex()}.json"
        self.enter(f"/save {name}")
        with open(f"/proc/{self.child.pid}/cwd/{name}") as file:
            return json.load(file)

    def said(self):
        return [message["content"] for message in self.messages() if message["role"] == "user"]

    def leave(self, text="\x04"):
        self.type(text)
        code = self.wait()
        assert termios.tcgetattr(self.worker) == self.before, "the terminal is left as it was"
        return code

    def wait(self):
        # The output must be read, or the program waits for space to write.
        while self.child.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        return self.child.returncode

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        for fd in (self.master, self.worker):
            os.close(fd)


class ChatAtATerminal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.history = os.path.join(self.folder, "state/fovea/chat_history")

    def chat(self, *flags, wait=True, **options):
        chat = Chat(self.folder, *flags, **options)
        self.addCleanup(chat.close)
        if wait:
            self.start = chat.prompt()
        return chat

    def test_a_line_is_edited(self):
        chat = self.chat()
        self.assertIn("/help lists the commands", self.start)
        chat.enter("hat is 1 + 35?" + LEFT + BACKSPACE + "\x01W\x05")
        chat.enter("日本語x é" + 3 * BACKSPACE + 2 * LEFT + "ü")  # whole characters, not bytes
        self.assertEqual(chat.said(), ["What is 1 + 3?", "日ü本語"])
        self.assertEqual(chat.leave(), 0)

    def test_a_message_of_several_lines(self):
        chat = self.chat()
        chat.enter(pasted("one\rtwo\r\tthree\x1b[31m\x07\x1b[20") + " four")
        chat.enter("one\x1b\rtwo")
        chat.type("one\\\r")
        chat.prompt()
        chat.enter("two")
        chat.type('"""one\r')
        chat.prompt()
        chat.type("/two\r")
        chat.prompt()
        chat.enter('three"""')
        chat.enter('"""one line"""')
        self.assertEqual(chat.said(), ["one\ntwo\n\tthree31m four", "one\ntwo", "one\ntwo", "one\n/two\nthree", "one line"])
        self.assertEqual(chat.leave(), 0)

    def test_a_long_paste(self):
        chat = self.chat("--max-tokens", "1")
        text = "\n".join(f"line {i} of many" for i in range(60))  # more than the window has
        chat.enter(pasted(text))
        self.assertEqual(chat.said(), [text])
        self.assertEqual(chat.leave(), 0)

    def test_history_is_kept(self):
        chat = self.chat()
        chat.enter("What is 1 + 3?")
        chat.enter(pasted("two\nlines"))
        chat.enter("/show")
        chat.enter("/show")
        self.assertEqual(chat.leave(), 0)
        with open(self.history) as file:
            self.assertEqual([json.loads(line) for line in file], ["What is 1 + 3?", "two\nlines", "/show"])
        self.assertEqual(stat.S_IMODE(os.stat(self.history).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(self.history)).st_mode), 0o700)
        chat = self.chat()
        chat.enter(UP + UP)
        chat.enter("\x12What is" + "\x05")  # reverse search
        self.assertEqual(chat.said(), ["two\nlines", "What is 1 + 3?"])
        self.assertEqual(chat.leave("/exit\r"), 0)

    def test_history_is_off(self):
        chat = self.chat("--no-history")
        chat.enter("hi")
        chat.enter(UP)  # the history of this chat has one entry
        self.assertEqual(chat.said(), ["hi", "hi"])
        self.assertEqual(chat.leave(), 0)
        self.assertFalse(os.path.exists(self.history))

    def test_history_is_bounded_and_private(self):
        os.makedirs(os.path.dirname(self.history))
        with open(self.history, "w") as file:
            file.writelines(json.dumps(f"entry {i}") + "\n" for i in range(3000))
            file.write('"torn')
        os.chmod(self.history, 0o644)
        chat = self.chat()
        chat.enter(UP)
        self.assertEqual(chat.said(), ["entry 2999"])
        self.assertEqual(chat.leave(), 0)
        with open(self.history) as file:
            entries = [json.loads(line) for line in file]
        self.assertEqual((len(entries), entries[0]), (1001, "entry 2000"))  # the last is /save; entry 2999 was there
        self.assertEqual(stat.S_IMODE(os.stat(self.history).st_mode), 0o600)

    def test_history_that_cannot_be_kept(self):
        os.makedirs(self.history)
        chat = self.chat()
        self.assertRegex(self.start, r"the history .*chat_history can't be kept: .*--no-history")
        chat.enter("hi")
        self.assertEqual(chat.said(), ["hi"])
        os.rmdir(self.history)
        secret = os.path.join(self.folder, "secret")
        with open(secret, "w") as file:
            file.write("mine")
        os.symlink(secret, self.history)
        self.assertEqual(chat.leave(), 0)
        chat = self.chat()
        self.assertIn("can't be kept", self.start)
        chat.enter("hi")
        self.assertEqual(chat.leave(), 0)
        with open(secret) as file:
            self.assertEqual(file.read(), "mine")

    def test_ctrl_c_at_the_prompt_clears_the_line(self):
        chat = self.chat()
        chat.type("never sent")
        chat.read_until(b"never sent")
        chat.type("\x03")
        self.assertNotIn("leaves", chat.prompt())
        chat.type("\x03")
        self.assertIn("^C\r\n(/exit or Ctrl-D leaves)", chat.prompt())
        chat.type('"""given\r')
        chat.prompt()
        chat.type("up\x03")
        chat.prompt()
        chat.enter("hi")
        self.assertEqual(chat.said(), ["hi"])
        self.assertEqual(chat.leave(), 0)

    def test_ctrl_c_stops_an_answer(self):
        chat = self.chat("--ignore-eos")
        chat.type("Tell me a story about a sparrow.\r")
        chat.read_until(b"\r\n")
        chat.read_until(b" ")  # the answer has begun
        chat.type("\x03")
        chat.prompt()
        chat.enter("/set ignore_eos false")
        chat.enter("What is 1 + 3?")
        self.assertEqual(len(chat.said()), 2)
        self.assertEqual(chat.leave(), 0)

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            chat = self.chat()
            chat.child.send_signal(number)
            self.assertEqual(chat.wait(), -number)
            self.assertEqual(termios.tcgetattr(chat.worker), chat.before)

    def test_a_smaller_window(self):
        chat = self.chat()
        chat.type("What is 1")
        chat.read_until(b"1")
        fcntl.ioctl(chat.worker, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 20, 0, 0))
        chat.child.send_signal(signal.SIGWINCH)
        chat.read_until(b"What is 1")  # the line is redrawn
        chat.enter(" + 3?")
        self.assertEqual(chat.said(), ["What is 1 + 3?"])
        self.assertEqual(chat.leave(), 0)

    def test_commands(self):
        chat = self.chat()
        text = chat.enter("/help")
        for name in ("/clear", "/regen", "/undo", "/system", "/set", "/show", "/read", "/save", "/load", "/exit"):
            self.assertIn(name, text)
        self.assertIn("4", chat.enter("What is 1 + 3?"))
        self.assertIn("2 messages left", chat.enter("hi") and chat.enter("/undo"))
        self.assertIn("4", chat.enter("/regen"))
        self.assertEqual([m["role"] for m in chat.messages()], ["user", "assistant"])
        self.assertIn("system: Be brief.", chat.enter("/system Be brief."))
        self.assertIn("seed is 7", chat.enter("/set parameter seed 7"))
        chat.enter("/set max_tokens 1")
        self.assertRegex(chat.enter("/show"), r'system: Be brief\.\s+seed 7\s+max_tokens 1\s+2 messages')
        chat.enter("/save talk.json")
        chat.enter("/clear")
        self.assertEqual(chat.messages(), [{"role": "system", "content": "Be brief."}])
        chat.enter('/system ""')
        self.assertIn("2 messages", chat.enter("/load talk.json"))
        self.assertEqual([m["role"] for m in chat.messages()], ["system", "user", "assistant"])
        with open(os.path.join(self.folder, "note.txt"), "w") as file:
            file.write("a note")
        chat.enter("/read note.txt")
        chat.enter("/etc/hosts is what?")  # a path, not a command
        self.assertEqual(chat.said()[-1], "a note\n\n/etc/hosts is what?")
        chat.enter(" /help me")
        self.assertEqual(chat.said()[-1], " /help me")
        self.assertEqual(chat.leave("/bye\r"), 0)

    def test_what_a_command_refuses(self):
        chat = self.chat()
        with open(os.path.join(self.folder, "there.json"), "w") as file:
            file.write('{"role": "user"}')
        with open(os.path.join(self.folder, "binary"), "wb") as file:
            file.write(b"\xff\x00")
        for line, wanted in (("/nonsense", "unknown command /nonsense: /help lists them"),
                             ("/undo now", '/undo takes nothing after it; "now"'),
                             ("/undo", "no question to take back"),
                             ("/regen", "no question to answer again"),
                             ("/load", "/load FILE"),
                             ("/load absent.json", "no such file"),
                             ("/load there.json", "there.json: not a JSON list of messages"),
                             ("/save there.json", "there.json already exists"),
                             ("/save", "/save FILE"),
                             ("/read binary", "binary is not UTF-8 text"),
                             ("/read .", "folder"),
                             ("/set temperature", "/set NAME VALUE"),
                             ("/set temperature hot", "temperature"),
                             ("/set temperature -1", "temperature"),
                             ("/set temprature 1", "temprature"),
                             ("/set n 2", "a chat has no n")):
            # The terminal echoes the line first; the refusal follows.
            self.assertIn(wanted, re.sub(r"\s+", " ", chat.enter(line).split("fovea: ", 1)[-1]), line)
        self.assertEqual(chat.messages(), [])
        self.assertEqual(chat.leave(), 0)

    def test_the_tabulator_completes_commands(self):
        chat = self.chat()
        chat.type("/sh\t\r")
        self.assertIn("no system message", chat.prompt())
        chat.enter("hi\t")
        self.assertEqual(chat.said(), ["hi"])
        self.assertEqual(chat.leave(), 0)

    def test_a_terminal_that_cannot_be_edited_on(self):
        for term in ("dumb", "no-such-terminal"):
            chat = self.chat(term=term, wait=False)
            chat.read_until(b"> ")
            chat.type("What is 1 + 3?\n")
            self.assertIn("4", chat.read_until(b"\r\n") and chat.read_until(b"> "))
            self.assertEqual(chat.leave("/exit\n"), 0)
        self.assertFalse(os.path.exists(self.history))

    def test_a_pipe_is_as_it_was(self):
        result = subprocess.run([PROGRAM, "chat", "--temperature", "0"], input='"""\nline\\\nWhat is 1 + 3?\n/reset\n', capture_output=True, text=True,
                                timeout=PATIENCE, env={**os.environ, "XDG_STATE_HOME": self.folder + "/state"})
        self.assertEqual(result.returncode, 0)
        self.assertNotIn("> ", result.stderr)
        self.assertNotIn("\x1b", result.stdout + result.stderr)
        self.assertEqual(len(result.stdout.rstrip("\n").split("\n")), 3)  # three lines are three messages
        self.assertIn("(forgotten)", result.stderr)
        self.assertFalse(os.path.exists(self.history))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
