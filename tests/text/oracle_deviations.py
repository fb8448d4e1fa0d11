"""Where @huggingface/tokenizers is known not to do what the tokenizers library does, and what is right there."""
import json
import pathlib
import unicodedata

import charsmap


def runs(tokens):
    """Tokens, with each run of byte tokens as one bytes object."""
    out = []
    for token in tokens:
        is_byte = len(token) == 6 and token.startswith("<0x") and token.endswith(">")
        if is_byte and out and isinstance(out[-1], bytes):
            out[-1] += bytes([int(token[3:5], 16)])
        else:
            out.append(bytes([int(token[3:5], 16)]) if is_byte else token)
    return out


def byte_by_byte(data):
    """Every byte that is not part of a UTF-8 character becomes one U+FFFD: the oracle makes one for a maximal
    ill-formed part, and the tokenizers library makes one for each byte of a run that is not UTF-8 throughout,
    which a stream can't know."""
    out = ""
    while data:
        for length in range(min(4, len(data)), 0, -1):
            try:
                out += data[:length].decode()
                data = data[length:]
                break
            except UnicodeDecodeError:
                pass
        else:
            out += "\ufffd"
            data = data[1:]
    return out


class Deviations:
    def __init__(self, folder):
        self.name = pathlib.Path(folder).name
        self.rules = charsmap.rules()
        document = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
        self.model = document["model"]
        self.decoder = document["decoder"]
        self.tokens = {}
        if isinstance(self.model["vocab"], dict):
            self.tokens = {token_id: token for token, token_id in self.model["vocab"].items()}
        self.tokens |= {token["id"]: token["content"] for token in document["added_tokens"]}
        self.special = {token["id"] for token in document["added_tokens"] if token["special"]}

    def of(self, kind, question):
        """(the right answer or None, whether there is nothing to compare with)"""
        return self.of_encode(question) if kind == "encode" else self.of_decode(question)

    def of_encode(self, question):
        text = bytes.fromhex(question["hex"]).decode(errors="replace")
        if self.name in ("t5", "xlmr", "albert"):
            # The oracle takes NFKC of the text instead of reading the map.
            if self.name == "albert":
                text = unicodedata.normalize("NFKD", text)
                text = "".join(c for c in text if not unicodedata.category(c).startswith("M")).lower()
            wrong = charsmap.normalized_as_in_javascript(text) != charsmap.normalized_by_map(text, self.rules)
            return None, wrong
        if self.name in ("bert_uncased", "bert_cased", "gpt1"):
            # It looks at UTF-16 units, so no character above U+FFFF is Chinese.
            return None, any(0x20000 <= ord(c) < 0x30000 for c in text)
        return None, False

    def of_decode(self, question):
        if self.name == "gpt1":
            return None, question["skip_special"]  # it strips the text then
        if self.model.get("byte_fallback"):
            ids = [i for i in question["ids"] if not (question["skip_special"] and i in self.special)]
            pieces = runs(self.tokens[i].replace("\u2581", " ") for i in ids)
            text = "".join(byte_by_byte(piece) if isinstance(piece, bytes) else piece for piece in pieces)
            strips = any(stage["type"] == "Strip" for stage in self.decoder["decoders"])
            return text.removeprefix(" ") if strips else text, False
        return None, False
